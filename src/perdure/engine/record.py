"""record: `Decision` → the `Record` that the store has to write.

This is the only place that says what a job's row becomes when an attempt ends, or when the job
ends while it waits. The store guards the write by (no, token): if the answer is `Stale`, another
hand has taken the job since, and the result is dropped. A re-sent record finds its own attempt row
and gets its first receipt again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.decisions import (
    CancelJob,
    Counted,
    Decision,
    Fail,
    HandOver,
    Release,
    Retry,
    Succeed,
    Why,
)
from perdure.model.jobs import ZERO, Attempt, Capture, Claim, Counters, Expired, Record
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import DETAIL_CHARS_MAX
from perdure.model.outcomes import (
    Death,
    Evidence,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    TimedOut,
    Unbegun,
    Unstorable,
    Usage,
    Withdrawn,
    seen_in_words,
)
from perdure.model.runs import NANO
from perdure.model.states import AttemptStatus, FailedReason, Move, State
from perdure.model.views import AttemptView, JobView
from perdure.rules.fingerprint import fingerprint
from perdure.rules.policy import Policy, Scope
from perdure.rules.redact import safe_line
from perdure.rules.vocabulary import KIND_NAMES, Vocabulary

_encode = msgspec.json.Encoder().encode
_NOTHING = Usage()
_NO_EVIDENCE = Evidence()
_NAMED = ("no", "id", "token", "pipeline", "run", "request_id", "owner")
_KEPT = (*_NAMED, "stage", "lane", "counters", "past", "isolation")
EXPIRED_WORDS = "the deadline passed while the job waited"


class Ending(msgspec.Struct, frozen=True, gc=False):
    """An ended attempt: who ran what, how it ended, how long it took.

    ``policy`` is that of a call, ``named`` if its caller chose it; without one the stage's own judges. ``told`` are
    headers of the answer that say how much is left of a limit, ``captures`` raw output that the attempt has put aside.
    """

    claim: Claim
    outcome: Outcome
    elapsed_s: float
    worker: int | None
    carry_on: bool = False
    policy: Policy | None = None
    named: bool = False
    usage: Usage | None = None
    told: Mapping[str, str] | None = None
    captures: tuple[Capture, ...] = ()


def record_of(ending: Ending, decision: Decision, laid: LaidPipeline, stage: Stage) -> Record:
    """What the store has to write about this decision."""
    record = _record_of(ending, decision, laid, stage)
    return replace(record, captures=ending.captures) if ending.captures else record


def _record_of(ending: Ending, decision: Decision, laid: LaidPipeline, stage: Stage) -> Record:
    match decision:
        case Succeed():
            return _success_record(ending, decision, laid, stage)
        case Retry(delay_s, counted, kind, _, _):
            status = _retry_status(counted)
            return _requeue_record(ending, decision, stage, status, counted, delay_s, kind)
        case Release():
            status = AttemptStatus.INTERRUPTED
            return _requeue_record(ending, decision, stage, status, Counted.RELEASES, 0.0, None)
        case HandOver(delay_s, kind, _, _):
            status = AttemptStatus.HANDED_OVER
            again = _requeue_record(ending, decision, stage, status, None, delay_s, kind)
            attempts_max = stage.policy.attempts_max  # it is judged by that from now on
            return replace(again, counters=ZERO, past=ZERO, isolation=0, attempts_max=attempts_max)
        case Fail():
            return _failure_record(ending, decision, stage)
        case CancelJob():
            attempt = _attempt(ending, decision, stage, AttemptStatus.CANCELLED, None, None)
            return _record(ending.claim, Move.CANCEL, State.CANCELLED, attempt=attempt)
        case _:  # pragma: no cover
            assert_never(decision)


def in_place(retry: Record) -> Record:
    """A retry for which its caller waits itself, so the store claims the job again at once."""
    again = replace(retry, move=Move.REPEAT, state=State.PROCESSING, reclaim=True)
    return replace(again, delay_s=0.0, pause_s=retry.delay_s or 0.0)


def outcome_of_refusal(record: Record, reason: str) -> Unstorable | Raised:
    """The outcome when the store cannot write a record. A bad result is final: it would be the same next time."""
    if record.result_json is not None or record.checkpoint_json is not None:
        text = f"the store cannot write the result: {safe_line(reason)}; return another value"
        return Unstorable(text)
    return Raised(Evidence(("perdure.RecordRefused",), reason, kind=Kind.INTERNAL))


def cancel_record(job: JobView, words: str) -> Record:
    """What the store has to write when a waiting job is cancelled; there is no attempt to settle."""
    error = {"error_kind": job.error_kind, "error_code": job.error_code, "error_message": words}
    return _record(job, Move.CANCEL, State.CANCELLED, **error)


def expiry_record(job: Expired | JobView) -> Record:
    """What the store has to write when the deadline of a waiting job has passed.

    The kind is that of a deadline which has passed before its stage could begin: nothing was tried.
    """
    said = (Kind.TIMEOUT.value, EXPIRED_WORDS, EXPIRED_WORDS)
    return _dead_record(job, FailedReason.EXPIRED, Kind.TIMEOUT, said, EXPIRED_WORDS)


def dead_again_record(job: JobView, attempts: Sequence[AttemptView]) -> Record:
    """What the store has to write when a dead letter that was driven again is not wanted any more: it is dead again.

    Its error is that of its last failure, in this life or in an earlier one. If no attempt of it ever failed, it
    died of its deadline: nothing else fails a job that waits.
    """
    failed = [one for one in attempts if one.status is AttemptStatus.FAILED]
    if not failed:
        return expiry_record(job)
    last = failed[-1]
    kind = Kind(last.kind) if last.kind in set(Kind) else Kind.UNKNOWN
    said = (last.code or kind.value, KINDS[kind].sentence, last.saw)
    return _dead_record(job, FailedReason.FATAL, kind, said, last.message)


def _dead_record(
    job: Expired | JobView, reason: FailedReason, kind: Kind, said: tuple[str, str, str], alike: str
) -> Record:
    code, message, detail = said
    return _record(
        job,
        Move.FAIL,
        State.FAILED,
        failed_reason=reason,
        error_kind=kind.value,
        error_code=code,
        error_message=message,
        error_detail=detail[:DETAIL_CHARS_MAX],
        fingerprint=fingerprint(kind, job.stage, alike),
    )


def _success_record(ending: Ending, decision: Succeed, laid: LaidPipeline, stage: Stage) -> Record:
    claim = ending.claim
    attempt = _attempt(ending, decision, stage, AttemptStatus.SUCCESS, None, None)
    following = laid.after(claim.stage)
    if following is None:
        result = {"result_json": decision.value_json, "label": decision.label}
        age_s = claim.age_s(ending.elapsed_s)
        return _record(claim, Move.SUCCEED, State.SUCCEEDED, attempt=attempt, age_s=age_s, **result)
    past, kept = claim.past.plus(claim.counters), claim.isolation and laid.counts_past(following)
    isolation = max(claim.isolation, min(past.crashes, 2)) if kept else 0
    carry_on = ending.carry_on and isolation == claim.isolation == 0
    return _record(
        claim,
        Move.CARRY_ON if carry_on else Move.ADVANCE,
        State.PROCESSING if carry_on else State.QUEUED,
        stage=following.name,
        lane=laid.lane_beside(claim.lane, following.name),
        counters=ZERO,
        past=past,
        isolation=isolation,
        delay_s=0.0,
        checkpoint_stage=claim.stage,
        checkpoint_json=decision.value_json,
        reclaim=carry_on,
        attempt=attempt,
        lane_from=claim.lane,
    )


def _requeue_record(
    ending: Ending,
    decision: Retry | Release | HandOver,
    stage: Stage,
    status: AttemptStatus,
    counted: Counted | None,
    delay_s: float,
    kind: Kind | None,
) -> Record:
    claim, policy = ending.claim, ending.policy or stage.policy
    code, message = _public_words(ending, stage, kind)
    counters = _raise_counters(claim.counters, counted, policy, delay_s)
    harmless = isinstance(ending.outcome, Lost) and ending.outcome.apart
    crashed = counted is Counted.CRASHES and not harmless
    return _record(
        claim,
        Move.RELEASE if counted is Counted.RELEASES else Move.RETRY,
        State.QUEUED,
        attempt=_attempt(ending, decision, stage, status, counted, kind),
        counters=counters,
        isolation=_isolation(claim, counters, policy) if crashed else claim.isolation,
        delay_s=delay_s,
        attempts_max=decision.attempts_max if isinstance(decision, Retry) else None,
        hinted=None if isinstance(decision, Release) else decision.hinted,
        error_kind=None if kind is None else kind.value,
        error_code=code,
        error_message=message,
    )


def _failure_record(ending: Ending, decision: Fail, stage: Stage) -> Record:
    claim, policy = ending.claim, ending.policy or stage.policy
    attempt = _attempt(
        ending, decision, stage, AttemptStatus.FAILED, decision.counted, decision.kind
    )
    code, message = _public_words(ending, stage, decision.kind)
    alike = _alike_text(ending, decision)
    return _record(
        claim,
        Move.FAIL,
        State.FAILED,
        attempt=attempt,
        counters=_raise_counters(claim.counters, decision.counted, policy, 0.0),
        failed_reason=decision.reason,
        error_kind=decision.kind.value,
        error_code=code,
        error_message=message,
        error_detail=_detail(ending, alike),
        fingerprint=fingerprint(decision.kind, claim.stage, alike),
        attempts_max=decision.attempts_max,
    )


def _record(job: Claim | JobView | Expired, move: Move, state: State, **changes: Any) -> Record:
    """A job that stays as it is, but for the changes."""
    kept = {name: getattr(job, name) for name in _KEPT}
    return Record(move=move, state=state, **(kept | changes))


def _attempt(
    ending: Ending,
    decision: Decision,
    stage: Stage,
    status: AttemptStatus,
    counted: Counted | None,
    kind: Kind | None,
) -> Attempt:
    claim, policy = ending.claim, ending.policy or stage.policy
    seen, usage = _evidence_in(ending.outcome), ending.usage or _NOTHING
    called = stage.upstream is not None and _has_begun(ending.outcome)
    return Attempt(
        stage=claim.stage,
        number=claim.counters.starts,
        life=claim.life,
        status=status,
        worker=ending.worker,
        claimed_at=claim.claimed_at,
        elapsed_s=ending.elapsed_s,
        counted=_counted_words(counted, policy),
        kind=None if kind is None else kind.value,
        message=seen.message if isinstance(seen, Evidence) else "",
        policy=policy.label,
        why_json=_why_json(decision.why, ending.usage),
        evidence_json=None if seen is None else _encode(seen).decode(),
        config_hash=stage.config_hash,
        code=_public_words(ending, stage, kind)[0],
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_nusd=round(usage.cost_usd * NANO),
        called=called,
        upstream=stage.upstream if called else None,
    )


def _has_begun(outcome: Outcome) -> bool:
    """Whether the stage had begun, so that it may have called its upstream."""
    if isinstance(outcome, Interrupted):
        return outcome.begun
    return not isinstance(outcome, Unbegun)


def vocabulary_of(ending: Ending, stage: Stage) -> Vocabulary:
    """Whose words users read: the stage's, where it has words of its own, else those of the policy that judges.

    So a call speaks as a worker would.
    """
    own = stage.policy.vocabulary
    return own if ending.policy is None or own is not KIND_NAMES else ending.policy.vocabulary


def wire_of(ending: Ending, stage: Stage) -> Vocabulary:
    """Whose codes are read from an answer: the stage's, else those of a policy that the caller has named.

    Never those of a call's default: it knows nothing of the upstream, and a call is to understand it as a
    worker would.
    """
    own = stage.policy.vocabulary
    if own.wire or ending.policy is None or not ending.named:
        return own
    return ending.policy.vocabulary


def _public_words(ending: Ending, stage: Stage, kind: Kind | None) -> tuple[str | None, str | None]:
    """What users may read, code and message: what the stage has named, else the vocabulary's."""
    if kind is None:
        return None, None
    seen, words = _evidence_in(ending.outcome), vocabulary_of(ending, stage)
    told = seen if isinstance(seen, Evidence) else _NO_EVIDENCE
    code = told.public_code or words.code(kind, stage=ending.claim.stage, status=told.status)
    return code, told.public_message or words.message(kind)


