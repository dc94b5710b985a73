"""A store on PostgreSQL whose rows, locks and connections a test may look at."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg

from perdure.stores.opening import Opened
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.control import PostgresControl
from perdure.stores.postgres.reader import PostgresReader
from perdure.stores.postgres.schema import PostgresSchema
from perdure.stores.postgres.store import PostgresStore
from perdure.testing import VirtualClock
from perdure.testing.store_contract import fresh_store
from tests.servers.postgres import Server, name_of

T = TypeVar("T")

SIGNAL_S_MAX = 20.0  # no test waits for a signal longer than this
LOOK_EVERY_S = 0.005


class Place(fresh_store.Place):
    """One connection to one database, for all three sides of the store.

    Without a clock the store's time is the server's.
    """

    def __init__(
        self, url: str, clock: VirtualClock | None = None, *, series: int = 0, **options: Any
    ) -> None:
        self.url = url
        self.connection = PostgresConnection(url, clock=clock, **options)
        opened = Opened(
            PostgresStore(self.connection),
            PostgresControl(self.connection),
            PostgresReader(self.connection),
        )
        try:
            PostgresSchema(self.connection).upgrade()
            super().__init__(opened, clock or VirtualClock(), series=series)
        except BaseException:
            opened.close()
            raise

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connection.autocommit() as cx:
            return cx.execute(sql, values).fetchall()


def opened(url: str, **options: Any) -> PostgresConnection:
    """A connection that does not wait long."""
    return PostgresConnection(url, **{"wait_s_max": 2.0, **options})


def pid_of(connection: PostgresConnection) -> int:
    """The server's process behind a connection that is lent now."""
    with connection.autocommit() as cx:
        return cx.execute("SELECT pg_backend_pid()").fetchone()[0]


def with_options(url: str, **settings: object) -> str:
    """A URL that asks the server for these settings."""
    words = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{url}{'&' if '?' in url else '?'}options={quote(words)}"


def until(condition: Callable[[], T], what: str, *, within_s: float = SIGNAL_S_MAX) -> T:
    """Wait for a signal; what it was, once it is there."""
    end_at_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_at_s, f"not within {within_s:g} s: {what}"
        threading.Event().wait(LOOK_EVERY_S)
    return found


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all of it at the same time, a thread each; the first error is raised."""
    start = threading.Barrier(len(works))

    def begun(work: Callable[[], T]) -> T:
        start.wait(SIGNAL_S_MAX)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(begun, works))


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Work that goes on beside the block; its answer, or its error, is had by calling what is given."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        yield lambda: future.result(SIGNAL_S_MAX)


def blocked(server: Server, url: str, count: int = 1) -> None:
    """Wait until so many sessions of a database stand before a lock."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'",
        (name_of(url),),
    )
    with server.admin() as cx:
        until(lambda: cx.execute(*asked).fetchone() == (count,), f"{count} before a lock")


# The server's own workers, such as autovacuum's, have a database too.
_CLIENTS = "datname = %s AND backend_type = 'client backend'"


def sessions(server: Server, url: str) -> list[int]:
    """The process ids of a database's sessions."""
    with server.admin() as cx:
        rows = cx.execute(
            f"SELECT pid FROM pg_stat_activity WHERE {_CLIENTS} ORDER BY pid", (name_of(url),)
        )
        return [int(pid) for (pid,) in rows.fetchall()]


def terminate(server: Server, url: str) -> int:
    """End every session of a database, as an operator would; how many there were."""
    with server.admin() as cx:
        rows = cx.execute(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {_CLIENTS}",
            (name_of(url),),
        )
        return len(rows.fetchall())


@contextmanager
def other(url: str, **options: Any) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Somebody else's connection, in a transaction that has been rolled back at the end."""
    cx = psycopg.connect(url, **options)
    try:
        yield cx
    finally:
        if not cx.closed:
            cx.rollback()  # a goodbye alone is not waited for
        cx.close()


def alter(url: str, statement: str) -> None:
    """Change the tables behind the store's back."""
    with psycopg.connect(url, autocommit=True) as cx:
        cx.execute(statement)
