"""The OpenAI client's own exceptions and answers, and those of services that speak as it does."""

import asyncio
import json

import pytest

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Case, Sdk, cases, check, load, seen

openai = Sdk("openai")

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}


def error(status, message="no", headers=None, **fields):
    return Answer(status, {"error": {"message": message, "param": None, **fields}}, headers or {})


def client(upstream, timeout_s=PATIENT_S):
    return openai.OpenAI(
        api_key="sk-test-canary-0123456789", base_url=upstream.url, max_retries=0, timeout=timeout_s
    )


def chat(upstream, timeout_s=PATIENT_S, **more):
    with client(upstream, timeout_s) as one:
        return one.chat.completions.create(**ASK, **more)


TPM = "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29500, Requested 2000. Please try again in 3s."
TOO_LARGE = "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 41000. The input or output tokens must be reduced in order to run successfully."
RPD = "Rate limit reached for gpt-4o in organization org-1 on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s."

STATUS = cases(
    Case("rate limit with a header", error(429, code="rate_limit_exceeded", type="requests", headers={"Retry-After": "7"}), "rate_limited", 7.0, "openai code rate_limit_exceeded"),
    Case("rate limit in milliseconds", error(429, code="rate_limit_exceeded", type="tokens", headers={"retry-after-ms": "1500", "Retry-After": "2"}), "rate_limited", 1.5),
    Case("rate limit told in words", error(429, TPM, code="rate_limit_exceeded", type="tokens"), "rate_limited", 3.0),
    Case("ramp limit", error(429, code="slow_down", type="rate_limit_error"), "rate_limited", rule="openai code slow_down"),
    Case("slow down with 503", error(503, code="slow_down"), "overloaded"),
    Case("no money left", error(429, code="insufficient_quota", type="insufficient_quota"), "billing", rule="openai code insufficient_quota"),
    Case("no money left, and a header", error(429, code="insufficient_quota", type="insufficient_quota", headers={"Retry-After": "20"}), "billing", 20.0),
    Case("credit exhausted", error(429, code="credit_balance_exhausted", type="insufficient_quota"), "billing"),
    Case("spend limit of the organization", error(429, code="organization_spend_limit_exceeded", type="insufficient_quota"), "billing"),
    Case("spend limit of the project", error(429, code="project_spend_limit_exceeded", type="insufficient_quota"), "billing"),
    Case("usage limit", error(429, code="organization_usage_limit_exceeded", type="insufficient_quota"), "billing"),
    Case("hard limit", error(429, code="billing_hard_limit_reached", type="insufficient_quota"), "billing"),
    Case("larger than the limit", error(429, TOO_LARGE, code="rate_limit_exceeded", type="tokens"), "too_large", rule="requested more than the limit"),
    Case("a limit per day", error(429, RPD, code="rate_limit_exceeded", type="requests"), "quota_window", 432.0),
    Case("429 of a proxy", Answer(429, "<html><title>429 Too Many Requests</title></html>"), "rate_limited"),
    Case("overloaded", error(503, code="server_is_overloaded", type="server_error"), "overloaded"),
    Case("unavailable", error(503, type="server_error"), "upstream_unavailable", rule="http status 503"),
    Case("internal error", error(500, type="server_error"), "upstream_error"),
    Case("bad gateway in HTML", Answer(502, "<html><head><title>502 Bad Gateway</title></head></html>", {"Content-Type": "text/html"}), "upstream_unavailable"),
    Case("gateway timeout", error(504), "timeout"),
    Case("not implemented", error(501), "invalid_request"),
    Case("conflict", error(409), "upstream_error"),
    Case("request timeout", error(408), "timeout"),
    Case("context too long", error(400, code="context_length_exceeded", type="invalid_request_error"), "too_large"),
    Case("bad request", error(400, code=None, type="invalid_request_error"), "invalid_request", rule="http status 400"),
    Case("bad request, told to retry", error(400, type="invalid_request_error", headers={"x-should-retry": "true"}), "upstream_error"),
    Case("content filter", error(400, code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}), "content_refused"),
    Case("wrong key", error(401, code="invalid_api_key"), "auth"),
    Case("forbidden", error(403), "auth"),
    Case("no such model", error(404, code="model_not_found"), "not_found"),
    Case("unprocessable", error(422), "invalid_request"),
    Case("vLLM context", Answer(400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.", "type": "BadRequestError", "code": 400}), "too_large"),
    Case("llama.cpp loading", Answer(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}), "upstream_unavailable"),
    Case("DeepSeek balance", error(402, "Insufficient Balance", code="invalid_request_error", type="unknown_error"), "billing"),
    Case("OpenRouter in-flight budget", Answer(402, {"error": {"code": 402, "message": "busy", "metadata": {"limit_source": "openrouter_in_flight_budget"}}}, {"Retry-After": "4"}), "rate_limited", 4.0),
    Case("OpenRouter without credit", Answer(402, {"error": {"code": 402, "message": "Insufficient credits", "metadata": {"limit_source": "openrouter_in_flight_budget"}}}), "billing"),
    Case("Azure headers", error(429, code="429", headers={"x-ms-retry-after-ms": "2500"}), "rate_limited", 2.5),
    Case("own gateway", Answer(429, {"error": {"code": "RATE_LIMITED", "message": "slow", "retryAfterMs": 1500, "retryable": True}}), "rate_limited", 1.5),
)  # fmt: skip


