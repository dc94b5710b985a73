"""Time, and whom to tell."""

from datetime import datetime
from typing import Protocol

from perdure.model.events import Event


class Clock(Protocol):
    """Time: wall for people and for stores that have no clock of their own, monotonic for waits."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...


class Observer(Protocol):
    """Somebody to be told what has become durable."""

    def __call__(self, event: Event) -> None:
        """Take note; may not hurt the walk."""
        ...
