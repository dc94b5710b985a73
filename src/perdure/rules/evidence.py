"""From any exception to frozen evidence: bounded, one line, by name, importing no vendor library."""

import errno
from collections.abc import Iterable, Mapping
from typing import Any

from perdure.model.errors import StageError
from perdure.model.limits import (
    CAUSES_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    MESSAGE_CHARS_MAX,
    NAMES_MAX,
)
from perdure.model.outcomes import Evidence

_KEPT_HEADERS = ("retry-after", "retry-after-ms", "date", "x-should-retry", "x-request-id")
_KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit")


def evidence_of(error: BaseException) -> Evidence:
    """What an exception says, as data."""
    stage_error = error if isinstance(error, StageError) else None
    return Evidence(
        names=_names(error),
        message=_message(error),
        status=_status(error),
        headers=tuple(_headers(error)),
        errno=_errno(error),
        kind=stage_error.kind if stage_error else None,
        wait_s=stage_error.wait_s if stage_error else None,
        causes=tuple(_causes(error)),
    )


def one_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Text on one line, without NUL or lone surrogates, cut with a mark where it is too long."""
    head = text[: chars_max * 2]
    clean = " ".join(head.replace("\x00", " ").split())
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + "…"


def _names(error: BaseException) -> tuple[str, ...]:
    classes = type(error).__mro__
    names = [f"{one.__module__}.{one.__qualname__}" for one in classes if one is not object]
    return tuple(one_line(name, 200) for name in names[:NAMES_MAX])


def _message(error: BaseException) -> str:
    try:
        return one_line(str(error))
    except (ValueError, TypeError, AttributeError, KeyError, LookupError, RuntimeError) as broken:
        return f"(its text raises {type(broken).__name__})"


def _status(error: BaseException) -> int | None:
    if not isinstance(error, Exception):  # SystemExit has a code, too
        return None
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 999:
                return value
    return None


def _headers(error: BaseException) -> Iterable[tuple[str, str]]:
    found = getattr(getattr(error, "response", None), "headers", None)
    if found is None:
        found = getattr(error, "headers", None)
    kept = 0
    for name, value in _pairs(found):
        lower = name.lower()
        if (lower in _KEPT_HEADERS or lower.startswith(_KEPT_PREFIXES)) and kept < HEADERS_MAX:
            kept += 1
            yield lower, one_line(value, HEADER_CHARS_MAX)


def _pairs(headers: Any) -> list[tuple[str, str]]:
    if not (isinstance(headers, Mapping) or hasattr(headers, "items")):
        return []
    return [(str(name), str(value)) for name, value in headers.items()]


def _errno(error: BaseException) -> str | None:
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number) if isinstance(number, int) else None


def _causes(error: BaseException) -> Iterable[tuple[str, ...]]:
    seen = {id(error)}
    link = error.__cause__ or error.__context__
    while link is not None and id(link) not in seen and len(seen) <= CAUSES_MAX:
        seen.add(id(link))
        yield _names(link)
        link = link.__cause__ or link.__context__
