"""Hints that there is work, by LISTEN and NOTIFY. Polling is the truth; a lost hint costs a poll.

NOTIFY takes a lock that all committing notifiers of a database share, so it is never part of an enqueue: a
thread sends it after that is durable: the first at once, then one for all that was enqueued since. Under a
steady stream it sends a few in a second: whoever listens then looks at the store often enough anyway.
"""

import threading
import time
from contextlib import suppress

import psycopg

from perdure.model.errors import PerdureError
from perdure.stores.forking import tell_of_forks
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx, let_go_of_socket
from perdure.stores.postgres.statements import SQL

_APART_S = 0.05  # between two notifications
_IDLE_S = 5.0  # the thread ends when nothing was told for so long
_AGAIN_S = 5.0  # between two tries to listen


class Herald:
    """Tells listeners that something was enqueued, soon and seldom."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._news = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        tell_of_forks(self)

    def begin_anew(self) -> None:
        """The thread is our parent's, and perhaps held the lock."""
        ended, self._ended = self._ended, threading.Event()
        if ended.is_set():
            self._ended.set()
        self._news, self._guard, self._thread = threading.Event(), threading.Lock(), None

    def tell(self) -> None:
        """There is news."""
        self._news.set()
        with self._guard:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="perdure-herald", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Send what is left and stop."""
        with self._guard:
            self._ended.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._news.set()
            thread.join(timeout=2.0)

    def _run(self) -> None:
        while self._waited():
            self._news.clear()
            with suppress(PerdureError), self._connection.lent() as cx:  # a hint is worth no error
                cx.execute(SQL.notify)
            self._ended.wait(_APART_S)

    def _waited(self) -> bool:
        """Wait for news; False when there is nothing to be done any more, and somebody else may start."""
        self._news.wait(0 if self._ended.is_set() else _IDLE_S)
        with self._guard:
            if not self._news.is_set():
                self._thread = None
            return self._thread is not None


class Ear:
    """Listens on a connection of its own, and goes on without when that is not to be had."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listening: Cx | None = None
        self._again_at_s = 0.0
        self._left: list[Cx] = []  # our parent's
        tell_of_forks(self)

    def begin_anew(self) -> None:
        """Our parent goes on listening; we would take its hints away."""
        if self._listening is not None:
            let_go_of_socket(self._listening)
            self._left.append(self._listening)
            self._listening = None

    def heard(self) -> bool:
        """Whether a hint has come since the last call; waits for nothing but a connection, now and then."""
        if self._connection.pooled:
            self.close()  # LISTEN was accepted by the pooler, or would be, and nothing would ever come
            return False
        if self._listening is None:
            return self._listen()  # what was told before, nobody has heard
        try:
            return any(True for _ in self._listening.notifies(timeout=0))
        except psycopg.Error:
            self.close()
            return True  # we may have missed one

    def fileno(self) -> int | None:
        """What becomes readable when a hint comes, while we listen."""
        if self._connection.pooled:
            return None
        listening = self._listening
        return None if listening is None or listening.closed else listening.fileno()

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            with suppress(psycopg.Error):
                self._listening.close()
            self._listening = None

    def _listen(self) -> bool:
        if time.monotonic() < self._again_at_s:
            return False
        self._again_at_s = time.monotonic() + _AGAIN_S
        try:
            self._listening = self._connection.apart()
            self._listening.execute("LISTEN perdure")
        except (PerdureError, psycopg.Error):
            self.close()
        return self._listening is not None
