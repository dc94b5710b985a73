"""Hints that there is work, by LISTEN and NOTIFY. Polling is the truth; a lost hint costs a poll.

NOTIFY takes a lock that all committing notifiers of a server share, and in a transaction that writes it is held
while the disk syncs. So it is never part of an enqueue: it is said after that is durable, on a connection of its own,
where it is sent and not waited for. Each hint makes everybody who listens look at the store. Up to a few hundred
enqueues in a second each has its own; where more come, a thread says one for many, and ever more seldom: whoever
listens then has enough to do.
"""

import select
import threading
import time
from contextlib import suppress

import psycopg
from psycopg.pq import ConnStatus

from perdure.model.errors import PerdureError
from perdure.stores.forking import tell_of_forks
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cx, let_go_of_socket
from perdure.stores.postgres.statements import SQL

_APART_S = 0.002  # after a notification, for each enqueue that it stood for
_APART_S_MAX = 0.05
_IDLE_S = 5.0  # the thread ends when nothing was told for so long
_AGAIN_S = 5.0  # between two tries to have a connection, to listen or to tell
_ANSWER_S_MAX = 40.0  # more than the server takes to give up a lock or a statement


class NotifySender:
    """Tells listeners that something was enqueued: at once, and seldom where much is."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._guard = threading.Lock()  # never held while anybody is waited for
        self._unsent = 0
        self._next_at_s = 0.0
        self._own_cx: Cx | None = None  # made by the thread
        self._connect_at_s: float | None = None  # when it may be made
        self._left: list[Cx] = []  # our parent's
        self._news = threading.Event()  # for the thread
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        tell_of_forks(self)

    def begin_anew(self) -> None:
        """The thread and the connection are our parent's, and perhaps it held the lock."""
        ended, self._ended = self._ended, threading.Event()
        if ended.is_set():
            self._ended.set()
        self._news, self._guard, self._thread = threading.Event(), threading.Lock(), None
        if self._own_cx is not None:
            let_go_of_socket(self._own_cx)
            self._left.append(self._own_cx)
            self._own_cx = None

    def tell(self) -> None:
        """There is news."""
        with self._guard:
            self._unsent += 1
            if time.monotonic() >= self._next_at_s and self._is_free() and self._send():
                return
            self._news.set()
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="perdure-notify", daemon=True
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
        with self._guard:
            self._disconnect()

    # -- on its own connection, under the guard ------------------------------------------

    def _is_free(self) -> bool:
        """Whether there is a connection on which the last word was answered; takes in what has come."""
        cx = self._own_cx
        if cx is None:
            return False
        try:
            cx.pgconn.consume_input()
            while not cx.pgconn.is_busy():
                if cx.pgconn.get_result() is None:  # whatever it was: a hint is worth no error
                    return cx.pgconn.status == ConnStatus.OK
        except psycopg.Error:
            self._disconnect()
        return False

    def _send(self) -> bool:
        assert self._own_cx is not None
        try:
            self._own_cx.pgconn.send_query(SQL.notify.encode())
            self._own_cx.pgconn.flush()
        except psycopg.Error:
            self._disconnect()
            return False
        self._note_sent()
        return True

    def _note_sent(self) -> None:
        apart_s = min(_APART_S * self._unsent, _APART_S_MAX)
        self._unsent, self._next_at_s = 0, time.monotonic() + apart_s

    def _disconnect(self) -> None:
        cx, self._own_cx = self._own_cx, None
        if cx is not None:
            with suppress(psycopg.Error):
                cx.close()

    # -- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_news():
            self._news.clear()
            self._ended.wait(max(0.0, self._next_at_s - time.monotonic()))
            self._await_answer()
            with self._guard:
                if not self._unsent or (self._is_free() and self._send()):
                    continue
                self._note_sent()
            with suppress(PerdureError), self._connection.autocommit() as cx:
                cx.execute(SQL.notify)
            self._connect()

    def _wait_for_news(self) -> bool:
        """Wait for news; False when there is nothing to be done any more, and somebody else may start."""
        self._news.wait(0 if self._ended.is_set() else _IDLE_S)
        with self._guard:
            if not self._news.is_set():
                self._thread = None
            return self._thread is not None

    def _connect(self) -> None:
        """Make a connection for the next word, unless this was the first: whoever enqueues once needs none."""
        now, connect_at_s = time.monotonic(), self._connect_at_s
        if connect_at_s is None:
            self._connect_at_s = now
        elif now >= connect_at_s and not self._ended.is_set():
            self._connect_at_s = now + _AGAIN_S
            with suppress(PerdureError, psycopg.Error):
                made = self._connection.connect_apart()
                with self._guard:
                    self._disconnect()  # an older one may still wait for its answer
                    if self._ended.is_set():
                        made.close()
                    else:
                        self._own_cx = made

    def _await_answer(self) -> None:
        """Wait until the last word was answered; a connection on which that takes far too long is given up."""
        give_up_at_s = time.monotonic() + _ANSWER_S_MAX
        while not self._ended.is_set():
            with self._guard:
                if self._is_free() or self._own_cx is None:
                    return
                if time.monotonic() >= give_up_at_s:
                    self._disconnect()
                    return
                answer = select.poll()
                answer.register(self._own_cx.fileno(), select.POLLIN)
            answer.poll(100)


class NotifyListener:
    """Listens on a connection of its own, and goes on without when that is not to be had."""

    def __init__(self, connection: PostgresConnection) -> None:
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

    def has_heard(self) -> bool:
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
            self._listening = self._connection.connect_apart()
            self._listening.execute("LISTEN perdure")
        except (PerdureError, psycopg.Error):
            self.close()
        return self._listening is not None
