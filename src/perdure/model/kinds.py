"""The failure kinds: what went wrong, who is to blame, and what a pause would have to cover.

What to *do* about a kind is the policy's business (`rules/policy.py`), never this table's.
"""

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """A name for what went wrong, finer than any provider's own."""

    RATE_LIMITED = "rate_limited"
    QUOTA_WINDOW = "quota_window"
    BILLING = "billing"
    OVERLOADED = "overloaded"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    NETWORK = "network"
    TIMEOUT = "timeout"
    AMBIGUOUS = "ambiguous"
    INVALID_OUTPUT = "invalid_output"
    TRUNCATED_OUTPUT = "truncated_output"
    CONTENT_REFUSED = "content_refused"
    INVALID_REQUEST = "invalid_request"
    TOO_LARGE = "too_large"
    AUTH = "auth"
    CONFIG_MISSING = "config_missing"
    INPUT_INVALID = "input_invalid"
    NOT_FOUND = "not_found"
    STORAGE_TRANSIENT = "storage_transient"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    UNKNOWN = "unknown"


class Blame(StrEnum):
    """Whose fault a failure is."""

    OURS = "ours"
    CALLER = "caller"
    UPSTREAM = "upstream"
    MODEL = "model"
    NOBODY = "nobody"


class FailureClass(StrEnum):
    """The coarse class of a failure."""

    FINAL = "final"
    RETRYABLE = "retryable"
    RATE_LIMITED = "rate_limited"


class PauseScope(StrEnum):
    """What a pause after such a failure has to cover."""

    JOB = "job"
    UPSTREAM = "upstream"
    CREDENTIAL = "credential"


class Sign(StrEnum):
    """What the end of a call says about its upstream."""

    GOOD = "good"  # it has answered
    BAD = "bad"  # it is down or sick
    NEITHER = "neither"


class KindFacts(Struct, frozen=True):
    """What is always true of a kind. ``sentence`` is also its public message.

    ``sign`` is what it says about the upstream; with ``proved_by_status`` it is good where an HTTP status came
    with it, because then somebody has answered.
    """

    sentence: str
    blame: Blame
    failure_class: FailureClass
    sign: Sign
    scope: PauseScope
    proved_by_status: bool = False


_GOOD, _BAD, _NEITHER = Sign.GOOD, Sign.BAD, Sign.NEITHER
_FINAL, _RETRY = FailureClass.FINAL, FailureClass.RETRYABLE
_LIMIT = FailureClass.RATE_LIMITED
_JOB, _UP, _CRED = PauseScope.JOB, PauseScope.UPSTREAM, PauseScope.CREDENTIAL