@STATUS
def test_a_status_error_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: chat(upstream, case.timeout_s))
    assert len(upstream.requests) == 1  # its own retries are off
    assert evidence.status == case.answer.status
    assert "canary" not in str(evidence)


TRANSPORT = cases(
    Case("closed without an answer", CLOSED, "ambiguous"),
    Case("reset without an answer", RESET, "ambiguous"),
    Case("cut off in the body", Answer(200, {"id": "x"}, after=After.CUT), "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
    Case("no HTTP", Answer(None, b"220 mail.example ESMTP\r\n"), "ambiguous"),
)


@TRANSPORT
def test_a_broken_connection_means(upstream, case):
    upstream.script(case.answer)
    check(case, lambda: chat(upstream, case.timeout_s))


def test_a_refused_connection_was_never_sent(closed_port):
    with openai.OpenAI(api_key="x", base_url=closed_port, max_retries=0) as one:
        evidence, verdict = seen(lambda: one.chat.completions.create(**ASK))
    assert verdict.kind == "network"
    assert verdict.rule == "openai.APIConnectionError from builtins.ConnectionRefusedError"
    assert evidence.status is None


def test_a_certificate_that_nobody_trusts_is_a_setting(untrusted):
    _, verdict = seen(lambda: chat(untrusted))
    assert verdict.kind == "config_missing"


def test_a_client_without_a_key_lacks_a_setting(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _, verdict = seen(openai.OpenAI)
    assert verdict.kind == "config_missing"


def test_the_asynchronous_client_means_the_same(upstream):
    async def ask():
        async with openai.AsyncOpenAI(api_key="x", base_url=upstream.url, max_retries=0) as one:
            return await one.chat.completions.create(**ASK)

    upstream.script(error(429, code="insufficient_quota", type="insufficient_quota"))
    assert seen(lambda: asyncio.run(ask()))[1].kind == "billing"
    upstream.script(RESET)
    assert seen(lambda: asyncio.run(ask()))[1].kind == "ambiguous"


# -- streams and answers with status 200 -------------------------------------------------


def sse(*events, after=After.END):
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return Answer(200, text, {"Content-Type": "text/event-stream"}, after)


CHUNK = {
    "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
    "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}],
}  # fmt: skip

STREAMS = cases(
    Case("error in the stream", sse(CHUNK, {"error": {"message": "overloaded", "type": "server_error", "code": "server_is_overloaded"}}), "overloaded"),
    Case("rate limit in the stream", sse(CHUNK, {"error": {"message": "slow", "type": "requests", "code": "rate_limit_exceeded"}}), "rate_limited"),
    Case("generic error in the stream", sse({"error": {"message": "The server had an error", "type": "server_error"}}), "upstream_error", rule="openai code server_error"),
    Case("OpenRouter error in the stream", sse(CHUNK, {"error": {"message": "Provider returned error", "code": 502}}), "upstream_unavailable", rule="http status 502"),
    Case("stream cut off", sse(CHUNK, after=After.CUT), "ambiguous"),
    Case("stream hangs", sse(CHUNK, after=After.HANG), "timeout", timeout_s=TIMEOUT_S),
)  # fmt: skip


@STREAMS
def test_an_error_inside_a_stream_means(upstream, case):
    upstream.script(case.answer)

    def ask():
        with client(upstream, case.timeout_s) as one:
            return list(one.chat.completions.create(**ASK, stream=True))

    check(case, ask)


def completion(choice, **more):
    return Answer(
        200,
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
            **more,
        },
    )


def choice(finish_reason="stop", **message):
    message = {"role": "assistant", "content": "text", **message}
    return {"index": 0, "finish_reason": finish_reason, "message": message}


ANSWERS = cases(
    Case("cut at the limit", completion(choice("length")), "truncated_output", rule="finish reason length"),
    Case("filtered", completion(choice("content_filter", content="")), "content_refused"),
    Case("refused", completion(choice(content=None, refusal="I can't help with that")), "content_refused"),
    Case("no finish reason", completion(choice(None)), "truncated_output", rule="finish reason missing"),
    Case("empty", completion(choice(content="")), "invalid_output", rule="finish reason empty"),
    Case("finish reason error", completion(choice("error")), "upstream_error"),
    Case("HTTP 200 with an error body", Answer(200, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"provider_code": "x"}}}), "rate_limited", rule="http status 429"),
    Case("HTTP 200 with an overloaded body", Answer(200, {"error": {"message": "busy", "code": "server_is_overloaded"}}), "overloaded"),
)  # fmt: skip