def _detail(ending: Ending, alike: str) -> str:
    """What went wrong, for operators: what was raised, and where, before what tells failures apart."""
    seen = _evidence_in(ending.outcome)
    words = seen_in_words(seen.names, seen.where, alike) if isinstance(seen, Evidence) else alike
    return words[:DETAIL_CHARS_MAX]


def _alike_text(ending: Ending, decision: Fail) -> str:
    """What tells failures apart: the message of what was seen, or else the decision in words.

    The line that raised it does not: it moves with every edit of the file, and the failure is the same.
    """
    seen = _evidence_in(ending.outcome)
    if isinstance(seen, Death):
        return f"{seen.subject} {seen.in_words()}"
    if seen is not None and seen.message:
        return seen.message[:DETAIL_CHARS_MAX]
    return decision.why.text[:DETAIL_CHARS_MAX]


def _why_json(why: Why, usage: Usage | None) -> str:
    """The decision explained; what the attempt has used up stands beside it, as ``usage``."""
    if usage is None:
        return _encode(why).decode()
    return _encode(msgspec.to_builtins(why) | {"usage": usage}).decode()


def _evidence_in(outcome: Outcome) -> Evidence | Death | None:
    match outcome:
        case Raised(evidence):
            return evidence
        case Unstorable(reason):
            return Evidence(("perdure.Unstorable",), reason, kind=Kind.INTERNAL)
        case Lost(death):
            return death
        case Returned() | Snoozed() | Withdrawn() | TimedOut() | Unbegun():
            return None
        case Interrupted() | Revoked():
            return None
        case _:  # pragma: no cover
            assert_never(outcome)


