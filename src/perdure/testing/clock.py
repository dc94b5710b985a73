"""A clock that stands still until it is pushed."""

from datetime import UTC, datetime, timedelta

_START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The `Clock` port without a machine's clock behind it: time passes when a test says so.

    Wall and monotonic time move together, in whole microseconds, and never backwards. Give it to
    everything that wants a `Clock`, the store's connection included, and the store's time is yours.
    """

    def __init__(self, start: datetime = _START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start {start} has no time zone; pass an aware datetime")
        self._start = start.astimezone(UTC)
        self._passed_us = 0

    @property
    def passed_us(self) -> int:
        """Microseconds since the start."""
        return self._passed_us

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        return self._start + timedelta(microseconds=self._passed_us)

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._passed_us / 1_000_000

    def push(self, seconds: float) -> None:
        """Let time pass."""
        self.push_us(round(seconds * 1_000_000))

    def push_us(self, us: int) -> None:
        """Let time pass, exactly."""
        if us < 0:
            raise ValueError(f"time cannot go back by {-us} µs")
        self._passed_us += us
