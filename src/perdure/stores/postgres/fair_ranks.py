"""Ranks of fair jobs, from what the tables say of their lines."""

from collections.abc import Iterable, Sequence

from perdure.model.jobs import NewJob
from perdure.model.operations import Revival
from perdure.stores.fair_ranks import Lines
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encode


def ranks_of(cx: Cx, jobs: Sequence[NewJob], now: int | None) -> dict[str, int]:
    """The ranks of those of these jobs that are fair, by id."""
    fair = [job for job in jobs if job.fair]
    if not fair:
        return {}
    lines = _lines(cx, {job.owner for job in fair}, {job.lane for job in fair}, now)
    return {job.id: lines.rank(job.id, job.owner, job.lane) for job in fair}


def ranks_anew(cx: Cx, chosen: Sequence[Revival], now: int) -> dict[int, int]:
    """The ranks of those of these jobs that are fair, as if they were new, by number."""
    found = cx.execute(SQL.fair_owners, {"nos": array(one.no for one in chosen)}).fetchall()
    if not found:
        return {}
    owners: dict[int, str] = dict(found)
    fair = [one for one in chosen if one.no in owners]
    lines = _lines(cx, set(owners.values()), {one.lane for one in fair}, now)
    return {one.no: lines.rank(one.no, owners[one.no], one.lane) for one in fair}


def _lines(cx: Cx, owners: Iterable[str], lanes: Iterable[int], now: int | None) -> Lines:
    where = {"owners": encode(sorted(owners)), "lanes": array(lanes), "now": now}
    rows = cx.execute(SQL.fair_lines, where).fetchall()
    ((moment,),) = [row[3:] for row in rows if row[0] == "now"]
    return Lines(
        moment,
        {no: queue for kind, _, queue, no in rows if kind == "lane"},
        {queue: rank_at for kind, _, queue, rank_at in rows if kind == "start"},
        {(owner, queue): rank_at for kind, owner, queue, rank_at in rows if kind == "end"},
    )
