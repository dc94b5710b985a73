"""How often a job may be tried: counted from what happened, compared with the policy."""

import json
import re
from typing import TYPE_CHECKING

from perdure.model.jobs import Record
from perdure.model.kinds import KINDS, Blame, Kind
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, FailedReason, Move, State
from perdure.model.verdicts import Failure
from perdure.rules.backoff import base_delay_s, jittered_s
from perdure.rules.policy import Action, HintMode, Policy, Rule, Scope
from perdure.rules.rule_choice import rule_for
from tests.sim.ledger import JobAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker

_SHARE = re.compile(r"\b(\d+) of the last (\d+) calls that count failed: ").search

_OF_JOB = "others were answered since this job first failed"


def counted(
    record: Record,
    policy: Policy,
    death: Death | None,
    *,
    probe: bool = False,
    of_job: bool = False,
) -> str | None:
    """What this end of an attempt was, whatever the engine says that it counted.

    ``of_job``: it was a probe, and others were answered since its job began to fail, so it may count.
    """
    attempt = record.attempt
    assert attempt is not None
    if record.move is Move.CANCEL or attempt.status is AttemptStatus.HANDED_OVER:
        return None
    if death is not None:
        return "releases" if death.why == "stopped" else "crashes"
    if record.move is Move.RELEASE:
        return "releases"
    if record.move not in (Move.RETRY, Move.REPEAT, Move.FAIL):
        return None
    why = json.loads(attempt.why_json)
    if why["rule"] == "snooze":
        return "snoozes"
    if why["rule"] == "deadline":
        return None  # it was never begun
    assert attempt.kind is not None
    held_against = of_job and _OF_JOB in why["text"]
    behind = why["gate"] != "flowing" and not held_against
    if behind and KINDS[Kind(attempt.kind)].blame is Blame.UPSTREAM:
        # who has not heard that its job is the probe, waits with it like others
        return "probes" if probe and attempt.counted == "probes" else "waits"
    rule = _rule(policy, attempt.kind)
    hints = rule.hint or policy.hint
    heard_s = why["hint_s"] if hints.mode is not HintMode.IGNORE else None
    by_hint = rule.action is Action.RETRY and bool(heard_s) and not hints.counted
    too_long = heard_s is not None and heard_s > hints.s_max
    if _is_weak(record, policy):
        return "waits"
    ordered = rule.action in (Action.WAIT, Action.HOLD) or by_hint
    return "waits" if ordered and not too_long else "failures"


def _is_weak(record: Record, policy: Policy) -> bool:
    """Whether it says that the upstream fails too many calls to hold this one against the job, and by its numbers may."""
    assert record.attempt is not None
    found = _SHARE(json.loads(record.attempt.why_json)["text"])
    if found is None or policy.weak_share is None or record.attempt.kind is None:
        return False
    failed, known = map(int, found.groups())
    blamed = KINDS[Kind(record.attempt.kind)].blame is Blame.UPSTREAM
    retried = _rule(policy, record.attempt.kind).action is Action.RETRY
    return blamed and retried and failed >= policy.weak_share * known


def hint_s(policy: Policy, record: Record) -> float:
    """What the other side asked for, read from the evidence, unless the policy ignores it."""
    assert record.attempt is not None
    evidence = json.loads(record.attempt.evidence_json or "{}")
    if policy.hint.mode is HintMode.IGNORE or "names" not in evidence:
        return 0.0
    headers = dict(evidence.get("headers") or ())
    asked = evidence.get("wait_s")
    return float(headers.get("retry-after", 0.0) if asked is None else asked)


def _rule(policy: Policy, kind: str) -> Rule:
    return rule_for(policy, Failure(Kind(kind), "asked by the checker"))[0]


