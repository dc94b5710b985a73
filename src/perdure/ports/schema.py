"""The schema of a store."""

from typing import Protocol

from perdure.model.views import SchemaStatus


class Schema(Protocol):
    """The schema of a store, and how to bring it up to date."""

    def status(self) -> SchemaStatus:
        """Where it stands."""
        ...

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending; the names of what was applied."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
