"""What people and callers do to single jobs: cancel them, and retry those that have failed.

A caller holds no lease, so it shows the token it has just read; if the job moves on in between, the
answer is stale. For one job we look again. After a cancel is acknowledged no new attempt starts, and
whatever a running one still says is refused.
"""

from collections.abc import Sequence

import msgspec

from perdure.engine.eligible import Check
from perdure.engine.observe import Observers
from perdure.engine.record import Ending, record_of
from perdure.engine.revival import FAILED_STAGE, Restart, Revivals
from perdure.engine.stages import Catalogue, Line, Stage
from perdure.engine.waiting import cancelled
from perdure.model.decisions import Cancel, Why
from perdure.model.errors import BugError, NotCancellable, NotRetriable, StoreBusy, UnknownName
from perdure.model.jobs import Busy, Claim, Conflict, Receipt, Record
from perdure.model.limits import MESSAGE_CHARS_MAX, NAME_CHARS_MAX
from perdure.model.operations import Deed
from perdure.model.outcomes import Revoked
from perdure.model.runs import RunStatus
from perdure.model.states import TERMINAL, State
from perdure.model.views import JobView
from perdure.ports import Control, Reader, Store
from perdure.rules.evidence import one_line

_TRIES_MAX = 100  # each lost race means that the job has moved on, which it cannot do for ever

NOBODY = Observers()


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
    busy = False
    for _ in range(_TRIES_MAX):
        job = _job(reader, job_id)
        if job.state in TERMINAL:
            raise NotCancellable(f"job {job_id} is already {job.state.value}")
        record = _record(job, catalogue, one_line(reason, MESSAGE_CHARS_MAX // 4))
        (answer,) = store.settle([record], by=None)
        if isinstance(answer, Receipt):
            observers.settled(record, answer)
            return answer
        busy = isinstance(answer, Busy)
    if busy:  # a claim or a record would have been over long ago
        raise StoreBusy(
            f"job {job_id} is being completed in a transaction of its stage's own, which is still open; "
            "try again when that has ended"
        )
    raise BugError(f"job {job_id} moved on {_TRIES_MAX} times while it was being cancelled")


def retry(
    control: Control,
    reader: Reader,
    catalogue: Catalogue,
    job_id: str,
    *,
    deed: Deed,
    restart: Restart = FAILED_STAGE,
    check: Check | None = None,
    observers: Observers = NOBODY,
) -> Receipt:
    """Give a failed job a new life, at its failed stage or from an earlier one."""
    revivals = Revivals(reader, catalogue, restart)
    for _ in range(_TRIES_MAX):
        job = _job(reader, job_id)
        _check_run(reader, job)
        revival = revivals.of(job)
        why_not = None if check is None else check(job)
        if why_not is not None:
            raise NotRetriable(f"job {job_id} cannot be retried: {why_not}")
        (answer,) = control.revive([revival], cleaned(deed))
        if isinstance(answer, Conflict):
            raise NotRetriable(
                f"job {job_id} cannot be retried: its key {job.key!r} is alive again as job "
                f"{answer.with_id}; wait for that one, or cancel it"
            )
        if isinstance(answer, Receipt):
            observers.revived(revival, cleaned(deed))
            return answer
    raise BugError(f"job {job_id} moved on {_TRIES_MAX} times while it was being retried")


def _check_run(reader: Reader, job: JobView) -> None:
    """Refuse a new life in the closed lanes of a cancelled run."""
    no = job.run if job.redrive_run is None else job.redrive_run
    found = [] if no is None else reader.runs(no=no)
    if job.state is State.FAILED and found and found[0].status is RunStatus.CANCELLED:
        raise NotRetriable(
            f"job {job.id} cannot be retried: its run {found[0].name!r} was cancelled; drive it again in "
            "another one: perdure dead redrive"
        )


def cancel_records(jobs: Sequence[JobView], catalogue: Catalogue, reason: str) -> list[Record]:
    """What the store has to write when these open jobs are cancelled; those of unknown stages are left out."""
    words = one_line(reason, MESSAGE_CHARS_MAX // 4)
    return [
        _record(job, catalogue, words)
        for job in jobs
        if job.state is State.QUEUED
        or (job.state is State.PROCESSING and catalogue.stage(job.pipeline, job.stage) is not None)
    ]


def cleaned(deed: Deed) -> Deed:
    """A deed whose words can be stored and shown."""
    return Deed(
        one_line(deed.by_whom, NAME_CHARS_MAX), one_line(deed.reason, MESSAGE_CHARS_MAX // 4)
    )


def _job(reader: Reader, job_id: str) -> JobView:
    job = reader.job(job_id)
    if job is None:
        raise UnknownName(f"no job {job_id!r}")
    return job


def _record(job: JobView, catalogue: Catalogue, reason: str) -> Record:
    if job.state is State.QUEUED:
        return cancelled(job, _words(reason))
    line = catalogue.line(job.pipeline)
    stage = None if line is None else line.stage(job.stage)
    if line is None or stage is None:
        raise UnknownName(
            f"job {job.id} is running stage {job.stage!r} of pipeline {job.pipeline!r}, which "
            "this app does not have; cancel it from the app that does"
        )
    return _running(job, line, stage, reason)


def _running(job: JobView, line: Line, stage: Stage, reason: str) -> Record:
    assert job.claimed_at is not None
    claim = Claim(
        no=job.no, id=job.id, token=job.token, lane=job.lane, pipeline=job.pipeline,
        stage=job.stage, owner=job.owner, payload_json=job.payload_json,
        input_json=job.input_json, counters=job.counters, past=job.past, life=job.life,
        isolation=job.isolation, claimed_at=job.claimed_at, due_at=job.due_at,
        deadline_at=job.deadline_at, key=job.key, request_id=job.request_id,
    )  # fmt: skip
    ending = Ending(claim, Revoked(reason), 0.0, job.worker)
    decision = Cancel(Why(_words(reason), "cancel", stage.policy.label))
    return msgspec.structs.replace(
        record_of(ending, decision, line, stage), error_message=_words(reason)
    )


def _words(reason: str) -> str:
    return f"cancelled by the caller ({reason})" if reason else "cancelled by the caller"
