"""Enqueueing inside a caller's own transaction on the same file.

Never takes the writers' line: the caller may already hold SQLite's write lock, and whoever stands at the
head of the line would wait for it in vain. The caller's connection stops checkpointing by itself, as
all of ours have: two connections that checkpoint at once can corrupt a file up to SQLite 3.51.2.

Always true: all of the jobs are in the caller's transaction, or, after an error, nothing of them. What has not
begun is begun here, as sqlite3 would before the first change, and is the caller's to commit; a connection that
commits by itself has the whole of it committed here. The write lock is taken before anything is read: what
was read before it may be outdated by then, and SQLite refuses to write on top of that.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.model.errors import CallerError
from perdure.stores.borrowed_connection import driver_connection
from perdure.stores.sqlite.connection import MEMORY, SqliteConnection, translate_errors

_LOCK = "UPDATE perdure_migrations SET number = number WHERE number < 0"


@contextmanager
def join(within: object, own: SqliteConnection) -> Iterator[tuple[sqlite3.Connection, int]]:
    """The caller's connection, checked, and the store's time."""
    raw = driver_connection(within)
    if not isinstance(raw, sqlite3.Connection):
        raise CallerError(
            f"within is a {type(raw).__module__}.{type(raw).__name__}; this store is an "
            "SQLite file: pass a sqlite3 connection, or an SQLAlchemy one that uses sqlite3"
        )
    with translate_errors(own.path), _with_plain_rows(raw):
        try:
            _check_same_file(raw, own.path)
        except sqlite3.ProgrammingError as error:
            raise CallerError(
                f"within cannot be used here ({error}); pass an open connection of this thread"
            ) from error
        raw.execute("PRAGMA wal_autocheckpoint = 0").close()
        with _all_or_none(raw):
            yield raw, own.now()


@contextmanager
def _with_plain_rows(raw: sqlite3.Connection) -> Iterator[None]:
    """Rows as tuples and texts as str, whatever the caller makes of them."""
    rows, texts = raw.row_factory, raw.text_factory
    raw.row_factory, raw.text_factory = None, str
    try:
        yield
    finally:
        raw.row_factory, raw.text_factory = rows, texts


@contextmanager
def _all_or_none(raw: sqlite3.Connection) -> Iterator[None]:
    begun, done = not raw.in_transaction, False
    raw.execute("BEGIN IMMEDIATE" if begun else _LOCK).close()
    raw.execute("SAVEPOINT perdure").close()
    try:
        yield
        raw.execute("RELEASE perdure").close()
        if begun and _commits_by_itself(raw):
            raw.execute("COMMIT").close()
        done = True
    finally:
        if not done and raw.in_transaction:  # SQLite itself ends one that meets a full disk
            for undo in ["ROLLBACK"] if begun else ["ROLLBACK TO perdure", "RELEASE perdure"]:
                raw.execute(undo).close()


def _commits_by_itself(raw: sqlite3.Connection) -> bool:
    """Whether ``commit`` does nothing here: ``autocommit`` since Python 3.12, ``isolation_level`` before."""
    chosen = getattr(raw, "autocommit", None)
    return chosen if isinstance(chosen, bool) else raw.isolation_level is None


def _check_same_file(raw: sqlite3.Connection, path: str) -> None:
    rows = raw.execute("PRAGMA database_list").fetchall()
    theirs = next((file for _, name, file in rows if name == "main"), "")
    if path == MEMORY or not theirs or not Path(theirs).samefile(path):
        raise CallerError(
            f"within is connected to {theirs or 'a database in memory'!r}, the store is {path!r}; "
            "a transaction covers one database: connect to the store's own file"
        )
