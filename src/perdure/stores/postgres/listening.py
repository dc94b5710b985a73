"""Hints that there is work, by LISTEN and NOTIFY. Polling is the truth; a lost hint costs a poll.

NOTIFY takes a lock that all committing notifiers of a database share, so it is never part of an enqueue: a
thread sends one notification for all that was enqueued within a few milliseconds, after it is durable.
"""

import threading
import time
from contextlib import suppress

import psycopg

from perdure.model.errors import StoreError
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.statements import SQL

_GATHER_S = 0.005  # what is enqueued within this time is told at once
_IDLE_S = 5.0  # the thread ends when nothing was told for so long
_AGAIN_S = 5.0  # between two tries to listen


class Herald:
    """Tells listeners that something was enqueued, soon and seldom."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._news = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def tell(self) -> None:
        """There is news."""
        self._news.set()
        with self._guard:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="perdure-herald", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send what is left and stop."""
        with self._guard:
            self._closed = True
            thread = self._thread
        self._news.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2.0)

    def _run(self) -> None:
        while self._news.wait(timeout=_IDLE_S):
            self._news.clear()
            if not self._closed:
                time.sleep(_GATHER_S)
            with suppress(StoreError), self._connection.lent() as cx:  # a hint is worth no error
                cx.execute(SQL.notify)
            with self._guard:
                if self._closed:
                    return
        with self._guard:
            if not self._news.is_set():
                self._thread = None


class Ear:
    """Listens on a connection of its own, and goes on without when that is not to be had."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listening: Cx | None = None
        self._again_at = 0.0

    def heard(self) -> bool:
        """Whether a hint has come since the last call; never waits."""
        if self._connection.pooled:
            return False  # LISTEN would be accepted by the pooler, and nothing would ever come
        if self._listening is None and not self._listen():
            return False
        assert self._listening is not None
        try:
            return any(True for _ in self._listening.notifies(timeout=0))
        except psycopg.Error:
            self.close()
            return True  # we may have missed one

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            with suppress(psycopg.Error):
                self._listening.close()
            self._listening = None

    def _listen(self) -> bool:
        if time.monotonic() < self._again_at:
            return False
        self._again_at = time.monotonic() + _AGAIN_S
        try:
            self._listening = self._connection.apart()
            self._listening.execute("LISTEN perdure")
        except (StoreError, psycopg.Error):
            self.close()
        return self._listening is not None
