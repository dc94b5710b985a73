"""A few connections, lent to one thread at a time.

psycopg-pool reconnects in threads of its own, with growing pauses, while callers wait for them: after a
restart of the server that is seconds of standing still (docs/decisions/0012). Here the thread that needs a
connection makes it, at once and within a bounded time, and one that died while it lay idle is noticed
before it is lent.

Always true: what is lent is outside of any transaction and in the hands of one thread; there are never more
than so many; nobody waits for an answer longer than the server may take. A process that was forked off
touches none of them: they are its parent's.
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

Cx = psycopg.Connection[tuple[Any, ...]]
RV = TypeVar("RV")

_WAIT_INTERVAL_S = 0.1  # psycopg's own: how often a wait looks up


class Line(psycopg.Connection[tuple[Any, ...]]):
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
    assert isinstance(cx, Line)
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
        self._closed = True
        if self._pid == os.getpid():
            self.drop_idle()

    def drop_idle(self) -> None:
        """Close what is idle."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
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
        if self._pid != os.getpid():
            return
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
