"""A model's answer that arrived and is no good: not parseable, not of the form, cut off, refused."""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found

FINISH = "finish:"

# Reasons in lower case, without the prefix. What is not here, as ``stop``, is no failure.
FINISHES: dict[str, Kind] = {
    **dict.fromkeys(
        (
            "length", "max_tokens", "max_output_tokens", "model_length", "incomplete", "error_limit",
            "model_context_window_exceeded", "missing",
        ),
        Kind.TRUNCATED_OUTPUT,
    ),
    **dict.fromkeys(
        (
            "content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist",
            "prohibited_content", "spii", "image_safety", "image_prohibited_content", "error_toxic",
            "guardrail_intervened", "prompt_blocked", "no_candidates",
        ),
        Kind.CONTENT_REFUSED,
    ),
    **dict.fromkeys(
        (
            "empty", "malformed_function_call", "unexpected_tool_call", "malformed_model_output",
            "malformed_tool_use", "language", "other", "no_image",
        ),
        Kind.INVALID_OUTPUT,
    ),
    "error": Kind.UPSTREAM_ERROR,
    "failed": Kind.UPSTREAM_ERROR,
    "insufficient_system_resource": Kind.OVERLOADED,  # DeepSeek
    "cancelled": Kind.CANCELLED,
    "user_cancel": Kind.CANCELLED,
}  # fmt: skip


def finish(evidence: Evidence) -> Found | None:
    """Why the model stopped, if it should not have."""
    for code in evidence.codes:
        if code.startswith(FINISH):
            reason = code[len(FINISH) :]
            kind = FINISHES.get(reason.lower())
            if kind is not None:
                return kind, f"finish reason {reason}"
    return None


FAMILY = Family(
    name="output",
    late_classes={
        "json.JSONDecodeError": Kind.INVALID_OUTPUT,
        "simplejson.JSONDecodeError": Kind.INVALID_OUTPUT,
        "orjson.JSONDecodeError": Kind.INVALID_OUTPUT,
        "msgspec.DecodeError": Kind.INVALID_OUTPUT,
        "msgspec.ValidationError": Kind.INVALID_OUTPUT,
        "pydantic_core.ValidationError": Kind.INVALID_OUTPUT,
        "pydantic.ValidationError": Kind.INVALID_OUTPUT,
        "jsonschema.ValidationError": Kind.INVALID_OUTPUT,
        "jsonschema.SchemaError": Kind.INTERNAL,
        "jsonschema_rs.ValidationError": Kind.INVALID_OUTPUT,
        "fastjsonschema.JsonSchemaValueException": Kind.INVALID_OUTPUT,
        "xml.ParseError": Kind.INVALID_OUTPUT,
        "lxml.XMLSyntaxError": Kind.INVALID_OUTPUT,
        "yaml.YAMLError": Kind.INVALID_OUTPUT,
        "tomllib.TOMLDecodeError": Kind.INVALID_OUTPUT,
        "instructor.IncompleteOutputException": Kind.TRUNCATED_OUTPUT,
        "instructor.ValidationError": Kind.INVALID_OUTPUT,
        "perdure.PayloadRefused": Kind.INVALID_OUTPUT,
    },
    wrappers={"instructor.InstructorRetryException": Kind.INVALID_OUTPUT},
    parents={
        "json.JSONDecodeError": "builtins.ValueError",
        "msgspec.ValidationError": "msgspec.DecodeError",
        "msgspec.DecodeError": "msgspec.MsgspecError",
        "pydantic_core.ValidationError": "builtins.ValueError",
    },
)
