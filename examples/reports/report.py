"""What the model is asked for: prompts and schemas by version. A file keeps the versions that it was uploaded under.

To change either, add a version and make it the current one. Jobs that are under way end by the old one.
"""

from typing import Any

CURRENT = "report-2"  # names a prompt and a schema

PROMPTS = {
    "report-1": "You write the minutes of conversations. Answer with JSON: title, summary.",
    "report-2": "You write the minutes of conversations. Answer with JSON: title, summary, topics, sentiment.",
}


def _text(least: int, most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most}


def _schema(**fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


SCHEMAS = {
    "report-1": _schema(title=_text(1, 80), summary=_text(1, 300)),
    "report-2": _schema(
        title=_text(1, 80),
        summary=_text(1, 300),
        topics={"type": "array", "items": _text(1, 60), "minItems": 1, "maxItems": 3},
        sentiment={"type": "string", "enum": ["positive", "neutral", "negative"]},
    ),
}


def request_of(version: str, transcript: str) -> dict[str, Any]:
    """The part of a chat completion's request that a version decides."""
    form = {"name": version, "schema": SCHEMAS[version], "strict": True}
    return {
        "messages": [
            {"role": "system", "content": PROMPTS[version]},
            {"role": "user", "content": transcript},
        ],
        "response_format": {"type": "json_schema", "json_schema": form},
        "temperature": 0,
        "max_tokens": 2_000,  # far more than the schema lets it write, so that no answer is cut off
    }
