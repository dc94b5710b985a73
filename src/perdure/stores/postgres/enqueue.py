"""Enqueueing: new rows, or the jobs that had their ids or keys before; in our transaction or another's."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from perdure.model.errors import StoreBusy, WorkerDead
from perdure.model.jobs import Enqueued, IfFailed, NewJob, OnLost
from perdure.model.operations import Revival
from perdure.model.states import State
from perdure.stores.moments import seconds_us, to_us
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.fair_ranks import ranks_of
from perdure.stores.postgres.record import json_answer
from perdure.stores.postgres.revive import revive
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import AGEING_US, Row, encode, job_in, lengths_in, without_repeats

_TRIES_MAX = 3  # a key may be given up by a job that is pruned between our two looks


def lanes_among(cx: Cx, nos: set[int]) -> set[int]:
    """The numbers that are those of lanes."""
    return {no for (no,) in cx.execute(SQL.lane_nos, {"nos": sorted(nos)}).fetchall()}


def accept_whole(cx: Cx, jobs: Sequence[NewJob], now: int | None) -> list[Enqueued]:
    """All or none, and safe to be called anew by somebody who got no answer.

    The insert is a single statement. What may follow it looks up the jobs that had the keys before: if
    that fails, calling again with the same keys finds the jobs, and only a batch that has jobs
    without keys beside them needs a transaction around both.
    """
    if len({job.key is None for job in jobs}) == 1:
        return accept(cx, jobs, now)
    with cx.transaction():
        return accept(cx, jobs, now)


def accept(
    cx: Cx, jobs: Sequence[NewJob], now: int | None, *, borrowed: bool = False
) -> list[Enqueued]:
    """Insert what is new, find what is not. Without a moment the server's own is taken.

    In a ``borrowed`` transaction, which may stay open, nothing is counted in a row that another one writes.
    """
    done: dict[str, Enqueued] = {}
    for _ in range(_TRIES_MAX):
        missing = [job for job in jobs if job.id not in done]
        ranks = ranks_of(cx, missing, now)
        done |= _insert(cx, without_repeats(missing), ranks, now, borrowed=borrowed)
        if len(done) == len(jobs):
            return [done[job.id] for job in jobs]
        missing = [job for job in jobs if job.id not in done]
        if missing:
            done |= _find(cx, missing, now, borrowed=borrowed)
        if len(done) == len({job.id for job in jobs}):
            return list(_in_order(jobs, done))
    raise StoreBusy("the jobs that have these keys come and go; try again")  # pragma: no cover


def _in_order(jobs: Sequence[NewJob], done: dict[str, Enqueued]) -> Iterator[Enqueued]:
    """One answer for each job; if one is given twice, only its first answer says that a failed job was revived."""
    for job in jobs:
        answer = done[job.id]
        yield answer
        if answer.revived:
            done[job.id] = replace(answer, revived=False)


def begin(
    cx: Cx, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost, now: int | None
) -> int | Enqueued:
    """Insert a job that its caller runs at once, or queue it if its lane is closed; or find the job with its key."""
    deadline_us, policies_us = lengths_in(job)
    where = {
        "id": job.id,
        "owner": job.owner,
        "pipeline": job.pipeline,
        "run": job.run,
        "key": job.key,
        "lane": job.lane,
        "stage": job.stage,
        "priority": job.priority,
        "worker": worker,
        "payload": job.payload_json,
        "hard_us": seconds_us(hard_s),
        "ageing_us": AGEING_US,
        "deadline_us": deadline_us,
        "policies_us": policies_us,
        "now": now,
        "on_lost": on_lost,
        "tokens": job.tokens,
        "request_id": job.request_id,
        "ordered_at": None if job.ordered_at is None else to_us(job.ordered_at),
        "rank_at": ranks_of(cx, [job], now).get(job.id),
    }
    for _ in range(_TRIES_MAX):
        row = cx.execute(SQL.begin, where).fetchone()
        assert row is not None
        no, alive = row
        if not alive:
            raise WorkerDead(f"worker {worker} was declared dead, so it may begin nothing")
        if no is not None:
            return int(no)
        found = _find(cx, [job], now)
        if found:
            return found[job.id]
    raise StoreBusy("the job that has this key comes and goes; try again")  # pragma: no cover


def _insert(
    cx: Cx,
    jobs: Sequence[NewJob],
    ranks: Mapping[str, int],
    now: int | None,
    *,
    borrowed: bool,
) -> dict[str, Enqueued]:
    rows = encode([job_in(job, ranks.get(job.id)) for job in jobs])
    where = {"jobs": rows, "now": now, "ageing_us": AGEING_US, "borrowed": borrowed}
    nos, ids, *_ = json_answer(cx.execute(SQL.enqueue, where))
    return {id: Enqueued(id, no, True) for no, id in zip(nos or (), ids or (), strict=True)}


def _find(
    cx: Cx, jobs: Sequence[NewJob], now: int | None, *, borrowed: bool = False
) -> dict[str, Enqueued]:
    """Who had the ids or the keys before. One that was pruned since is not found, and free again."""
    asked = {job.id: job for job in jobs}
    rows = [
        {"id": job.id, "owner": job.owner, "pipeline": job.pipeline, "run": job.run, "key": job.key}
        for job in asked.values()
    ]
    answer = cx.execute(SQL.enqueued_before, {"jobs": encode(rows)}).fetchall()
    by_id = {row[0]: row for row in answer}
    found = [by_id[id] for id in asked if id in by_id]
    first = {row[1]: row for row in reversed(found) if _is_dead(row, asked[row[0]])}
    again = [_revival(row, asked[row[0]]) for row in found if first.get(row[1]) is row]
    revived = _revive(cx, again, now, borrowed=borrowed) if again else set()
    return {
        row[0]: Enqueued(
            row[2], row[1], row[0] == row[2], row[1] in revived and first[row[1]] is row
        )
        for row in found
    }


def _revive(cx: Cx, again: Sequence[Revival], now: int | None, *, borrowed: bool) -> set[int]:
    """The numbers of those that have a new life now, whoever has their keys in other runs."""
    with cx.transaction():
        return revive(cx, again, _now(cx, now), borrowed=borrowed)


def _is_dead(row: Row, job: NewJob) -> bool:
    return bool(row[0] != row[2] and row[3] == State.FAILED and job.if_failed is IfFailed.RETRY)


def _revival(row: Row, job: NewJob) -> Revival:
    _, no, id, _, token, stage, lane, input_from = row
    return Revival(no, id, token, stage, lane, input_from, deadline_s=job.policies_s)


def _now(cx: Cx, now: int | None) -> int:
    if now is not None:
        return now
    row = cx.execute(SQL.clock).fetchone()
    assert row is not None
    return int(row[0])
