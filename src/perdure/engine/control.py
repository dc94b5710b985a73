"""What people and callers do to jobs: cancel, retry, and both re-drive and discard by filter.

A caller holds no lease, so it shows the token it has just read; if the job moves on in between, the
answer is stale. For one job we look again. After a cancel is acknowledged no new attempt starts, and
whatever a running one still says is refused.

A bulk operation is begun, which writes it down, and then gone through; after a crash it is gone through again
from where it stands. It goes page by page, newest first, below a cursor that is kept in the store with what
was done so far. It means the dead letters that were there when it began: one that fails later, perhaps after
this very operation has revived it, is passed over. If we die between the deeds of a page and the step
that counts them, the page is gone through again: what was done is no longer a dead letter or shows another
token, so nothing is done twice, and only the count falls short. Two hands on one operation do no harm for
the same reason; the slower finds the cursor elsewhere and leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from perdure.engine.observe import Observers
from perdure.engine.record import Ending, record_of
from perdure.engine.revival import FAILED_STAGE, ChildRun, Restart, Revivals
from perdure.engine.stages import Catalogue, Line, Stage
from perdure.engine.waiting import cancelled
from perdure.model.decisions import Cancel, Why
from perdure.model.errors import BugError, CallerError, NotCancellable, NotRetriable, UnknownName
from perdure.model.filters import JobFilter
from perdure.model.jobs import Claim, Receipt, Record, Settled
from perdure.model.limits import MESSAGE_CHARS_MAX, NAME_CHARS_MAX
from perdure.model.operations import (
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    Deed,
    NewBulk,
    Target,
)
from perdure.model.outcomes import Revoked
from perdure.model.states import TERMINAL, State
from perdure.model.views import JobView, Preview
from perdure.ports import Control, Reader, Store
from perdure.rules.evidence import one_line

_TRIES_MAX = 100  # each lost race means that the job has moved on, which it cannot do for ever
_PAGE_ROWS = 200  # payloads travel with the jobs of a page, and may be a megabyte each

NOBODY = Observers()

# Why this job may not be retried ("its source is gone"), or None.
Check = Callable[[JobView], str | None]


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
        job = _job(reader, job_id)
        if job.state in TERMINAL:
            raise NotCancellable(f"job {job_id} is already {job.state.value}")
        record = _record(job, catalogue, one_line(reason, MESSAGE_CHARS_MAX // 4))
        answer = store.turn([record], None, by=None).settled[0]
        if isinstance(answer, Receipt):
            observers.settled(record, answer)
            return answer
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
        revival = revivals.of(job)
        why_not = None if check is None else check(job)
        if why_not is not None:
            raise NotRetriable(f"job {job_id} cannot be retried: {why_not}")
        (answer,) = control.revive([revival], _cleaned(deed))
        if isinstance(answer, Receipt):
            observers.revived(revival, _cleaned(deed))
            return answer
    raise BugError(f"job {job_id} moved on {_TRIES_MAX} times while it was being retried")


def preview(reader: Reader, chosen: JobFilter) -> Preview:
    """What a re-drive or a discard by this filter would touch."""
    return reader.preview(dead_letters(chosen))


def begin(
    control: Control, verb: BulkVerb, chosen: JobFilter, *, deed: Deed, bulk_id: str
) -> BulkView:
    """Write down a bulk operation on the dead letters of a filter; the same id finds the same one."""
    filter_json = msgspec.json.encode(dead_letters(chosen)).decode()
    return control.add_bulk(NewBulk(bulk_id, verb, filter_json, _cleaned(deed)))


def redrive(
    control: Control,
    reader: Reader,
    catalogue: Catalogue,
    bulk: BulkView,
    *,
    deed: Deed,
    restart: Restart = FAILED_STAGE,
    child: ChildRun | None = None,
    check: Check | None = None,
    observers: Observers = NOBODY,
) -> BulkView:
    """Go through a bulk operation that gives dead letters a new life, from where it stands to its end."""
    revivals = Revivals(reader, catalogue, restart, child)
    cleaned = _cleaned(deed)

    def act(jobs: Sequence[JobView]) -> Sequence[Settled]:
        wanted = []
        for job in jobs:
            if check is None or check(job) is None:
                try:
                    wanted.append(revivals.of(job))
                except CallerError:  # counted as refused; a retry of that one job says why
                    continue
        answers = control.revive(wanted, cleaned) if wanted else []
        for revival, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, Receipt):
                observers.revived(revival, cleaned)
        return answers

    return _through(control, reader, bulk, BulkVerb.REDRIVE, cleaned, act)


def discard(
    control: Control,
    reader: Reader,
    bulk: BulkView,
    *,
    deed: Deed,
    observers: Observers = NOBODY,
) -> BulkView:
    """Go through a bulk operation that marks dead letters as dealt with, to its end."""
    cleaned = _cleaned(deed)

    def act(jobs: Sequence[JobView]) -> Sequence[Settled]:
        chosen = [Target(job.no, job.id, job.token) for job in jobs]
        answers = control.discard(chosen, cleaned)
        for target, answer in zip(chosen, answers, strict=True):
            if isinstance(answer, Receipt):
                observers.discarded(target, cleaned)
        return answers

    return _through(control, reader, bulk, BulkVerb.DISCARD, cleaned, act)


def dead_letters(chosen: JobFilter) -> JobFilter:
    """The dead letters that a filter means; discarded ones only if it asks for them."""
    if chosen.states and State.FAILED not in chosen.states:
        states = ", ".join(chosen.states)
        raise NotRetriable(
            f"the filter asks for jobs that are {states}; only failed ones are meant"
        )
    return replace(chosen, states=(State.FAILED,), discarded=chosen.discarded or False)


def _through(
    control: Control,
    reader: Reader,
    bulk: BulkView,
    verb: BulkVerb,
    deed: Deed,
    act: Callable[[Sequence[JobView]], Sequence[Settled]],
) -> BulkView:
    """Page after page, each counted before the next."""
    if bulk.verb is not verb:
        raise CallerError(f"bulk operation {bulk.id} is a {bulk.verb.value}, not a {verb.value}")
    meant = msgspec.json.decode(bulk.filter_json, type=JobFilter)
    while bulk.status is BulkStatus.RUNNING:
        page = reader.jobs(meant, limit=_PAGE_ROWS, before=bulk.cursor)
        jobs = [job for job in page if job.finished_at and job.finished_at <= bulk.begun_at]
        answers = act(jobs) if jobs else ()
        done = sum(isinstance(one, Receipt) for one in answers)
        step = BulkStep(
            bulk.no, bulk.cursor, page[-1].no if page else bulk.cursor, done, len(jobs) - done,
            BulkStatus.RUNNING if len(page) == _PAGE_ROWS else BulkStatus.DONE,
        )  # fmt: skip
        moved = control.step_bulk(step)
        if moved is None:  # another hand has gone on with it, or has stopped it
            return control.add_bulk(NewBulk(bulk.id, verb, bulk.filter_json, deed))
        bulk = moved
    return bulk


def _cleaned(deed: Deed) -> Deed:
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
        deadline_at=job.deadline_at, key=job.key,
    )  # fmt: skip
    ending = Ending(claim, Revoked(reason), 0.0, job.worker)
    decision = Cancel(Why(_words(reason), "cancel", stage.policy.label))
    return msgspec.structs.replace(
        record_of(ending, decision, line, stage), error_message=_words(reason)
    )


def _words(reason: str) -> str:
    return f"cancelled by the caller ({reason})" if reason else "cancelled by the caller"
