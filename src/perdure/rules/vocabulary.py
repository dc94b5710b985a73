"""Vocabularies: the public words for our failure kinds. What a user reads comes from here alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perdure.model.errors import ConfigError
from perdure.model.kinds import KINDS, Kind


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A public code for every kind, and the one kind that each public code stands for."""

    name: str
    codes: Mapping[Kind, str]
    kinds: Mapping[str, Kind]
    internal: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = sorted(set(Kind) - set(self.codes))
        if missing:
            raise ConfigError(f"vocabulary {self.name!r} has no code for: {', '.join(missing)}")
        unknown = sorted(set(self.codes.values()) - set(self.kinds))
        if unknown:
            raise ConfigError(
                f"vocabulary {self.name!r} names no kind for the codes: {', '.join(unknown)}"
            )
        for name in ("codes", "kinds", "internal"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def code(self, kind: Kind) -> str:
        """The public code of a kind."""
        return self.codes[kind]

    def message(self, kind: Kind) -> str:
        """The public message of a kind: one line, with nothing of the exception in it."""
        return KINDS[kind].sentence


KIND_NAMES = Vocabulary(
    "kinds", {kind: kind.value for kind in Kind}, {kind.value: kind for kind in Kind}
)

CLASSES = Vocabulary(
    "classes",
    {kind: facts.failure_class.value for kind, facts in KINDS.items()},
    {
        "final": Kind.INVALID_REQUEST,
        "retryable": Kind.UPSTREAM_ERROR,
        "rate_limited": Kind.RATE_LIMITED,
    },
)

# [001]: ten public codes. NOT_READY, EXPIRED, FORBIDDEN, NOT_PDF and TOO_LARGE answer requests; the
# last two can also end a job. Any 4xx of the gateway is GW_4XX, a rate limit included.
CONVERTER = Vocabulary(
    "converter",
    {
        Kind.RATE_LIMITED: "GW_4XX",
        Kind.QUOTA_WINDOW: "GW_4XX",
        Kind.BILLING: "GW_4XX",
        Kind.OVERLOADED: "GW_5XX",
        Kind.UPSTREAM_ERROR: "GW_5XX",
        Kind.UPSTREAM_UNAVAILABLE: "GW_5XX",
        Kind.NETWORK: "GW_5XX",
        Kind.TIMEOUT: "GW_TIMEOUT",
        Kind.AMBIGUOUS: "GW_5XX",
        Kind.INVALID_OUTPUT: "GW_4XX",
        Kind.TRUNCATED_OUTPUT: "GW_4XX",
        Kind.CONTENT_REFUSED: "GW_4XX",
        Kind.INVALID_REQUEST: "GW_4XX",
        Kind.TOO_LARGE: "TOO_LARGE",
        Kind.AUTH: "GW_4XX",
        Kind.CONFIG_MISSING: "UNKNOWN",
        Kind.INPUT_INVALID: "NOT_PDF",
        Kind.NOT_FOUND: "GW_4XX",
        Kind.STORAGE_TRANSIENT: "IO_ERROR",
        Kind.RESOURCE_EXHAUSTED: "IO_ERROR",
        Kind.WORKER_LOST: "UNKNOWN",
        Kind.CANCELLED: "UNKNOWN",
        Kind.INTERNAL: "UNKNOWN",
        Kind.UNKNOWN: "UNKNOWN",
    },
    {
        "NOT_PDF": Kind.INPUT_INVALID,
        "TOO_LARGE": Kind.TOO_LARGE,
        "GW_4XX": Kind.INVALID_REQUEST,
        "GW_5XX": Kind.UPSTREAM_ERROR,
        "GW_TIMEOUT": Kind.TIMEOUT,
        "IO_ERROR": Kind.STORAGE_TRANSIENT,
        "NOT_READY": Kind.NOT_FOUND,
        "EXPIRED": Kind.NOT_FOUND,
        "FORBIDDEN": Kind.AUTH,
        "UNKNOWN": Kind.UNKNOWN,
    },
    internal={
        "GW_UNAVAILABLE": "GW_5XX",
        "NETWORK_ERROR": "GW_5XX",
        "PARSE_ERROR": "GW_4XX",
        "VALIDATION_ERROR": "GW_4XX",
        "INVALID_MAPPING": "GW_4XX",
        "MEMORY_ERROR": "IO_ERROR",
    },
)

# [004]: nine codes. What only a person can mend (credentials, credit) is CONFIG_MISSING: fail at once
# and say so.
GATEWAY = Vocabulary(
    "gateway",
    {
        Kind.RATE_LIMITED: "RATE_LIMITED",
        Kind.QUOTA_WINDOW: "RATE_LIMITED",
        Kind.BILLING: "CONFIG_MISSING",
        Kind.OVERLOADED: "UPSTREAM_UNAVAILABLE",
        Kind.UPSTREAM_ERROR: "UPSTREAM_ERROR",
        Kind.UPSTREAM_UNAVAILABLE: "UPSTREAM_UNAVAILABLE",
        Kind.NETWORK: "UPSTREAM_UNAVAILABLE",
        Kind.TIMEOUT: "TIMEOUT",
        Kind.AMBIGUOUS: "UPSTREAM_ERROR",
        Kind.INVALID_OUTPUT: "INVALID_UPSTREAM_RESPONSE",
        Kind.TRUNCATED_OUTPUT: "INVALID_UPSTREAM_RESPONSE",
        Kind.CONTENT_REFUSED: "INVALID_REQUEST",
        Kind.INVALID_REQUEST: "INVALID_REQUEST",
        Kind.TOO_LARGE: "INVALID_REQUEST",
        Kind.AUTH: "CONFIG_MISSING",
        Kind.CONFIG_MISSING: "CONFIG_MISSING",
        Kind.INPUT_INVALID: "INVALID_REQUEST",
        Kind.NOT_FOUND: "INVALID_REQUEST",
        Kind.STORAGE_TRANSIENT: "UPSTREAM_UNAVAILABLE",
        Kind.RESOURCE_EXHAUSTED: "INTERNAL_ERROR",
        Kind.WORKER_LOST: "INTERNAL_ERROR",
        Kind.CANCELLED: "INTERNAL_ERROR",
        Kind.INTERNAL: "INTERNAL_ERROR",
        Kind.UNKNOWN: "UNKNOWN",
    },
    {
        "RATE_LIMITED": Kind.RATE_LIMITED,
        "INVALID_UPSTREAM_RESPONSE": Kind.INVALID_OUTPUT,
        "TIMEOUT": Kind.TIMEOUT,
        "UPSTREAM_UNAVAILABLE": Kind.UPSTREAM_UNAVAILABLE,
        "UPSTREAM_ERROR": Kind.UPSTREAM_ERROR,
        "CONFIG_MISSING": Kind.CONFIG_MISSING,
        "INVALID_REQUEST": Kind.INVALID_REQUEST,
        "INTERNAL_ERROR": Kind.INTERNAL,
        "UNKNOWN": Kind.UNKNOWN,
    },
)

VOCABULARIES: dict[str, Vocabulary] = {
    one.name: one for one in (KIND_NAMES, CLASSES, CONVERTER, GATEWAY)
}
