"""The machine's clocks, behind the `Clock` port."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()
