"""The google-genai client's own exceptions and answers."""

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Case, Sdk, cases, check, seen

genai = Sdk("google.genai")


def ask(url, timeout_s=PATIENT_S):
    options = genai.types.HttpOptions(base_url=url, timeout=int(timeout_s * 1000))
    client = genai.Client(api_key="AIzaSyCanary0123456789012345678901234", http_options=options)
    try:
        return client.models.generate_content(model="gemini", contents="hi")
    finally:
        client.close()


def error(code, status, message="no", *details):
    body = {"error": {"code": code, "status": status, "message": message, "details": [*details]}}
    return Answer(code, body)


def retry_in(delay):
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(name):
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaMetric": "m", "quotaId": name, "quotaValue": "20"}],
    }


def reason(word):
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": word, "domain": "x"}


PER_MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
PER_DAY = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
NO_QUOTA = "Quota exceeded for metric: generate_content_free_tier_requests, limit: 0, model: gemini-pro. Please retry in 37s."

STATUS = cases(
    Case("rate limit", error(429, "RESOURCE_EXHAUSTED", "slow", PER_MINUTE, retry_in("53s")), "rate_limited", 53.0, "google code RESOURCE_EXHAUSTED"),
    Case("rate limit without a delay", error(429, "RESOURCE_EXHAUSTED", "slow"), "rate_limited"),
    Case("quota per day", error(429, "RESOURCE_EXHAUSTED", "quota", PER_DAY, retry_in("21s")), "quota_window", 21.0),
    Case("no quota at all", error(429, "RESOURCE_EXHAUSTED", NO_QUOTA, PER_DAY, retry_in("37s")), "billing", 37.0, "google limit: 0"),
    Case("payment", error(402, "FAILED_PRECONDITION"), "billing"),
    Case("overloaded", error(503, "UNAVAILABLE", "The model is overloaded."), "overloaded"),
    Case("internal", error(500, "INTERNAL"), "upstream_error"),
    Case("deadline", error(504, "DEADLINE_EXCEEDED"), "timeout"),
    Case("bad argument", error(400, "INVALID_ARGUMENT"), "invalid_request"),
    Case("too many tokens", error(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), "too_large"),
    Case("wrong key", error(400, "INVALID_ARGUMENT", "API key not valid.", reason("API_KEY_INVALID")), "auth"),
    Case("wrong region", error(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), "invalid_request"),
    Case("forbidden", error(403, "PERMISSION_DENIED"), "auth"),
    Case("not found", error(404, "NOT_FOUND"), "not_found"),
    Case("cancelled", error(499, "CANCELLED"), "cancelled"),
    Case("HTML of a proxy", Answer(502, "<html><title>502</title></html>"), "upstream_unavailable"),
)  # fmt: skip


@STATUS
def test_a_status_error_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask(upstream.url))
    assert len(upstream.requests) == 1
    assert "Canary" not in str(evidence)


TRANSPORT = cases(
    Case("closed", CLOSED, "ambiguous"),
    Case("reset", RESET, "ambiguous"),
    Case("cut off", Answer(200, {"candidates": []}, after=After.CUT), "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)


@TRANSPORT
def test_a_broken_connection_means(upstream, case):
    upstream.script(case.answer)
    check(case, lambda: ask(upstream.url, case.timeout_s))


def test_a_refused_connection_was_never_sent(closed_port):
    assert seen(lambda: ask(closed_port))[1].kind == "network"


def answer(finish_reason, text="text", **more):
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 9, "totalTokenCount": 13}
    return Answer(200, {"candidates": [candidate], "usageMetadata": usage, **more})


BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}

ANSWERS = cases(
    Case("prompt blocked", Answer(200, BLOCKED), "content_refused", rule="finish reason prompt_blocked"),
    Case("no candidates", Answer(200, {"usageMetadata": {"promptTokenCount": 4}}), "content_refused", rule="finish reason no_candidates"),
    Case("safety", answer("SAFETY"), "content_refused"),
    Case("cut at the limit", answer("MAX_TOKENS"), "truncated_output"),
    Case("no finish reason", answer(None), "truncated_output"),
    Case("malformed call", answer("MALFORMED_FUNCTION_CALL"), "invalid_output"),
)  # fmt: skip


@ANSWERS
def test_an_answer_that_is_no_good_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask(upstream.url))
    assert evidence.usage[0] == ("input_tokens", 4)