@ANSWERS
def test_an_answer_that_is_no_good_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: chat(upstream))
    if "choices" in case.answer.body:
        assert evidence.usage == (("input_tokens", 11), ("output_tokens", 5))


def test_a_good_answer_is_evidence_of_nothing(upstream):
    upstream.script(completion(choice()))
    evidence, verdict = seen(lambda: chat(upstream))
    assert (evidence.codes, verdict.kind, verdict.rule) == (
        ("finish:stop",),
        "unknown",
        "nobody knew",
    )


def test_parsing_a_cut_or_filtered_answer_raises_what_it_means(upstream):
    pydantic = load("pydantic")

    class Total(pydantic.BaseModel):
        total: int

    def parse():
        with client(upstream) as one:
            return one.chat.completions.parse(**ASK, response_format=Total)

    upstream.script(completion(choice("length", content='{"tot')))
    evidence, verdict = seen(parse)
    assert (verdict.kind, verdict.rule) == ("truncated_output", "openai.LengthFinishReasonError")
    assert evidence.usage == (("input_tokens", 11), ("output_tokens", 5))
    upstream.script(completion(choice("content_filter", content="")))
    assert seen(parse)[1].kind == "content_refused"
    upstream.script(completion(choice(content='{"total": "many"}')))
    assert seen(parse)[1].kind == "invalid_output"


def response(**fields):
    return Answer(
        200,
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            **fields,
        },
    )


RESPONSES = cases(
    Case("failed by the server", response(status="failed", error={"code": "server_error", "message": "x"}), "upstream_error"),
    Case("failed by a rate limit", response(status="failed", error={"code": "rate_limit_exceeded", "message": "x"}), "rate_limited"),
    Case("failed by a policy", response(status="failed", error={"code": "bio_policy", "message": "x"}), "content_refused"),
    Case("failed by the prompt", response(status="failed", error={"code": "invalid_prompt", "message": "x"}), "invalid_request"),
    Case("failed for no reason", response(status="failed", error=None), "upstream_error", rule="finish reason failed"),
    Case("incomplete", response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "truncated_output"),
    Case("cancelled", response(status="cancelled"), "cancelled"),
)  # fmt: skip


@RESPONSES
def test_a_response_that_failed_raises_nothing_and_means(upstream, case):
    upstream.script(case.answer)

    def ask():
        with client(upstream) as one:
            return one.responses.create(model="m", input="hi")

    check(case, ask)


def test_a_stage_may_wrap_what_it_met(upstream):
    upstream.script(error(429, code="rate_limit_exceeded", headers={"Retry-After": "9"}))

    def stage():
        try:
            chat(upstream)
        except openai.OpenAIError as met:
            raise RuntimeError("the summary failed") from met

    evidence, verdict = seen(stage)
    assert (verdict.kind, verdict.hint_s, evidence.status) == ("rate_limited", 9.0, 429)
    assert evidence.message == "the summary failed"


@pytest.mark.parametrize("form", ["{}", "bad key {}", "https://u:{}@host/x", "?api_key={}"])
def test_a_secret_that_a_server_repeats_is_not_kept(upstream, form):
    canary = "sk-proj-c4n4ryc4n4ryc4n4ry"
    answer = error(401, form.format(canary), code=canary, headers={"x-ratelimit-key": canary})
    upstream.script(answer)
    evidence, verdict = seen(lambda: chat(upstream))
    assert verdict.kind == "auth"
    assert canary[8:] not in str(evidence)
