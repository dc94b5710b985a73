"""Wait hints: what a server says about when to come back.

A hint is believed or ignored, never bent. It is ignored when it is negative, not finite, malformed,
or leads beyond the year 9999; then the next source is asked. Nothing here raises, and nothing makes
us earlier than the first valid hint. Zero and a moment that has passed are valid: the server
says *now*. How long a hint may be is the policy's business.

The sources, in the order in which they are asked:

1. what the stage said itself;
2. the wait that the server *asks* for: in a header, then in the body;
3. when something that is used up *comes back*: in a header, then in the body;
4. the wait that the message asks for in words.

Of things that stand side by side (a header that came twice, two limits that are both used up) the
longest wait counts. A moment is compared with the response's own ``Date`` where it has one, since
both come from one clock; otherwise with ``now``.

``docs/hints.md`` holds the published table of cases, which is a test.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from perdure.model.outcomes import Evidence
from perdure.rules.hints import header_forms
from perdure.rules.hints.durations import asked_in_words_s, number_of
from perdure.rules.hints.header_forms import Clock, Reader
from perdure.rules.hints.moments import WEEKDAYS, http_moment
from perdure.rules.hints.ratelimit_header import exhausted_for_s

_ASKING_HEADERS: dict[str, Reader] = {
    "retry-after-ms": header_forms.milliseconds,
    "x-ms-retry-after-ms": header_forms.milliseconds,
    "x-amz-retry-after": header_forms.whole_milliseconds,
    "grpc-retry-pushback-ms": header_forms.pushback,
    "retry-after": header_forms.retry_after,
}
_ASKING_FACTS: dict[str, Reader] = {
    "retryDelay": header_forms.duration,
    "retryAfterMs": header_forms.milliseconds,
    "retryAfterSeconds": header_forms.seconds,
}
_COMEBACK_HEADERS: dict[str, Reader] = {
    "x-ratelimit-reset-requests": header_forms.refill,
    "x-ratelimit-reset-tokens": header_forms.refill,
    "x-ratelimit-reset": header_forms.reset,
}
_COMEBACK_FACTS: dict[str, Reader] = {
    "quotaResetDelay": header_forms.duration,
    "quotaResetTimeStamp": header_forms.until,
    "resets_at": header_forms.until,
}

_LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_STATED_S_MAX = 1e12  # more than all years up to 9999
_COMMAS_MAX = 31  # in one header, so that a flood of them costs nothing

Named = Mapping[str, list[str]]
Found = Iterator[tuple[float, str]]  # seconds and their source


class Hint(Struct, frozen=True):
    """How long the other side asks us to wait, and where it says so."""

    seconds: float
    source: str


def wait_hint(evidence: Evidence, now: datetime) -> Hint | None:
    """The wait that the other side asks for, or None; ``now`` is aware and in UTC."""
    for seconds, source in _candidates(evidence, now):
        if 0.0 <= seconds <= (_LAST_MOMENT - now).total_seconds():  # false for NaN, too
            return Hint(seconds, source)
    return None


def server_verdict(evidence: Evidence) -> bool | None:
    """The server's own word on whether to try again, where it gave one."""
    if not evidence.headers and not evidence.facts:
        return None
    headers, facts = _group(evidence.headers), _group(evidence.facts)
    for said in (headers.get("x-should-retry", []), facts.get("retryable", [])):
        words = {part.strip(" \t").lower() for part in _parts(said)}
        if words in ({"true"}, {"false"}):
            return words == {"true"}
    pushback = headers.get("grpc-retry-pushback-ms")
    if (
        pushback is not None
        and _longest(pushback, header_forms.pushback, lambda: _LAST_MOMENT) is None
    ):
        return False  # gRPC A6: what is negative or unreadable means "do not retry"
    return None


def _candidates(evidence: Evidence, now: datetime) -> Found:
    if (stated_s := _stated_s(evidence.wait_s)) is not None:
        yield stated_s, "stage"
    if evidence.headers or evidence.facts:
        headers, facts = _group(evidence.headers), _group(evidence.facts)
        clock = partial(_server_now, headers, now)
        yield from _read(headers, _ASKING_HEADERS, clock)
        yield from _refine(_read(facts, _ASKING_FACTS, clock), evidence)
        yield from _comebacks(headers, clock)
        yield from _read(facts, _COMEBACK_FACTS, clock)
    if (asked_s := _asked_in_words_s(evidence)) is not None:
        yield asked_s, "message"


def _stated_s(wait_s: object) -> float | None:
    # A stage may hand over anything, among it an int that no float can hold.
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float):
        return None
    return float(wait_s) if 0 <= wait_s <= _STATED_S_MAX else None


def _asked_in_words_s(evidence: Evidence) -> float | None:
    if not evidence.facts:
        return asked_in_words_s(evidence.message)
    texts = [evidence.message, *(text for name, text in evidence.facts if name == "message")]
    return max((s for text in texts if (s := asked_in_words_s(text)) is not None), default=None)


def _refine(found: Found, evidence: Evidence) -> Found:
    """Google cuts ``retryDelay`` to whole seconds and tells the rest in the message alone."""
    for seconds, source in found:
        words_s = _asked_in_words_s(evidence) if source == "retryDelay" else None
        if words_s is not None and seconds < words_s < seconds + 1:
            yield words_s, source
        else:
            yield seconds, source


def _comebacks(headers: Named, clock: Clock) -> Found:
    """When each limit that is used up comes back, the last one first."""
    used_up = {
        name: reader
        for name in headers
        if (reader := _comeback_reader(name)) and _is_used_up(headers, name)
    }
    found = list(_read(headers, used_up, clock))
    listed_s = exhausted_for_s(",".join(headers.get("ratelimit", [])))
    if listed_s is not None:
        found.append((listed_s, "ratelimit"))
    yield from sorted(found, reverse=True)


def _comeback_reader(name: str) -> Reader | None:
    if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
        return header_forms.until
    return _COMEBACK_HEADERS.get(name)


def _is_used_up(headers: Named, name: str) -> bool:
    """Whether nothing is left of a limit; a plain ``x-ratelimit-reset`` need not say so."""
    parts = _parts(headers.get(name.replace("-reset", "-remaining"), []))
    left = min((left for part in parts if (left := number_of(part)) is not None), default=None)
    return left == 0 or (left is None and name == "x-ratelimit-reset")


def _read(named: Named, readers: Mapping[str, Reader], clock: Clock) -> Found:
    for source, reader in readers.items():
        if source in named and (seconds := _longest(named[source], reader, clock)) is not None:
            yield seconds, source


def _longest(values: list[str], reader: Reader, clock: Clock) -> float | None:
    """The longest wait of a header that came once or more; None if any part of it is garbage."""
    found = [reader(part, clock) for part in _parts(values)]
    valid = [seconds for seconds in found if seconds is not None]
    return max(valid, default=None) if len(valid) == len(found) else None


def _parts(values: list[str]) -> list[str]:
    """A repeated header is one list with commas; the comma after a weekday is the date's own."""
    pieces = ",".join(values).split(",", _COMMAS_MAX)
    parts = pieces[:1]
    for piece in pieces[1:]:
        if parts[-1].strip(" \t").lower() in WEEKDAYS:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _group(pairs: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for name, value in pairs:
        named.setdefault(name, []).append(value)
    return named


def _server_now(headers: Named, now: datetime) -> datetime:
    told = headers.get("date", [])
    return (http_moment(told[0], now) if len(told) == 1 else None) or now
