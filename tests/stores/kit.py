"""A store on SQLite whose file, plans and rows a test may look at; the words are the contract's."""

import sqlite3
import tempfile
from functools import cache
from pathlib import Path

from perdure.stores.opening import Opened
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import VirtualClock
from perdure.testing.store_contract import fresh_store
from perdure.testing.store_contract.attempt_ends import (
    ENDINGS,
    advance,
    attempt_of,
    cancellation,
    crash,
    failure,
    release,
    retry,
    snooze,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, TTL_S, target

__all__ = [
    "DEED",
    "ENDINGS",
    "MEMORY",
    "TTL_S",
    "Place",
    "advance",
    "attempt_of",
    "cancellation",
    "connected",
    "crash",
    "failure",
    "file_in",
    "furnished",
    "open_file",
    "release",
    "retry",
    "snooze",
    "success",
    "target",
]

MEMORY = ":memory:"
TABLES = (
    "jobs", "attempts", "checkpoints", "workers", "lanes", "depths", "flows", "deaths", "owners", "runs", "run_counts", "gates",
    "gate_samples", "gate_slices", "pauses", "schedules", "duties", "audit_log", "bulks", "artifacts",
    "owned",
)  # fmt: skip


@cache
def _pattern() -> sqlite3.Connection:
    """A store with its schema and no rows: to copy it takes a twentieth of the time that it takes to make one."""
    connection = SqliteConnection(MEMORY, VirtualClock())
    SqliteSchema(connection, "sqlite:///:memory:").upgrade()
    return connection.raw


@cache
def _image() -> bytes:
    """The same as a file."""
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        connection = SqliteConnection(file_in(Path(folder)), VirtualClock())
        _pattern().backup(connection.raw)
        connection.close()
        return Path(file_in(Path(folder))).read_bytes()


def furnished(path: str) -> str:
    """A file that has the schema, if there was none at the path."""
    if not Path(path).exists():
        Path(path).write_bytes(_image())
    return path


def connected(path: str, clock: VirtualClock, *, wait_s_max: float = 10.0) -> SqliteConnection:
    """A connection to a store that has its schema."""
    if path != MEMORY:
        furnished(path)
    connection = SqliteConnection(path, clock, wait_s_max=wait_s_max)
    if path == MEMORY:
        _pattern().backup(connection.raw)
    return connection


class Place(fresh_store.Place):
    """One connection to one file, for all three sides of the store."""

    def __init__(
        self,
        path: str,
        clock: VirtualClock | None = None,
        *,
        wait_s_max: float = 10.0,
        pipeline: str = "p",
        stages: tuple[str, ...] = ("one", "two"),
    ) -> None:
        self.path = path
        clock = clock or VirtualClock()
        self.connection = connected(path, clock, wait_s_max=wait_s_max)
        self.schema = SqliteSchema(self.connection, f"sqlite:///{path}")
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


def opened_on(connection: SqliteConnection) -> Opened:
    """The three sides of a store on one connection."""
    return Opened(SqliteStore(connection), SqliteControl(connection), SqliteReader(connection))


def open_file(path: str, clock: VirtualClock) -> Opened:
    """A store as the app opens it: a connection for the writes, another for the reads."""
    writing, reading = connected(path, clock), SqliteConnection(path, clock)
    return Opened(SqliteStore(writing), SqliteControl(writing), SqliteReader(reading))


def file_in(folder: Path) -> str:
    return str(folder / "work.db")
