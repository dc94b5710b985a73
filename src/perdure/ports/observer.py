"""Whom to tell of what has become durable."""

from typing import Protocol

from perdure.model.events import Event


class Observer(Protocol):
    """Somebody to be told what has become durable."""

    def __call__(self, event: Event) -> None:
        """Take note; may not hurt the walk."""
        ...
