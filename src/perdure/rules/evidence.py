"""From any exception or answer to frozen evidence: bounded, one line, by name, safe to keep.

No vendor library is imported: what a thing is, is told by the names of its classes, and what it
carries, by the attributes that the libraries agree on. Nothing is read from the network; the body
of a response is looked at only where it has already arrived.

What a wrapper hides counts too. An exception that was raised *from* another, and has no answer of a
server itself, lends the answer of its cause; so a stage may wrap what it met. What was merely being
dealt with when it was raised is named among the causes and lends nothing: a cache that did not
have the item says nothing about the call that followed. A group among the causes is judged by its first exception; for one
that a stage lets escape, `classify.telling_member` chooses.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct

from perdure.model.errors import PUBLIC_CODE, AnswerError, OutputError, PerdureError, StageError
from perdure.model.kinds import Kind
from perdure.model.limits import (
    CAUSES_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    MESSAGE_CHARS_MAX,
    NAMES_MAX,
    PUBLIC_CODE_CHARS_MAX,
    PUBLIC_MESSAGE_CHARS_MAX,
)
from perdure.model.nouns import replace
from perdure.model.outcomes import Evidence
from perdure.rules.error_bodies import NOTHING, Body, codes_of, parse_body, read_body
from perdure.rules.foreign_code import (
    either,
    member_of,
    number_of,
    short_text,
    text_of,
    try_or_none,
)
from perdure.rules.model_answers import finish_codes, unread_codes, usage_of
from perdure.rules.redact import cut, one_line, redact_line, safe_line

__all__ = ["evidence_of", "links_of", "one_line"]

_NAME_CHARS_MAX = 200
_TEXT_CHARS_MAX = 65_536  # looked at of an exception's text
_WAIT_S_MAX = 1e12  # as much as a header may say; how much is honoured is the policy's business
_HEADERS_READ_MAX = 200
_HEADER_CHARS_READ_MAX = 4_096  # enough to know a secret by both of its ends
_A_PUBLIC_CODE = (
    "one word of letters, digits and _ . : - that begins with a letter and is no key, "
    f"{PUBLIC_CODE_CHARS_MAX} characters at most"
)
_PROBE_CHARS = 60  # of a body's message, looked for in the exception's text

# Kept first, so that a flood of others cannot crowd them out.
_HINT_HEADERS = frozenset(
    {
        "retry-after",
        "retry-after-ms",
        "x-ms-retry-after-ms",
        "x-amz-retry-after",
        "grpc-retry-pushback-ms",
        "x-should-retry",
        "date",
    }
)
_OTHER_HEADERS = frozenset(
    {
        "x-request-id",
        "request-id",
        "x-amzn-requestid",
        "x-amz-request-id",
        "apim-request-id",
        "cf-ray",
    }
)
_HEADER_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit", "x-ms-ratelimit-")

_STATUS_NAMES = ("status_code", "status", "http_status", "code")
_CODE_NAMES = (
    "error_code",
    "code",
    "type",
    "status",
    "reason",
    "category",
    "rate_limit_type",
    "status_code",
    "sqlite_errorname",
)


def evidence_of(thing: object) -> Evidence:
    """What an exception, a response or a model's answer says, as data. Never raises."""
    read: Callable[[Any], Evidence] = _evidence_of_answer
    if issubclass(type(thing), AnswerError):
        read = _unusable
    elif issubclass(type(thing), BaseException):
        read = _evidence_of_error
    found = try_or_none(read, thing)
    return found or Evidence(_names(thing), "(it cannot be read)")


class _Answer(Struct, frozen=True):
    """What a server answered, as far as a thing knows it."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: Body = NOTHING
    codes: tuple[str, ...] = ()
    sqlstate: str | None = None
    usage: tuple[tuple[str, int], ...] = ()


_NO_ANSWER = _Answer()


def _evidence_of_error(error: BaseException) -> Evidence:
    links = list(links_of(error))
    stated_links = [error, *(link for link, is_stated in links if is_stated)]
    answer, holder = _first_answer(stated_links)
    is_own = issubclass(type(error), StageError)
    message = _message(error, answer.body if holder is error else NOTHING)
    public_code, public_message, refused = _public_words(error) if is_own else (None, None, "")
    return Evidence(
        names=_names(error),
        message=cut(message, MESSAGE_CHARS_MAX - len(refused)) + refused,
        status=answer.status,
        headers=answer.headers,
        codes=answer.codes,
        facts=_place(error) or answer.body.facts,
        sqlstate=answer.sqlstate,
        errno=_errno(stated_links),
        kind=_kind(member_of(error, "kind")) if is_own else None,
        wait_s=_wait_s(member_of(error, "wait_s")) if is_own else None,
        causes=tuple(_names(link) for link, _ in links),
        usage=answer.usage,
        public_code=public_code,
        public_message=public_message,
    )


def _unusable(error: AnswerError) -> Evidence:
    """Evidence of an answer that a stage could not use, and raised."""
    inner = evidence_of(error.answer)
    message = inner.message or _message(error, NOTHING)
    codes = inner.codes or unread_codes(error.answer)
    return replace(inner, names=_names(error) + inner.names[:1], message=message, codes=codes)


def _evidence_of_answer(thing: object) -> Evidence:
    """Evidence of a response, or of a model's answer, that is not welcome."""
    is_plain = issubclass(type(thing), dict | list | str | bytes)
    answer = _answer_of(thing)
    return Evidence(
        names=() if is_plain else _names(thing),
        message=answer.body.message,
        status=answer.status,
        headers=answer.headers,
        codes=answer.codes,
        facts=answer.body.facts,
        usage=answer.usage,
    )


