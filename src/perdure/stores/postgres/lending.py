"""A few connections, lent to one thread at a time.

psycopg-pool reconnects in threads of its own, with growing pauses, while callers wait for them: after a
restart of the server that is seconds of standing still (docs/decisions/0012). Here the thread that needs a
connection makes it, at once and within a bounded time, and one that died while it lay idle is noticed
before it is lent.
"""

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from perdure.model.errors import StoreBusy, StoreUnavailable

Cx = psycopg.Connection[tuple[Any, ...]]


class Lender:
    """Idle connections, newest first, and a bound on how many there are."""

    def __init__(self, connect: Callable[[], Cx], *, size_max: int, wait_s_max: float) -> None:
        self._connect = connect
        self._wait_s_max = wait_s_max
        self._size_max = size_max
        self._slots = threading.BoundedSemaphore(size_max)
        self._idle: list[Cx] = []
        self._guard = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    @contextmanager
    def lent(self) -> Iterator[Cx]:
        """A connection that is outside of any transaction, for the length of the block."""
        if self._closed or self._pid != os.getpid():
            raise StoreUnavailable(
                "the connection to the store is closed, or was opened before a fork; a forked "
                "process has to open its own"
            )
        if not self._slots.acquire(timeout=self._wait_s_max):
            raise StoreBusy(
                f"all {self._size_max} connections to the store have been in use for "
                f"{self._wait_s_max:g} s; use fewer threads at once, or raise PERDURE_CONNECTIONS"
            )
        try:
            connection = self._taken() or self._connect()
            try:
                yield connection
            finally:
                self._put_back(connection)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _taken(self) -> Cx | None:
        while True:
            with self._guard:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _sound(connection):
                return connection
            connection.close()

    def _put_back(self, connection: Cx) -> None:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.close()  # an open transaction is rolled back by the server
        with self._guard:
            keep = not (self._closed or connection.closed)
            if keep:
                self._idle.append(connection)
        if not keep:
            with suppress(psycopg.Error):
                connection.close()


def _sound(connection: Cx) -> bool:
    """Whether the server is still there, as far as our end of the line knows."""
    if connection.closed:
        return False
    try:
        readable, _, _ = select.select([connection.fileno()], [], [], 0)
        if readable:  # a goodbye, or a notice
            connection.pgconn.consume_input()
    except (OSError, ValueError, psycopg.Error):
        return False
    return connection.info.transaction_status is TransactionStatus.IDLE
