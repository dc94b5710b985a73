"""What people and callers do to jobs: cancel.

A caller holds no lease, so it shows the token it has just read; if the job moves on in between, the
answer is stale and we look again. After the acknowledgement no new attempt starts, and whatever a
running one still says is refused.
"""

from dataclasses import replace

from perdure.engine.observe import Observers
from perdure.engine.record import Ending, record_of
from perdure.engine.stages import Catalogue, Line, Stage
from perdure.model.decisions import Cancel, Why
from perdure.model.errors import BugError, NotCancellable, UnknownName
from perdure.model.jobs import Claim, Receipt, Record
from perdure.model.limits import MESSAGE_CHARS_MAX
from perdure.model.outcomes import Revoked
from perdure.model.states import TERMINAL, Move, State
from perdure.model.views import JobView
from perdure.ports import Reader, Store
from perdure.rules.evidence import one_line

_TRIES_MAX = 100  # each lost race means that the job has moved on, which it cannot do for ever


def cancel(
    store: Store,
    reader: Reader,
    catalogue: Catalogue,
    job_id: str,
    *,
    reason: str = "",
    observers: Observers,
) -> Receipt:
    """Cancel a queued or running job."""
    for _ in range(_TRIES_MAX):
        job = reader.job(job_id)
        if job is None:
            raise UnknownName(f"no job {job_id!r}")
        if job.state in TERMINAL:
            raise NotCancellable(f"job {job_id} is already {job.state.value}")
        record = _record(job, catalogue, one_line(reason, MESSAGE_CHARS_MAX // 4))
        answer = store.turn([record], None, by=None).settled[0]
        if isinstance(answer, Receipt):
            observers.settled(record, answer)
            return answer
    raise BugError(f"job {job_id} moved on {_TRIES_MAX} times while it was being cancelled")


def _record(job: JobView, catalogue: Catalogue, reason: str) -> Record:
    if job.state is State.QUEUED:
        return _waiting(job, reason)
    line = catalogue.line(job.pipeline)
    stage = None if line is None else line.stage(job.stage)
    if line is None or stage is None:
        raise UnknownName(
            f"job {job.id} is running stage {job.stage!r} of pipeline {job.pipeline!r}, which "
            "this app does not have; cancel it from the app that does"
        )
    return _running(job, line, stage, reason)


def _waiting(job: JobView, reason: str) -> Record:
    return Record(
        no=job.no, id=job.id, token=job.token, move=Move.CANCEL, state=State.CANCELLED,
        stage=job.stage, lane=job.lane, counters=job.counters, past=job.past,
        isolation=job.isolation, error_kind=job.error_kind, error_message=_words(reason),
    )  # fmt: skip


def _running(job: JobView, line: Line, stage: Stage, reason: str) -> Record:
    assert job.claimed_at is not None
    claim = Claim(
        no=job.no, id=job.id, token=job.token, lane=job.lane, pipeline=job.pipeline,
        stage=job.stage, owner=job.owner, payload_json=job.payload_json,
        input_json=job.input_json, counters=job.counters, past=job.past, life=job.life,
        isolation=job.isolation, claimed_at=job.claimed_at, due_at=job.due_at,
        deadline_at=job.deadline_at, key=job.key,
    )  # fmt: skip
    ending = Ending(claim, Revoked(reason), 0.0, job.worker)
    decision = Cancel(Why(_words(reason), "cancel", stage.policy.label))
    return replace(record_of(ending, decision, line, stage), error_message=_words(reason))


def _words(reason: str) -> str:
    return f"cancelled by the caller ({reason})" if reason else "cancelled by the caller"
