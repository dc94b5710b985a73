"""The driver's connection behind whatever a caller has in hand; SQLAlchemy is recognised, not imported."""

from typing import Any

from perdure.model.errors import BugError, CallerError
from perdure.model.jobs import Record


def driver_connection(within: object) -> object:
    """A sqlite3 or psycopg connection, from one of these, a cursor, or SQLAlchemy's own."""
    root = type(within).__module__.partition(".")[0]
    if root == "sqlalchemy":
        return _behind_sqlalchemy(within)
    if root in ("psycopg", "sqlite3") and type(within).__name__.endswith("Cursor"):
        return getattr(within, "connection", within)
    return within


def check_lendable(record: Record) -> None:
    """Refuse a re-claim: a claim belongs to the worker's own turn, and must not wait for somebody's commit."""
    if record.reclaim:
        raise BugError(f"job {record.id} cannot be claimed again in a transaction that is not ours")


def _behind_sqlalchemy(within: Any) -> object:
    if type(within).__name__.lower().startswith("async"):  # its driver is, under run_sync too
        raise CallerError(
            f"within is an SQLAlchemy {type(within).__name__}, which is asynchronous; do the whole "
            "transaction on a synchronous Session in a thread (asyncio.to_thread), or enqueue after "
            "your commit"
        )
    if hasattr(within, "get_bind") and callable(getattr(within, "connection", None)):
        within = within.connection()  # a Session
    found = getattr(getattr(within, "connection", None), "driver_connection", None)
    if found is None or not hasattr(within, "in_transaction"):
        raise CallerError(
            f"within is an SQLAlchemy {type(within).__name__}; pass a Session or a Connection"
        )
    if not within.in_transaction():
        within.begin()  # as it does before its own first statement; else its commit would do nothing
    return found
