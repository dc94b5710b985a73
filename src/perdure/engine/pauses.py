"""How long to wait before the next try or look, and how long to go on trying while a store is away."""

import math
import time
from collections.abc import Callable

SHORTEST_S, _LONGEST_S = 0.005, 0.25  # between two looks at what others do in the store


class Pauses:
    """Pauses between looks or tries, each longer than the last, until something has moved."""

    def __init__(
        self, first_s: float = SHORTEST_S, longest_s: float = _LONGEST_S, factor: float = 1.5
    ) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s
        self._factor = factor

    def begin(self) -> None:
        """Begin with short ones again: something has moved."""
        self._next_s = self._first_s

    def next_s(self, left_s: float = math.inf) -> float:
        """The length of the next pause, for somebody who has so much time left."""
        pause_s = self._next_s
        self._next_s = min(self._factor * pause_s, self._longest_s)
        return min(pause_s, left_s)


class Absence:
    """How long a store has been away, for somebody who tries on for ``s_max``."""

    def __init__(self, s_max: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._s_max = s_max
        self._monotonic = monotonic
        self._began_at: float | None = None

    def is_too_long(self) -> bool:
        """Asked after each try that has failed: whether the first of them was longer ago than that."""
        now = self._monotonic()
        if self._began_at is None:
            self._began_at = now
        return now - self._began_at > self._s_max

    def end(self) -> None:
        """It has answered."""
        self._began_at = None
