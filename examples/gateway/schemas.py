"""What the services say to one another: a request, an answer, and the one error schema of all of them.

An error is strict: nine codes, no other keys, `details` of at most six known keys with ten entries of 200 characters each.
One that breaks this is a defect of whoever made it, and goes out as `INTERNAL_ERROR` (`as_sent`).
"""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Code = Literal[
    "RATE_LIMITED",
    "INVALID_UPSTREAM_RESPONSE",
    "TIMEOUT",
    "UPSTREAM_UNAVAILABLE",
    "UPSTREAM_ERROR",
    "CONFIG_MISSING",
    "INVALID_REQUEST",
    "INTERNAL_ERROR",
    "UNKNOWN",
]
CODES: tuple[str, ...] = get_args(Code)
HTTP_STATUS = dict(zip(CODES, (429, 502, 504, 503, 502, 500, 400, 500, 500), strict=True))
RETRYABLE = frozenset(CODES[:5])  # by default; what is done about a code is the policy's business

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
    code: Code
    message: Line
    http_status: Annotated[int, Meta(ge=400, le=599)]
    retryable: bool
    retry_after_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    provider: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    details: dict[Detail, Entries] | UnsetType = UNSET


class AIErrorResponse(Shape):
    error: AIError


class AIFailure(Exception):
    """Raised where something goes wrong; whoever answers the request gives it the request's id."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.more = code, message, more


def error_of(failure: AIFailure, request_id: str) -> AIError:
    """The failure as an error object, not yet known to keep to the schema."""
    status, retryable = HTTP_STATUS.get(failure.code, 500), failure.code in RETRYABLE
    more = {"http_status": status, "retryable": retryable, **failure.more}
    return AIError(id=request_id, code=failure.code, message=failure.message, **more)  # type: ignore[arg-type]


def as_sent(error: AIError) -> AIError:
    """The error, if it keeps to the schema; else an INTERNAL_ERROR in its place, which does."""
    try:
        return msgspec.json.decode(msgspec.json.encode(error), type=AIError)
    except (msgspec.ValidationError, TypeError):
        broken = AIFailure(
            "INTERNAL_ERROR", "The error that was to be told breaks the error schema."
        )
        return error_of(broken, error.id)


# -- what is asked and answered --------------------------------------------------------------


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
