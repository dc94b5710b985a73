"""A few connections, lent to one thread at a time.

psycopg-pool reconnects in threads of its own, with growing pauses, while callers wait for them: after a
restart of the server that is seconds of standing still (docs/decisions/0012). Here the thread that needs a
connection makes it, at once and within a bounded time, and one that died while it lay idle is noticed
before it is lent.

Always true: what is lent is outside of any transaction and in the hands of one thread; there are never more
than so many; nobody waits for an answer longer than the server may take. A process that was forked off
makes its own, and touches none of these: they are its parent's. Its copies of their sockets are let go of without a
word, so that the server sees the end of the parent when that comes.
"""

import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.waiting import Ready

from perdure.model.errors import StoreBusy, StoreUnavailable
from perdure.stores.forking import tell_of_forks

Cx = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]
RV = TypeVar("RV")

_WAIT_INTERVAL_S = 0.1  # psycopg's own: how often a wait looks up


class LentConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up when the server does not answer.

    Keepalives notice a host that is gone. They do not notice a server that is stopped, or a proxy whose
    own server is gone: those acknowledge everything and say nothing, for ever.
    """

    answer_s_max = math.inf

    def wait(
        self, gen: PQGen[RV], interval: float = _WAIT_INTERVAL_S, timeout: float | None = None
    ) -> RV:
        """Wait for an answer, not longer than it may take."""
        if self.answer_s_max != math.inf:
            gen = self._until(gen, time.monotonic() + self.answer_s_max)
        if timeout is None:  # psycopg 3.2 does not know it
            return super().wait(gen, interval)
        return super().wait(gen, interval, timeout)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """As the driver's, which (3.3) loses count when the commit at the very end is what fails."""
        try:
            with super().pipeline() as pipeline:
                yield pipeline
        except IndexError as error:
            self.close()
            raise psycopg.OperationalError("the pipeline could not be committed") from error

    def _until(self, gen: PQGen[RV], end_at_s: float) -> PQGen[RV]:
        ready: Any = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                answer: RV = end.value
                return answer
            ready = yield wanted
            if ready == Ready.NONE and time.monotonic() >= end_at_s:
                self.close()  # else the end of a pipeline or transaction would wait once more
                raise psycopg.OperationalError(
                    f"the server has not answered for {self.answer_s_max:g} s"
                )


@contextmanager
def patient(cx: Cx, answer_s_max: float = math.inf) -> Iterator[None]:
    """Wait longer than usual, for work that takes its time."""
    assert isinstance(cx, LentConnection)
    usual, cx.answer_s_max = cx.answer_s_max, answer_s_max
    try:
        yield
    finally:
        cx.answer_s_max = usual


class Lender:
    """Idle connections, newest first, and a bound on how many there are."""

    def __init__(self, connect: Callable[[], Cx], *, size_max: int, wait_s_max: float) -> None:
        self._connect = connect
        self._wait_s_max = wait_s_max
        self._size_max = size_max
        self._slots = threading.BoundedSemaphore(size_max)
        self._idle: list[Cx] = []
        self._lent: list[Cx] = []
        self._left: list[Cx] = []  # our parent's
        self._guard = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        tell_of_forks(self)

    def begin_anew(self) -> None:
        """Begin without a connection; those of our parent are never closed here, which would end them there."""
        for connection in (*self._idle, *self._lent):
            let_go_of_socket(connection)
        self._left += [*self._idle, *self._lent]
        self._idle, self._lent = [], []
        self._slots = threading.BoundedSemaphore(self._size_max)
        self._guard = threading.Lock()
        self._pid = os.getpid()

    @contextmanager
    def lend(self) -> Iterator[Cx]:
        """A connection that is outside of any transaction, for the length of the block."""
        if self._closed:
            raise StoreUnavailable("the connection to the store is closed; open it again")
        pid, slots = self._pid, self._slots
        if not slots.acquire(timeout=self._wait_s_max):
            raise StoreBusy(
                f"all {self._size_max} connections to the store have been in use for "
                f"{self._wait_s_max:g} s; use fewer threads at once, or raise PERDURE_CONNECTIONS"
            )
        try:
            connection = self._take() or self._make()
            try:
                yield connection
            finally:
                # Else we are a child that was forked off in the middle of this.
                if pid == self._pid:
                    try:
                        self._put_back(connection)
                    finally:
                        self._lent.remove(connection)
        finally:
            if pid == self._pid:
                slots.release()

    def close(self) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close what is idle."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
                connection.close()

    def _make(self) -> Cx:
        connection = self._connect()
        self._lent.append(connection)
        return connection

    def _take(self) -> Cx | None:
        while True:
            with self._guard:
                if not self._idle:
                    return None
                self._lent.append(self._idle[-1])  # first: a fork finds it in either, always
                connection = self._idle.pop()
            if _sound(connection):
                return connection
            self._lent.remove(connection)
            connection.close()

    def _put_back(self, connection: Cx) -> None:
        if connection.closed:
            self.drop_idle()  # the line broke: whatever broke it has broken the others, too
        elif not _outside(connection):
            connection.close()  # an open transaction is rolled back by the server
        with self._guard:
            keep = not (self._closed or connection.closed)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


def let_go_of_socket(connection: Cx) -> None:
    """Close our copy of a socket that is our parent's, under the driver: nothing is said to the server."""
    with suppress(psycopg.Error, OSError):
        socket = connection.fileno()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nowhere, socket, inheritable=False)  # the number stays taken: the driver knows it
        os.close(nowhere)


def _outside(connection: Cx) -> bool:
    """Whether this is neither in a transaction nor in a pipeline that it could not leave."""
    return (
        connection.info.transaction_status is TransactionStatus.IDLE
        and connection.pgconn.pipeline_status == PipelineStatus.OFF
    )


def _sound(connection: Cx) -> bool:
    """Whether the server is still there, as far as our end of the line knows.

    A server says nothing to an idle client but goodbye; what else it may have said (that a setting has
    changed) is worth no thought: another connection is made in a millisecond.
    """
    if connection.closed:
        return False
    line = select.poll()  # not select: it knows no file above the number 1023
    try:
        line.register(connection.fileno(), select.POLLIN | select.POLLPRI)
    except psycopg.Error:
        return False
    return not line.poll(0)
