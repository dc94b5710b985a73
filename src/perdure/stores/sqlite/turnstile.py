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

from perdure.model.errors import StoreBusy

_PAUSE_S_MAX = 0.002


class Turnstile:
    """The writers' line of one database file, seen by one connection."""

    def __init__(self, path: str, *, wait_s_max: float) -> None:
        self._path = path
        self._wait_s_max = wait_s_max
        self._next = os.open(f"{path}-next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._main = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for our turn, and keep it for the length of the block."""
        give_up_at = time.monotonic() + self._wait_s_max
        self._take(self._next, give_up_at)
        try:
            self._take(self._main, give_up_at)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._main, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the line for good."""
        os.close(self._next)
        os.close(self._main)

    def _take(self, lock: int, give_up_at: float) -> None:
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
