"""A thread that calls a step for ever: the only thing a thread of ours does.

A step returns how long nothing will be due. One bad turn is told, waited out and tried again; it
may not end the loop. Two things do: being told to stop, and the store saying that this worker is
dead.
"""

import logging
import threading
from collections.abc import Callable

from perdure.engine.observe import Observers
from perdure.model.errors import StoreError, WorkerDead

log = logging.getLogger("perdure")

_BAD_TURN_S = 0.5


class Loop:
    """Calls ``step`` until stopped; between calls it waits for a wake-up, a change or the time."""

    def __init__(
        self,
        step: Callable[[], float],
        *,
        changed: Callable[[], bool],
        tick_s: float,
        ended: Callable[[Exception | None], None],
        observers: Observers,
    ) -> None:
        self._step = step
        self._changed = changed
        self._tick_s = tick_s
        self._ended = ended
        self._observers = observers
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="perdure-pump", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to do now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the step under way."""
        self._stop = True
        self._wake.set()

    def _run(self) -> None:
        last: Exception | None = None
        try:
            while not self._stop:
                self._rest(self._turn())
        except WorkerDead as dead:
            last = dead
        finally:
            self._ended(last)

    def _turn(self) -> float:
        try:
            wait_s = self._step()
            if self._observers.store_away:
                self._changed()  # a turn need not have asked the store anything
                self._observers.store_answers()
        except WorkerDead:
            raise
        except StoreError as away:
            self._observers.store_is_away(away)
            return _BAD_TURN_S
        except Exception:
            log.exception("a turn failed; it will be tried again")
            return _BAD_TURN_S
        return wait_s

    def _rest(self, wait_s: float) -> None:
        left_s = wait_s
        while left_s > 0 and not self._stop:
            slice_s = min(left_s, self._tick_s)
            if self._wake.wait(slice_s) or self._changed_quietly():
                break
            left_s -= slice_s
        self._wake.clear()

    def _changed_quietly(self) -> bool:
        try:
            return self._changed()
        except StoreError:
            return False
