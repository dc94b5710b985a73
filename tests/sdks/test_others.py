"""obstore, Cohere and Groq."""

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Case, Sdk, cases, check, seen

obstore = Sdk("obstore")
stores = Sdk("obstore.store")
groq = Sdk("groq")
cohere = Sdk("cohere")


def fetch(url, timeout_s=PATIENT_S):
    store = stores.S3Store(
        "bucket",
        endpoint=f"{url}/bucket",
        region="us-east-1",
        access_key_id="AKIACANARY0123456789",
        secret_access_key="c4n4ry",
        client_options={"allow_http": True, "timeout": f"{timeout_s}s"},
        retry_config={"max_retries": 0},
    )
    return bytes(obstore.get(store, "key").bytes())


def xml(status, code):
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return Answer(status, body, {"Content-Type": "application/xml"})


OBSTORE = cases(
    Case("no such key", xml(404, "NoSuchKey"), "not_found"),
    Case("slow down", xml(503, "SlowDown"), "rate_limited"),
    Case("internal error", xml(500, "InternalError"), "storage_transient"),
    Case("bare 503", Answer(503, ""), "upstream_unavailable"),
    Case("denied", xml(403, "AccessDenied"), "auth"),
    Case("wrong key", xml(401, "InvalidAccessKeyId"), "auth"),
    Case("request timeout is a 400", xml(400, "RequestTimeout"), "storage_transient"),
    Case("closed", CLOSED, "ambiguous"),
    Case("reset", RESET, "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)


@OBSTORE
def test_a_failure_of_obstore_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: fetch(upstream.url, case.timeout_s))
    assert "CANARY" not in str(evidence)


def test_obstore_without_a_server_was_never_sent(closed_port):
    evidence, verdict = seen(lambda: fetch(closed_port))
    assert verdict.kind == "network", (verdict, evidence)


def ask_groq(url, timeout_s=PATIENT_S):
    with groq.Groq(
        api_key="gsk_c4n4ryc4n4ry", base_url=url, max_retries=0, timeout=timeout_s
    ) as one:
        return one.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def error(status, message="no", headers=None, **fields):
    return Answer(status, {"error": {"message": message, **fields}}, headers or {})


TPM = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 8123, please reduce your message size."
TPD = "Rate limit reached for model `m` on tokens per day (TPD): Limit 100000, Used 99000, Requested 2000. Please try again in 14m24s."

GROQ = cases(
    Case("rate limit by reset header", error(429, code="rate_limit_exceeded", type="tokens", headers={"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2m59.56s"}), "rate_limited", 179.56),
    Case("larger than the limit is a 413", error(413, TPM, code="rate_limit_exceeded", type="tokens"), "too_large"),
    Case("tokens per day", error(429, TPD, code="rate_limit_exceeded", type="tokens"), "quota_window", 864.0),
    Case("flexible tier", error(498, code="capacity_exceeded"), "rate_limited"),
    Case("bad JSON of the model", error(400, "Failed to generate JSON.", code="json_validate_failed", type="invalid_request_error"), "invalid_output"),
    Case("over capacity", error(503, type="internal_server_error", code="over_capacity"), "overloaded"),
    Case("closed", CLOSED, "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)  # fmt: skip


@GROQ
def test_a_failure_of_groq_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask_groq(upstream.url, case.timeout_s))
    assert len(upstream.requests) == 1
    assert "c4n4ry" not in str(evidence)


def ask_cohere(url, timeout_s=PATIENT_S):
    client = cohere.ClientV2(api_key="c4n4ry", base_url=url, timeout=timeout_s)
    return client.chat(
        model="m",
        messages=[{"role": "user", "content": "hi"}],
        request_options={"max_retries": 0},
    )


TRIAL = "You are using a Trial key, which is limited to 1000 API calls / month."

COHERE = cases(
    Case("rate limit", Answer(429, {"message": "slow"}, {"Retry-After": "2"}), "rate_limited", 2.0),
    Case("rate limit by epoch", Answer(429, {"message": "slow"}, {"X-RateLimit-Reset": "1772366445"}), "rate_limited", 45.0),
    Case("trial key", Answer(429, {"message": TRIAL}), "quota_window"),
    Case("bad request", Answer(400, {"message": "invalid request"}), "invalid_request"),
    Case("too many tokens", Answer(400, {"message": "too many tokens: the total exceeds the limit"}), "too_large"),
    Case("wrong key", Answer(401, {"message": "invalid api token"}), "auth"),
    Case("498 is a token", Answer(498, {"message": "invalid token"}), "auth"),
    Case("closed by the client", Answer(499, {"message": "cancelled"}), "cancelled"),
    Case("internal error", Answer(500, {"message": "no"}), "upstream_error"),
    Case("not implemented", Answer(501, {"message": "no"}), "invalid_request"),
    Case("unavailable", Answer(503, {"message": "no"}), "upstream_unavailable"),
    Case("gateway timeout", Answer(504, {"message": "no"}), "timeout"),
    Case("cut off", Answer(200, {"id": "x"}, after=After.CUT), "ambiguous"),
    Case("no answer in time", HANGING, "timeout", timeout_s=TIMEOUT_S),
)  # fmt: skip


@COHERE
def test_a_failure_of_cohere_means(upstream, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: ask_cohere(upstream.url, case.timeout_s))
    assert len(upstream.requests) == 1
    assert "c4n4ry" not in str(evidence)
