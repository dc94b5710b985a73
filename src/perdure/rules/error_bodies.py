"""What an error body says: machine codes, its own message, a status, and the few fields that count.

Bodies come as dicts, JSON, server-sent events, XML, HTML or plain text, from services that agree on
nothing. This file knows where each of them puts things; what a code *means* is the matchers' business.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from perdure.model.limits import BODY_BYTES_READ_MAX, CODE_CHARS_MAX, CODES_MAX, FACTS_MAX
from perdure.rules.foreign_code import first_members, member_of, number_of, text_of, try_or_none
from perdure.rules.redact import cut, redact_line, safe_line

_MESSAGE_CHARS_MAX = 500  # of a body's own message, kept as a fact
_FACT_CHARS_MAX = 200
_FACT_CHARS_READ_MAX = 4_096  # enough to know a secret by both of its ends
_SAME_FACTS_MAX = 3  # of one name, so that a list of quotas cannot crowd out the rest
_DEPTH_MAX = 6  # of a body, looked through for facts
_NODES_MAX = 300
_WIDTH_MAX = 100  # members of one of them
_LINES_MAX = 64  # of an event stream, looked through for the error

_CODE = re.compile(r"[A-Za-z][\w.:-]*", re.ASCII)
_XML_CODE = re.compile(r"<Code>\s{0,8}([\w.-]{1,100})\s{0,8}</Code>")
_XML_MESSAGE = re.compile(r"<Message>([^<]{1,2000})</Message>")
_TITLE = re.compile(r"<title>([^<]{1,300})</title>", re.IGNORECASE)

# Words that stand where codes stand and say nothing.
_NO_CODES = frozenset(
    {
        "error",
        "errors",
        "exception",
        "response",
        "message",
        "completion",
        "list",
        "object",
        "none",
        "null",
        "about:blank",
        "ok",
        "success",
        "true",
        "false",
    }
)

_MESSAGES = ("message", "Message", "error_description", "detail", "msg", "error", "errorMessage")

# The fields that hints and matchers read, by the name under which they are kept.
_FACTS: dict[str, str] = {
    "retryDelay": "retryDelay",
    "retry_delay": "retryDelay",
    "retryAfterMs": "retryAfterMs",
    "retry_after_ms": "retryAfterMs",
    "retryAfterSeconds": "retryAfterSeconds",
    "retry_after_seconds": "retryAfterSeconds",
    "retryAfter": "retryAfterSeconds",
    "retry_after": "retryAfterSeconds",
    "quotaResetDelay": "quotaResetDelay",
    "quotaResetTimeStamp": "quotaResetTimeStamp",
    "resets_at": "resets_at",
    "resetsAt": "resets_at",
    "retryable": "retryable",
    "quotaId": "quotaId",
    "limit_source": "limit_source",
    "provider_code": "provider_code",
    "originalStatusCode": "originalStatusCode",
    "blockReason": "blockReason",
}


class Body(Struct, frozen=True):
    """What a body says, made safe. ``codes`` has the most specific first."""

    codes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    message: str = ""
    status: int | None = None


NOTHING = Body()


def read_body(body: object) -> Body:
    """What a body says; never raises, whatever it is."""
    return try_or_none(_read, parse_body(body)) or NOTHING


def parse_body(body: object) -> object:
    """A text as the JSON or the event in it, if it holds any; everything else as it is."""
    text = try_or_none(text_of, body, BODY_BYTES_READ_MAX)
    if text is None:
        return body
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[")):
        found = try_or_none(json.loads, start)
        return text if found is None else found
    if start.startswith(("data:", "event:")):
        return _event(start) or text
    return text


def _event(text: str) -> object:
    """The error of an event stream, or its last event."""
    last: object = None
    for line in text.split("\n", _LINES_MAX):
        if line.startswith("data:"):
            found = try_or_none(json.loads, line[5:])
            if isinstance(found, dict):
                last = found
                if "error" in found:
                    break
    return last


def _read(body: object) -> Body:
    text = text_of(body, BODY_BYTES_READ_MAX)
    if text is not None:
        return _read_text(text)
    members = first_members(body, 1)
    top = members[0] if members else body
    error = _error_in(top)
    message = _message(error) or _message(top)
    codes = codes_of(_codes(error, top))
    own = code_of(member_of(error, "code"))
    facts = [*_facts(error)]
    # Finer ones stand before it; a wire vocabulary asks for it.
    if own is not None and own != codes[0]:
        facts.insert(0, ("code", own))
    if error is not top:
        facts += [*_scalars(top), *_scalars(member_of(top, "detail"))]
    line = safe_line(message)
    return Body(
        codes=codes,
        facts=_safe_facts(facts, line),
        message=line,
        status=_status(error) or _status(top),
    )


def _read_text(text: str) -> Body:
    code = _XML_CODE.search(text)
    if code is not None:
        found = _XML_MESSAGE.search(text)
        line = safe_line(found[1] if found else "")
        return Body(codes_of((code[1],)), _safe_facts([], line), line)
    title = _TITLE.search(text)
    line = safe_line(title[1] if title else text)
    return Body(facts=_safe_facts([], line), message=line)


def _error_in(top: object) -> object:
    """The part of a body that is about the error; the whole body, if none is."""
    for name in ("error", "Error", "errors", "detail"):
        found = member_of(top, name)
        members = first_members(found, 1)
        if members:
            found = members[0]
        if found is not None and text_of(found, 1) is None and number_of(found) is None:
            inner = member_of(found, "error") if name == "detail" else None  # FastAPI wraps it all
            return inner if issubclass(type(inner), dict) and inner else found
    response = member_of(top, "response")  # an event of OpenAI's Responses
    if issubclass(type(response), dict) and (inner := member_of(response, "error")) is not None:
        return inner
    return top


def _codes(error: object, top: object) -> Iterator[object]:
    details = member_of(error, "details")
    yield member_of(details, "error_code")  # Anthropic
    yield member_of(error, "error_code")
    yield member_of(member_of(error, "innererror"), "code")  # Azure
    yield member_of(error, "code")
    yield member_of(error, "Code")
    for detail in first_members(details, 8):  # Google
        yield member_of(detail, "reason")
    yield member_of(error, "status")
    yield member_of(error, "type")
    yield member_of(error, "__type")  # AWS
    yield member_of(error, "error_type")
    yield member_of(member_of(error, "metadata"), "error_type")  # OpenRouter
    yield member_of(error, "reason")
    yield member_of(error, "error")  # OAuth: the code is all there is
    if error is not top:
        yield member_of(top, "code")
        yield member_of(top, "type")


def codes_of(found: Iterator[object] | tuple[object, ...]) -> tuple[str, ...]:
    """Machine codes in order, each once; what is no code (a sentence, a number, a secret) is left out."""
    codes: list[str] = []
    for value in found:
        code = code_of(value)
        if code is not None and code not in codes:
            codes.append(code)
            if len(codes) == CODES_MAX:
                break
    return tuple(codes)


def code_of(value: object) -> str | None:
    """A machine code, without the namespace or address that it stands in."""
    text = text_of(value, 4 * CODE_CHARS_MAX)
    if text is None:
        return None
    code = text.rpartition("#")[2].rstrip("/").rpartition("/")[2]
    return code if code.lower() not in _NO_CODES and is_code(code) else None


def is_code(text: str) -> bool:
    """Whether a text is one bounded word of a machine, and no secret."""
    return len(text) <= CODE_CHARS_MAX and bool(_CODE.fullmatch(text)) and _is_safe(text)


@lru_cache(maxsize=1024)
def _is_safe(code: str) -> bool:
    return redact_line(code) == code


def _status(error: object) -> int | None:
    for name in ("code", "status", "status_code", "statusCode", "httpStatus", "http_status"):
        value = member_of(error, name)
        status = number_of(value)
        text = None if status is not None else text_of(value, 4)
        if text is not None and len(text) == 3 and text.isascii() and text.isdigit():
            status = int(text)  # the OpenAI client turns every code into text
        if status is not None and 400 <= status <= 599:
            return status
    return None


def _message(error: object) -> str:
    for name in _MESSAGES:
        text = text_of(member_of(error, name), BODY_BYTES_READ_MAX)
        if text:
            return text
    return ""


def _facts(error: object) -> Iterator[tuple[str, str]]:
    """The fields that count, wherever they stand in the error."""
    waiting: list[tuple[object, int]] = [(error, 0)]
    for _ in range(_NODES_MAX):
        if not waiting:
            return
        node, depth = waiting.pop(0)
        yield from _scalars(node)
        if depth < _DEPTH_MAX:
            inner = [one for _, one in _items(node)] or first_members(node, _WIDTH_MAX)
            waiting += [(one, depth + 1) for one in inner if issubclass(type(one), dict | list)]


def _scalars(node: object) -> Iterator[tuple[str, str]]:
    for name, value in _items(node):
        kept_as = _FACTS.get(name) if type(name) is str else None
        text = None if kept_as is None else _plain_text(value)
        if kept_as is not None and text is not None:
            yield kept_as, text


def _items(node: object) -> Iterator[tuple[object, object]]:
    if issubclass(type(node), dict):
        yield from islice(dict.items(node), _WIDTH_MAX)  # type: ignore[arg-type]


def _plain_text(value: object) -> str | None:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return repr(value)
    number = number_of(value)
    return text_of(value, _FACT_CHARS_READ_MAX) if number is None else str(number)


def _safe_facts(facts: list[tuple[str, str]], safe_message: str) -> tuple[tuple[str, str], ...]:
    kept: list[tuple[str, str]] = []
    for name, value in facts:
        fact = name, safe_line(value, _FACT_CHARS_MAX)
        same = sum(1 for known, _ in kept if known == name)
        if fact not in kept and same < _SAME_FACTS_MAX and len(kept) < FACTS_MAX - 1:
            kept.append(fact)
    if safe_message:
        kept.append(("message", cut(safe_message, _MESSAGE_CHARS_MAX)))
    return tuple(kept)
