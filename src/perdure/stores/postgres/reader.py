"""The reads, for screens, reports and the audit. They change nothing and wait for nobody.

What takes more than one statement is read in one snapshot, so that books balance while others write.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.gates import GateRow
from perdure.model.limits import COUNT_MAX, PAGE_ROWS_MAX
from perdure.model.operations import BulkView, LanePause, LoggedDeed, ScheduleView
from perdure.model.runs import RunView
from perdure.model.views import (
    AttemptView,
    Books,
    Depths,
    FailureGroup,
    Finding,
    JobView,
    LaneView,
    Preview,
)
from perdure.model.workers import WorkerView
from perdure.stores.auditing import CHECKS, findings
from perdure.stores.choosing import NO_MAX, Choice, Dialect, Fetch, page, preview
from perdure.stores.moments import from_us
from perdure.stores.postgres.claiming import array
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import (
    Row,
    attempt_out,
    bulk_out,
    deed_out,
    gate_out,
    job_out,
    lane_out,
    pause_out,
    run_out,
    schedule_out,
    worker_out,
)

AUDIT: dict[str, str] = dict(CHECKS)
_WORKERS_MAX = 200  # dead ones that have left nothing behind

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_DIALECT = Dialect("perdure_jobs AS j", "j.no = ANY (CAST(:nos AS bigint[]))", array)
_PARAMETER = re.compile(r":([a-z_0-9]+)")


class PostgresReader:
    """The `Reader` port on one PostgreSQL database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def job(self, id: str) -> JobView | None:
        """One job; `StoreDamaged` when its row cannot be read."""
        rows = self._rows(SQL.job_by_id, {"id": id}) if _is_uuid(id) else ()
        return job_out(rows[0]) if rows else None

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; a page that is shorter than ``limit`` is the last one.

        No statement looks at more than `choosing.LOOK_ROWS_MAX` rows.
        """
        with self._snapshot() as cx:

            def whole(nos: list[int]) -> Sequence[Row]:
                return cx.execute(SQL.jobs_page, {"nos": array(nos)}).fetchall()

            return page(Choice(chosen, _DIALECT), _fetching(cx), whole, limit=limit, before=before)

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        with self._snapshot() as cx:
            return preview(Choice(chosen, _DIALECT), _fetching(cx), count_max=count_max)

    def depths(self, *, count_max: int = COUNT_MAX) -> Depths:
        """How many jobs stand where, each counted up to a bound."""
        ((ready, later, processing, failed),) = self._rows(SQL.depths, {"count_max": count_max})
        return Depths(count_max, ready, later, processing, failed)

    def lanes(self, *, count_max: int = COUNT_MAX) -> list[LaneView]:
        """All lanes by number, all that closes each, and how many jobs wait in it."""
        with self._snapshot() as cx:
            closed: dict[int, list[str]] = {}
            for lane, closed_by in cx.execute(SQL.lanes_closed).fetchall():
                closed.setdefault(lane, []).append(closed_by)
            rows = cx.execute(SQL.lanes_list, {"count_max": count_max}).fetchall()
        return [
            lane_out((*row[:7], "; ".join(closed.get(row[0], ())) or None, *row[7:]))
            for row in rows
        ]

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        return [attempt_out(row) for row in self._rows(SQL.attempts_of, {"job": job_no})]

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        where = {"pipeline": pipeline}
        with self._connection.walking() as cx:
            ((accepted, pruned),) = cx.execute(SQL.books, where).fetchall()
            found: dict[str, int] = dict(cx.execute(SQL.states_count, where).fetchall())
        return Books(
            accepted=accepted,
            queued=found.get("queued", 0),
            processing=found.get("processing", 0),
            succeeded=found.get("succeeded", 0),
            failed=found.get("failed", 0),
            cancelled=found.get("cancelled", 0),
            pruned=pruned,
        )

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        return [FailureGroup(*row) for row in self._rows(SQL.failures, {"pipeline": pipeline})]

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        return [worker_out(row) for row in self._rows(SQL.workers_list, {"limit": _WORKERS_MAX})]

    def pauses(self) -> list[LanePause]:
        """What is paused."""
        return [pause_out(row) for row in self._rows(SQL.pauses_list)]

    def gates(self) -> list[GateRow]:
        """Every gate that has a row, by name."""
        return [gate_out(row) for row in self._rows(SQL.gates_list)]

    def gate(self, name: str) -> GateRow | None:
        """One gate; None when it has no row, and so is flowing."""
        rows = self._rows(SQL.gate, {"name": name})
        return gate_out(rows[0]) if rows else None

    def run(self, id: str) -> RunView | None:
        """One run, its counters summed."""
        rows = self._rows(SQL.run_by_id, {"id": id}) if _is_uuid(id) else ()
        return run_out(rows[0]) if rows else None

    def runs(
        self, *, pipeline: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[RunView]:
        """Runs, newest first; ``before`` continues below a run number."""
        where = {"pipeline": pipeline, **_bounds(limit, before)}
        return [run_out(row) for row in self._rows(SQL.runs_page, where)]

    def now(self) -> datetime:
        """The store's clock."""
        with self._connection.lent() as cx:
            return from_us(self._connection.store_now(cx))

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        with self._connection.lent() as cx:
            due_by = self._connection.store_now(cx) if due else None
            rows = cx.execute(SQL.schedules_list, {"due_by": due_by}).fetchall()
        return [schedule_out(row) for row in rows]

    def bulks(self, *, running: bool = False, limit: int = 50) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        where = {"running": running, "limit": _bounds(limit, None)["limit"]}
        return [bulk_out(row) for row in self._rows(SQL.bulks_list, where)]

    def deeds(self, *, limit: int = 50, before: int | None = None) -> list[LoggedDeed]:
        """The audit log, newest first; ``before`` continues below a line's number."""
        return [deed_out(row) for row in self._rows(SQL.deeds_page, _bounds(limit, before))]

    def audit(self) -> list[Finding]:
        """Everything in the tables that ought not to be so."""
        with self._connection.walking() as cx:
            return findings(AUDIT, lambda sql: cx.execute(sql).fetchall())

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _rows(self, sql: str, values: Mapping[str, object] | None = None) -> Sequence[Row]:
        with self._connection.lent() as cx:
            return cx.execute(sql, values).fetchall()

    @contextmanager
    def _snapshot(self, settings: str = _SNAPSHOT) -> Iterator[Cx]:
        with self._connection.lent() as cx, cx.transaction():
            cx.execute(settings, prepare=False)  # more than one command cannot be prepared
            yield cx


def _fetching(cx: Cx) -> Fetch:
    def fetch(sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        return cx.execute(_PARAMETER.sub(r"%(\1)s", sql), values).fetchall()

    return fetch


def _is_uuid(id: str) -> bool:
    """Whether this could be the id of anything here; the server refuses to compare other texts."""
    try:
        return str(UUID(id)) == id
    except ValueError:
        return False


def _bounds(limit: int, before: int | None) -> dict[str, object]:
    """A page by number: never too long, and from the newest on when nothing is said."""
    return {
        "limit": max(0, min(limit, PAGE_ROWS_MAX)),
        "before": NO_MAX if before is None else min(before, NO_MAX),
    }
