"""Seconds of simulated time as the moments that the rules speak of."""

from datetime import UTC, datetime, timedelta

START_AT = datetime(2030, 1, 1, tzinfo=UTC)


def at(now_s: float) -> datetime:
    """The moment so many seconds after the start."""
    return START_AT + timedelta(seconds=now_s)


def since_s(moment: datetime) -> float:
    """Seconds from the start to that moment."""
    return (moment - START_AT).total_seconds()
