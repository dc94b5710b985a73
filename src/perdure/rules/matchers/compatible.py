"""Services that speak OpenAI's or their own dialect of it.

Groq, Together, Azure, OpenRouter, LiteLLM, DeepSeek, vLLM, llama.cpp, text-generation-inference.
"""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, short_names

_BUDGET_STATUSES = (402, 403)


def in_flight_budget(evidence: Evidence) -> Found | None:
    """OpenRouter's 402 that passes: credit is reserved by calls in flight, and it says when to return."""
    if evidence.status != 402 or evidence.fact("limit_source") != "openrouter_in_flight_budget":
        return None
    if evidence.header("retry-after") is None:
        return None
    return Kind.RATE_LIMITED, "openrouter in-flight budget"


def budget(evidence: Evidence) -> Found | None:
    """OpenRouter's budgets, LiteLLM's budgets: spent until somebody or the calendar renews them."""
    if evidence.status in _BUDGET_STATUSES and evidence.fact("resets_at") is not None:
        return Kind.BILLING, "openrouter budget"
    if "budget" in evidence.codes and "openai.RateLimitError" in short_names(evidence.names):
        return Kind.BILLING, "litellm code budget"
    return None


_LITELLM = {
    "litellm.BudgetExceededError": Kind.BILLING,
    "litellm.PaymentRequiredError": Kind.BILLING,
    "litellm.ContextWindowExceededError": Kind.TOO_LARGE,
    "litellm.ContentPolicyViolationError": Kind.CONTENT_REFUSED,
    "litellm.GuardrailRaisedException": Kind.CONTENT_REFUSED,
    "litellm.JSONSchemaValidationError": Kind.INVALID_OUTPUT,
    "litellm.MidStreamFallbackError": Kind.AMBIGUOUS,
}

FAMILY = Family(
    name="compatible",
    roots=frozenset({"groq", "together", "cerebras", "litellm", "azure", "openrouter", "ollama"}),
    traps=(in_flight_budget, budget),
    codes={
        # Groq
        "json_validate_failed": Kind.INVALID_OUTPUT,
        "tool_use_failed": Kind.INVALID_OUTPUT,
        "over_capacity": Kind.OVERLOADED,
        "capacity_exceeded": Kind.RATE_LIMITED,
        "model_decommissioned": Kind.NOT_FOUND,
        # Azure
        "RateLimitReached": Kind.RATE_LIMITED,
        "TooManyRequests": Kind.RATE_LIMITED,
        "NoCapacity": Kind.OVERLOADED,
        "DeploymentNotFound": Kind.NOT_FOUND,
        "ResponsibleAIPolicyViolation": Kind.CONTENT_REFUSED,
        "InsufficientQuota": Kind.BILLING,
        "InvalidSubscription": Kind.BILLING,
        # OpenRouter, Together
        "weight_exceeds_budget": Kind.BILLING,
        "insufficient_credits": Kind.BILLING,
        "insufficient_balance": Kind.BILLING,
        "model_not_available": Kind.UPSTREAM_UNAVAILABLE,
        # llama.cpp, vLLM, text-generation-inference
        "exceed_context_size_error": Kind.TOO_LARGE,
        "unavailable_error": Kind.UPSTREAM_UNAVAILABLE,
        "not_supported_error": Kind.INVALID_REQUEST,
        "overloaded": Kind.OVERLOADED,
    },
    weak_codes={
        "BadRequestError": Kind.INVALID_REQUEST,
        "InternalServerError": Kind.UPSTREAM_ERROR,
        "ServiceUnavailable": Kind.UPSTREAM_UNAVAILABLE,
        "internal_server_error": Kind.UPSTREAM_ERROR,
        "validation": Kind.INVALID_REQUEST,
        "incomplete_generation": Kind.TRUNCATED_OUTPUT,
    },
    classes=_LITELLM,
    wrappers={
        "litellm.Timeout": Kind.TIMEOUT,
        "litellm.APIConnectionError": Kind.NETWORK,
        "azure.ServiceRequestError": Kind.NETWORK,
        "azure.ServiceResponseError": Kind.AMBIGUOUS,
    },
    statuses={
        "litellm.ServiceUnavailableError": 503,
        "litellm.RateLimitError": 429,
        "litellm.AuthenticationError": 401,
        "litellm.BadRequestError": 400,
        "litellm.InternalServerError": 500,
        "azure.ResourceNotFoundError": 404,
        "azure.ClientAuthenticationError": 401,
    },
    parents={
        "litellm.Timeout": "openai.APITimeoutError",
        "litellm.APIConnectionError": "openai.APIConnectionError",
        "litellm.RateLimitError": "openai.RateLimitError",
        "litellm.AuthenticationError": "openai.AuthenticationError",
        "litellm.BadRequestError": "openai.BadRequestError",
        "litellm.ContextWindowExceededError": "litellm.BadRequestError",
        "litellm.ContentPolicyViolationError": "litellm.BadRequestError",
        "litellm.ServiceUnavailableError": "openai.APIStatusError",
        "litellm.InternalServerError": "openai.InternalServerError",
        "groq.APIError": "groq.GroqError",
        "together.APIError": "together.TogetherError",
        "cerebras.APIError": "cerebras.CerebrasError",
    },
)
