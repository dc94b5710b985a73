"""A thread that calls a step for ever: the only thing a thread of ours does.

A step returns how long nothing will be due. One bad turn is told, waited out and tried again; it
may not end the loop. Two things do: being told to stop, and the store saying that this worker is
dead.
"""

import logging
import math
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from perdure.engine.observe import Observers, trace_of
from perdure.model.errors import StoreError, WorkerDead

log = logging.getLogger("perdure")

_BAD_TURN_S = 0.5


class Wakeup:
    """What wakes a resting thread: rung from any thread, and from a signal handler, because it takes no lock.

    A pair of sockets, one to ring at and one to listen at. What was rung before a rest ends that, too.
    """

    def __init__(self) -> None:
        self._rings, self._hears = socket.socketpair()
        self._rings.setblocking(False)
        self._hears.setblocking(False)

    def ring(self) -> None:
        """Wake whoever rests, or the next who would."""
        with suppress(OSError):  # full of words, or closed: then nobody rests any more
            self._rings.send(b"!")

    def rest(self, wait_s: float, wake_fd: int | None = None) -> bool:
        """Wait until it is rung, ``wake_fd`` has something to read, or the time is over; whether it was rung."""
        poll = select.poll()  # not select: with many sockets open, numbers are beyond its reach
        poll.register(self._hears, select.POLLIN)
        if wake_fd is not None:
            poll.register(wake_fd, select.POLLIN)
        poll.poll(math.ceil(wait_s * 1000))
        try:
            return bool(self._hears.recv(4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Nobody rests here any more."""
        self._rings.close()
        self._hears.close()


class Loop:
    """Calls ``step`` until stopped; between calls it waits for a wake-up, a change or the time."""

    def __init__(
        self,
        step: Callable[[], float],
        *,
        changed: Callable[[], bool],
        answers: Callable[[], object] | None = None,
        wake_fd: Callable[[], int | None] = lambda: None,
        tick_s: float,
        ended: Callable[[Exception | None], None],
        observers: Observers,
    ) -> None:
        self._step = step
        self._changed = changed
        self._answers = answers or changed  # asks the store; a look for changes need not reach it
        self._wake_fd = wake_fd  # readable when there is news; without it, every tick is a look
        self._tick_s = tick_s
        self._ended = ended
        self._observers = observers
        self._wakeup: Wakeup | None = None
        self._stop = False
        self._turned_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="perdure-pump", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._wakeup = Wakeup()
        self._thread.start()

    @property
    def silent_s(self) -> float:
        """How long ago the last good turn ended."""
        return math.inf if self._turned_s is None else monotonic() - self._turned_s

    def wake(self) -> None:
        """There is something to do now; may be called in a signal handler."""
        if self._wakeup is not None:  # else the first turn is still to come
            self._wakeup.ring()

    def stop(self) -> None:
        """End after the step under way."""
        self._stop = True
        self.wake()

    def _run(self) -> None:
        last: Exception | None = None
        wakeup = self._wakeup
        assert wakeup is not None
        try:
            while not self._stop:
                self._rest(wakeup, self._turn())
        except WorkerDead as dead:
            last = dead
        finally:
            wakeup.close()
            self._ended(last)

    def _turn(self) -> float:
        try:
            wait_s = self._step()
            if self._observers.store_away:
                self._answers()  # a turn need not have asked the store anything
                self._observers.store_answers()
        except WorkerDead:
            raise
        except StoreError as away:
            self._observers.store_is_away(away)
            return _BAD_TURN_S
        except Exception as error:
            log.error("a turn failed; it will be tried again: %s", trace_of(error))
            return _BAD_TURN_S
        self._turned_s = monotonic()
        return wait_s

    def _rest(self, wakeup: Wakeup, wait_s: float) -> None:
        until_s = monotonic() + wait_s
        trusted = True
        while not self._stop and (left_s := until_s - monotonic()) > 0:
            wake_fd = self._wake_fd() if trusted else None
            slice_s = left_s if wake_fd is not None else min(left_s, self._tick_s)
            if wakeup.rest(slice_s, wake_fd) or self._has_changed():
                return
            # It spoke without news: it may go on speaking, and we would never rest.
            trusted = trusted and wake_fd is None

    def _has_changed(self) -> bool:
        try:
            return self._changed()
        except StoreError:
            return False
