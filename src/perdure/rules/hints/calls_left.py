"""What the headers of a good answer say about the calls that are left: the room before the first rate limit.

Three families are read: OpenAI's ``x-ratelimit-*-requests``, Anthropic's ``anthropic-ratelimit-requests-*``, and
the plain ``x-ratelimit-*``. A family with a part that is missing or garbage says nothing. Of several the
tightest counts. Rooms of tokens are not read: what a call takes of them is known only when it has ended.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from perdure.rules.hints import header_forms
from perdure.rules.hints.durations import whole_number_of
from perdure.rules.hints.header_forms import Reader

_CALLS_MAX = 1e12
_RESET_S_MAX = 86_400.0  # what comes back later than tomorrow is no rate


class Room(Struct, frozen=True):
    """What an answer's headers say: of ``limit`` calls so many remain until the reset."""

    remaining: int
    reset_at: datetime
    limit: int | None = None


class _Family(Struct, frozen=True):
    remaining: str
    limit: str
    reset: str
    reader: Reader


_FAMILIES = (
    _Family(
        "x-ratelimit-remaining-requests",
        "x-ratelimit-limit-requests",
        "x-ratelimit-reset-requests",
        header_forms.refill,
    ),
    _Family(
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-reset",
        header_forms.until,
    ),
    _Family("x-ratelimit-remaining", "x-ratelimit-limit", "x-ratelimit-reset", header_forms.reset),
)


def room_of(headers: Mapping[str, str], now: datetime) -> Room | None:
    """The tightest room that the headers tell of; their names are in lower case."""
    found = [room for one in _FAMILIES if (room := _read(one, headers, now)) is not None]
    return min(found, key=lambda room: _per_s(room, now), default=None)


def _read(family: _Family, headers: Mapping[str, str], now: datetime) -> Room | None:
    remaining = whole_number_of(headers.get(family.remaining, ""))
    reset_s = family.reader(headers.get(family.reset, ""), lambda: now)
    limit = whole_number_of(headers.get(family.limit, ""))
    if remaining is None or remaining > _CALLS_MAX or reset_s is None:
        return None
    if not 0 < reset_s <= _RESET_S_MAX:
        return None
    known = None if limit is None or limit > _CALLS_MAX else int(limit)
    return Room(int(remaining), now + timedelta(seconds=reset_s), known)


def _per_s(room: Room, now: datetime) -> float:
    return room.remaining / (room.reset_at - now).total_seconds()
