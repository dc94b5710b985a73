"""Vocabularies: the public words for our failure kinds. What a user reads comes from here, unless a
stage has named its own code and message in so many words.

A vocabulary may also be what an upstream speaks, its *wire vocabulary*: then a code in the upstream's
answer is looked up here, and decides before the HTTP status. The names of our own kinds never come over
a wire: many a provider says ``internal`` or ``timeout``, and means something else by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from perdure.model.errors import PUBLIC_CODE, ConfigError
from perdure.model.kinds import KINDS, Kind
from perdure.model.limits import NAME_CHARS_MAX, PUBLIC_CODE_CHARS_MAX
from perdure.rules.error_bodies import code_of
from perdure.rules.field_checks import check_aliases, flag, instance, one_of, text
from perdure.rules.matchers.http import kind_of_status

STATUS = "{status}"
_NAMES = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A public code for every kind, and the one kind that each public code stands for.

    ``codes`` has a code for every kind; left out, the names of the kinds are the public codes. Two
    finer tables are asked before it: ``stages`` (stage → kind → code), then ``statuses`` (kind → code),
    which speaks where the failure has an HTTP status of 400 or more. In both, ``{status}`` in a code becomes
    that status: ``llm_provider_{status}``. ``internal`` gives other names for public codes.
    With ``wire=True`` the upstream itself speaks this vocabulary. ``aliases`` gives fields of jobs and attempts a second name
    in the HTTP API, the log and exports: ``{"next_run_at": "retryAfter"}``.
    """

    name: str
    codes: Mapping[Kind, str] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    internal: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, Mapping[Kind, str]] = field(default_factory=dict)
    statuses: Mapping[Kind, str] = field(default_factory=dict)
    wire: bool = False
    # Not shown: how a stage ran, which the hash of its settings tells, has nothing to do with names.
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        text("vocabulary.name", self.name, NAME_CHARS_MAX)
        flag("vocabulary.wire", self.wire)
        for name in ("kinds", "internal", "stages", "aliases"):
            instance(f"vocabulary.{name}", getattr(self, name), Mapping)
        plain = not self.codes
        codes = (
            {kind: kind.value for kind in Kind} if plain else _codes_by_kind("codes", self.codes)
        )
        own = {kind.value: kind for kind in Kind} if plain else {}
        kinds = own | {
            _word("kinds", code): one_of(f"vocabulary.kinds.{code}", Kind, kind)
            for code, kind in self.kinds.items()
        }
        internal = {
            _word("internal", code): _word(f"internal.{code}", public)
            for code, public in self.internal.items()
        }
        stages = {
            stage: MappingProxyType(_codes_by_kind(f"stages.{stage}", table))
            for stage, table in self.stages.items()
        }
        for name, table in (
            ("codes", codes),
            ("kinds", kinds),
            ("internal", internal),
            ("stages", stages),
            ("statuses", _codes_by_kind("statuses", self.statuses)),
            ("aliases", check_aliases("vocabulary.aliases", self.aliases)),
        ):
            object.__setattr__(self, name, MappingProxyType(table))
        self._check_names()
        self._check_codes()
        self._check_wire()

    def _check_names(self) -> None:
        for code in (*self.kinds, *self.internal):
            kind = self._declared_kind(code)
            if code in _NAMES and kind is not None and kind.value != code:
                raise ConfigError(
                    f"vocabulary.kinds.{code} is {kind.value!r}, but {code!r} is the name of a kind itself; "
                    "such a name stands for no other kind, and is never read from an answer: for that, "
                    "write a line of matches"
                )

    def _check_codes(self) -> None:
        missing = sorted(set(Kind) - set(self.codes))
        if missing:
            raise ConfigError(f"vocabulary {self.name!r} has no code for: {', '.join(missing)}")
        for kind, code in self.codes.items():
            if STATUS in code:
                raise ConfigError(
                    f"vocabulary.codes.{kind.value} is {code!r}, and not every failure has a status; "
                    "write it into vocabulary.statuses"
                )
        finer = [
            code for table in (*self.stages.values(), self.statuses) for code in table.values()
        ]
        plain = {code for code in (*self.codes.values(), *finer) if STATUS not in code}
        unknown = sorted((plain | set(self.internal.values())) - set(self.kinds))
        if unknown:
            raise ConfigError(
                f"vocabulary {self.name!r} names no kind for the codes: {', '.join(unknown)}"
            )

    def _check_wire(self) -> None:
        if not self.wire:
            return
        spoken = [code for code in (*self.kinds, *self.internal) if code not in _NAMES]
        if not spoken:
            raise ConfigError(
                f"vocabulary.wire is true, but {self.name!r} has only the names of our own kinds, which "
                "are never read from an answer; give the upstream's codes in vocabulary.kinds"
            )
        for code in spoken:
            if code_of(code) != code:
                raise ConfigError(
                    f"vocabulary.kinds has {code!r}, which cannot come over a wire; a code is one word of "
                    "letters, digits and _ . : - that begins with a letter"
                )

    def code(self, kind: Kind, *, stage: str | None = None, status: int | None = None) -> str:
        """The public code of a kind, at a stage, of an answer with a status."""
        at_stage = self.stages.get(stage, {}).get(kind) if stage is not None else None
        has_status = status is not None and 400 <= status <= 599
        if at_stage is not None and (has_status or STATUS not in at_stage):
            return at_stage.replace(STATUS, str(status))
        if has_status and kind in self.statuses:
            return self.statuses[kind].replace(STATUS, str(status))
        return self.codes[kind]

    def message(self, kind: Kind) -> str:
        """The public message of a kind: one line, with nothing of the exception in it."""
        return KINDS[kind].sentence

    def kind_of(self, code: str) -> Kind | None:
        """The kind that a public code stands for; a code that is made of a status stands for the status's kind."""
        known = self._declared_kind(code)
        return kind_of_status(self.status_of(code)) if known is None else known

    def status_of(self, code: str) -> int | None:
        """The status, 400 to 599, in a public code that is made of one."""
        templates = (t for table in (*self.stages.values(), self.statuses) for t in table.values())
        found = next((status for one in templates if (status := _status_in(one, code))), None)
        return None if self._declared_kind(code) is not None else found

    def _declared_kind(self, code: str) -> Kind | None:
        return self.kinds.get(self.internal.get(code, code))

    def meaning_of(self, codes: tuple[str, ...]) -> tuple[Kind, str] | None:
        """What an upstream's answer means by its codes, where the upstream speaks this vocabulary."""
        if not self.wire:
            return None
        for code in codes:
            kind = None if code in _NAMES else self._declared_kind(code)
            if kind is not None:
                return kind, code
        return None


