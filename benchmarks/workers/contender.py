"""What is asked of everybody who is measured."""

from collections.abc import Sequence
from typing import Any, Protocol

Payload = dict[str, Any]


class Contender(Protocol):
    """One library on one empty database. ``what`` is nothing, flaky, timed or held."""

    def command(self, concurrency: int | None) -> list[str]:
        """Start one worker process by this; with so many jobs in flight, or as suits it best."""

    def enqueue(self, what: str, payloads: Sequence[Payload]) -> None:
        """Enqueue all of these in one transaction."""

    def send(self, what: str, payload: Payload) -> None:
        """Enqueue one, as a user does."""

    def each(self, what: str, payloads: Sequence[Payload]) -> None:
        """Enqueue these one by one, each durable before the next."""

    def busy(self) -> bool:
        """Whether any job has not ended."""

    def finished(self) -> int:
        """How many jobs have succeeded."""

    def close(self) -> None:
        """Disconnect."""
