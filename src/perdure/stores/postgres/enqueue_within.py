"""Enqueueing inside a caller's own transaction on the same database.

The caller's connection is only borrowed: how it makes rows and cursors is left as it is, and whatever we
do is one more statement of its transaction.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from perdure.model.errors import CallerError
from perdure.stores.borrowed_connection import driver_connection
from perdure.stores.postgres.connection import PostgresConnection, ServerPlace
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.errors import translate_errors


class _BorrowedConnection:
    """As much of a connection as enqueueing needs, whatever the caller's makes of rows and cursors."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(self, query: Any, parameters: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """One more statement of the caller's transaction."""
        return psycopg.Cursor(self._raw, row_factory=tuple_row).execute(query, parameters)

    def transaction(self) -> AbstractContextManager[psycopg.Transaction]:
        """A savepoint in the caller's transaction."""
        return self._raw.transaction()


@contextmanager
def join(within: object, own: PostgresConnection) -> Iterator[Cx]:
    """The caller's connection, checked."""
    raw = _connection_in(within)
    borrowed = cast("Cx", _BorrowedConnection(raw))
    with translate_errors(own.shown_url):
        _check_place(borrowed, own)
        with raw.transaction():  # all or none; inside the caller's it is a savepoint
            yield borrowed


def _connection_in(within: object) -> psycopg.Connection[Any]:
    raw = driver_connection(within)
    if isinstance(raw, psycopg.Cursor):
        raw = raw.connection
    if isinstance(raw, psycopg.AsyncConnection | psycopg.AsyncCursor):
        raise CallerError(
            "within is an asynchronous psycopg connection; pass a synchronous one, or enqueue after "
            "your commit"
        )
    if not isinstance(raw, psycopg.Connection):
        raise CallerError(
            f"within is a {type(raw).__module__}.{type(raw).__name__}; this store is "
            "PostgreSQL: pass a psycopg connection, or an SQLAlchemy one that uses psycopg"
        )
    if raw.closed or raw.info.transaction_status is TransactionStatus.INERROR:
        raise CallerError(
            "within is closed, or an earlier statement of its transaction has failed; nothing can be "
            "enqueued in it: roll back, and begin anew"
        )
    if raw.pgconn.pipeline_status != PipelineStatus.OFF:
        raise CallerError(
            "within is in pipeline mode, where nothing is answered before its end; enqueue before "
            "or after the pipeline"
        )
    if raw.info.encoding != "utf-8":
        raise CallerError(
            f"within has the client encoding {raw.info.encoding}, which cannot carry every text; "
            "connect with client_encoding=utf8"
        )
    return raw


def _check_place(borrowed: Cx, own: PostgresConnection) -> None:
    theirs = ServerPlace.of(borrowed)
    # Not known yet; or the server was started anew since, and is another one.
    if own.place != theirs:
        with own.autocommit() as cx:
            own.place = ServerPlace.of(cx)
    ours = own.place
    if theirs[:2] != ours[:2]:
        raise CallerError(
            f"within is connected to another database ({theirs.database!r}) than the store "
            f"({ours.database!r}); a transaction covers one: connect to the store's own"
        )
    if theirs.table != ours.table:
        raise CallerError(
            f"within is connected to the store's database {ours.database!r}, but its search_path leads "
            "to other tables; give both the same search_path"
        )
