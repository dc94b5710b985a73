"""Why a model stopped, in the words of the providers: whether its output is whole.

The same words are judged in `rules/matchers/output.py`; a test holds the two lists together.
"""

from enum import Enum, StrEnum
from typing import Any

from perdure.model.errors import ConfigError


class End(StrEnum):
    """How an output ended, as far as its finish reason says."""

    WHOLE = "whole"
    CUT = "cut"
    REFUSED = "refused"
    UNSAID = "unsaid"


# Reasons in lower case. Any other leaves unsaid whether the output is whole.
ENDS: dict[str, End] = {
    **dict.fromkeys(
        (
            "stop", "end_turn", "stop_sequence", "completed", "complete", "tool_calls", "tool_call",
            "tool_use", "function_call", "eos", "eos_token", "finish", "finished",
        ),
        End.WHOLE,
    ),
    **dict.fromkeys(
        (
            "length", "max_tokens", "max_output_tokens", "model_length", "incomplete", "error_limit",
            "model_context_window_exceeded",
        ),
        End.CUT,
    ),
    **dict.fromkeys(
        (
            "content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist",
            "prohibited_content", "spii", "image_safety", "image_prohibited_content", "error_toxic",
            "guardrail_intervened", "prompt_blocked", "no_candidates",
        ),
        End.REFUSED,
    ),
}  # fmt: skip


def end_of(reason: Any) -> tuple[End, str]:
    """How the output ended, and the reason in plain lower case where it is a known one."""
    if reason is None:
        return End.UNSAID, ""
    if isinstance(reason, Enum):  # Google's: a text or a number is behind the name
        reason = reason.value if isinstance(reason.value, str) else reason.name
    if not isinstance(reason, str):
        kind = type(reason).__name__
        raise ConfigError(f"finish_reason is of type {kind}; pass the provider's word, or None")
    word = reason.strip().lower()
    return (ENDS[word], word) if word in ENDS else (End.UNSAID, "")
