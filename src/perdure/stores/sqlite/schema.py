"""The schema of one file."""

import sqlite3

from perdure.model.errors import StoreDamaged
from perdure.model.views import SchemaStatus
from perdure.stores.migrations import check_current, check_fits, migrations, status_of
from perdure.stores.sqlite.connection import SqliteConnection

PACKAGE = "perdure.stores.sqlite"

_TABLE = """
CREATE TABLE IF NOT EXISTS perdure_migrations (
    number      INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    compat_min  INTEGER NOT NULL,
    applied_at  INTEGER NOT NULL
)
"""


class SqliteSchema:
    """The `Schema` port on one SQLite file."""

    def __init__(self, connection: SqliteConnection, url: str) -> None:
        self._connection = connection
        self._url = url

    def status(self) -> SchemaStatus:
        """Where the schema stands."""
        with self._connection.read() as (cx, _):
            return status_of(self._url, _applied_migrations(cx), migrations(PACKAGE))

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending, all in one transaction."""
        done = []
        with self._connection.rebuild() as (cx, now):
            cx.execute(_TABLE)
            applied = _applied_migrations(cx)
            check_fits(self._url, applied, migrations(PACKAGE))
            for one in migrations(PACKAGE):
                if one.number in applied:
                    continue
                for statement in _statements(one.sql):
                    cx.execute(statement)
                cx.execute(
                    "INSERT INTO perdure_migrations VALUES (?, ?, ?, ?, ?)",
                    (one.number, one.name, one.checksum, one.compat_min, now),
                )
                done.append(one.label)
            orphan = cx.execute("PRAGMA foreign_key_check").fetchone()
            if orphan is not None:
                raise StoreDamaged(
                    f"{self._url}: a row of {orphan[0]} points to nothing in {orphan[2]}; nothing "
                    "was upgraded; restore a backup, or see: perdure audit"
                )
        return tuple(done)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def check(self) -> None:
        """Refuse a schema that this version must not touch."""
        with self._connection.read() as (cx, _):
            check_current(self._url, _applied_migrations(cx), migrations(PACKAGE))


def _applied_migrations(cx: sqlite3.Connection) -> dict[int, tuple[str, int]]:
    exists = cx.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'perdure_migrations'"
    ).fetchone()
    if not exists:
        return {}
    rows = cx.execute("SELECT number, checksum, compat_min FROM perdure_migrations")
    return {number: (checksum, compat_min) for number, checksum, compat_min in rows}


def _statements(sql: str) -> list[str]:
    """The statements of a script; sqlite3 runs one at a time inside our transaction."""
    done, pending = [], ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            done.append(pending)
            pending = ""
    return done
