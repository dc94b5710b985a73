"""Anthropic. Its error codes are stable and its wording is not, so the wording is asked once only."""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, message_of

_SPENT = re.compile(
    r"credit balance|spend(?:ing)? limit|usage limits?\b|regain access|purchase credits|billing"
)


def spending_limit(evidence: Evidence) -> Found | None:
    """A spending limit that arrives as a bad request: the message is the only sign."""
    if "invalid_request_error" not in evidence.codes or evidence.status not in (None, 200, 400):
        return None
    found = _SPENT.search(message_of(evidence))
    return (Kind.BILLING, f"anthropic message {found[0]!r}") if found else None


def no_key(evidence: Evidence) -> Found | None:
    """The client raises a TypeError where no key was configured."""
    is_meant = evidence.message.lower().startswith('"could not resolve authentication method')
    return (Kind.CONFIG_MISSING, "anthropic without a key") if is_meant else None


FAMILY = Family(
    name="anthropic",
    roots=frozenset({"anthropic"}),
    traps=(spending_limit,),
    class_traps={"builtins.TypeError": no_key},
    codes={
        "rate_limit_error": Kind.RATE_LIMITED,
        "ramp_limit_exceeded": Kind.RATE_LIMITED,
        "enforced_spend_limit_reached": Kind.BILLING,
        "billing_error": Kind.BILLING,
        "storage_quota_exceeded": Kind.BILLING,
        "overloaded_error": Kind.OVERLOADED,
        "compaction_unavailable": Kind.OVERLOADED,
        "cmek_key_unreachable": Kind.UPSTREAM_UNAVAILABLE,
        "cmek_context_unavailable": Kind.UPSTREAM_UNAVAILABLE,
        "timeout_error": Kind.TIMEOUT,
        "authentication_error": Kind.AUTH,
        "permission_error": Kind.AUTH,
        "organization_on_hold": Kind.AUTH,
        "request_too_large": Kind.TOO_LARGE,
        "request_body_too_large_after_decoding": Kind.TOO_LARGE,
        "file_expired": Kind.NOT_FOUND,
        "concurrent_membership_change": Kind.UPSTREAM_ERROR,
        "scan_pending": Kind.UPSTREAM_ERROR,
        "skill_name_taken": Kind.INVALID_REQUEST,
        "plugin_name_taken": Kind.INVALID_REQUEST,
        "slack_channel_set_up_settings_conflict": Kind.INVALID_REQUEST,
        "skill_read_blocked_undecryptable": Kind.INVALID_REQUEST,
    },
    weak_codes={
        "invalid_request_error": Kind.INVALID_REQUEST,
        "not_found_error": Kind.NOT_FOUND,
        "api_error": Kind.UPSTREAM_ERROR,
        "conflict_error": Kind.UPSTREAM_ERROR,
    },
    classes={
        "anthropic.EnforcedSpendLimitReachedError": Kind.BILLING,
        "anthropic.RampLimitExceededError": Kind.RATE_LIMITED,
        "anthropic.OrganizationOnHoldError": Kind.AUTH,
        "anthropic.CompactionUnavailableError": Kind.OVERLOADED,
        "anthropic.BetaSkillNameTakenError": Kind.INVALID_REQUEST,
        "anthropic.BetaPluginNameTakenError": Kind.INVALID_REQUEST,
        "anthropic.RetryableError": Kind.UPSTREAM_ERROR,
        "anthropic.CredentialsError": Kind.CONFIG_MISSING,
    },
    statuses={
        "anthropic.RequestTimeoutError": 408,
        "anthropic.PreconditionFailedError": 412,
        "anthropic.ContentTooLargeError": 413,
        "anthropic.RequestHeaderFieldsTooLargeError": 431,
        "anthropic.ClientClosedRequestError": 499,
        "anthropic.HTTPNotImplementedError": 501,
        "anthropic.ServiceUnavailableError": 503,
        "anthropic.GatewayTimeoutError": 504,
        "anthropic.OverloadedError": 529,
    },
    parents={
        "anthropic.EnforcedSpendLimitReachedError": "anthropic.RateLimitError",
        "anthropic.RampLimitExceededError": "anthropic.RateLimitError",
        "anthropic.OrganizationOnHoldError": "anthropic.BadRequestError",
        "anthropic.CompactionUnavailableError": "anthropic.OverloadedError",
        "anthropic.BetaSkillNameTakenError": "anthropic.ConflictError",
        "anthropic.BetaPluginNameTakenError": "anthropic.ConflictError",
        "anthropic.RequestTimeoutError": "anthropic.APIStatusError",
        "anthropic.PreconditionFailedError": "anthropic.APIStatusError",
        "anthropic.ContentTooLargeError": "anthropic.APIStatusError",
        "anthropic.RequestHeaderFieldsTooLargeError": "anthropic.APIStatusError",
        "anthropic.ClientClosedRequestError": "anthropic.APIStatusError",
        "anthropic.HTTPNotImplementedError": "anthropic.InternalServerError",
        "anthropic.ServiceUnavailableError": "anthropic.InternalServerError",
        "anthropic.GatewayTimeoutError": "anthropic.InternalServerError",
        "anthropic.OverloadedError": "anthropic.InternalServerError",
        "anthropic.RetryableError": "anthropic.AnthropicError",
        "anthropic.CredentialsError": "anthropic.AnthropicError",
        "anthropic.APIError": "anthropic.AnthropicError",
    },
)
