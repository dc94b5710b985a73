"""The reads, for screens, reports and the audit. They change nothing and wait for nobody."""

from collections.abc import Iterable
from importlib.resources import files

from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.views import AttemptView, Books, FailureGroup, Finding, JobView
from perdure.model.workers import Role, WorkerView
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.moments import from_us, maybe_us
from perdure.stores.sqlite.rows import Row, attempt_out, encoded, job_out
from perdure.stores.sqlite.statements import SQL

AUDIT: dict[str, str] = {
    entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
    for entry in sorted(
        (files("perdure.stores.sqlite") / "audit").iterdir(), key=lambda entry: entry.name
    )
    if entry.name.endswith(".sql")
}


class SqliteReader:
    """The `Reader` port on one SQLite file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def job(self, id: str) -> JobView | None:
        """One job."""
        with self._connection.read() as (cx, _):
            row = cx.execute(SQL.job_by_id, (id,)).fetchone()
        return None if row is None else job_out(row)

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        pipeline: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[JobView]:
        """Jobs, newest first."""
        where = {
            "states": encoded(list(states)),
            "pipeline": pipeline,
            "limit": min(limit, PAGE_ROWS_MAX),
            "before": before,
        }
        with self._connection.read() as (cx, _):
            return [job_out(row) for row in cx.execute(SQL.jobs_page, where).fetchall()]

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        with self._connection.read() as (cx, _):
            return [attempt_out(row) for row in cx.execute(SQL.attempts_of, (job_no,)).fetchall()]

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        where = {"pipeline": pipeline}
        with self._connection.read() as (cx, _):
            accepted, pruned = cx.execute(SQL.books, where).fetchone()
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
        with self._connection.read() as (cx, _):
            rows = cx.execute(SQL.failures, {"pipeline": pipeline}).fetchall()
        return [FailureGroup(*row) for row in rows]

    def workers(self) -> list[WorkerView]:
        """Workers, the living first."""
        with self._connection.read() as (cx, _):
            return [_worker_out(row) for row in cx.execute(SQL.workers_list).fetchall()]

    def audit(self) -> list[Finding]:
        """Everything in the tables that ought not to be so."""
        with self._connection.read() as (cx, _):
            return [
                Finding(check, str(subject), str(text))
                for check, sql in AUDIT.items()
                for subject, text in cx.execute(sql).fetchall()
            ]

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def _worker_out(row: Row) -> WorkerView:
    no, boot, name, role, ttl_us, started_at, beat_at, steady_at, dead_at, death = row
    return WorkerView(
        no=no, boot=boot, name=name, role=Role(role), ttl_s=ttl_us / 1_000_000,
        started_at=from_us(started_at), beat_at=from_us(beat_at), steady_at=from_us(steady_at),
        dead_at=maybe_us(dead_at), death_json=death,
    )  # fmt: skip
