"""The reads on one SQLite file, each in a transaction of its own."""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perdure.model.changes import ChangePage
from perdure.model.diagnoses import StoreCondition
from perdure.model.gates import GateLook
from perdure.model.limits import CHANGE_PAGE_ROWS
from perdure.stores.audit_checks import CHECKS
from perdure.stores.job_lists import Dialect, Fetch
from perdure.stores.reader import SharedReader
from perdure.stores.rows import Row, encode
from perdure.stores.sqlite import change_feed
from perdure.stores.sqlite.connection import MEMORY, SqliteConnection, translate_errors
from perdure.stores.sqlite.gates import look
from perdure.stores.sqlite.network_drive import NETWORK, file_system_of
from perdure.stores.sqlite.statements import SQL
from perdure.stores.statements import texts

AUDIT: dict[str, str] = {**CHECKS, **texts("perdure.stores.sqlite", "audit")}

# A step looks at a range of numbers; every other index would lead through more rows than that.
DIALECT = Dialect(
    "perdure_jobs AS j NOT INDEXED WHERE {step}",
    "j.no IN (SELECT value FROM json_each(:nos))",
    encode,
    encode,
)


class SqliteReader(SharedReader):
    """The `Reader` port on one SQLite file."""

    _sql = SQL
    _dialect = DIALECT
    _checks = AUDIT

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def look(self, names: Sequence[str]) -> GateLook:
        """All there is about these gates and their parents, at one moment."""
        with self._connection.read() as (cx, now):
            return look(cx, names, 0, now)

    def changes(
        self, after: str | None = None, *, until: str | None = None, limit: int = CHANGE_PAGE_ROWS
    ) -> ChangePage:
        """The change feed after a cursor; None begins now."""
        with self._connection.read() as (cx, _):
            return change_feed.changes(cx, after, until, limit)

    def condition(self) -> StoreCondition:
        """What the file stands on, as the library and the machine say it; no statement is needed for that."""
        path = self._connection.path
        if path == MEMORY:
            return StoreCondition("SQLite", sqlite3.sqlite_version_info)
        folder = str(Path(path).parent)
        kind = file_system_of(path)
        with translate_errors(path):
            room = os.statvfs(folder)
        return StoreCondition(
            "SQLite",
            sqlite3.sqlite_version_info,
            read_only=not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)),
            file_system=kind,
            on_network=kind in NETWORK,
            free_bytes=room.f_bavail * room.f_frsize,
        )

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _rows(self, sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        with self._snapshot() as fetch:
            return fetch(sql, values)

    @contextmanager
    def _snapshot(self) -> Iterator[Fetch]:
        with self._connection.read() as (cx, _):
            yield _fetching(cx)

    @contextmanager
    def _walking(self, *, by_index: bool = False) -> Iterator[Fetch]:
        with self._snapshot() as fetch:
            yield fetch

    def _now_us(self) -> int:
        return self._connection.now()


def _fetching(cx: sqlite3.Connection) -> Fetch:
    def fetch(sql: str, values: Mapping[str, object]) -> Sequence[Row]:
        return cx.execute(sql, values).fetchall()

    return fetch
