"""Time, as the engine reads it. A clock for tests is `testing/clock.py`."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time: wall for people and for stores that have no clock of their own, monotonic for waits."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...
