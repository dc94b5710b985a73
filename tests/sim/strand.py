"""A strand: a thread used as a coroutine, so that real, blocking code can be stopped in a call.

The scheduler and the strand hand each other one token back and forth; never do both run. A strand
gives the token away only in `sleep` and in `Bell.wait`, and gets it back when its event comes up.
When its process dies, `Killed` is raised at the point where it stood, and its thread ends.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World


class Killed(BaseException):
    """The process that this strand belonged to is no more."""


class Strand:
    """One line of execution inside the world."""

    def __init__(
        self, world: "World", name: str, body: Callable[[], None], owner: "Process | None"
    ) -> None:
        self.name = name
        self._world = world
        self._owner = owner
        self._body = body
        self._stage = 0  # which suspension we are in; a wake-up for an earlier one is void
        self._over = False
        self._ending = False
        self._error: BaseException | None = None
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- on the scheduler's thread -------------------------------------------------------

    def resume(self) -> None:
        """Let it run until it sleeps or ends."""
        if self._over:
            return
        if not self._thread.ident:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def end(self) -> None:
        """Raise `Killed` where it stands, and wait for its thread."""
        if not self._thread.ident:
            self._over = True
        if not self._over:
            self._ending = True
            self.resume()
        if self._thread.ident:
            self._thread.join()

    # -- on its own thread ---------------------------------------------------------------

    def sleep(self, delay_s: float) -> None:
        """Let others act for so long."""
        if not self._ending and self._world.passes(delay_s, self._owner):
            return
        self._stage += 1
        self.wake_after(delay_s)
        self._give_way()

    def wake_after(self, delay_s: float) -> None:
        """End the present suspension then, unless something else has ended it."""
        stage = self._stage
        self._world.after(delay_s, lambda: self._wake(stage), self._owner)

    def _wake(self, stage: int) -> None:
        if stage == self._stage:
            self.resume()

    def _give_way(self) -> None:
        if self._ending:
            raise Killed
        self._back.release()
        self._go.acquire()
        self._stage += 1
        if self._ending:
            raise Killed

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._ending:
                self._body()
        except Killed:
            pass
        except BaseException as error:
            self._error = error
        self._over = True
        self._back.release()


class Bell:
    """What wakes a loop, in virtual time: `engine.bell.Bell`, and of `threading.Event` what is used."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self._rung = False
        self._awaited = False

    def set(self) -> None:
        """Ring."""
        self._rung = True
        if self._awaited:
            self._awaited = False
            self._strand.wake_after(0.0)

    def ring(self) -> None:
        """As `engine.bell.Bell` calls it."""
        self.set()

    def rest(self, wait_s: float, wake_fd: int | None = None) -> bool:
        """Sleep until it rings, ``wake_fd`` has something to read, or the time is over; whether it rang."""
        rang = self.wait(wait_s)
        self.clear()
        return rang

    def speak(self) -> None:
        """Something can be read at the descriptor: it ends a rest, and is no ring."""
        if self._awaited:
            self._awaited = False
            self._strand.wake_after(0.0)

    def close(self) -> None:
        """Nobody rests here any more."""

    def clear(self) -> None:
        """Forget it."""
        self._rung = False

    def wait(self, timeout: float) -> bool:
        """Sleep until it rings or the time is over; whether it rang."""
        if not self._rung:
            self._awaited = True
            self._strand.sleep(max(timeout, 1e-6))  # no wait takes no time at all
            self._awaited = False
        return self._rung
