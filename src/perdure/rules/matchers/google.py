"""Google: Gemini through google-genai, and the status words of gRPC."""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, message_of

_NO_QUOTA = re.compile(r"\blimit: 0\b(?!\.?\d)")
_LONG_QUOTA = re.compile(r"per(?:day|month|week)", re.IGNORECASE)


def no_quota(evidence: Evidence) -> Found | None:
    """A tier whose limit is zero has no quota at all, although a retry delay is given."""
    text = message_of(evidence) if _is_exhausted(evidence) else ""
    is_zero = "limit: 0" in text and _NO_QUOTA.search(text)
    return (Kind.BILLING, "google limit: 0") if is_zero else None


def long_quota(evidence: Evidence) -> Found | None:
    """A quota per day or month comes back when its window turns."""
    if not _is_exhausted(evidence):
        return None
    for name, value in evidence.facts:
        if name == "quotaId" and _LONG_QUOTA.search(value):
            return Kind.QUOTA_WINDOW, f"google quota {value}"
    return None


def _is_exhausted(evidence: Evidence) -> bool:
    return evidence.status == 429 or "RESOURCE_EXHAUSTED" in evidence.codes


FAMILY = Family(
    name="google",
    roots=frozenset({"google", "grpc", "vertexai"}),
    traps=(no_quota, long_quota),
    codes={
        "RESOURCE_EXHAUSTED": Kind.RATE_LIMITED,
        "RATE_LIMIT_EXCEEDED": Kind.RATE_LIMITED,
        "too_many_requests": Kind.RATE_LIMITED,
        "rate_limit_exceeded": Kind.RATE_LIMITED,
        "quota_exceeded": Kind.QUOTA_WINDOW,
        "BILLING_DISABLED": Kind.BILLING,
        "UNAVAILABLE": Kind.OVERLOADED,
        "DEADLINE_EXCEEDED": Kind.TIMEOUT,
        "CANCELLED": Kind.CANCELLED,
        "UNAUTHENTICATED": Kind.AUTH,
        "PERMISSION_DENIED": Kind.AUTH,
        "API_KEY_INVALID": Kind.AUTH,
        "API_KEY_SERVICE_BLOCKED": Kind.AUTH,
        "SERVICE_DISABLED": Kind.AUTH,
        "CONSUMER_INVALID": Kind.AUTH,
        "UNIMPLEMENTED": Kind.INVALID_REQUEST,
    },
    weak_codes={
        "INVALID_ARGUMENT": Kind.INVALID_REQUEST,
        "FAILED_PRECONDITION": Kind.INVALID_REQUEST,
        "OUT_OF_RANGE": Kind.INVALID_REQUEST,
        "ALREADY_EXISTS": Kind.INVALID_REQUEST,
        "NOT_FOUND": Kind.NOT_FOUND,
        "ABORTED": Kind.UPSTREAM_ERROR,
        "INTERNAL": Kind.UPSTREAM_ERROR,
        "DATA_LOSS": Kind.UPSTREAM_ERROR,
        "UNKNOWN": Kind.UPSTREAM_ERROR,
    },
    classes={
        "google.UnknownApiResponseError": Kind.INVALID_OUTPUT,
        "google.FunctionInvocationError": Kind.INTERNAL,
        "google.UnsupportedFunctionError": Kind.INTERNAL,
        "google.UnknownFunctionCallArgumentError": Kind.INVALID_OUTPUT,
        "google.DefaultCredentialsError": Kind.CONFIG_MISSING,
        "google.RefreshError": Kind.AUTH,
    },
    wrappers={
        "google.ContinuationInterruptedError": Kind.AMBIGUOUS,
        "google.TransportError": Kind.NETWORK,
    },
    statuses={
        "google.ClientError": 400,
        "google.ServerError": 500,
        "google.TooManyRequests": 429,
        "google.ServiceUnavailable": 503,
        "google.GatewayTimeout": 504,
        "google.InternalServerError": 500,
    },
    parents={
        "google.ClientError": "google.APIError",
        "google.ServerError": "google.APIError",
    },
)