def _raise_counters(
    counters: Counters, counted: Counted | None, policy: Policy, wait_s: float
) -> Counters:
    raised = counters.after_event(counted, waited_s=wait_s if counted is Counted.WAITS else 0.0)
    if counted is Counted.CRASHES and policy.crash_is_failure:
        return raised.after_event(Counted.FAILURES)
    return raised


def _counted_words(counted: Counted | None, policy: Policy) -> str | None:
    if counted is Counted.CRASHES and policy.crash_is_failure:
        return f"{Counted.CRASHES},{Counted.FAILURES}"
    return None if counted is None else counted.value


def _retry_status(counted: Counted) -> AttemptStatus:
    match counted:
        case Counted.FAILURES:
            return AttemptStatus.RETRYING
        case Counted.CRASHES:
            return AttemptStatus.INTERRUPTED
        case Counted.WAITS | Counted.SNOOZES | Counted.PROBES | Counted.RELEASES:
            return AttemptStatus.WAITING
        case _:  # pragma: no cover
            assert_never(counted)


def _isolation(claim: Claim, counters: Counters, policy: Policy) -> int:
    """After a crash of the worker suspects run apart: 1 beside others after one crash, 2 alone after two."""
    crashes = counters.crashes + (claim.past.crashes if policy.scope is Scope.JOB else 0)
    return max(claim.isolation, min(crashes, 2))
