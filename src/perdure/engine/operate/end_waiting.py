"""The end of a job that waits: it is cancelled, or its deadline passes. There is no attempt to settle."""

from collections.abc import Sequence

from perdure.model.jobs import Expired, Record
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import DETAIL_CHARS_MAX
from perdure.model.states import AttemptStatus, FailedReason, Move, State
from perdure.model.views import AttemptView, JobView
from perdure.rules.fingerprint import fingerprint

EXPIRED_WORDS = "the deadline passed while the job waited"


def cancelled(job: JobView, words: str) -> Record:
    """What the store has to write when a waiting job is cancelled."""
    return Record(
        no=job.no, id=job.id, token=job.token, move=Move.CANCEL, state=State.CANCELLED,
        stage=job.stage, lane=job.lane, counters=job.counters, past=job.past,
        isolation=job.isolation, error_kind=job.error_kind, error_code=job.error_code,
        error_message=words, pipeline=job.pipeline, run=job.run, request_id=job.request_id,
    )  # fmt: skip


def dead_again(job: JobView, attempts: Sequence[AttemptView]) -> Record:
    """What the store has to write when a dead letter that was driven again is not wanted any more: it is dead again.

    Its error is that of its last failure, in this life or in an earlier one. One that no attempt has ever failed had
    died of its deadline, as nothing else ends a job that waits.
    """
    failed = [one for one in attempts if one.status is AttemptStatus.FAILED]
    if not failed:
        return expired(job)
    last = failed[-1]
    kind = Kind(last.kind) if last.kind in set(Kind) else Kind.UNKNOWN
    detail = last.message
    return Record(
        no=job.no, id=job.id, token=job.token, move=Move.FAIL, state=State.FAILED,
        stage=job.stage, lane=job.lane, counters=job.counters, past=job.past,
        isolation=job.isolation, failed_reason=FailedReason.FATAL, error_kind=kind.value,
        error_code=last.code or kind.value,
        error_message=KINDS[kind].sentence, error_detail=detail[:DETAIL_CHARS_MAX],
        fingerprint=fingerprint(kind, job.stage, detail), pipeline=job.pipeline, run=job.run,
        request_id=job.request_id,
    )  # fmt: skip


def expired(job: Expired | JobView) -> Record:
    """What the store has to write when the deadline of a waiting job has passed.

    The kind is that of a deadline which has passed before its stage could begin: nothing was tried.
    """
    return Record(
        no=job.no, id=job.id, token=job.token, move=Move.FAIL, state=State.FAILED,
        stage=job.stage, lane=job.lane, counters=job.counters, past=job.past,
        isolation=job.isolation, failed_reason=FailedReason.EXPIRED,
        error_kind=Kind.TIMEOUT.value, error_code=Kind.TIMEOUT.value,
        error_message=EXPIRED_WORDS, error_detail=EXPIRED_WORDS,
        fingerprint=fingerprint(Kind.TIMEOUT, job.stage, EXPIRED_WORDS), pipeline=job.pipeline,
        run=job.run, request_id=job.request_id,
    )  # fmt: skip
