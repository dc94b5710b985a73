"""Enqueueing inside a caller's own transaction on the same database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from perdure.model.errors import CallerError
from perdure.stores.borrowed import driver_connection
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.errors import translated
from perdure.stores.postgres.lending import Cx


@contextmanager
def joined(within: object, own: Connection) -> Iterator[Cx]:
    """The caller's connection, checked."""
    raw: Any = driver_connection(within)
    if isinstance(raw, psycopg.AsyncConnection):
        raise CallerError(
            "within is an asynchronous psycopg connection; pass a synchronous one, or enqueue after "
            "your commit"
        )
    if not isinstance(raw, psycopg.Connection):
        raise CallerError(
            f"within is a {type(within).__module__}.{type(within).__name__}; this store is "
            "PostgreSQL: pass a psycopg connection, or an SQLAlchemy one that uses psycopg"
        )
    theirs, ours = _place(raw), own.place
    if theirs != ours:
        raise CallerError(
            f"within is connected to {theirs}, the store is {ours}; a transaction covers one "
            "database: connect to the store's own"
        )
    factory, raw.row_factory = raw.row_factory, tuple_row
    try:
        with translated(own.shown_url):
            yield raw
    finally:
        raw.row_factory = factory


def _place(raw: Cx) -> str:
    """Which database this is, whatever name or route led there."""
    return Connection.place_of(raw)
