"""Moments as whole microseconds since 1970, UTC, so that they compare and add exactly."""

from datetime import UTC, datetime, timedelta

MINUTE_US = 60_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The aware moment."""
    return _EPOCH + timedelta(microseconds=us)


def maybe_us(us: int | None) -> datetime | None:
    """The aware moment, where there is one."""
    return None if us is None else from_us(us)


def seconds_us(seconds: float) -> int:
    """A length of time in whole microseconds, never shortened."""
    us = int(seconds * 1_000_000)
    return us if us >= seconds * 1_000_000 else us + 1
