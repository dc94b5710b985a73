"""Ranks of fair jobs, from what the tables say of their lines."""

import sqlite3
from collections.abc import Iterable, Sequence

from perdure.model.jobs import NewJob
from perdure.model.operations import Revival
from perdure.stores.fair_ranks import Lines
from perdure.stores.rows import encode
from perdure.stores.sqlite.statements import SQL


def ranks_of(cx: sqlite3.Connection, jobs: Sequence[NewJob], now: int) -> dict[str, int]:
    """The ranks of those of these jobs that are fair, by id."""
    fair = [job for job in jobs if job.fair]
    if not fair:
        return {}
    lines = _lines(cx, {job.owner for job in fair}, {job.lane for job in fair}, now)
    return {job.id: lines.rank(job.id, job.owner, job.lane) for job in fair}


def ranks_anew(cx: sqlite3.Connection, chosen: Sequence[Revival], now: int) -> dict[int, int]:
    """The ranks of those of these jobs that are fair, as if they were new, by number."""
    asked = {"nos": encode([one.no for one in chosen])}
    owners: dict[int, str] = dict(cx.execute(SQL.fair_owners, asked).fetchall())
    if not owners:
        return {}
    fair = [one for one in chosen if one.no in owners]
    lines = _lines(cx, set(owners.values()), {one.lane for one in fair}, now)
    return {one.no: lines.rank(one.no, owners[one.no], one.lane) for one in fair}


def _lines(cx: sqlite3.Connection, owners: Iterable[str], lanes: Iterable[int], now: int) -> Lines:
    queues = cx.execute(SQL.queues, {"lanes": encode(sorted(lanes))}).fetchall()
    ends = {
        (owner, queue): rank_at
        for owner in owners
        for queue, rank_at in cx.execute(SQL.fair_ends, {"owner": owner}).fetchall()
    }
    return Lines(now, dict(queues), dict(cx.execute(SQL.fair_starts).fetchall()), ends)
