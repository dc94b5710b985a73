"""A store on SQLite whose file, plans and rows a test may look at; the words are the contract's."""

from pathlib import Path

from perdure.stores.opening import Opened
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import VirtualClock
from perdure.testing.contract import kit
from perdure.testing.contract.kit import DEED, TTL_S, target
from perdure.testing.contract.records import (
    ENDINGS,
    advance,
    attempt_of,
    cancelled,
    crash,
    failure,
    release,
    retry,
    snooze,
    success,
)

__all__ = [
    "DEED",
    "ENDINGS",
    "MEMORY",
    "TTL_S",
    "Place",
    "advance",
    "attempt_of",
    "cancelled",
    "crash",
    "failure",
    "file_in",
    "open_file",
    "release",
    "retry",
    "snooze",
    "success",
    "target",
]

MEMORY = ":memory:"
TABLES = (
    "jobs", "attempts", "checkpoints", "workers", "lanes", "books", "runs", "run_counts", "gates",
    "gate_samples", "gate_slices", "pauses", "schedules", "duties", "audit_log", "bulks", "artifacts",
)  # fmt: skip


class Place(kit.Place):
    """One connection to one file, for all three sides of the store."""

    def __init__(
        self, path: str, clock: VirtualClock | None = None, *, wait_s_max: float = 10.0,
        pipeline: str = "p", stages: tuple[str, ...] = ("one", "two"),
    ) -> None:  # fmt: skip
        self.path = path
        clock = clock or VirtualClock()
        self.connection = Connection(path, clock, wait_s_max=wait_s_max)
        self.schema = SqliteSchema(self.connection, f"sqlite:///{path}")
        self.schema.upgrade()
        super().__init__(opened_on(self.connection), clock, pipeline=pipeline, stages=stages)

    def id_of(self, number: int) -> str:
        """Short enough to be read in a failing test."""
        return f"job-{number:05d}"

    def rows(self, sql: str, *values: object) -> list[tuple]:
        with self.connection.read() as (cx, _):
            return cx.execute(sql, values).fetchall()

    def damage(self, *statements: str) -> None:
        """Change the tables behind the store's back, as no code of ours would."""
        cx = self.connection.raw
        cx.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            cx.execute(statement)
        cx.execute("PRAGMA ignore_check_constraints = OFF")

    def everything(self) -> dict[str, object]:
        """All that is in the tables, to see that nothing was written."""
        return {name: self.rows(f"SELECT * FROM perdure_{name} ORDER BY 1, 2") for name in TABLES}

    def close(self) -> None:
        self.connection.close()


def opened_on(connection: Connection) -> Opened:
    """The three sides of a store on one connection."""
    return Opened(SqliteStore(connection), SqliteControl(connection), SqliteReader(connection))


def open_file(path: str, clock: VirtualClock) -> Opened:
    """A store as the app opens it: a connection for the writes, another for the reads."""
    writing, reading = Connection(path, clock), Connection(path, clock)
    SqliteSchema(writing, f"sqlite:///{path}").upgrade()
    return Opened(SqliteStore(writing), SqliteControl(writing), SqliteReader(reading))


def file_in(folder: Path) -> str:
    return str(folder / "work.db")
