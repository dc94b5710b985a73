"""From any exception to frozen evidence: bounded, one line, by name, importing no vendor library.

An exception's text and attributes are somebody else's code: reading them may itself raise.
"""

import errno
import re
from collections.abc import Iterable
from typing import Any

from perdure.model.errors import StageError
from perdure.model.kinds import Kind
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
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # a terminal would obey them, a store chokes on NUL
_WAIT_S_MAX = 1e12  # as much as a header may say; how much is honoured is the policy's business
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


def evidence_of(error: BaseException) -> Evidence:
    """What an exception says, as data."""
    stated = error if isinstance(error, StageError) else None
    return Evidence(
        names=_names(error),
        message=_message(error),
        status=_status(error),
        headers=tuple(_headers(error)),
        errno=_errno(error),
        kind=_kind(_read(stated, "kind")),
        wait_s=_wait_s(_read(stated, "wait_s")),
        causes=tuple(_causes(error)),
    )


def one_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Text on one line, without control characters or lone surrogates, cut with a mark."""
    head = text[: chars_max * 2]
    clean = " ".join(_CONTROLS.sub(" ", head).split())
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    if len(clean) <= chars_max and len(head) == len(text):
        return clean
    return clean[: chars_max - 1] + "…"


def _names(error: BaseException) -> tuple[str, ...]:
    classes = type(error).__mro__
    names = [f"{one.__module__}.{one.__qualname__}" for one in classes if one is not object]
    return tuple(one_line(name, 200) for name in names[:NAMES_MAX])


def _message(error: BaseException) -> str:
    try:
        return one_line(str(error))
    except _UNREADABLE as broken:
        return f"(its text raises {type(broken).__name__})"


def _read(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except _UNREADABLE:
        return None


def _kind(stated: object) -> Kind | None:
    return stated if isinstance(stated, Kind) else None


def _wait_s(stated: object) -> float | None:
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= _WAIT_S_MAX else None


def _status(error: BaseException) -> int | None:
    if not isinstance(error, Exception):  # SystemExit has a code, too
        return None
    for holder in (error, _read(error, "response")):
        for name in ("status_code", "status", "code"):
            value = _read(holder, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 999:
                return value
    return None


def _headers(error: BaseException) -> Iterable[tuple[str, str]]:
    found = _read(_read(error, "response"), "headers")
    if found is None:
        found = _read(error, "headers")
    kept = 0
    for name, value in _pairs(found):
        lower = name.lower()
        if (lower in _KEPT_HEADERS or lower.startswith(_KEPT_PREFIXES)) and kept < HEADERS_MAX:
            kept += 1
            yield one_line(lower, HEADER_CHARS_MAX), one_line(value, HEADER_CHARS_MAX)


def _pairs(headers: object) -> list[tuple[str, str]]:
    items = _read(headers, "items")
    if not callable(items):
        return []
    try:
        return [(str(name), str(value)) for name, value in items()]
    except _UNREADABLE:
        return []


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