def check_limits(checker: "Checker", job: JobAccount, record: Record, what: str | None) -> None:
    """Count it, and see whether the job may go on."""
    attempt = record.attempt
    assert attempt is not None
    if what is not None:
        job.count(what, attempt.stage)
    policy = checker.policy(job, record)
    checker.world.seen["waits for a weak upstream"] += _is_weak(record, policy)
    both = what == "crashes" and policy.crash_is_failure
    if both:
        job.count("failures", attempt.stage)
    if record.state is State.FAILED:
        _failed(checker, job, record, policy)
    elif what is not None:
        _goes_on(checker, job, record, policy, what)
        if both:
            _goes_on(checker, job, record, policy, "failures")
        if record.move is Move.RETRY:
            _check_pause(checker, job, record, policy, "failures" if both else what)
    if attempt.counted != ("crashes,failures" if both else what):
        checker.broken(
            "S8" if what == "crashes" else "S7",
            f"#{job.no}/{record.token} counts as {attempt.counted}, it was one of {what}",
        )


def _goes_on(
    checker: "Checker", job: JobAccount, record: Record, policy: Policy, what: str
) -> None:
    attempt = record.attempt
    assert attempt is not None
    of_stage = policy.scope is Scope.STAGE or what == "snoozes"
    so_far = job.counted(what, attempt.stage if of_stage else None)
    rule = _rule(policy, attempt.kind) if attempt.kind else None
    most = {
        "failures": ((rule and rule.attempts_max) or policy.attempts_max) - 1,
        "waits": policy.waits_max,
        "crashes": policy.crashes_max - 1,
        "snoozes": policy.snoozes_max,
    }.get(what)
    if most is not None and so_far > most:
        checker.broken(
            "S8" if what == "crashes" else "S7",
            f"#{job.no} goes on in {attempt.stage} after {so_far} {what}, {most} are allowed",
        )


def _check_pause(
    checker: "Checker", job: JobAccount, record: Record, policy: Policy, what: str
) -> None:
    """The pause before the next start is no shorter than the policy's curve, jitter included."""
    attempt = record.attempt
    assert attempt is not None
    if what not in ("failures", "waits") or attempt.kind is None:
        return
    rule = _rule(policy, attempt.kind)
    so_far = job.counted(what, attempt.stage if policy.scope is Scope.STAGE else None)
    curve, told = rule.backoff or policy.backoff, json.loads(attempt.why_json)
    spared = what == "waits" and policy.weak_share is not None  # by a pace, where there is a gate
    spared = spared and checker.gates.outside.upstream(attempt.stage) is not None
    bases_s = [base_delay_s(curve, nth) for nth in ({1, so_far} if spared else {so_far})]
    base_s = min(bases_s, key=lambda one: abs(one - (told["base_s"] or 0.0)))  # what it says it is
    least_s = min(jittered_s(rule.jitter or policy.jitter, base_s, one) for one in (0.0, 1.0))
    hints, heard_s = rule.hint or policy.hint, told["hint_s"]
    if hints.mode is HintMode.EXACT and heard_s:
        least_s = heard_s
    if (record.delay_s or 0.0) < least_s - 1e-6:
        checker.broken(
            "S9",
            f"#{job.no}/{record.token} is due in {record.delay_s} s, at least {least_s:g} are asked",
        )


def _failed(checker: "Checker", job: JobAccount, record: Record, policy: Policy) -> None:
    attempt = record.attempt
    assert attempt is not None
    if record.failed_reason is not FailedReason.CRASHED:
        return
    crashes = job.counted("crashes", attempt.stage if policy.scope is Scope.STAGE else None)
    if crashes < policy.crashes_max:
        checker.broken("S8", f"#{job.no} failed as crashed after {crashes} crashes")
    if policy.crashes_max < 3:
        return  # such a policy fails a job before it was ever run alone
    assert job.holder is not None
    worker = checker.ledger.workers[job.holder]
    if worker.registered.role.isolation != 2 or worker.died_holding != 1:
        checker.broken(
            "S8",
            f"#{job.no} failed as crashed in a process ({worker.registered.role}) "
            f"that held {worker.died_holding} jobs",
        )
