"""The Anthropic client's own exceptions and answers."""

import json

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Case, Sdk, cases, check, seen

anthropic = Sdk("anthropic")

ASK = {"model": "claude", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


def client(upstream, timeout_s=PATIENT_S):
    return anthropic.Anthropic(
        api_key="sk-ant-canary-0123456789", base_url=upstream.url, max_retries=0, timeout=timeout_s
    )


def ask(upstream, timeout_s=PATIENT_S):
    with client(upstream, timeout_s) as one:
        return one.messages.create(**ASK)


def error(status, kind, message="no", headers=None, code=None):
    inner = {"type": kind, "message": message}
    if code is not None:
        inner["details"] = {"error_code": code}
    return Answer(status, {"type": "error", "error": inner}, headers or {})


STATUS = cases(
    Case("rate limit", error(429, "rate_limit_error", headers={"retry-after": "12"}), "rate_limited", 12.0, "anthropic code rate_limit_error"),
    Case("rate limit by reset header", error(429, "rate_limit_error", headers={"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-03-01T12:00:30Z"}), "rate_limited", 30.0),
    Case("ramp limit", error(429, "rate_limit_error", code="ramp_limit_exceeded"), "rate_limited", rule="anthropic code ramp_limit_exceeded"),
    Case("spend limit", error(429, "rate_limit_error", code="enforced_spend_limit_reached"), "billing", rule="anthropic code enforced_spend_limit_reached"),
    Case("billing", error(402, "billing_error"), "billing"),
    Case("credit as a bad request", error(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."), "billing"),
    Case("usage limit as a bad request", error(400, "invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."), "billing"),
    Case("bad request", error(400, "invalid_request_error", "max_tokens: must be positive"), "invalid_request", rule="http status 400"),
    Case("prompt too long", error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "too_large"),
    Case("on hold", error(400, "invalid_request_error", code="organization_on_hold"), "auth"),
    Case("wrong key", error(401, "authentication_error"), "auth"),
    Case("forbidden", error(403, "permission_error"), "auth"),
    Case("not found", error(404, "not_found_error"), "not_found"),
    Case("request timeout", error(408, "timeout_error"), "timeout"),
    Case("conflict", error(409, "conflict_error"), "upstream_error"),
    Case("name taken", error(409, "conflict_error", code="skill_name_taken"), "invalid_request"),
    Case("too large", error(413, "request_too_large"), "too_large"),
    Case("headers too large", error(431, "invalid_request_error"), "too_large"),
    Case("closed by the client", error(499, "api_error"), "cancelled"),
    Case("internal error", error(500, "api_error"), "upstream_error", rule="http status 500"),
    Case("not implemented", error(501, "api_error"), "invalid_request"),
    Case("unavailable", error(503, "api_error"), "upstream_unavailable"),
    Case("gateway timeout", error(504, "timeout_error"), "timeout"),
    Case("overloaded", error(529, "overloaded_error"), "overloaded"),
    Case("overloaded, do not retry", error(529, "overloaded_error", headers={"x-should-retry": "false"}), "overloaded"),
)  # fmt: skip


@STATUS
def test_a_status_error_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask(upstream))
    assert len(upstream.requests) == 1
    assert "canary" not in str(evidence)


def test_a_server_that_says_do_not_retry_is_heard(upstream):
    upstream.script(error(529, "overloaded_error", headers={"x-should-retry": "false"}))
    assert seen(lambda: ask(upstream))[1].server_says is False


TRANSPORT = cases(
    Case("closed", CLOSED, "ambiguous"),
    Case("reset", RESET, "ambiguous"),
    Case("cut off", Answer(200, {"id": "x"}, after=After.CUT), "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)


@TRANSPORT
def test_a_broken_connection_means(upstream, case):
    upstream.script(case.answer)
    check(case, lambda: ask(upstream, case.timeout_s))


def test_a_refused_connection_was_never_sent(closed_port):
    with anthropic.Anthropic(api_key="x", base_url=closed_port, max_retries=0) as one:
        _, verdict = seen(lambda: one.messages.create(**ASK))
    assert verdict.kind == "network"


def test_a_client_without_a_key_lacks_a_setting(upstream, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call():
        with anthropic.Anthropic(base_url=upstream.url, max_retries=0) as one:
            one.messages.create(**ASK)

    assert seen(call)[1].kind == "config_missing"


# -- streams: HTTP 200, and then an error ------------------------------------------------


def sse(*events, after=After.END):
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer(200, text, {"Content-Type": "text/event-stream"}, after)


START = {
    "type": "message_start",
    "message": {
        "id": "m", "type": "message", "role": "assistant", "content": [], "model": "claude",
        "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 0},
    },
}  # fmt: skip


def in_stream(kind):
    return sse(START, {"type": "error", "error": {"type": kind, "message": "no"}})


STREAMS = cases(
    Case("overloaded in the stream", in_stream("overloaded_error"), "overloaded"),
    Case("rate limit in the stream", in_stream("rate_limit_error"), "rate_limited"),
    Case("error in the stream", in_stream("api_error"), "upstream_error", rule="anthropic code api_error"),
    Case("bad request in the stream", in_stream("invalid_request_error"), "invalid_request"),
    Case("stream cut off", sse(START, after=After.CUT), "ambiguous"),
    Case("stream hangs", sse(START, after=After.HANG), "timeout", timeout_s=TIMEOUT_S),
)  # fmt: skip


@STREAMS
def test_an_error_inside_a_stream_means(upstream, case):
    upstream.script(case.answer)

    def call():
        with client(upstream, case.timeout_s) as one:
            return list(one.messages.create(**ASK, stream=True))

    check(case, call)


def message(stop_reason, text="text"):
    return Answer(
        200,
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "text", "text": text}] if text else [],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 7, "output_tokens": 2},
        },
    )


ANSWERS = cases(
    Case("refused", message("refusal", ""), "content_refused", rule="finish reason refusal"),
    Case("cut at the limit", message("max_tokens"), "truncated_output"),
    Case("context window full", message("model_context_window_exceeded"), "truncated_output"),
    Case("no stop reason", message(None), "truncated_output"),
    Case("empty", message("end_turn", ""), "invalid_output"),
)


@ANSWERS
def test_an_answer_that_is_no_good_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask(upstream))
    assert evidence.usage == (("input_tokens", 7), ("output_tokens", 2))
