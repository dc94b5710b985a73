"""Numbered, forward-only migrations inside the package, each with the oldest code it lets run."""

import hashlib
import re
import sqlite3
from dataclasses import dataclass
from importlib.resources import files

from perdure.model.errors import SchemaMismatch, StoreDamaged
from perdure.model.views import SchemaStatus
from perdure.stores.sqlite.connection import Connection

CODE_VERSION = 1  # raised with every migration; compared with each migration's compat_min

_TABLE = """
CREATE TABLE IF NOT EXISTS perdure_migrations (
    number      INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    compat_min  INTEGER NOT NULL,
    applied_at  INTEGER NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str
    compat_min: int

    @property
    def checksum(self) -> str:
        """What the step was when it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> tuple[Migration, ...]:
    """All steps this version knows, in order."""
    folder = files("perdure.stores.sqlite") / "migrations"
    found = [
        _migration(entry.name, entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return tuple(sorted(found, key=lambda one: one.number))


def _migration(file_name: str, sql: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    compat = re.match(r"-- compat_min: (\d+)\n", sql)
    if compat is None:  # pragma: no cover - a packaging mistake, caught by the tests
        raise StoreDamaged(f"migration {file_name} does not say its compat_min")
    return Migration(int(number), name, sql, int(compat[1]))


class SqliteSchema:
    """The schema of one file."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self._url = url

    def status(self) -> SchemaStatus:
        """Where the schema stands."""
        known = migrations()
        with self._connection.read() as (cx, _):
            applied = _applied(cx)
        version = max(applied, default=0)
        pending = tuple(f"{one.number:04d}_{one.name}" for one in known if one.number > version)
        return SchemaStatus(self._url, bool(applied), version, known[-1].number, pending)

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending, all in one transaction."""
        done = []
        with self._connection.written() as (cx, now):
            cx.execute(_TABLE)
            applied = _applied(cx)
            _check(applied, self._url)
            for one in migrations():
                if one.number in applied:
                    continue
                for statement in _statements(one.sql):
                    cx.execute(statement)
                cx.execute(
                    "INSERT INTO perdure_migrations VALUES (?, ?, ?, ?, ?)",
                    (one.number, one.name, one.checksum, one.compat_min, now),
                )
                done.append(f"{one.number:04d}_{one.name}")
        return tuple(done)

    def check(self) -> None:
        """Refuse a schema that this version must not touch."""
        with self._connection.read() as (cx, _):
            applied = _applied(cx)
        _check(applied, self._url)
        known = migrations()[-1].number
        if max(applied, default=0) < known:
            raise SchemaMismatch(
                f"the schema of {self._url} is at {max(applied, default=0)}, this version of "
                f"Perdure needs {known}; run: perdure db upgrade --store {self._url}"
            )


def _applied(cx: sqlite3.Connection) -> dict[int, tuple[str, int]]:
    exists = cx.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'perdure_migrations'"
    ).fetchone()
    if not exists:
        return {}
    rows = cx.execute("SELECT number, checksum, compat_min FROM perdure_migrations")
    return {number: (checksum, compat_min) for number, checksum, compat_min in rows}


def _check(applied: dict[int, tuple[str, int]], url: str) -> None:
    known = {one.number: one for one in migrations()}
    for number, (checksum, compat_min) in applied.items():
        if compat_min > CODE_VERSION:
            raise SchemaMismatch(
                f"the schema of {url} is at {max(applied)} and needs a newer version of Perdure "
                f"than this one; upgrade the package"
            )
        if number in known and known[number].checksum != checksum:
            raise SchemaMismatch(
                f"migration {number} of {url} was applied in another form than this version "
                "knows; the file belongs to another build of Perdure"
            )


def _statements(sql: str) -> list[str]:
    """The statements of a script; sqlite3 runs one at a time inside our transaction."""
    done, pending = [], ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            done.append(pending)
            pending = ""
    return done
