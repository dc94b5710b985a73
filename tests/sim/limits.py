"""How often a job may be tried: counted from what happened, compared with the policy."""

import json
from typing import TYPE_CHECKING

from perdure.model.jobs import Record
from perdure.model.kinds import Kind
from perdure.model.outcomes import Death
from perdure.model.states import FailedReason, Move, State
from perdure.model.verdicts import Failure
from perdure.rules.policy import Action, HintMode, Policy, Rule, Scope
from perdure.rules.retriable import rule_for
from tests.sim.ledger import JobAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker


def counted(record: Record, policy: Policy, death: Death | None) -> str | None:
    """What this end of an attempt was, whatever the engine says that it counted."""
    attempt = record.attempt
    assert attempt is not None
    if death is not None:
        return "releases" if death.why == "stopped" else "crashes"
    if record.move is Move.RELEASE:
        return "releases"
    if record.move not in (Move.RETRY, Move.FAIL):
        return None
    why = json.loads(attempt.why_json)
    if why["rule"] == "snooze":
        return "snoozes"
    if why["rule"] == "deadline":
        return None  # it was never begun
    assert attempt.kind is not None
    rule = _rule(policy, attempt.kind)
    hints = rule.hint or policy.hint
    hint_s = why["hint_s"] if hints.mode is not HintMode.IGNORE else None
    by_hint = rule.action is Action.RETRY and bool(hint_s) and not hints.counted
    too_long = hint_s is not None and hint_s > hints.s_max
    ordered = rule.action is Action.WAIT or by_hint
    return "waits" if ordered and not too_long else "failures"


def _rule(policy: Policy, kind: str) -> Rule:
    return rule_for(policy, Failure(Kind(kind), "asked by the checker"))[0]


def check_limits(checker: "Checker", job: JobAccount, record: Record, what: str | None) -> None:
    """Count it, and see whether the job may go on."""
    attempt = record.attempt
    assert attempt is not None
    if what is not None:
        job.count(what, attempt.stage)
    policy = checker.policy(job, attempt.stage)
    both = what == "crashes" and policy.crash_is_failure
    if both:
        job.count("failures", attempt.stage)
    if record.state is State.FAILED:
        _failed(checker, job, record, policy)
    elif what is not None:
        _goes_on(checker, job, record, policy, what)
        if both:
            _goes_on(checker, job, record, policy, "failures")
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