def _codes_by_kind(field: str, codes: Mapping[Any, Any]) -> dict[Kind, str]:
    instance(f"vocabulary.{field}", codes, Mapping)
    table: dict[Kind, str] = {}
    for name, code in codes.items():
        kind = one_of(f"vocabulary.{field}", Kind, name)
        filled = code.replace(STATUS, "000") if isinstance(code, str) else ""
        if len(filled) > PUBLIC_CODE_CHARS_MAX or not PUBLIC_CODE.fullmatch(filled):
            raise ConfigError(
                f"vocabulary.{field}.{kind.value} is {code!r}; a public code is one word of letters, "
                f"digits and _ . : - that begins with a letter, {PUBLIC_CODE_CHARS_MAX} characters at most"
            )
        table[kind] = code
    return table


def _status_in(template: str, code: str) -> int | None:
    """The status with which a template becomes a code."""
    before, found, _ = template.partition(STATUS)
    status = code[len(before) : len(before) + 3]
    if not found or not status.isascii() or not status.isdigit():
        return None
    is_code = template.replace(STATUS, status) == code
    return int(status) if is_code and 400 <= int(status) <= 599 else None


def _word(field: str, code: object) -> str:
    if not isinstance(code, str) or len(code) > PUBLIC_CODE_CHARS_MAX:
        word = None
    else:
        word = PUBLIC_CODE.fullmatch(code)
    if word is None:
        raise ConfigError(
            f"vocabulary.{field} has {code!r}; a code is one word of letters, digits and _ . : - that "
            f"begins with a letter, {PUBLIC_CODE_CHARS_MAX} characters at most"
        )
    return word.string


KIND_NAMES = Vocabulary("kinds")

CLASSES = Vocabulary(
    "classes",
    {kind: facts.failure_class.value for kind, facts in KINDS.items()},
    {
        "final": Kind.INVALID_REQUEST,
        "retryable": Kind.UPSTREAM_ERROR,
        "rate_limited": Kind.RATE_LIMITED,
    },
    aliases={"next_run_at": "next_retry_at"},
)

