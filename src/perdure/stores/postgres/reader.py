"""The reads, for screens, reports and the audit. They change nothing and wait for nobody.

What takes more than one statement is read in one snapshot, so that books balance while others write.
"""

from collections.abc import Sequence
from datetime import datetime

from perdure.model.changes import ChangePage
from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.gates import GateLook, GateRow
from perdure.model.limits import CHANGE_PAGE_ROWS, COUNT_MAX
from perdure.model.operations import BulkStatus, BulkView, LanePause, LoggedDeed, ScheduleView
from perdure.model.views import (
    AttemptView,
    Books,
    ChangedJob,
    Deaths,
    Depth,
    FailureGroup,
    Finding,
    Flow,
    JobView,
    LaneView,
    Preview,
)
from perdure.model.workers import WorkerView
from perdure.stores import tallies
from perdure.stores.auditing import CHECKS, findings, of_run
from perdure.stores.choosing import Choice, FetchWhole, changes, page, preview
from perdure.stores.columns import ATTEMPT, BULK, DEED, GATE, PAUSE, SCHEDULE, WORKER
from perdure.stores.moments import from_us
from perdure.stores.postgres import changing
from perdure.stores.postgres.claiming import array
from perdure.stores.postgres.gating import look
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.reports import (
    DIALECT,
    PostgresReports,
    bounds,
    fetching,
    is_uuid,
    rows_of,
)
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import (
    job_out,
    lanes_out,
)

AUDIT: dict[str, str] = dict(CHECKS)
_WORKERS_MAX = 200  # dead ones that have left nothing behind


class PostgresReader(PostgresReports):
    """The `Reader` port on one PostgreSQL database."""

    def job(self, id: str) -> JobView | None:
        """One job; `StoreDamaged` when its row cannot be read."""
        rows = self._rows(SQL.job_by_id, {"id": id}) if is_uuid(id) else ()
        return job_out(rows[0]) if rows else None

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; a page that is shorter than ``limit`` is the last one.

        No statement looks at more than `choosing.LOOK_ROWS_MAX` rows.
        """
        with self._snapshot() as cx:
            choice, whole = Choice(chosen, DIALECT), _whole(cx)
            return page(choice, fetching(cx), whole, limit=limit, before=before)

    def jobs_changed(
        self, chosen: JobFilter, *, since: datetime, after: int = 0, limit: int = 50
    ) -> list[ChangedJob]:
        """An owner's jobs by their last change, from a moment on, above a number within it."""
        with self._snapshot() as cx:
            choice, whole = Choice(chosen, DIALECT), _whole(cx)
            return changes(choice, fetching(cx), whole, since=since, after=after, limit=limit)

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        with self._snapshot() as cx:
            return preview(Choice(chosen, DIALECT), fetching(cx), count_max=count_max)

    def depths(self) -> list[Depth]:
        """How many jobs stand where, by queue, pipeline and stage."""
        with self._connection.lent() as cx:
            return tallies.depths(fetching(cx))

    def flows(self, *, minutes: bool = False) -> list[Flow]:
        """What has happened since the store was made; with ``minutes``, in each of the last sixty of them."""
        with self._connection.lent() as cx:
            now = self._connection.store_now(cx)
            return tallies.flows(fetching(cx), now, minutes=minutes)

    def deaths(self) -> list[Deaths]:
        """What jobs have died of, by kind and code, most frequent first."""
        with self._connection.lent() as cx:
            return tallies.deaths(fetching(cx))

    def open_jobs(self, owner: str) -> int:
        """How many jobs of an owner are queued or in work."""
        with self._connection.lent() as cx:
            return tallies.open_jobs(fetching(cx), owner)

    def lanes(self) -> list[LaneView]:
        """All lanes by number, all that closes each, and how many jobs wait in it."""
        with self._snapshot() as cx:
            return lanes_out(
                cx.execute(SQL.lanes_list).fetchall(), cx.execute(SQL.lanes_closed).fetchall(),
                tallies.waiting_by_lane(fetching(cx)),
            )  # fmt: skip

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        return ATTEMPT.read_all(self._rows(SQL.attempts_of, {"job": job_no}))

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        with self._snapshot() as cx:
            return tallies.books(fetching(cx), pipeline)

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        return [FailureGroup(*row) for row in self._rows(SQL.failures, {"pipeline": pipeline})]

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        return WORKER.read_all(self._rows(SQL.workers_list, {"limit": _WORKERS_MAX}))

    def pauses(self) -> list[LanePause]:
        """What is paused."""
        return PAUSE.read_all(self._rows(SQL.pauses_list))

    def gates(self) -> list[GateRow]:
        """Every gate that has a row, by name."""
        return GATE.read_all(self._rows(SQL.gates_list))

    def gate(self, name: str) -> GateRow | None:
        """One gate; None when it has no row, and so is flowing."""
        rows = self._rows(SQL.gate, {"name": name})
        return GATE.read(rows[0]) if rows else None

    def look(self, names: Sequence[str]) -> GateLook:
        """All there is about these gates and their parents, at one moment."""
        return look(self._connection, names, 0, {})

    def now(self) -> datetime:
        """The store's clock."""
        with self._connection.lent() as cx:
            return from_us(self._connection.store_now(cx))

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        with self._connection.lent() as cx:
            due_by = self._connection.store_now(cx) if due else None
            rows = cx.execute(SQL.schedules_list, {"due_by": due_by}).fetchall()
        return SCHEDULE.read_all(rows)

    def bulks(
        self, *, running: bool = False, id: str | None = None, limit: int = 50
    ) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        if id is not None:
            rows = self._rows(SQL.bulk_by_id, {"id": id}) if is_uuid(id) else ()
            found = BULK.read_all(rows)
            kept = [one for one in found if not running or one.status is BulkStatus.RUNNING]
            return kept[: rows_of(limit)]
        sql = SQL.bulks_running if running else SQL.bulks_list
        return BULK.read_all(self._rows(sql, {"limit": rows_of(limit)}))

    def deeds(self, *, limit: int = 50, before: int | None = None) -> list[LoggedDeed]:
        """The audit log, newest first; ``before`` continues below a line's number."""
        return DEED.read_all(self._rows(SQL.deeds_page, bounds(limit, before)))

    def changes(
        self, after: str | None = None, *, until: str | None = None, limit: int = CHANGE_PAGE_ROWS
    ) -> ChangePage:
        """The change feed after a cursor; None begins now."""
        with self._connection.lent() as cx:
            return changing.changes(cx, after, until, limit)

    def audit(self, *, run: int | None = None) -> list[Finding]:
        """Everything in the tables that ought not to be so; with ``run``, only of that run and its jobs."""
        with self._connection.walking() as cx:
            found = findings(AUDIT, lambda sql: cx.execute(sql).fetchall())
            if run is None:
                return found

            def own(subjects: Sequence[str]) -> list[str]:
                where = {"run": run, "ids": [one for one in subjects if is_uuid(one)]}
                return [id for (id,) in cx.execute(SQL.subjects_of_run, where).fetchall()]

            return of_run(found, run, own)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def _whole(cx: Cx) -> FetchWhole:
    """How the rows of a page are read when their numbers are known."""
    return lambda nos: cx.execute(SQL.jobs_page, {"nos": array(nos)}).fetchall()
