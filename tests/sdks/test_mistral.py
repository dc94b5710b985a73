"""The Mistral client's own exceptions."""

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Case, Sdk, cases, check, seen

mistral = Sdk("mistralai.client")


def ask(url, timeout_s=PATIENT_S):
    with mistral.Mistral(
        api_key="canary-0123456789", server_url=url, timeout_ms=int(timeout_s * 1000)
    ) as one:
        return one.chat.complete(model="m", messages=[{"role": "user", "content": "hi"}])


def error(status, kind, message="no", headers=None, code="1300"):
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": code}
    return Answer(status, body, headers or {})


STATUS = cases(
    Case("rate limit", error(429, "rate_limited", headers={"Retry-After": "3"}), "rate_limited", 3.0, "mistral code rate_limited"),
    Case("capacity", error(429, "service_tier_capacity_exceeded", code="3505"), "overloaded"),
    Case("rate limit in plain text", Answer(429, "Too many requests"), "rate_limited"),
    Case("wrong key", Answer(401, {"detail": "Unauthorized"}), "auth"),
    Case("bad request", error(400, "invalid_request_message_order"), "invalid_request"),
    Case("prompt too long", error(400, "invalid_request_prompt", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"), "too_large"),
    Case("no such model", error(400, "invalid_model"), "not_found"),
    Case("unprocessable", Answer(422, {"detail": [{"loc": ["body"], "msg": "field required", "type": "missing"}]}), "invalid_request"),
    Case("internal error", error(500, "internal_server_error"), "upstream_error"),
    Case("unavailable", error(503, "service_unavailable"), "upstream_unavailable"),
    Case("not JSON", Answer(200, "<html>hello</html>", {"Content-Type": "text/html"}), "invalid_output"),
)  # fmt: skip


@STATUS
def test_a_status_error_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask(upstream.url))
    assert len(upstream.requests) == 1
    assert "canary" not in str(evidence)


TRANSPORT = cases(
    Case("closed", CLOSED, "ambiguous"),
    Case("reset", RESET, "ambiguous"),
    Case("cut off", Answer(200, {"id": "x"}, after=After.CUT), "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)


@TRANSPORT
def test_a_broken_connection_means(upstream, case):
    upstream.script(case.answer)
    check(case, lambda: ask(upstream.url, case.timeout_s))


def test_a_refused_connection_was_never_sent(closed_port):
    assert seen(lambda: ask(closed_port))[1].kind == "network"