# [000]: the codes of its report jobs, for a pipeline whose stages are called read, ask, validate, write
# and save. What one kind cannot tell (an empty transcript, JSON that does not parse) the stage names itself.
_S3_FAULTS = (
    Kind.RATE_LIMITED,
    Kind.UPSTREAM_ERROR,
    Kind.UPSTREAM_UNAVAILABLE,
    Kind.OVERLOADED,
    Kind.NETWORK,
    Kind.TIMEOUT,
    Kind.AMBIGUOUS,
    Kind.STORAGE_TRANSIENT,
    Kind.INVALID_REQUEST,
    Kind.TOO_LARGE,
    Kind.AUTH,
    Kind.CONFIG_MISSING,
    Kind.BILLING,
)
_REFUSED = (
    Kind.BILLING,
    Kind.CONTENT_REFUSED,
    Kind.INVALID_REQUEST,
    Kind.TOO_LARGE,
    Kind.AUTH,
    Kind.NOT_FOUND,
)

REPORTS = Vocabulary(
    "reports",
    dict.fromkeys(Kind, "processing_failed")
    | dict.fromkeys(_REFUSED, "llm_call_failed")
    | {
        Kind.RATE_LIMITED: "llm_rate_limited",
        Kind.QUOTA_WINDOW: "llm_rate_limited",
        Kind.OVERLOADED: "llm_provider_5xx",
        Kind.UPSTREAM_ERROR: "llm_provider_5xx",
        Kind.UPSTREAM_UNAVAILABLE: "llm_provider_5xx",
        Kind.NETWORK: "llm_network_error",
        Kind.AMBIGUOUS: "llm_network_error",
        Kind.TIMEOUT: "llm_timeout",
        Kind.INVALID_OUTPUT: "llm_output_invalid_json",
        Kind.TRUNCATED_OUTPUT: "llm_output_invalid_json",
        Kind.CONFIG_MISSING: "llm_call_failed",
    },
    {
        "llm_timeout": Kind.TIMEOUT,
        "llm_network_error": Kind.NETWORK,
        "llm_rate_limited": Kind.RATE_LIMITED,
        "llm_provider_5xx": Kind.UPSTREAM_ERROR,
        "llm_call_failed": Kind.INVALID_REQUEST,
        "llm_output_invalid_json": Kind.INVALID_OUTPUT,
        "schema_validation_failed": Kind.INVALID_OUTPUT,
        "file_context_not_found": Kind.NOT_FOUND,
        "empty_original_transcript": Kind.INPUT_INVALID,
        "s3_read_failed": Kind.STORAGE_TRANSIENT,
        "s3_write_failed": Kind.STORAGE_TRANSIENT,
        "db_update_failed": Kind.STORAGE_TRANSIENT,
        "processing_failed": Kind.INTERNAL,
    },
    stages={
        "read": dict.fromkeys(_S3_FAULTS, "s3_read_failed")
        | {Kind.NOT_FOUND: "file_context_not_found"},
        "validate": {Kind.INVALID_OUTPUT: "schema_validation_failed"},
        "write": dict.fromkeys((*_S3_FAULTS, Kind.NOT_FOUND), "s3_write_failed"),
        "save": dict.fromkeys((*_S3_FAULTS, Kind.NOT_FOUND), "db_update_failed"),
    },
    statuses=dict.fromkeys(_REFUSED, "llm_provider_{status}"),
    aliases={"attempts_max": "max_attempts"},
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
    aliases={
        "attempts": "attemptCount",
        "last_attempt_at": "lastAttemptAt",
        "next_run_at": "retryAfter",
        "upstream_status": "gateway_status",
    },
)

# [004]: nine codes, which its gateway also sends. What only a person can mend (credentials, credit) is CONFIG_MISSING: fail at once
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
    wire=True,
    aliases={
        "attempts_max": "maxAttempts",
        "delay_ms": "delayMs",
        "request_id": "x-request-id",
        "retry_after_ms": "retryAfterMs",
    },
)

VOCABULARIES: dict[str, Vocabulary] = {
    one.name: one for one in (KIND_NAMES, CLASSES, REPORTS, CONVERTER, GATEWAY)
}
