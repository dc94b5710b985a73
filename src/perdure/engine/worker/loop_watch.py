"""Whether an event loop still turns: another thread asks it something now and then, and waits for the answer."""

import math
from collections.abc import Callable


class Pulse:
    """The answers of one event loop, as the thread that asks sees them.

    ``ask`` has it call something. It is blocked when it has not done so for ``blocked_s``. A pause between two looks
    counts as ``every_s`` at most: whoever was stopped itself, with all of its process, must not blame the loop.
    """

    def __init__(
        self, ask: Callable[[Callable[[], None]], None], *, every_s: float, blocked_s: float
    ) -> None:
        self._ask = ask
        self._every_s = every_s
        self._blocked_s = blocked_s
        self._answered = True
        self._asked_at = -math.inf
        self._looked_at = 0.0
        self.silent_s = 0.0

    @property
    def blocked(self) -> bool:
        """Whether it has been silent for too long, when we last looked."""
        return self.silent_s >= self._blocked_s

    def look(self, now: float) -> None:
        """Ask when it is time to; else see whether the answer has come."""
        if not self._answered:
            self.silent_s += min(now - self._looked_at, self._every_s)
        elif now - self._asked_at >= self._every_s:
            self.silent_s = 0.0
            self._answered = False
            self._asked_at = now
            self._ask(self._answer)
        else:
            self.silent_s = 0.0
        self._looked_at = now

    def _answer(self) -> None:
        self._answered = True
