"""The line in which all writers of one file wait, across processes and threads.

SQLite's own busy handler polls with growing sleeps and knows no order: a busy pump that commits and
begins again at once starves a second process for many seconds. So writers queue before they
touch SQLite, on two `flock` side files used as a turnstile: take ``next``, then ``main``, then let
go of ``next``. Whoever waits for ``main`` holds ``next``, so the writer that has just finished
cannot slip in again before it.

A stopped process can hold the line; every wait here is therefore bounded and ends as `StoreBusy`.
The kernel lets go of both locks when their holder dies.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from perdure.model.errors import StoreBusy, StoreUnavailable

_PAUSE_S_MAX = 0.002

_ALL: "WeakSet[Turnstile]" = WeakSet()


def _leave_to_parent() -> None:
    """A fork shares its parent's locks: let go of them, or they would outlive the parent."""
    for turnstile in list(_ALL):
        turnstile.close()


os.register_at_fork(after_in_child=_leave_to_parent)


class Turnstile:
    """The writers' line of one database file, seen by one connection."""

    def __init__(self, path: str, *, wait_s_max: float) -> None:
        self._path = path
        self._wait_s_max = wait_s_max
        self._closed = False
        self._next = os.open(f"{path}-next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._main = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _ALL.add(self)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for our turn, and keep it for the length of the block."""
        give_up_at = time.monotonic() + self._wait_s_max
        self._take(self._next, give_up_at)
        try:
            self._take(self._main, give_up_at)
        finally:
            self._let_go(self._next)
        try:
            yield
        finally:
            self._let_go(self._main)

    def close(self) -> None:
        """Leave the line for good."""
        if not self._closed:
            self._closed = True
            os.close(self._next)
            os.close(self._main)

    def _let_go(self, lock: int) -> None:
        if not self._closed:  # an interrupt may have closed us in the middle of a turn
            fcntl.flock(lock, fcntl.LOCK_UN)

    def _take(self, lock: int, give_up_at: float) -> None:
        if self._closed:
            raise StoreUnavailable(f"the connection to {self._path!r} is closed; open it again")
        pause_s = 0.0001
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    raise StoreBusy(
                        f"another process has been writing to {self._path!r} for "
                        f"{self._wait_s_max:g} s; it may be stopped or the disk may hang"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
