"""What models' answers say about their own end, as each provider writes them."""

import types
from datetime import UTC, datetime

import pytest

from perdure.model.errors import AnswerError
from perdure.rules.classify import classify_evidence
from perdure.rules.evidence import evidence_of
from perdure.rules.model_answers import finish_codes, usage_of


def as_object(value):
    """The same answer as an SDK's object."""
    if isinstance(value, dict):
        return types.SimpleNamespace(**{name: as_object(one) for name, one in value.items()})
    return [as_object(one) for one in value] if isinstance(value, list) else value


def choice(finish_reason, **message):
    return {"choices": [{"finish_reason": finish_reason, "message": {"content": "x", **message}}]}


def candidate(finish_reason, parts=({"text": "x"},)):
    return {"candidates": [{"finishReason": finish_reason, "content": {"parts": [*parts]}}]}


def response(**fields):
    return {"object": "response", "output": [{"content": [{"type": "output_text"}]}], **fields}


ANSWERS = [
    (choice("stop"), ("stop",)),
    (choice("length"), ("length",)),
    (choice(None), ("missing",)),
    (choice("a sentence"), ("missing",)),
    (choice("stop", content=""), ("stop", "empty")),
    (choice("stop", content=None, tool_calls=[{"id": "t"}]), ("stop",)),
    (choice("function_call", content=None, function_call={"name": "f"}), ("function_call",)),
    (choice("stop", content=None, refusal="no"), ("refusal", "stop", "empty")),
    ({"choices": [{"finish_reason": "stop", "text": "x"}]}, ("stop",)),
    ({"choices": []}, ("empty",)),
    ({"choices": None}, ("empty",)),
    (candidate("STOP"), ("STOP",)),
    (candidate("SAFETY", ()), ("SAFETY", "empty")),
    (candidate(None), ("missing",)),
    ({"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}, ("prompt_blocked", "no_candidates")),
    ({"candidates": None, "prompt_feedback": None}, ("no_candidates",)),
    ({"usageMetadata": {"promptTokenCount": 1}}, ("no_candidates",)),
    ({"stop_reason": "end_turn", "content": [{"text": "x"}]}, ("end_turn",)),
    ({"stop_reason": "refusal", "content": []}, ("refusal", "empty")),
    ({"stop_reason": None, "content": [{"text": "x"}]}, ("missing",)),
    ({"stopReason": "max_tokens", "output": {"message": {"content": [{"text": "x"}]}}}, ("max_tokens",)),
    ({"finish_reason": "MAX_TOKENS", "message": {}}, ("MAX_TOKENS",)),
    ({"done_reason": "length", "done": True}, ("length",)),
    (response(status="completed"), ()),
    (response(status="failed"), ("failed",)),
    (response(status="incomplete", incomplete_details={"reason": "content_filter"}), ("content_filter",)),
    (response(status="incomplete", incomplete_details=None), ("incomplete",)),
    (response(status=None), ("missing",)),
    (response(status="completed", output=[]), ("empty",)),
    (response(status="completed", output=[{"content": [{"type": "refusal"}]}]), ("refusal",)),
    ({"id": "x"}, ()),
    ({"choices": ({"finish_reason": "length"},)}, ("length",)),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reasons"), ANSWERS)
def test_why_an_answer_ended_is_told_by_codes(answer, reasons):
    assert finish_codes(answer) == tuple(f"finish:{reason}" for reason in reasons)


@pytest.mark.parametrize(("answer", "reasons"), ANSWERS)
def test_an_object_tells_the_same_as_a_dict(answer, reasons):
    assert finish_codes(as_object(answer)) == finish_codes(answer)


@pytest.mark.parametrize("thing", [None, 5, "text", [], object()])
def test_what_is_no_answer_tells_nothing(thing):
    assert finish_codes(thing) == ()
    assert usage_of(thing) == ()


USAGES = [
    ({"usage": {"prompt_tokens": 1, "completion_tokens": 2}}, (1, 2)),
    ({"usage": {"input_tokens": 1, "output_tokens": 2}}, (1, 2)),
    ({"usage": {"inputTokens": 1, "outputTokens": 2}}, (1, 2)),
    ({"usage": {"tokens": {"input_tokens": 1, "output_tokens": 2}}}, (1, 2)),
    ({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}}, (1, 2)),
    ({"usage_metadata": {"prompt_token_count": 1, "candidates_token_count": 2}}, (1, 2)),
    ({"prompt_eval_count": 1, "eval_count": 2}, (1, 2)),
    ({"total_usage": {"prompt_tokens": 1, "completion_tokens": 2}}, (1, 2)),
]


@pytest.mark.parametrize(("answer", "counts"), USAGES)
def test_the_tokens_of_an_answer_are_counted(answer, counts):
    expected = tuple(zip(("input_tokens", "output_tokens"), counts, strict=True))
    assert usage_of(answer) == usage_of(as_object(answer)) == expected


@pytest.mark.parametrize("count", [-1, 10**16, 10**400, "5", 1.5, True, None])
def test_a_count_that_is_none_is_left_out(count):
    assert usage_of({"usage": {"prompt_tokens": count, "completion_tokens": 2}}) == (
        ("output_tokens", 2),
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            {"choices": [{"finish_reason": "length", "message": {"content": "x"}}]},
            "truncated_output",
        ),
        ({"choices": [{"finish_reason": None, "message": {"content": "x"}}]}, "truncated_output"),
        ({"stop_reason": "refusal"}, "content_refused"),
        ({"error": {"code": 429, "message": "slow down"}}, "rate_limited"),
        ("<html>Bad gateway</html>", "invalid_output"),
        (b"", "invalid_output"),
    ],
)
def test_a_stage_can_have_an_answer_judged_by_raising_it(answer, kind):
    evidence = evidence_of(AnswerError(answer))
    assert classify_evidence(evidence, now=datetime(2026, 1, 1, tzinfo=UTC)).kind == kind
    assert evidence.names[0] == "perdure.model.errors.AnswerError"
    assert evidence.message