# -- what hangs on a thing -------------------------------------------------------------


def _first_answer(things: list[BaseException]) -> tuple[_Answer, BaseException | None]:
    for thing in things:
        if not _is_bare(thing):
            answer = _answer_of(thing)
            if answer != _NO_ANSWER:
                return answer, thing
    return _NO_ANSWER, None


def _is_bare(error: BaseException) -> bool:
    """Whether an exception can have no answer of a server: Python's plain ones, and our own."""
    kind = type(error)
    if issubclass(kind, PerdureError | SystemExit):
        return True
    return kind.__module__ == "builtins" and not member_of(error, "__dict__")


def _answer_of(thing: object) -> _Answer:
    response = either(thing, "response", "raw_response", "http_response")
    content = _content(thing, response)
    body = read_body(content)
    completion = _completion(thing, content)
    status = _status(thing) or _status(response)
    if body.status is not None and (status is None or status < 400):
        status = body.status
    codes = (*body.codes, *_own_codes(thing), *finish_codes(completion))
    return _Answer(
        status=status,
        headers=_headers(member_of(response, "headers"))
        or _headers(_other_headers(thing, response)),
        body=body,
        codes=codes_of(codes),
        sqlstate=_sqlstate(thing),
        usage=usage_of(completion),
    )


def _content(thing: object, response: object) -> object:
    """The body, parsed if it is text, from where it has already arrived."""
    for holder in (response, thing):
        for name in ("_content", "_body"):
            content = member_of(holder, name)
            if text_of(content, 1):
                return parse_body(content)
    if issubclass(type(response), dict):
        return response  # botocore
    content = either(thing, "body", "details", "http_body")
    if content is None and not issubclass(type(thing), BaseException):
        content = thing
    return parse_body(content)


def _completion(thing: object, content: object) -> object:
    """The model's answer: a parsed body, or what an SDK's exception holds of it."""
    if not issubclass(type(thing), BaseException):
        return content
    completion = either(thing, "completion", "last_completion")
    if completion is None and either(thing, "usage", "total_usage") is not None:
        return thing
    return completion


def _status(holder: object) -> int | None:
    for name in _STATUS_NAMES:
        status = number_of(
            member_of(holder, name) if name != "code" else _own_attribute(holder, name)
        )
        if status is not None and 100 <= status <= 999:
            return status
    return number_of(member_of(member_of(holder, "ResponseMetadata"), "HTTPStatusCode"))


def _own_codes(thing: object) -> Iterator[object]:
    for name in _CODE_NAMES:
        yield _own_attribute(thing, name)
    yield member_of(_own_attribute(thing, "error"), "code")  # Azure's client
    if type(thing).__module__.startswith("grpc"):
        yield member_of(try_or_none(thing.code), "name")  # type: ignore[attr-defined]


def _own_attribute(thing: object, name: str) -> object:
    """An attribute that is simply there; a property may warn of its own end, or do work."""
    value = member_of(member_of(thing, "__dict__"), name)
    return member_of(type(thing), name) if value is None else value


def _sqlstate(thing: object) -> str | None:
    for value in (
        member_of(thing, "sqlstate"),
        member_of(thing, "pgcode"),
        member_of(member_of(thing, "diag"), "sqlstate"),
    ):
        text = text_of(value, 6)
        if text is not None and len(text) == 5 and text.isascii() and text.isalnum():
            return text.upper()
    return None


def _errno(things: list[BaseException]) -> str | None:
    for thing in things:
        number = number_of(member_of(thing, "errno")) if issubclass(type(thing), OSError) else None
        if number is not None and number in errno.errorcode:
            return errno.errorcode[number]
    return None


# -- headers ---------------------------------------------------------------------------


