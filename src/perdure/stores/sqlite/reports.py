"""The reads about runs, dead letters and captures."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import LoggedRefusal
from perdure.model.runs import ItemView, RunView
from perdure.model.views import CaptureView, DeadGroup, PayloadView, RunFigures
from perdure.stores.choosing import NO_MAX, Dialect, Fetch
from perdure.stores.columns import CAPTURE, ITEM, RUN
from perdure.stores.moments import to_us
from perdure.stores.reporting import run_figures
from perdure.stores.rows import Row, encoded
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reviving import rivals
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tallies import dead_groups

# A step looks at a range of numbers; every other index would lead through more rows than that.
DIALECT = Dialect(
    "perdure_jobs AS j NOT INDEXED WHERE {step}",
    "j.no IN (SELECT value FROM json_each(:nos))",
    encoded,
)


class SqliteReports:
    """The part of the `Reader` port that is about runs, dead letters and captures."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, id: str) -> RunView | None:
        """One run, its counters summed."""
        rows = self._rows(SQL.run_by_id, (id,))
        return RUN.read(rows[0]) if rows else None

    def runs(
        self,
        *,
        pipeline: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        no: int | None = None,
        live: bool = False,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Runs, newest first; with ``live`` only those that are not over; ``before`` continues below a number."""
        where = {"pipeline": pipeline, "owner": owner, "name": name, **bounds(limit, before)}
        with self._connection.read() as (cx, _):
            if no is None and None not in (pipeline, owner, name):
                (no,) = cx.execute(SQL.run_found, where).fetchone() or (0,)
            where["floor"] = 0 if no is None else min(no, NO_MAX)
            if no is not None:
                where["before"] = min(bounds(limit, before)["before"], no + 1)
            rows = cx.execute(SQL.runs_live if live else SQL.runs_page, where).fetchall()
        return RUN.read_all(rows)

    def items(
        self, run: int, *, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run in their order, above a job number; with ``redriven``, what was driven again in it."""
        where = {"run": run, "after": after, "limit": rows_of(limit)}
        sql = SQL.items_redriven if redriven else SQL.items
        return ITEM.read_all(self._rows(sql, where))

    def items_ended(
        self, run: int, *, since: datetime, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run that have ended, by when they did, from a moment on, above a number within it."""
        where = {"run": run, "since": to_us(since), "after": after, "limit": rows_of(limit)}
        sql = SQL.items_ended_redriven if redriven else SQL.items_ended
        return ITEM.read_all(self._rows(sql, where))

    def run_figures(self, run: int) -> RunFigures:
        """What the attempts of a run's jobs say; walks over all of them."""
        with self._connection.read() as (cx, _):
            return run_figures(fetching(cx), run)

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """The dead letters of a filter by fingerprint, most frequent first."""
        with self._connection.read() as (cx, _):
            return dead_groups(chosen, DIALECT, fetching(cx), limit=limit)

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """For these jobs, the ids of others of their owner, pipeline and key that are queued or processing."""
        with self._connection.read() as (cx, _):
            return rivals(cx, job_nos)

    def refusals(self, bulk: int, *, after: int = 0, limit: int = 500) -> list[LoggedRefusal]:
        """What a bulk operation has left as it was, by job number above ``after``."""
        where = {"bulk": bulk, "after": after, "limit": rows_of(limit)}
        return [LoggedRefusal(*row) for row in self._rows(SQL.refusals_page, where)]

    def payloads(self, job_no: int) -> list[PayloadView]:
        """The payloads that a job had before the one that it has, oldest first."""
        return [PayloadView(*row) for row in self._rows(SQL.payloads_of, {"job": job_no})]

    def bulk_payloads(self, bulk: int, keys: Sequence[str]) -> dict[str, str]:
        """The payloads, as JSON, that a bulk operation which is not done brings for these keys."""
        where = {"bulk": bulk, "keys": encoded(list(keys))}
        return {row[0]: row[1] for row in self._rows(SQL.bulk_payloads_of, where)}

    def captures(self, job_no: int) -> list[CaptureView]:
        """What was put aside in a job's attempts, oldest first."""
        return CAPTURE.read_all(self._rows(SQL.captures_of, (job_no,)))

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """One capture, if its job is that owner's; None as owner is an operator, who may read all."""
        rows = self._rows(SQL.capture_by_id, {"id": id, "owner": owner})
        return (CAPTURE.read(rows[0]), bytes(rows[0][CAPTURE.width])) if rows else None

    def _rows(
        self, sql: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> Sequence[Row]:
        with self._connection.read() as (cx, _):
            return cx.execute(sql, values).fetchall()


def fetching(cx: sqlite3.Connection) -> Fetch:
    """How statements that both stores share are run on this one."""

    def fetch(sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        return cx.execute(sql, dict(values)).fetchall()

    return fetch


def rows_of(limit: int) -> int:
    """A page is never too long."""
    return max(0, min(limit, PAGE_ROWS_MAX))


def bounds(limit: int, before: int | None) -> dict[str, int]:
    """A page by number, from the newest on when nothing is said."""
    return {"limit": rows_of(limit), "before": NO_MAX if before is None else min(before, NO_MAX)}
