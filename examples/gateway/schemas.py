"""What the services say to one another: a request, an answer, and the one error schema of all of them.

An error is strict: nine codes, no other keys, `details` of at most six known keys with ten entries of 200 characters each.
One that breaks this is a defect of whoever made it, and goes out as `INTERNAL_ERROR`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

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

Id = Annotated[str, Meta(pattern=r"^[\w.:-]{1,64}$")]
Line = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[^\r\n]*$")]
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
    retry_after_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    provider: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    details: dict[Detail, Entries] | UnsetType = UNSET


class AIFailure(Exception):
    """Raised where something goes wrong; `more` are the fields of the error that its code does not give."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.more = code, message, more


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
    except (msgspec.ValidationError, TypeError):
        said = "The error that was to be told breaks the error schema."
        return error_of(AIFailure("INTERNAL_ERROR", said), request_id)


class Ask(Shape):
    """A text to be generated; with a JSON schema, one that fits it. An empty provider is the first one."""

    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)]
    provider: Annotated[str, Meta(pattern=r"^[a-z0-9-]{0,64}$")] = ""
    max_tokens: Annotated[int, Meta(ge=1, le=2_048)] = 64
    schema: dict[str, Any] | None = None
    costly: bool = False  # worth no second repeat: the policy gateway-costly


class Usage(Shape):
    tokens_in: int = 0
    tokens_out: int = 0


class Generated(Shape):
    """The text, who wrote it, and whether it was kept from an earlier request."""

    text: str
    provider: str
    model: str
    usage: Usage = Usage()
    cached: bool = False


def read_ask(body: bytes) -> Ask:
    """A request's body; what does not fit is refused with its place and rule, and never echoed."""
    try:
        return msgspec.json.decode(body, type=Ask)
    except msgspec.ValidationError as wrong:
        reason = str(wrong)[:200]
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = "the body is not JSON"
    raise AIFailure("INVALID_REQUEST", "The request is not valid.", details={"reason": reason})
