"""Enqueueing and reviving, as both the store and the operators' side need them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.model.changes import ChangeKind
from perdure.model.errors import StoreError
from perdure.model.jobs import ZERO, Enqueued, IfFailed, NewJob, OnLost
from perdure.model.nouns import replace
from perdure.model.operations import Revival
from perdure.model.runs import RunStatus
from perdure.model.states import State
from tests.stores.reference.fairness import Lines
from tests.stores.reference.rows import JobRow
from tests.stores.reference.tables import Tables, length, rank


def accept(tables: Tables, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
    """Each job is made, or found again by its own id, or by its key."""
    before = set(tables.jobs)
    _make_all(tables, jobs, now)
    for no in sorted(tables.jobs.keys() - before):
        tables.tell_job(ChangeKind.JOB_ACCEPTED, tables.jobs[no], now)
    lines = Lines(tables, now)
    return [_found(tables, job, now, lines) for job in jobs]


def _make_all(tables: Tables, jobs: Sequence[NewJob], now: datetime) -> None:
    try:
        lines = Lines(tables, now)
        for job in jobs:
            _make(tables, job, now, lines)
    except (ValueError, OverflowError, TypeError) as error:
        raise StoreError(f"a job cannot be written: {error}") from error


def _make(tables: Tables, job: NewJob, now: datetime, lines: Lines) -> None:
    due_at = now if job.run_at is None else max(now, job.run_at)
    order_at = _order_at(job, due_at, now)
    own = _maybe_length(job.deadline_s)
    total = _maybe_length(job.policies_s) if own is None else own
    rank_at = rank(order_at, job.priority)
    if job.fair:
        rank_at = lines.rank(job.id, job.owner, job.lane)
    if _by_id(tables, job.id) is not None or _by_key(tables, job) is not None:
        return
    tables.put_job(
        JobRow(
            no=tables.next_no("jobs"),
            id=job.id,
            owner=job.owner,
            pipeline=job.pipeline,
            run=job.run,
            key=job.key,
            lane=job.lane,
            stage=job.stage,
            priority=job.priority,
            payload_json=job.payload_json,
            enqueued_at=now,
            order_at=order_at,
            rank_at=rank_at,
            due_at=due_at,
            deadline_at=None if total is None else due_at + total,
            own_total=own,
            policies_total=total if own is None else None,
            updated_at=now,
            changed_at=now,
            ready=due_at == now,
            tokens=job.tokens,
            fair=job.fair,
            request_id=job.request_id,
        )
    )
    tables.accepted[job.pipeline] = tables.accepted.get(job.pipeline, 0) + 1
    tables.flow(job.pipeline, job.stage, now, created=1)
    tables.count(job.run, total=1)
    tables.take_in(job.run, now)


def begin(
    tables: Tables, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost, now: datetime
) -> JobRow | Enqueued:
    """A job that is in its caller's hands from the first moment; queued where its lane is closed."""
    known = _by_id(tables, job.id) or _by_key(tables, job)
    if known is None and tables.is_open(job.lane):
        _make_all(tables, [job], now)
        (row,) = [one for one in tables.jobs.values() if one.id == job.id]
        order_at = _order_at(job, now, now)
        row = replace(
            row,
            state=State.PROCESSING,
            ready=None,
            worker=worker,
            token=1,
            order_at=order_at,
            rank_at=row.rank_at if job.fair else rank(order_at, job.priority),
            due_at=now,
            claimed_at=now,
            counters=replace(ZERO, starts=1),
            hard_at=now + length(hard_s),
            on_lost=on_lost,
        )
        tables.put_job(row)
        tables.tell_job(ChangeKind.JOB_ACCEPTED, row, now)
        return row
    done = accept(tables, [job], now)[0]
    row = tables.jobs[done.no]
    ours = row.id == job.id and row.state is State.PROCESSING and row.worker == worker
    return row if ours else done