KINDS: dict[Kind, KindFacts] = {
    Kind.RATE_LIMITED: KindFacts(
        "The upstream asked us to slow down.", Blame.NOBODY, _LIMIT, _NEITHER, _UP
    ),
    Kind.QUOTA_WINDOW: KindFacts(
        "A daily or monthly quota is used up until its window turns.",
        Blame.NOBODY, _LIMIT, _NEITHER, _CRED,
    ),
    Kind.BILLING: KindFacts(
        "The account has no credit or has reached its spending limit.",
        Blame.CALLER, _FINAL, _NEITHER, _CRED,
    ),
    Kind.OVERLOADED: KindFacts(
        "The upstream is overloaded for everybody.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.UPSTREAM_ERROR: KindFacts(
        "The upstream failed while handling the request.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.UPSTREAM_UNAVAILABLE: KindFacts(
        "The upstream cannot be reached or refuses to serve.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.NETWORK: KindFacts(
        "The connection failed before an answer came.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.TIMEOUT: KindFacts(
        "No answer came within the time allowed.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.AMBIGUOUS: KindFacts(
        "The request was sent, and whether it took effect is unknown.",
        Blame.UPSTREAM, _RETRY, _BAD, _UP,
    ),
    Kind.INVALID_OUTPUT: KindFacts(
        "The answer does not have the form that was asked for.",
        Blame.MODEL, _RETRY, _GOOD, _JOB,
    ),
    Kind.TRUNCATED_OUTPUT: KindFacts(
        "The answer ends too early.", Blame.MODEL, _RETRY, _GOOD, _JOB
    ),
    Kind.CONTENT_REFUSED: KindFacts(
        "The model or its guard refused the content.", Blame.CALLER, _FINAL, _GOOD, _JOB
    ),
    Kind.INVALID_REQUEST: KindFacts(
        "The upstream says that the request is wrong.", Blame.CALLER, _FINAL, _NEITHER, _JOB, True
    ),
    Kind.TOO_LARGE: KindFacts(
        "The request is larger than the upstream accepts.", Blame.CALLER, _FINAL, _NEITHER, _JOB, True
    ),
    Kind.AUTH: KindFacts(
        "The credential is missing, wrong or not allowed to do this.",
        Blame.CALLER, _FINAL, _NEITHER, _CRED,
    ),
    Kind.CONFIG_MISSING: KindFacts(
        "A setting that the stage needs is missing or wrong.", Blame.CALLER, _FINAL, _NEITHER, _JOB
    ),
    Kind.INPUT_INVALID: KindFacts(
        "The item itself is broken or of the wrong form.", Blame.CALLER, _FINAL, _NEITHER, _JOB
    ),
    Kind.NOT_FOUND: KindFacts(
        "Something that the item points to does not exist.", Blame.CALLER, _FINAL, _NEITHER, _JOB, True
    ),
    Kind.STORAGE_TRANSIENT: KindFacts(
        "A database or object store failed in passing.", Blame.UPSTREAM, _RETRY, _BAD, _UP
    ),
    Kind.RESOURCE_EXHAUSTED: KindFacts(
        "Memory, disk or another local resource ran out.", Blame.OURS, _RETRY, _NEITHER, _JOB
    ),
    Kind.WORKER_LOST: KindFacts(
        "The worker died or went silent while the item was in its hands.",
        Blame.NOBODY, _RETRY, _NEITHER, _JOB,
    ),
    Kind.CANCELLED: KindFacts(
        "The call was cancelled before it finished.", Blame.NOBODY, _FINAL, _NEITHER, _JOB
    ),
    Kind.INTERNAL: KindFacts(
        "The stage's own code has a defect.", Blame.OURS, _FINAL, _NEITHER, _JOB
    ),
    Kind.UNKNOWN: KindFacts(
        "The failure is of a kind that nobody has named yet.", Blame.OURS, _RETRY, _BAD, _JOB
    ),
}  # fmt: skip

# Kinds that are mostly answered alike. A policy's rules may name a group: it stands for each of its kinds that has
# no rule of its own beside it. No kind is in two groups, so two groups never say two things about one.
GROUPS: dict[str, frozenset[Kind]] = {
    "transient": frozenset(
        {
            Kind.OVERLOADED,
            Kind.UPSTREAM_ERROR,
            Kind.UPSTREAM_UNAVAILABLE,
            Kind.NETWORK,
            Kind.TIMEOUT,
            Kind.AMBIGUOUS,
            Kind.STORAGE_TRANSIENT,
        }
    ),
    "limits": frozenset({Kind.RATE_LIMITED, Kind.QUOTA_WINDOW}),
    "account": frozenset({Kind.BILLING, Kind.AUTH}),
    "output": frozenset({Kind.INVALID_OUTPUT, Kind.TRUNCATED_OUTPUT}),
    "request": frozenset(
        {
            Kind.CONTENT_REFUSED,
            Kind.INVALID_REQUEST,
            Kind.TOO_LARGE,
            Kind.CONFIG_MISSING,
            Kind.INPUT_INVALID,
            Kind.NOT_FOUND,
        }
    ),
}
