"""Records as the engine would write them: one word for each way in which an attempt can end."""

from collections.abc import Callable
from typing import Any

from perdure.model.decisions import Counted
from perdure.model.jobs import ZERO, Attempt, Claim, Record
from perdure.model.nouns import replace
from perdure.model.states import AttemptStatus, FailedReason, Move, State


def attempt_of(claim: Claim, status: AttemptStatus, worker: int | None, **changes: Any) -> Attempt:
    """The row that the end of a claim leaves behind."""
    plain = Attempt(
        stage=claim.stage,
        number=claim.counters.starts,
        life=claim.life,
        status=status,
        worker=worker,
        claimed_at=claim.claimed_at,
        elapsed_s=0.5,
        counted=None,
        kind=None,
        message="",
        policy="plain/1",
        why_json='{"text":"because"}',
        evidence_json=None,
        config_hash="0" * 16,
    )
    return replace(plain, **changes)


def _plain_record(claim: Claim, move: Move, state: State) -> Record:
    return Record(
        no=claim.no,
        id=claim.id,
        token=claim.token,
        move=move,
        state=state,
        stage=claim.stage,
        lane=claim.lane,
        counters=claim.counters,
        past=claim.past,
        isolation=claim.isolation,
    )


def success(claim: Claim, worker: int | None, *, result_json: str = '"done"') -> Record:
    """The last stage is done."""
    return replace(
        _plain_record(claim, Move.SUCCEED, State.SUCCEEDED),
        result_json=result_json,
        attempt=attempt_of(claim, AttemptStatus.SUCCESS, worker),
    )


def retry(claim: Claim, worker: int | None, *, delay_s: float = 5.0) -> Record:
    """A counted failure that is tried again."""
    return replace(
        _plain_record(claim, Move.RETRY, State.QUEUED),
        counters=claim.counters.after_event(Counted.FAILURES),
        delay_s=delay_s,
        error_kind="network",
        error_message="The connection failed.",
        attempt=attempt_of(
            claim, AttemptStatus.RETRYING, worker, counted="failures", kind="network"
        ),
    )


def snooze(claim: Claim, worker: int | None, *, delay_s: float = 5.0) -> Record:
    """The stage wants to be called again later; nothing failed."""
    return replace(
        _plain_record(claim, Move.RETRY, State.QUEUED),
        counters=claim.counters.after_event(Counted.SNOOZES, waited_s=delay_s),
        delay_s=delay_s,
        attempt=attempt_of(claim, AttemptStatus.WAITING, worker, counted="snoozes"),
    )


def failure(claim: Claim, worker: int | None) -> Record:
    """A dead letter."""
    return replace(
        _plain_record(claim, Move.FAIL, State.FAILED),
        counters=claim.counters.after_event(Counted.FAILURES),
        failed_reason=FailedReason.FATAL,
        error_kind="input_invalid",
        error_message="The item is broken.",
        attempt=attempt_of(
            claim, AttemptStatus.FAILED, worker, counted="failures", kind="input_invalid"
        ),
    )


def failing(
    claim: Claim,
    worker: int | None,
    *,
    kind: str | None = "input_invalid",
    code: str | None = None,
    detail: str | None = None,
    fingerprint: str | None = None,
    message: str = "The item is broken.",
) -> Record:
    """A dead letter, with all that there is to say about it."""
    plain = failure(claim, worker)
    assert plain.attempt is not None
    return replace(
        plain,
        error_kind=kind,
        error_code=code,
        error_detail=detail,
        fingerprint=fingerprint,
        error_message=message,
        attempt=replace(plain.attempt, kind=kind, code=code),
    )


def spending(
    record: Record, *, tokens_in: int = 0, tokens_out: int = 0, cost_nusd: int = 0
) -> Record:
    """The same, by an attempt that has used up so much."""
    assert record.attempt is not None
    told = replace(record.attempt, tokens_in=tokens_in, tokens_out=tokens_out, cost_nusd=cost_nusd)
    return replace(record, attempt=told)


def crash(claim: Claim, worker: int | None) -> Record:
    """The worker died; the job is a suspect from now on."""
    counters = claim.counters.after_event(Counted.CRASHES)
    return replace(
        _plain_record(claim, Move.RETRY, State.QUEUED),
        counters=counters,
        isolation=min(counters.crashes, 2),
        delay_s=0.0,
        error_kind="worker_lost",
        error_message="The worker died.",
        attempt=attempt_of(
            claim, AttemptStatus.INTERRUPTED, worker, counted="crashes", kind="worker_lost"
        ),
    )


def release(claim: Claim, worker: int | None) -> Record:
    """Given back unfinished."""
    return replace(
        _plain_record(claim, Move.RELEASE, State.QUEUED),
        counters=claim.counters.after_event(Counted.RELEASES),
        delay_s=0.0,
        attempt=attempt_of(claim, AttemptStatus.INTERRUPTED, worker, counted="releases"),
    )


def cancellation(claim: Claim, worker: int | None) -> Record:
    """Ended because nobody wants it any more."""
    return replace(
        _plain_record(claim, Move.CANCEL, State.CANCELLED),
        attempt=attempt_of(claim, AttemptStatus.CANCELLED, worker),
    )


def advance(
    claim: Claim,
    worker: int | None,
    lane: int,
    *,
    stage: str = "two",
    reclaim: bool = False,
    value_json: str = '{"from":"one"}',
) -> Record:
    """The stage is done; the next one waits, or is claimed in the same breath."""
    return replace(
        _plain_record(
            claim,
            Move.CARRY_ON if reclaim else Move.ADVANCE,
            State.PROCESSING if reclaim else State.QUEUED,
        ),
        stage=stage,
        lane=lane,
        counters=ZERO,
        past=claim.past.plus(claim.counters),
        delay_s=0.0,
        checkpoint_stage=claim.stage,
        checkpoint_json=value_json,
        reclaim=reclaim,
        lane_from=claim.lane,
        attempt=attempt_of(claim, AttemptStatus.SUCCESS, worker),
    )


ENDINGS: tuple[Callable[[Claim, int | None], Record], ...] = (
    success,
    retry,
    snooze,
    failure,
    crash,
    release,
    cancellation,
)