def _found(tables: Tables, job: NewJob, now: datetime, lines: Lines) -> Enqueued:
    own = _by_id(tables, job.id)
    if own is not None:  # made just now, or by this very call, sent before
        return Enqueued(own.id, own.no, created=True)
    before = _by_key(tables, job)
    assert before is not None
    revived = (
        before.state is State.FAILED
        and job.if_failed is IfFailed.RETRY
        and revive(tables, _as_it_stands(before, job.policies_s), now, lines)
    )
    return Enqueued(before.id, before.no, created=False, revived=revived)


def _by_id(tables: Tables, id: str) -> JobRow | None:
    return next((row for row in tables.jobs.values() if row.id == id), None)


def _by_key(tables: Tables, job: NewJob) -> JobRow | None:
    """A key is taken within one owner, one pipeline and one run (or none)."""
    if job.key is None:
        return None
    wanted = (job.owner, job.pipeline, job.run, job.key)
    return next(
        (
            row
            for row in tables.jobs.values()
            if (row.owner, row.pipeline, row.run, row.key) == wanted
        ),
        None,
    )


def _as_it_stands(job: JobRow, deadline_s: float | None) -> Revival:
    where = (job.stage, job.lane, job.input_from)
    return Revival(job.no, job.id, job.token, *where, deadline_s=deadline_s)


def _order_at(job: NewJob, due_at: datetime, now: datetime) -> datetime:
    """What its caller said, if that is not yet to come; else when it may begin."""
    return due_at if job.ordered_at is None else min(now, job.ordered_at)


def _maybe_length(seconds: float | None) -> timedelta | None:
    return None if seconds is None else length(seconds)


def may_live(tables: Tables, one: Revival) -> bool:
    """Whether it is still the dead job that was seen, and would not stand in a cancelled run."""
    job = tables.jobs.get(one.no)
    if job is None or job.token != one.token or job.state is not State.FAILED:
        return False
    run = tables.runs.get(one.redrive_run or job.redrive_run or job.run or 0)
    return run is None or run.status is not RunStatus.CANCELLED


def revive(tables: Tables, one: Revival, now: datetime, lines: Lines) -> bool:
    """A new life for a failed job, if it is still the one that was seen."""
    job = tables.jobs.get(one.no)
    rank_at = now if job is None else rank(now, job.priority)
    if job is not None and job.fair:
        rank_at = lines.rank(job.no, job.owner, one.lane)
    if job is None or not may_live(tables, one):
        return False
    redrive_run = job.redrive_run if one.redrive_run is None else one.redrive_run
    total = _maybe_length(one.deadline_s) if job.own_total is None else job.own_total
    tables.put_job(
        replace(
            job,
            state=State.QUEUED,
            ready=True,
            token=job.token + 1,
            life=job.life + 1,
            retries_manual=job.retries_manual + 1,
            lane=one.lane,
            stage=one.stage,
            isolation=0,
            input_from=one.input_from,
            redrive_run=redrive_run,
            order_at=now,
            rank_at=rank_at,
            due_at=now,
            updated_at=now,
            changed_at=now,
            deadline_at=None if total is None else now + total,
            policies_total=total if job.own_total is None else None,
            finished_at=None,
            discarded_at=None,
            failed_reason=None,
            error_kind=None,
            error_message=None,
            error_code=None,
            error_detail=None,
            fingerprint=None,
            counters=ZERO,
            past=ZERO,
            payload_json=job.payload_json if one.payload_json is None else one.payload_json,
        )
    )
    tables.flow(job.pipeline, job.stage, now, revived=1)
    if one.payload_json is not None:
        tables.payloads[job.no, job.life] = job.payload_json
    if redrive_run is not None:
        tables.redrives[redrive_run, job.no, job.life + 1] = None
    for stage in one.forgotten:
        tables.checkpoints.pop((job.no, stage), None)
    tables.count_failed(job.run, job.error_kind, -1)
    if one.redrive_run in (None, job.redrive_run):
        tables.count_failed(job.redrive_run, job.error_kind, -1)
    else:
        tables.count(one.redrive_run, total=1)
    tables.tell_job(ChangeKind.JOB_REVIVED, tables.jobs[job.no], now)
    tables.reopen((job.run, job.redrive_run, one.redrive_run), now)
    return True
