"""What a model's answer says about its own end: why it stopped, and what it cost.

An answer may arrive with HTTP 200 and still be none: cut off, refused, empty, or without a word
about why it ended. Its reasons become codes, ``finish:length``, ``finish:refusal`` and so on, which
the matchers read like any other. Answers are dicts or an SDK's own objects; both are read alike.
"""

from collections.abc import Iterator

from perdure.model.limits import CODE_CHARS_MAX
from perdure.rules.error_bodies import is_code
from perdure.rules.foreign_code import either, held, listed, number_of, text_of, tried

FINISH = "finish:"
_TOKENS_MAX = 10**15
_ABSENT = object()

# What the providers call the tokens they charge for, by our names.
_USAGE: dict[str, tuple[str, ...]] = {
    "input_tokens": (
        "input_tokens", "prompt_tokens", "inputTokens", "prompt_token_count", "promptTokenCount",
        "prompt_eval_count",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "outputTokens", "candidates_token_count",
        "candidatesTokenCount", "eval_count",
    ),
}  # fmt: skip


def finish_codes(answer: object) -> tuple[str, ...]:
    """Why the answer ended, as codes; nothing if it is no model's answer."""
    if answer is None:
        return ()
    return tuple(dict.fromkeys(FINISH + reason for reason in _reasons(answer)))


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
    usage = held(answer, "usage")
    yield usage
    yield held(usage, "tokens")  # Cohere
    yield either(answer, "usage_metadata", "usageMetadata")  # Gemini
    yield held(answer, "total_usage")  # Instructor
    yield answer  # Ollama


def _first_count(holder: object, names: tuple[str, ...]) -> int | None:
    for name in names:
        count = number_of(held(holder, name))
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
        yield _said(either(answer, "finish_reason", "done_reason"))


def _is_response(answer: object) -> bool:
    return text_of(held(answer, "object"), 20) == "response"


def _of_response(answer: object) -> Iterator[str]:
    """OpenAI's Responses: no exception is raised, whatever the status says."""
    status = _said(held(answer, "status"))
    if status == "incomplete":
        yield _said(held(held(answer, "incomplete_details"), "reason"), status)
    elif status != "completed":
        yield status
    output = listed(held(answer, "output"), 50)
    parts = [part for item in output for part in listed(held(item, "content"), 50)]
    if any(text_of(held(part, "type"), 20) == "refusal" for part in parts):
        yield "refusal"
    if not output:
        yield "empty"


def _of_choices(answer: object) -> Iterator[str]:
    choices = listed(held(answer, "choices"), 1)
    if not choices:
        yield "empty"
        return
    message = held(choices[0], "message")
    if text_of(held(message, "refusal"), 1):
        yield "refusal"
    yield _said(held(choices[0], "finish_reason"))
    said = (held(message, "content"), held(message, "tool_calls"), held(message, "function_call"))
    if message is not None and not any(_is_full(part) for part in said):
        yield "empty"


def _of_candidates(answer: object) -> Iterator[str]:
    """Gemini."""
    feedback = either(answer, "prompt_feedback", "promptFeedback")
    if either(feedback, "block_reason", "blockReason") is not None:
        yield "prompt_blocked"
    candidates = listed(held(answer, "candidates"), 1)
    if not candidates:
        yield "no_candidates"
        return
    yield _said(either(candidates[0], "finish_reason", "finishReason"))
    if not listed(held(held(candidates[0], "content"), "parts"), 1):
        yield "empty"


def _of_message(answer: object) -> Iterator[str]:
    """Anthropic's Messages and Bedrock's Converse."""
    yield _said(either(answer, "stop_reason", "stopReason"))
    content = held(answer, "content")
    if content is None:
        content = held(held(held(answer, "output"), "message"), "content")
    if not listed(content, 1):
        yield "empty"


def _said(reason: object, otherwise: str = "missing") -> str:
    word = text_of(reason, CODE_CHARS_MAX)
    return word if word is not None and is_code(word) else otherwise


def _is_full(part: object) -> bool:
    if issubclass(type(part), list | tuple):
        return bool(listed(part, 1))
    return part is not None and text_of(part, 1) != ""


def _has(thing: object, name: str) -> bool:
    """Whether a thing has a place of that name, if only an empty one."""
    if issubclass(type(thing), dict):
        return name in dict.keys(thing)  # type: ignore[arg-type]
    return tried(getattr, thing, name, _ABSENT) is not _ABSENT
