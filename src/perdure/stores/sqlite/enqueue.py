"""Enqueueing: new rows, or the jobs that had their ids or keys before; in our transaction or another's."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from perdure.model.changes import ChangeKind
from perdure.model.jobs import Claim, Enqueued, IfFailed, NewJob, OnLost
from perdure.model.nouns import replace
from perdure.model.operations import Revival
from perdure.model.states import State
from perdure.stores.change_lines import Entry, run_entry
from perdure.stores.moments import seconds_us, to_us
from perdure.stores.rows import AGEING_US, encode, lengths_in, without_repeats
from perdure.stores.sqlite.change_feed import tell, tell_columns
from perdure.stores.sqlite.fair_ranks import ranks_anew, ranks_of
from perdure.stores.sqlite.record import add_tally, claims_of
from perdure.stores.sqlite.revive import RevivalWriter
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tally_changes import TallyChanges


def accept(cx: sqlite3.Connection, jobs: Sequence[NewJob], now: int) -> list[Enqueued]:
    """Insert what is new, find what is not.

    What is taken is left out before it is numbered, so that numbers have no gaps and the audit can
    tell a row that vanished. We are the only writer until our commit: what we read stays true.
    """
    ids = encode([job.id for job in jobs])
    again = {id: Enqueued(id, no, True) for no, id in cx.execute(SQL.ids_taken, (ids,)).fetchall()}
    fresh = [
        job for job in without_repeats(jobs) if job.id not in again and not _key_taken(cx, job)
    ]
    (last,) = cx.execute(SQL.last_job_no).fetchone() or (0,)
    made = {job.id: no for no, job in enumerate(fresh, start=last + 1)}
    _insert(cx, fresh, made, ranks_of(cx, jobs, now), now)
    cx.executemany(SQL.owned_add, [(job.owner, made[job.id], now) for job in fresh if job.owner])
    tally = TallyChanges()
    for job in fresh:
        tally.add_accepted(
            job, "ready" if job.run_at is None or to_us(job.run_at) <= now else "waiting"
        )
    if fresh:
        tell_columns(cx, ChangeKind.JOB_ACCEPTED, _entries(fresh, made), now)
    _take_in(cx, fresh, tally, now)
    again |= {id: Enqueued(id, no, True) for id, no in made.items()}
    found = iter(_find(cx, [job for job in jobs if job.id not in again], now))
    return [again.get(job.id) or next(found) for job in jobs]


def begin(
    cx: sqlite3.Connection, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost, now: int
) -> Claim | Enqueued:
    """Insert a job that its caller runs at once, or queue it if its lane is closed; or find the job with its key."""
    again = cx.execute(SQL.ids_taken, (encode([job.id]),)).fetchone()
    if again is not None:  # this very call, sent again after its answer was lost
        held = {no for no, _ in cx.execute(SQL.held, {"worker": worker}).fetchall()}
        if again[0] not in held:  # it was queued, and another has it by now
            return Enqueued(job.id, again[0], True)
        return claims_of(cx, [again[0]])[0]
    if _key_taken(cx, job):
        return _find(cx, [job], now)[0]
    if any(lane == job.lane for (lane,) in cx.execute(SQL.closed_lane_nos).fetchall()):
        return accept(cx, [job], now)[0]
    (last,) = cx.execute(SQL.last_job_no).fetchone() or (0,)
    lengths = lengths_in(job)
    order_at = _order_at(job, now, now)
    rank_at = ranks_of(cx, [job], now).get(job.id, order_at - job.priority * AGEING_US)
    cx.execute(
        SQL.begin,
        (
            last + 1,
            job.id,
            job.owner,
            job.pipeline,
            job.run,
            job.key,
            job.lane,
            job.stage,
            worker,
            job.priority,
            now,
            rank_at,
            _deadline_at(now, *lengths),
            now + seconds_us(hard_s),
            str(on_lost),
            job.payload_json,
            job.tokens,
            job.fair,
            order_at,
            job.request_id,
            *lengths,
        ),
    )
    if job.owner:
        cx.execute(SQL.owned_add, (job.owner, last + 1, now))
    tally = TallyChanges()
    tally.add_accepted(job, "processing")
    whose = (last + 1, job.id, job.owner, job.pipeline, job.stage)
    told = Entry(*whose, State.PROCESSING, None, 1, job.run)
    tell(cx, ChangeKind.JOB_ACCEPTED, [told], now)
    _take_in(cx, [job], tally, now)
    return claims_of(cx, [last + 1])[0]


def lanes_among(cx: sqlite3.Connection, nos: set[int]) -> set[int]:
    """The numbers that are those of lanes."""
    return {no for (no,) in cx.execute(SQL.lane_nos, (encode(sorted(nos)),)).fetchall()}


def _take_in(cx: sqlite3.Connection, jobs: Sequence[NewJob], tally: TallyChanges, now: int) -> None:
    """Count new jobs; a run that had ended has not any more."""
    add_tally(cx, tally, 0, now)
    runs = {job.run for job in jobs if job.run is not None}
    if runs:
        again = cx.execute(SQL.runs_take_in, {"nos": encode(sorted(runs)), "now": now}).fetchall()
        tell(cx, ChangeKind.RUN_CHANGED, [run_entry(*row) for row in again], now)


def _entries(jobs: Sequence[NewJob], made: Mapping[str, int]) -> Sequence[Sequence[object]]:
    """What the change feed tells of new jobs: the columns of `Entry`."""
    return (
        [made[job.id] for job in jobs],
        [job.id for job in jobs],
        [job.owner for job in jobs],
        [job.pipeline for job in jobs],
        [job.stage for job in jobs],
        [State.QUEUED],
        [None],
        [0],
        [job.run for job in jobs],
    )


def _insert(
    cx: sqlite3.Connection,
    jobs: Sequence[NewJob],
    made: Mapping[str, int],
    ranks: Mapping[str, int],
    now: int,
) -> None:
    plain, more = [], []
    for job in jobs:
        due_at = now if job.run_at is None else max(now, to_us(job.run_at))
        order_at = _order_at(job, due_at, now)
        rank_at = ranks.get(job.id, order_at - job.priority * AGEING_US)
        row = (
            made[job.id],
            job.id,
            job.owner,
            job.pipeline,
            job.run,
            job.key,
            job.lane,
            job.stage,
            int(due_at == now),
            job.priority,
            due_at,
            rank_at,
            now,
            job.payload_json,
        )
        if _is_plain(job):
            plain.append(row)
        else:
            more.append((*row, *_more(job, due_at, order_at)))
    cx.executemany(SQL.enqueue, plain)
    if more:
        cx.executemany(SQL.enqueue_more, more)


def _is_plain(job: NewJob) -> bool:
    """Whether a job has none of the values that most jobs leave out."""
    return (
        job.tokens is None
        and not job.fair
        and job.deadline_s is None
        and job.policies_s is None
        and job.request_id is None
        and job.ordered_at is None
    )


def _more(job: NewJob, due_at: int, order_at: int) -> tuple[object, ...]:
    """The further columns of a job that is not plain."""
    lengths = lengths_in(job)
    deadline_at = _deadline_at(due_at, *lengths)
    return (order_at, deadline_at, job.tokens, job.fair, job.request_id, *lengths)


def _order_at(job: NewJob, due_at: int, now: int) -> int:
    return due_at if job.ordered_at is None else min(now, to_us(job.ordered_at))


def _deadline_at(begins_at: int, deadline_us: int | None, policies_us: int | None) -> int | None:
    total_us = policies_us if deadline_us is None else deadline_us
    return None if total_us is None else begins_at + total_us


def _key_taken(cx: sqlite3.Connection, job: NewJob) -> bool:
    if job.key is None:
        return False
    where = (job.owner, job.pipeline, job.run, job.key)
    return cx.execute(SQL.enqueued_before, where).fetchone() is not None


def _find(cx: sqlite3.Connection, jobs: Sequence[NewJob], now: int) -> list[Enqueued]:
    """The jobs that had the keys before; a failed one gets a new life, by the first of these that asks for it."""
    rows = [
        cx.execute(SQL.enqueued_before, (job.owner, job.pipeline, job.run, job.key)).fetchone()
        for job in jobs
    ]
    first: dict[int, tuple[int, Revival]] = {}
    for place, (job, (no, id, state, *parts)) in enumerate(zip(jobs, rows, strict=True)):
        if state == State.FAILED and job.if_failed is IfFailed.RETRY:
            revival = replace(Revival(no, id, *parts), deadline_s=job.policies_s)
            first.setdefault(no, (place, revival))
    revived = _revive(cx, first.values(), now) if first else set()
    return [
        Enqueued(row[1], int(row[0]), False, place in revived) for place, row in enumerate(rows)
    ]


def _revive(cx: sqlite3.Connection, asked: Collection[tuple[int, Revival]], now: int) -> set[int]:
    """The places of those that have a new life now, whoever has their keys in other runs."""
    ranks = ranks_anew(cx, [one for _, one in asked], now)
    revivals = RevivalWriter(cx, now)
    done = set()
    for place, one in asked:
        seen = revivals.row_as_seen(one)
        if seen is not None:
            revivals.begin(one, seen, ranks.get(one.no))
            done.add(place)
    revivals.close()
    return done