def _other_headers(thing: object, response: object) -> object:
    headers = member_of(member_of(response, "ResponseMetadata"), "HTTPHeaders")
    if headers is not None:
        return headers
    return either(thing, "headers", "response_headers", "litellm_response_headers")


def _headers(headers: object) -> tuple[tuple[str, str], ...]:
    hints: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for name, value in try_or_none(_pairs, headers) or ():
        if name in _HINT_HEADERS:
            hints.append((name, safe_line(value, HEADER_CHARS_MAX)))
        elif name in _OTHER_HEADERS or name.startswith(_HEADER_PREFIXES):
            others.append((safe_line(name, HEADER_CHARS_MAX), safe_line(value, HEADER_CHARS_MAX)))
    return tuple((hints + others)[:HEADERS_MAX])


def _pairs(headers: object) -> list[tuple[str, str]]:
    if headers is None:
        return []
    items: Iterable[object] = (
        headers if issubclass(type(headers), list | tuple) else headers.items()  # type: ignore[attr-defined,assignment]
    )
    return [pair for item in islice(items, _HEADERS_READ_MAX) if (pair := try_or_none(_pair, item))]


def _pair(item: Any) -> tuple[str, str] | None:
    name, value = item
    key = text_of(name, HEADER_CHARS_MAX)
    text = text_of(value, _HEADER_CHARS_READ_MAX)
    if text is None:
        number = number_of(value)
        text = None if number is None else str(number)
    return None if key is None or text is None else (key.lower(), text)


# -- names and words -------------------------------------------------------------------


def links_of(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """What it was raised from, nearest first, and whether every link so far was stated."""
    seen = {id(error)}
    is_stated = True
    link: object = error
    while len(seen) <= CAUSES_MAX:
        cause = member_of(link, "__cause__")
        if cause is None:
            cause = _first_member(link)
        if cause is None:
            is_stated = False
            # Also where `from None` hides it: httpcore2 does.
            cause = member_of(link, "__context__")
        if not issubclass(type(cause), BaseException) or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause, is_stated
        link = cause


def _first_member(link: object) -> object:
    if not issubclass(type(link), BaseExceptionGroup):
        return None
    return next(iter(link.exceptions))  # type: ignore[attr-defined]


def _names(thing: object) -> tuple[str, ...]:
    return try_or_none(_class_names, type(thing)) or ()  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _class_names(kind: type) -> tuple[str, ...]:
    classes = [one for one in kind.__mro__ if one is not object][:NAMES_MAX]
    return tuple(
        one_line(f"{one.__module__}.{one.__qualname__}", _NAME_CHARS_MAX) for one in classes
    )


def _message(error: BaseException, body: Body) -> str:
    """The exception's text; where that is a dump of the body, the body's own message."""
    text = text_of(try_or_none(str, error), _TEXT_CHARS_MAX)
    if text is None:
        return "(its text cannot be read)"
    if body.message and body.message[:_PROBE_CHARS] in text:
        return body.message
    return safe_line(text)


def _place(error: BaseException) -> tuple[tuple[str, str], ...]:
    """Where in a model's output, and by which rule, it cannot be used."""
    if not issubclass(type(error), OutputError):
        return ()
    told = ((name, text_of(member_of(error, name), _TEXT_CHARS_MAX)) for name in ("path", "rule"))
    return tuple((name, safe_line(text)) for name, text in told if text is not None)


def _kind(stated: object) -> Kind | None:
    return stated if isinstance(stated, Kind) else None


def _public_words(error: BaseException) -> tuple[str | None, str | None, str]:
    """The stage's public code and message, and, for operators, which of them was unusable.

    A bad word is no reason to take a failure for another one.
    """
    code, line = member_of(error, "public_code"), member_of(error, "public_message")
    public_code, public_message, refused = _public_code(code), _public_message(line), ""
    if code is not None and public_code is None:
        refused += f"; public_code {short_text(code)} is left out, it must be {_A_PUBLIC_CODE}"
    if line is not None and public_message is None:
        refused += f"; public_message {short_text(line)} is left out, it must be a line of text"
    return public_code, public_message, safe_line(refused)


def _public_code(stated: object) -> str | None:
    code = text_of(stated, PUBLIC_CODE_CHARS_MAX + 1)
    if code is None or len(code) > PUBLIC_CODE_CHARS_MAX or not PUBLIC_CODE.fullmatch(code):
        return None
    return code if redact_line(code) == code else None


def _public_message(stated: object) -> str | None:
    line = text_of(stated, _TEXT_CHARS_MAX)
    return None if line is None else safe_line(line, PUBLIC_MESSAGE_CHARS_MAX) or None


def _wait_s(stated: object) -> float | None:
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= _WAIT_S_MAX else None
