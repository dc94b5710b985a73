"""OpenAI, and the exceptions of every client that is generated as its own is."""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, message_of

# Clients of one generator: same class names, each in a package of its own.
GENERATED = ("openai", "anthropic", "groq", "together", "cerebras")

_STATUSES = {
    "BadRequestError": 400,
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "InternalServerError": 500,
}

_LIMIT_AND_REQUESTED = re.compile(r"limit:? ([0-9,]{1,20})\b.{0,80}?requested:? ([0-9,]{1,20})\b")
_LONG_WINDOW = re.compile(
    r"(?:\bper[ -]|/ ?)(?:day|month|week)\b|\((?:rpd|tpd)\)|\bdaily\b|\bmonthly\b"
)
_WINDOWS = ("day", "month", "week", "daily", "rpd", "tpd")


def more_than_the_limit(evidence: Evidence) -> Found | None:
    """A limit that is smaller than the request: waiting never helps."""
    if evidence.status not in (None, 200, 400, 413, 429):
        return None
    text = message_of(evidence)
    found = _LIMIT_AND_REQUESTED.search(text) if "requested" in text else None
    if found is None:
        return None
    limit, requested = (int(number.replace(",", "") or 0) for number in found.groups())
    return (Kind.TOO_LARGE, "requested more than the limit") if 0 < limit < requested else None


def slow_down(evidence: Evidence) -> Found | None:
    """A growth limit with status 429; the same code meant overload when it came with 503."""
    if "slow_down" not in evidence.codes:
        return None
    kind = Kind.OVERLOADED if evidence.status == 503 else Kind.RATE_LIMITED
    return kind, "openai code slow_down"


def long_window(evidence: Evidence) -> Found | None:
    """A rate limit per day or month is a quota: parked, not retried soon."""
    if evidence.status != 429 and "rate_limit_exceeded" not in evidence.codes:
        return None
    if any(CODES.get(code) not in (None, Kind.RATE_LIMITED) for code in evidence.codes):
        return None  # billing, for one, speaks of months, too
    text = message_of(evidence)
    found = _LONG_WINDOW.search(text) if any(word in text for word in _WINDOWS) else None
    return (Kind.QUOTA_WINDOW, f"a limit {found[0]}") if found else None


CODES: dict[str, Kind] = {
    "rate_limit_exceeded": Kind.RATE_LIMITED,
    "rate_limit_error": Kind.RATE_LIMITED,
    "websocket_connection_limit_reached": Kind.RATE_LIMITED,
    "insufficient_quota": Kind.BILLING,
    "credit_balance_exhausted": Kind.BILLING,
    "organization_spend_limit_exceeded": Kind.BILLING,
    "project_spend_limit_exceeded": Kind.BILLING,
    "organization_usage_limit_exceeded": Kind.BILLING,
    "billing_hard_limit_reached": Kind.BILLING,
    "billing_not_active": Kind.BILLING,
    "server_is_overloaded": Kind.OVERLOADED,
    "engine_overloaded": Kind.OVERLOADED,
    "context_length_exceeded": Kind.TOO_LARGE,
    "string_above_max_length": Kind.TOO_LARGE,
    "request_too_large": Kind.TOO_LARGE,
    "image_too_large": Kind.TOO_LARGE,
    "image_file_too_large": Kind.TOO_LARGE,
    "content_policy_violation": Kind.CONTENT_REFUSED,
    "content_filter": Kind.CONTENT_REFUSED,
    "moderation_blocked": Kind.CONTENT_REFUSED,
    "bio_policy": Kind.CONTENT_REFUSED,
    "misalignment_policy_violation": Kind.CONTENT_REFUSED,
    "image_content_policy_violation": Kind.CONTENT_REFUSED,
    "invalid_api_key": Kind.AUTH,
    "account_deactivated": Kind.AUTH,
    "invalid_organization": Kind.AUTH,
    "unsupported_country_region_territory": Kind.AUTH,
    "ip_not_authorized": Kind.AUTH,
    "model_not_found": Kind.NOT_FOUND,
    "previous_response_not_found": Kind.NOT_FOUND,
    "image_file_not_found": Kind.NOT_FOUND,
    "vector_store_timeout": Kind.UPSTREAM_ERROR,
    "invalid_prompt": Kind.INVALID_REQUEST,
    "data_residency_mismatch": Kind.INVALID_REQUEST,
    "invalid_image": Kind.INPUT_INVALID,
    "invalid_image_format": Kind.INPUT_INVALID,
    "invalid_base64_image": Kind.INPUT_INVALID,
    "invalid_image_url": Kind.INPUT_INVALID,
    "invalid_image_mode": Kind.INPUT_INVALID,
    "image_too_small": Kind.INPUT_INVALID,
    "image_parse_error": Kind.INPUT_INVALID,
    "empty_image_file": Kind.INPUT_INVALID,
    "unsupported_image_media_type": Kind.INPUT_INVALID,
    "failed_to_download_image": Kind.INPUT_INVALID,
}

FAMILY = Family(
    name="openai",
    roots=frozenset({"openai"}),
    traps=(more_than_the_limit, slow_down, long_window),
    codes=CODES,
    weak_codes={
        "invalid_request_error": Kind.INVALID_REQUEST,
        "server_error": Kind.UPSTREAM_ERROR,
        "internal_error": Kind.UPSTREAM_ERROR,
    },
    classes={
        "openai.LengthFinishReasonError": Kind.TRUNCATED_OUTPUT,
        "openai.ContentFilterFinishReasonError": Kind.CONTENT_REFUSED,
        "openai.SubjectTokenProviderError": Kind.AUTH,
        "openai.WebSocketConnectionClosedError": Kind.AMBIGUOUS,
        "openai.WebSocketQueueFullError": Kind.RESOURCE_EXHAUSTED,
        **{f"{root}.APIResponseValidationError": Kind.INVALID_OUTPUT for root in GENERATED},
        # Their 409 is a lock that was not to be had in time; a bare 409 is the caller's.
        **{f"{root}.ConflictError": Kind.UPSTREAM_ERROR for root in GENERATED},
    },
    wrappers={
        **{f"{root}.APITimeoutError": Kind.TIMEOUT for root in GENERATED},
        **{f"{root}.APIConnectionError": Kind.NETWORK for root in GENERATED},
    },
    statuses={f"{root}.{name}": status for root in GENERATED for name, status in _STATUSES.items()},
    parents={
        **{f"{root}.{name}": f"{root}.APIStatusError" for root in GENERATED for name in _STATUSES},
        **{f"{root}.APIStatusError": f"{root}.APIError" for root in GENERATED},
        **{f"{root}.APIConnectionError": f"{root}.APIError" for root in GENERATED},
        **{f"{root}.APITimeoutError": f"{root}.APIConnectionError" for root in GENERATED},
        **{f"{root}.APIResponseValidationError": f"{root}.APIError" for root in GENERATED},
        "openai.LengthFinishReasonError": "openai.OpenAIError",
        "openai.ContentFilterFinishReasonError": "openai.OpenAIError",
        "openai.APIError": "openai.OpenAIError",
    },
)
