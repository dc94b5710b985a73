"""Mistral."""

from perdure.model.kinds import Kind
from perdure.rules.matchers.family import Family

FAMILY = Family(
    name="mistral",
    roots=frozenset({"mistralai"}),
    codes={
        "rate_limited": Kind.RATE_LIMITED,
        "service_tier_capacity_exceeded": Kind.OVERLOADED,
        "invalid_model": Kind.NOT_FOUND,
        "unauthorized": Kind.AUTH,
    },
    weak_codes={
        "invalid_request_prompt": Kind.INVALID_REQUEST,
        "invalid_request_message_order": Kind.INVALID_REQUEST,
        "internal_server_error": Kind.UPSTREAM_ERROR,
        "service_unavailable": Kind.UPSTREAM_UNAVAILABLE,
    },
    classes={
        "mistralai.ResponseValidationError": Kind.INVALID_OUTPUT,
        "mistralai.StreamDisconnectedError": Kind.AMBIGUOUS,
    },
    late_classes={"mistralai.SDKError": Kind.INVALID_OUTPUT},  # with a good status: not its JSON
    wrappers={"mistralai.NoResponseError": Kind.AMBIGUOUS},
    statuses={"mistralai.HTTPValidationError": 422},
    parents={
        "mistralai.SDKError": "mistralai.MistralError",
        "mistralai.HTTPValidationError": "mistralai.MistralError",
        "mistralai.ResponseValidationError": "mistralai.MistralError",
    },
)
