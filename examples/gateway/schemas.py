"""What the services say to one another: a request, an answer, and the one error schema of all of them.

An error is strict: nine codes, no other keys, `details` of at most six known keys with ten entries of 200 characters each.
One that breaks this is a defect of whoever made it, and goes out as `INTERNAL_ERROR`.
"""

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from perdure import ConfigError, OutputError
from perdure.checks import fits

HTTP_STATUS = {
    "RATE_LIMITED": 429,
    "INVALID_UPSTREAM_RESPONSE": 502,
    "TIMEOUT": 504,
    "UPSTREAM_UNAVAILABLE": 503,
    "UPSTREAM_ERROR": 502,
    "CONFIG_MISSING": 500,
    "INVALID_REQUEST": 400,
    "INTERNAL_ERROR": 500,
    "UNKNOWN": 500,
}
CODES = tuple(HTTP_STATUS)
RETRYABLE = CODES[:5]  # by default; what is done about a code is the policy's business

# `$` would let a newline pass at the end.
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}\Z")]
Line = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[^\r\n]*\Z")]
Count = Annotated[int, Meta(ge=0)]
Short = Annotated[str, Meta(max_length=200)]
Detail = Literal["upstreamStatus", "upstreamCode", "setting", "field", "reason", "limit"]
Entries = Short | int | Annotated[list[Short], Meta(max_length=10)]


class Shape(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A strict JSON object with names in camelCase."""


class AIError(Shape):
    """What went wrong. `id` is the id of the request; `retry_after_ms` is what the provider asked for."""

    id: Id
    code: Literal[CODES]
    message: Line
    http_status: Annotated[int, Meta(ge=400, le=599)]
    retryable: bool
    retry_after_ms: Count | UnsetType = UNSET
    provider: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    details: dict[Detail, Entries] | UnsetType = UNSET


class AIFailure(Exception):
    """Raised where something goes wrong; `more` are the fields of the error that its code does not give."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.more = code, message, more


BROKEN = AIFailure("INTERNAL_ERROR", "The error that was to be told breaks the error schema.")


def error_of(failure: AIFailure, request_id: str) -> AIError:
    """The error of a request that has failed; one that breaks the schema is an INTERNAL_ERROR, which does not."""
    told = {
        "id": request_id,
        "code": failure.code,
        "message": failure.message,
        "http_status": HTTP_STATUS.get(failure.code, 500),
        "retryable": failure.code in RETRYABLE,
        **failure.more,
    }
    try:
        return msgspec.json.decode(msgspec.json.encode(AIError(**told)), type=AIError)
    except (msgspec.ValidationError, TypeError, ValueError):  # half of a surrogate pair, say
        return error_of(BROKEN, "unknown" if failure is BROKEN else request_id)  # it is the id


class Ask(Shape):
    """A text to be generated; with a JSON schema, one that fits it. An empty provider is the first one."""

    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)]
    provider: Annotated[str, Meta(pattern=r"^[a-z0-9-]{0,64}\Z")] = ""
    max_tokens: Annotated[int, Meta(ge=1, le=2_048)] = 64
    schema: dict[str, Any] | None = None
    costly: bool = False  # worth no second repeat: the policy gateway-costly


class Usage(Shape):
    tokens_in: Count = 0
    tokens_out: Count = 0


class Generated(Shape):
    """The text, who wrote it, and whether it comes of an earlier request's call."""

    text: Annotated[str, Meta(max_length=100_000, pattern=r"^[^\x00]*\Z")]  # as much as is stored
    provider: str
    model: str
    usage: Usage = Usage()
    cached: bool = False


def read_ask(body: bytes) -> Ask:
    """A request's body; what does not fit, or has a schema that cannot be used, is refused with its place and rule."""
    try:
        ask = msgspec.json.decode(body, type=Ask)
        if ask.schema is not None:
            with suppress(OutputError):  # there is no text yet: could one be checked?
                fits(None, ask.schema)
        return ask
    except (msgspec.ValidationError, ConfigError) as wrong:
        reason = str(wrong)
    except RecursionError:
        reason = "the body is nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = "the body is not JSON"
    raise invalid(reason)


def invalid(reason: str, status: int = 400) -> AIFailure:
    """What is told of a request that cannot be meant."""
    message, details = "The request is not valid.", {"reason": reason[:200]}
    return AIFailure("INVALID_REQUEST", message, http_status=status, details=details)
