"""Enqueueing inside a caller's own transaction on the same file.

Never takes the writers' line: the caller may already hold SQLite's write lock, and whoever stands at the
head of the line would wait for it in vain. The caller's connection stops checkpointing by itself, as
all of ours have: two connections that checkpoint at once can corrupt a file up to SQLite 3.51.2.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.model.errors import CallerError
from perdure.stores.borrowed import driver_connection
from perdure.stores.sqlite.connection import MEMORY, Connection, translated


@contextmanager
def joined(within: object, own: Connection) -> Iterator[tuple[sqlite3.Connection, int]]:
    """The caller's connection, checked, and the store's time."""
    raw = driver_connection(within)
    if not isinstance(raw, sqlite3.Connection):
        raise CallerError(
            f"within is a {type(within).__module__}.{type(within).__name__}; this store is an "
            "SQLite file: pass a sqlite3 connection, or an SQLAlchemy one that uses sqlite3"
        )
    with translated(own.path):
        _check_same_file(raw, own.path)
        raw.execute("PRAGMA wal_autocheckpoint = 0").close()
        if not raw.in_transaction and raw.isolation_level is not None:
            raw.execute("BEGIN IMMEDIATE").close()  # as sqlite3 would before the first change
        factory, raw.row_factory = raw.row_factory, None
        try:
            yield raw, own.now()
        finally:
            raw.row_factory = factory


def _check_same_file(raw: sqlite3.Connection, path: str) -> None:
    rows = raw.execute("PRAGMA database_list").fetchall()
    theirs = next((tuple(row)[2] for row in rows if tuple(row)[1] == "main"), "")
    if path == MEMORY or not theirs or not Path(theirs).samefile(path):
        raise CallerError(
            f"within is connected to {theirs or 'a database in memory'!r}, the store is {path!r}; "
            "a transaction covers one database: connect to the store's own file"
        )
