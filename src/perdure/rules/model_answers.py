"""What a model's answer says about its own end: why it stopped, and what it cost.

An answer may arrive with HTTP 200 and still be none: cut off, refused, empty, or without a word
about why it ended. Its reasons become codes, ``finish:length``, ``finish:refusal`` and so on, which
the matchers read like any other. Answers are dicts or an SDK's own objects; both are read alike.
"""

from collections.abc import Iterator

from perdure.model.limits import CODE_CHARS_MAX
from perdure.rules.error_bodies import is_code
from perdure.rules.foreign_code import (
    either,
    first_members,
    member_of,
    number_of,
    text_of,
    try_or_none,
)

FINISH = "finish:"
_TOKENS_MAX = 10**15
_ABSENT = object()

# What the providers call the tokens they charge for, by our names.
_USAGE: dict[str, tuple[str, ...]] = {
    "input_tokens": (
        "input_tokens",
        "prompt_tokens",
        "inputTokens",
        "prompt_token_count",
        "promptTokenCount",
        "prompt_eval_count",
    ),
    "output_tokens": (
        "output_tokens",
        "completion_tokens",
        "outputTokens",
        "candidates_token_count",
        "candidatesTokenCount",
        "eval_count",
    ),
}


def finish_codes(answer: object) -> tuple[str, ...]:
    """Why the answer ended, as codes; nothing if it is no model's answer."""
    if answer is None:
        return ()
    return tuple(dict.fromkeys(FINISH + reason for reason in _reasons(answer)))


def unread_codes(answer: object) -> tuple[str, ...]:
    """That a text stands in the place of an answer: a page, say, that an SDK has handed on unread."""
    return (FINISH + "malformed_model_output",) if issubclass(type(answer), str | bytes) else ()


def usage_of(answer: object) -> tuple[tuple[str, int], ...]:
    """The tokens that were paid for."""
    if answer is None:
        return ()
    for holder in _usage_holders(answer):
        counts = tuple(
            (kept_as, count)
            for kept_as, names in _USAGE.items()
            if (count := _first_count(holder, names)) is not None
        )
        if counts:
            return counts
    return ()


def _usage_holders(answer: object) -> Iterator[object]:
    usage = member_of(answer, "usage")
    yield usage
    yield member_of(usage, "tokens")  # Cohere
    yield either(answer, "usage_metadata", "usageMetadata")  # Gemini
    yield member_of(answer, "total_usage")  # Instructor
    yield answer  # Ollama


def _first_count(holder: object, names: tuple[str, ...]) -> int | None:
    for name in names:
        count = number_of(member_of(holder, name))
        if count is not None and 0 <= count <= _TOKENS_MAX:
            return count
    return None


def _reasons(answer: object) -> Iterator[str]:
    if _is_response(answer):
        yield from _of_response(answer)
    elif _has(answer, "choices"):
        yield from _of_choices(answer)
    elif any(
        _has(answer, name)
        for name in ("candidates", "prompt_feedback", "promptFeedback", "usageMetadata")
    ):
        yield from _of_candidates(answer)
    elif _has(answer, "stop_reason") or _has(answer, "stopReason"):
        yield from _of_message(answer)
    elif _has(answer, "finish_reason") or _has(answer, "done_reason"):
        yield _reason_text(either(answer, "finish_reason", "done_reason"))


def _is_response(answer: object) -> bool:
    return text_of(member_of(answer, "object"), 20) == "response"


def _of_response(answer: object) -> Iterator[str]:
    """OpenAI's Responses: no exception is raised, whatever the status says."""
    status = _reason_text(member_of(answer, "status"))
    if status == "incomplete":
        yield _reason_text(member_of(member_of(answer, "incomplete_details"), "reason"), status)
    elif status != "completed":
        yield status
    output = first_members(member_of(answer, "output"), 50)
    parts = [part for item in output for part in first_members(member_of(item, "content"), 50)]
    if any(text_of(member_of(part, "type"), 20) == "refusal" for part in parts):
        yield "refusal"
    if not output:
        yield "empty"


def _of_choices(answer: object) -> Iterator[str]:
    choices = first_members(member_of(answer, "choices"), 1)
    if not choices:
        yield "empty"
        return
    message = member_of(choices[0], "message")
    if text_of(member_of(message, "refusal"), 1):
        yield "refusal"
    yield _reason_text(member_of(choices[0], "finish_reason"))
    said = (
        member_of(message, "content"),
        member_of(message, "tool_calls"),
        member_of(message, "function_call"),
    )
    if message is not None and not any(_is_full(part) for part in said):
        yield "empty"


def _of_candidates(answer: object) -> Iterator[str]:
    """Gemini."""
    feedback = either(answer, "prompt_feedback", "promptFeedback")
    if either(feedback, "block_reason", "blockReason") is not None:
        yield "prompt_blocked"
    candidates = first_members(member_of(answer, "candidates"), 1)
    if not candidates:
        yield "no_candidates"
        return
    yield _reason_text(either(candidates[0], "finish_reason", "finishReason"))
    if not first_members(member_of(member_of(candidates[0], "content"), "parts"), 1):
        yield "empty"


def _of_message(answer: object) -> Iterator[str]:
    """Anthropic's Messages and Bedrock's Converse."""
    yield _reason_text(either(answer, "stop_reason", "stopReason"))
    content = member_of(answer, "content")
    if content is None:
        content = member_of(member_of(member_of(answer, "output"), "message"), "content")
    if not first_members(content, 1):
        yield "empty"


def _reason_text(reason: object, otherwise: str = "missing") -> str:
    word = text_of(reason, CODE_CHARS_MAX)
    return word if word is not None and is_code(word) else otherwise


def _is_full(part: object) -> bool:
    if issubclass(type(part), list | tuple):
        return bool(first_members(part, 1))
    return part is not None and text_of(part, 1) != ""


def _has(thing: object, name: str) -> bool:
    """Whether a thing has a place of that name, if only an empty one."""
    if issubclass(type(thing), dict):
        return name in dict.keys(thing)  # type: ignore[arg-type]
    return try_or_none(getattr, thing, name, _ABSENT) is not _ABSENT
