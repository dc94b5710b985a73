"""The schema of a store. Its tests are each store's own: `tests/stores/sqlite/test_schema.py`, `tests/stores/postgres/test_schema.py`."""

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
