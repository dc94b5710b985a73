"""The reads about runs, dead letters and captures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import LoggedRefusal
from perdure.model.runs import ItemView, RunView
from perdure.model.views import CaptureView, DeadGroup, PayloadView, RunFigures
from perdure.stores.choosing import NO_MAX, Dialect, Fetch
from perdure.stores.columns import CAPTURE, ITEM, RUN
from perdure.stores.moments import to_us
from perdure.stores.postgres.claiming import array
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.reviving import rivals
from perdure.stores.postgres.statements import SQL
from perdure.stores.reporting import run_figures
from perdure.stores.rows import Row
from perdure.stores.statements import as_psycopg_reads
from perdure.stores.tallies import dead_groups, is_kept

# The rows of a step are found first (OFFSET 0 keeps them apart): what else a filter says must not lead to another index.
DIALECT = Dialect(
    "(SELECT * FROM perdure_jobs AS j WHERE {step} OFFSET 0) AS j WHERE true",
    "j.no = ANY (CAST(:nos AS bigint[]))",
    array,
)

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresReports:
    """The part of the `Reader` port that is about runs, dead letters and captures."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, id: str) -> RunView | None:
        """One run, its counters summed."""
        rows = self._rows(SQL.run_by_id, {"id": id}) if is_uuid(id) else ()
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
        where = {
            "pipeline": pipeline, "owner": owner, "name": name, "floor": 0, **bounds(limit, before),
        }  # fmt: skip
        if no is not None:
            if not 0 < no < bounds(limit, before)["before"]:
                return []
            where |= {"floor": no, "before": no + 1}
        sql = SQL.runs_live if live else SQL.runs_page
        return RUN.read_all(self._rows(sql, where))

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
        """What the attempts of a run's jobs say; walks over all of them, and over those of no other run."""
        with self._connection.walking(by_index=True) as cx:
            return run_figures(fetching(cx), run)

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """The dead letters of a filter by fingerprint, most frequent first."""
        walking = self._connection.walking(by_index=True)
        with self._snapshot() if is_kept(chosen) else walking as cx:
            return dead_groups(chosen, DIALECT, fetching(cx), limit=limit)

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """For these jobs, the ids of others of their owner, pipeline and key that are queued or processing."""
        with self._connection.lent() as cx:
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
        where = {"bulk": bulk, "keys": list(keys)}
        return {row[0]: row[1] for row in self._rows(SQL.bulk_payloads_of, where)}

    def captures(self, job_no: int) -> list[CaptureView]:
        """What was put aside in a job's attempts, oldest first."""
        return CAPTURE.read_all(self._rows(SQL.captures_of, {"job": job_no}))

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """One capture, if its job is that owner's; None as owner is an operator, who may read all."""
        where = {"id": id, "owner": owner}
        rows = self._rows(SQL.capture_by_id, where) if is_uuid(id) else ()
        return (CAPTURE.read(rows[0]), bytes(rows[0][CAPTURE.width])) if rows else None

    def _rows(self, sql: str, values: Mapping[str, object] | None = None) -> Sequence[Row]:
        with self._connection.lent() as cx:
            return cx.execute(sql, values).fetchall()

    @contextmanager
    def _snapshot(self) -> Iterator[Cx]:
        with self._connection.lent() as cx, cx.transaction():
            cx.execute(_SNAPSHOT, prepare=False)  # more than one command cannot be prepared
            yield cx


def fetching(cx: Cx) -> Fetch:
    """How statements that both stores share are run on this one."""

    def fetch(sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        return cx.execute(as_psycopg_reads(sql), values).fetchall()

    return fetch


def is_uuid(id: str) -> bool:
    """Whether this could be the id of anything here; the server refuses to compare other texts."""
    try:
        return str(UUID(id)) == id
    except ValueError:
        return False


def rows_of(limit: int) -> int:
    """A page is never too long."""
    return max(0, min(limit, PAGE_ROWS_MAX))


def bounds(limit: int, before: int | None) -> dict[str, int]:
    """A page by number, from the newest on when nothing is said."""
    return {"limit": rows_of(limit), "before": NO_MAX if before is None else min(before, NO_MAX)}
