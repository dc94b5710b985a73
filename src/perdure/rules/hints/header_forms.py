"""From the text of a header or of a body's field to seconds, one reader for each form.

Each takes the text and the server's clock, and returns a wait or None. What is negative or
malformed is None; what is too far away is left to the caller, who knows what time it is.
"""

from collections.abc import Callable
from datetime import datetime

from perdure.rules.hints.durations import duration_s, number_of, whole_number_of
from perdure.rules.hints.moments import http_moment, rfc3339_moment

_LAST_EPOCH_S = 253_402_300_799.0  # the last whole second of the year 9999
_EPOCH_S_MIN = 1e9  # a larger number of seconds is no wait but a moment, since 2001
_EPOCH_MS_MIN = 1e12  # and a still larger one counts milliseconds
_PUSHBACK_MS_MAX = 2**31 - 1  # an int32, says gRPC

Clock = Callable[[], datetime]  # the server's own time, asked for only where it matters
Reader = Callable[[str, Clock], float | None]


def seconds(text: str, _: Clock) -> float | None:
    """A plain number of seconds."""
    return number_of(text)


def milliseconds(text: str, _: Clock) -> float | None:
    """A plain number of milliseconds."""
    ms = number_of(text)
    return None if ms is None else ms / 1000


def whole_milliseconds(text: str, _: Clock) -> float | None:
    """Milliseconds without a fraction, as AWS writes them."""
    ms = whole_number_of(text)
    return None if ms is None else ms / 1000


def pushback(text: str, _: Clock) -> float | None:
    """Milliseconds as gRPC writes them; its negative numbers are a verdict, not a wait."""
    ms = whole_number_of(text)
    return ms / 1000 if ms is not None and ms <= _PUSHBACK_MS_MAX else None


def duration(text: str, _: Clock) -> float | None:
    """A duration as Go and protobuf print it."""
    return duration_s(text)


def refill(text: str, clock: Clock) -> float | None:
    """A duration, or any form of a reset; zero is what Azure writes when it does not know."""
    return duration_s(text) or reset(text, clock) or None


def retry_after(text: str, clock: Clock) -> float | None:
    """Seconds or one of the dates of HTTP; a number too large for a wait counts from the epoch."""
    number = number_of(text)
    if number is None:
        return _wait_s(http_moment(text, clock()), clock)
    if number > _EPOCH_MS_MIN:
        return None  # no server writes milliseconds here
    return _epoch_wait_s(number, clock) if number > _EPOCH_S_MIN else number


def reset(text: str, clock: Clock) -> float | None:
    """Vendors agree on nothing here: a wait, a moment in epoch s or ms, or a date."""
    number = number_of(text)
    if number is None:
        moment = rfc3339_moment(text) or http_moment(text, clock())
        return _wait_s(moment, clock)
    return number if number <= _EPOCH_S_MIN else _epoch_wait_s(number, clock)


def until(text: str, clock: Clock) -> float | None:
    """A moment as RFC 3339, or a number since the epoch that is too large for a wait."""
    number = number_of(text)
    if number is None:
        return _wait_s(rfc3339_moment(text), clock)
    return _epoch_wait_s(number, clock) if number > _EPOCH_S_MIN else None


def _epoch_wait_s(number: float, clock: Clock) -> float | None:
    epoch_s = number / 1000 if number > _EPOCH_MS_MIN else number
    return max(epoch_s - clock().timestamp(), 0.0) if epoch_s <= _LAST_EPOCH_S else None


def _wait_s(moment: datetime | None, clock: Clock) -> float | None:
    return None if moment is None else max((moment - clock()).total_seconds(), 0.0)
