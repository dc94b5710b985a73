"""The traps: what a code, a status or a class alone would get wrong."""

from datetime import UTC, datetime

import pytest

from perdure.model.outcomes import Evidence, Raised
from perdure.rules.classify import classify
from perdure.rules.evidence import evidence_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def verdict_of(evidence):
    return classify(Raised(evidence), now=NOW)


def kind_of(evidence):
    return verdict_of(evidence).kind.value


def e(
    *names, message="", status=None, codes=(), facts=None, headers=None, sqlstate=None, causes=()
):
    return Evidence(
        names=names,
        message=message,
        status=status,
        codes=codes,
        facts=tuple((facts or {}).items()),
        headers=tuple((headers or {}).items()),
        sqlstate=sqlstate,
        causes=causes,
    )


TPM = "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29500, Requested 2000. Please try again in 3s."
LARGE = "Request too large on tokens per min (TPM): Limit 30,000, Requested 41,000."
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"

TRAPS = [
    # Billing with status 429, all codes, with or without a header that says when to come back.
    *[
        (f"429 {code}", e("openai.RateLimitError", status=429, codes=(code, "insufficient_quota"), headers={"retry-after": "5"}), "billing")
        for code in (
            "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_hard_limit_reached",
        )
    ],
    ("429 enforced_spend_limit_reached", e("anthropic.RateLimitError", status=429, codes=("enforced_spend_limit_reached", "rate_limit_error")), "billing"),
    ("400 that is a spend limit", e("anthropic.BadRequestError", status=400, codes=("invalid_request_error",), message="Your credit balance is too low"), "billing"),
    ("400 that is none", e("anthropic.BadRequestError", status=400, codes=("invalid_request_error",), message="max_tokens: required"), "invalid_request"),
    ("403 with such a text", e(status=403, codes=("invalid_request_error",), message="credit balance"), "auth"),
    # Rate limits that are none.
    ("429 larger than the limit", e(status=429, codes=("rate_limit_exceeded",), message=LARGE), "too_large"),
    ("429 not larger than the limit", e(status=429, codes=("rate_limit_exceeded",), message=TPM), "rate_limited"),
    ("413 larger than the limit", e(status=413, codes=("rate_limit_exceeded",), message=LARGE), "too_large"),
    ("503 with such a text", e(status=503, message=LARGE), "upstream_unavailable"),
    ("a limit of nothing", e(status=429, message="Limit ,, Requested 5"), "rate_limited"),
    ("only requested", e(status=429, message="you requested too much"), "rate_limited"),
    ("429 per day", e(status=429, codes=("rate_limit_exceeded",), message="on requests per day (RPD): Limit 5, Used 5, Requested 1"), "quota_window"),
    ("429 per month", e(status=429, message="limited to 1000 API calls / month"), "quota_window"),
    ("429 free-models-per-day", e(status=429, message="Rate limit exceeded: free-models-per-day"), "quota_window"),
    ("429 billing that speaks of months", e(status=429, codes=("insufficient_quota",), message="your monthly budget"), "billing"),
    ("429 today is a nice day", e(status=429, message="try again another day"), "rate_limited"),
    ("Gemini limit: 0", e(status=429, codes=("RESOURCE_EXHAUSTED",), message="limit: 0, model: x", facts={"quotaId": PER_DAY, "retryDelay": "10h"}), "billing"),
    ("Gemini limit: 0.5", e(status=429, codes=("RESOURCE_EXHAUSTED",), message="limit: 0.5"), "rate_limited"),
    ("Gemini per day", e(status=429, codes=("RESOURCE_EXHAUSTED",), facts={"quotaId": PER_DAY}), "quota_window"),
    ("Gemini per minute", e(status=429, codes=("RESOURCE_EXHAUSTED",), facts={"quotaId": "PerMinute"}), "rate_limited"),
    ("quota words without a limit", e(status=400, facts={"quotaId": PER_DAY}, message="limit: 0"), "invalid_request"),
    ("slow_down with 429", e(status=429, codes=("slow_down", "rate_limit_error")), "rate_limited"),
    ("slow_down with 503", e(status=503, codes=("slow_down",)), "overloaded"),
    ("ModelNotReadyException", e("botocore.errorfactory.ModelNotReadyException", "botocore.exceptions.ClientError", status=429, codes=("ModelNotReadyException",)), "upstream_unavailable"),
    ("ServiceQuotaExceededException is a 400", e("botocore.exceptions.ClientError", status=400, codes=("ServiceQuotaExceededException",)), "quota_window"),
    # OpenRouter's 402 and 403, LiteLLM's budget.
    ("402 in flight", e(status=402, facts={"limit_source": "openrouter_in_flight_budget"}, headers={"retry-after": "4"}), "rate_limited"),
    ("402 in flight, no header", e(status=402, facts={"limit_source": "openrouter_in_flight_budget"}), "billing"),
    ("402 with a header alone", e(status=402, headers={"retry-after": "4"}), "billing"),
    ("402 weight_exceeds_budget", e(status=402, codes=("weight_exceeds_budget",), headers={"retry-after": "4"}), "billing"),
    ("403 budget", e(status=403, facts={"resets_at": "2026-04-01T00:00:00Z"}), "billing"),
    ("litellm budget", e("litellm.exceptions.RateLimitError", "openai.RateLimitError", status=429, codes=("budget",)), "billing"),
    ("a code budget elsewhere", e(status=429, codes=("budget",)), "rate_limited"),
    ("DeepSeek 402 with a weak code", e("openai.APIStatusError", status=402, codes=("invalid_request_error",)), "billing"),
    # Errors inside streams: status 200, or none.
    ("in-stream overloaded, 200", e("anthropic.APIStatusError", status=200, codes=("overloaded_error",)), "overloaded"),
    ("in-stream rate limit, 200", e("anthropic.APIStatusError", status=200, codes=("rate_limit_error",)), "rate_limited"),
    ("in-stream api_error, 200", e("anthropic.APIStatusError", status=200, codes=("api_error",)), "upstream_error"),
    ("in-stream bad request, 200", e("anthropic.APIStatusError", status=200, codes=("invalid_request_error",)), "invalid_request"),
    ("in-stream code, no status", e("openai.APIError", codes=("rate_limit_exceeded",)), "rate_limited"),
    ("in-stream server_error, no status", e("openai.APIError", codes=("server_error",)), "upstream_error"),
    ("weak code does not beat a status", e("anthropic.InternalServerError", status=529, codes=("api_error",)), "overloaded"),
    ("small first letter", e("botocore.exceptions.EventStreamError", codes=("throttlingException",)), "rate_limited"),
    ("small first letter, validation", e("botocore.exceptions.EventStreamError", codes=("validationException",)), "invalid_request"),
    ("ModelErrorException 500", e(status=424, codes=("ModelErrorException",), facts={"originalStatusCode": "500"}), "ambiguous"),
    ("ModelErrorException 429", e(status=424, codes=("ModelErrorException",), facts={"originalStatusCode": "429"}), "rate_limited"),
    ("ModelErrorException 4??", e(status=424, codes=("ModelErrorException",), facts={"originalStatusCode": "4??"}), "ambiguous"),
    ("modelStreamErrorException", e(codes=("modelStreamErrorException",)), "ambiguous"),
    # Storage.
    ("RequestTimeout is a 400", e("botocore.exceptions.ClientError", status=400, codes=("RequestTimeout",)), "storage_transient"),
    ("200 with SlowDown", e("botocore.exceptions.ClientError", status=200, codes=("SlowDown",)), "rate_limited"),
    ("200 with InternalError", e("botocore.exceptions.ClientError", status=200, codes=("InternalError",)), "storage_transient"),
    ("a model's InternalError is not S3's", e("openai.InternalServerError", status=500, codes=("InternalError",)), "upstream_error"),
    ("ServiceUnavailable of S3", e("botocore.exceptions.ClientError", status=503, codes=("ServiceUnavailable",)), "storage_transient"),
    ("ServiceUnavailable of a model", e("openai.APIError", codes=("ServiceUnavailable",)), "upstream_unavailable"),
    ("obstore code", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="status code: 503: <Code>SlowDown</Code>"), "rate_limited"),
    ("obstore unknown code", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="status code: 429: <Code>Odd</Code>"), "rate_limited"),
    ("obstore refused", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="source: ConnectionRefused"), "network"),
    ("obstore timeout", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="kind: Timeout, source"), "timeout"),
    ("obstore reset", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="kind: ConnectionReset"), "ambiguous"),
    ("obstore certificate", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="InvalidCertificate(UnknownIssuer)"), "config_missing"),
    ("obstore silent", e("obstore.exceptions.GenericError", "obstore.exceptions.BaseError", message="no"), "storage_transient"),
    ("obstore not found", e("obstore.exceptions.NotFoundError", "obstore.exceptions.BaseError", message="no"), "not_found"),
    # Statuses that mislead.
    ("501", e("openai.InternalServerError", status=501), "invalid_request"),
    ("529", e(status=529), "overloaded"),
    ("498 of Groq", e("groq.APIStatusError", status=498), "rate_limited"),
    ("498 of Cohere", e("cohere.errors.invalid_token_error.InvalidTokenError", status=498), "auth"),
    ("499", e(status=499), "cancelled"),
    ("aiohttp's own 400", e("aiohttp.client_exceptions.ClientPayloadError", "aiohttp.client_exceptions.ClientError", status=400, causes=(("aiohttp.http_exceptions.TransferEncodingError", "aiohttp.http_exceptions.HttpProcessingError"),)), "ambiguous"),
    ("a server's 400 through aiohttp", e("aiohttp.client_exceptions.ClientResponseError", "aiohttp.client_exceptions.ClientError", status=400), "invalid_request"),
    ("litellm's APIConnectionError has a 500", e("litellm.exceptions.APIConnectionError", "openai.APIConnectionError", status=500), "network"),
    # Reasons that stand in prose alone.
    ("400 too long", e(status=400, message="prompt is too long: 210000 tokens > 200000 maximum"), "too_large"),
    ("400 policy", e(status=400, message="violates our usage policies: content policy"), "content_refused"),
    ("400 credit", e(status=400, message="insufficient credits"), "billing"),
    ("422 too long", e(status=422, message="maximum context length is 4096"), "too_large"),
    ("404 with such a text", e(status=404, message="maximum context length"), "not_found"),
    # Redis: a wrong password descends from ConnectionError.
    ("redis auth", e("redis.exceptions.AuthenticationError", "redis.exceptions.ConnectionError", "redis.exceptions.RedisError"), "auth"),
    ("redis authorization", e("redis.exceptions.AuthorizationError", "redis.exceptions.ConnectionError"), "auth"),
    ("redis pool", e("redis.exceptions.MaxConnectionsError", "redis.exceptions.ConnectionError"), "resource_exhausted"),
    ("redis auth provider", e("redis.exceptions.ExternalAuthProviderError", "redis.exceptions.ConnectionError"), "auth"),
    ("redis connection", e("redis.exceptions.ConnectionError", "redis.exceptions.RedisError"), "storage_transient"),
    ("redis MISCONF", e("redis.exceptions.ResponseError", message="MISCONF cannot persist"), "storage_transient"),
    ("redis anything", e("redis.exceptions.ResponseError", message="ERR syntax"), "invalid_request"),
    # PostgreSQL: OperationalError is no word.
    ("57014 by the clock", e("psycopg.errors.QueryCanceled", "psycopg.OperationalError", sqlstate="57014", message="due to statement timeout"), "timeout"),
    ("57014 by a person", e("psycopg.errors.QueryCanceled", "psycopg.OperationalError", sqlstate="57014", message="canceling statement due to user request"), "cancelled"),
    ("23505", e("psycopg.errors.UniqueViolation", "psycopg.IntegrityError", sqlstate="23505"), "invalid_request"),
    ("28P01", e("psycopg.errors.InvalidPassword", "psycopg.OperationalError", sqlstate="28P01"), "auth"),
    ("08P01", e("psycopg.errors.ProtocolViolation", "psycopg.OperationalError", sqlstate="08P01"), "internal"),
    ("08P01 of PgBouncer", e("psycopg.errors.ProtocolViolation", sqlstate="08P01", message="query_wait_timeout"), "storage_transient"),
    ("no state, lost", e("psycopg.OperationalError", message="server closed the connection unexpectedly"), "ambiguous"),
    ("no state, refused", e("psycopg.OperationalError", message="connection failed: Connection refused"), "storage_transient"),
    ("no state, password", e("psycopg.OperationalError", message='FATAL: password authentication failed for user "u"'), "auth"),
    ("no state, no database", e("psycopg.OperationalError", message='FATAL: database "d" does not exist'), "config_missing"),
    ("a state goes before the text", e("psycopg.OperationalError", sqlstate="57P01", message="terminating connection"), "storage_transient"),
    ("an unknown state", e("psycopg.errors.Odd", sqlstate="ZZ999"), "unknown"),
    ("PoolTimeout", e("psycopg_pool.PoolTimeout", "psycopg.OperationalError", message="couldn't get a connection after 1.00 sec"), "resource_exhausted"),
    # Wrappers, by what they wrap.
    ("openai from connect timeout", e("openai.APITimeoutError", "openai.APIConnectionError", causes=(("httpx2.ConnectTimeout",),)), "network"),
    ("openai from read timeout", e("openai.APITimeoutError", "openai.APIConnectionError", causes=(("httpx2.ReadTimeout",),)), "timeout"),
    ("openai from pool timeout", e("openai.APITimeoutError", "openai.APIConnectionError", causes=(("httpx.PoolTimeout",),)), "resource_exhausted"),
    ("openai from nobody", e("openai.APITimeoutError", "openai.APIConnectionError"), "timeout"),
    ("openai connection from reset", e("openai.APIConnectionError", causes=(("httpx2.ReadError", "httpx2.NetworkError"), ("builtins.ConnectionResetError",))), "ambiguous"),
    ("openai connection from connect", e("openai.APIConnectionError", causes=(("httpx2.ConnectError", "httpx2.NetworkError"),)), "network"),
    ("openai connection from nobody", e("openai.APIConnectionError"), "network"),
    ("openai connection from something odd", e("openai.APIConnectionError", causes=(("x.Odd",),)), "network"),
    ("a certificate, deep down", e("openai.APIConnectionError", causes=(("httpx.ConnectError",), ("httpcore.ConnectError",), ("ssl.SSLCertVerificationError", "ssl.SSLError"))), "config_missing"),
    ("requests from a reset", e("requests.exceptions.ConnectionError", causes=(("urllib3.exceptions.ProtocolError",), ("builtins.ConnectionResetError",))), "ambiguous"),
    ("requests from DNS", e("requests.exceptions.ConnectionError", causes=(("urllib3.exceptions.MaxRetryError",), ("urllib3.exceptions.NameResolutionError",))), "network"),
    ("instructor from a timeout", e("instructor.core.exceptions.InstructorRetryException", causes=(("openai.APITimeoutError", "openai.APIConnectionError"),)), "timeout"),
    ("instructor from a schema", e("instructor.core.exceptions.InstructorRetryException"), "invalid_output"),
    ("anthropic without a key", e("builtins.TypeError", message='"Could not resolve authentication method. Expected api_key"'), "config_missing"),
    ("another TypeError", e("builtins.TypeError", message="no"), "internal"),
    # SQLite.
    ("sqlite busy", e("sqlite3.OperationalError", codes=("SQLITE_BUSY_SNAPSHOT",)), "storage_transient"),
    ("sqlite full", e("sqlite3.OperationalError", codes=("SQLITE_FULL",)), "resource_exhausted"),
    ("sqlite error", e("sqlite3.OperationalError", codes=("SQLITE_ERROR",)), "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("evidence", "kind"), [row[1:] for row in TRAPS], ids=[row[0] for row in TRAPS]
)
def test_a_trap_is_not_stepped_into(evidence, kind):
    assert kind_of(evidence) == kind, verdict_of(evidence)


def test_no_trap_is_listed_twice():
    assert len({row[0] for row in TRAPS}) == len(TRAPS)


RULES = [
    (e("openai.RateLimitError", status=429, codes=("insufficient_quota",)), "openai code insufficient_quota"),
    (e("anthropic.RateLimitError", status=429, codes=("rate_limit_error",)), "anthropic code rate_limit_error"),
    (e(status=503), "http status 503"),
    (e(sqlstate="40001"), "sqlstate 40001"),
    (e("botocore.exceptions.ClientError", codes=("SlowDown",)), "s3 code SlowDown"),
    (e("botocore.exceptions.ClientError", codes=("ThrottlingException",)), "bedrock code ThrottlingException"),
    (e("httpx._exceptions.ReadTimeout"), "httpx.ReadTimeout"),
    (e(codes=("finish:MAX_TOKENS",)), "finish reason MAX_TOKENS"),
    (e(message="HTTP 503 somewhere"), "text status 503"),
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "rule"), RULES)
def test_the_rule_says_in_words_what_matched(evidence, rule):
    assert verdict_of(evidence).rule == rule


WORDS = [
    ("Error code: 429 - slow down", "rate_limited"),
    ("HTTP/1.1 502 from the proxy", "upstream_unavailable"),
    ("status_code=401", "auth"),
    ("version 5.500 of it", "unknown"),
    ("This model's maximum context length is 4096 tokens", "too_large"),
    ("Insufficient balance", "billing"),
    ("blocked by the content policy", "content_refused"),
    ("No space left on device", "resource_exhausted"),
    ("Too Many Requests", "rate_limited"),
    ("the model is overloaded", "overloaded"),
    ("The api_key client option must be set", "config_missing"),
    ("Incorrect API key provided", "auth"),
    ("Name or service not known", "network"),
    ("Connection reset by peer", "ambiguous"),
    ("the operation timed out", "timeout"),
    ("Service Temporarily Unavailable", "upstream_unavailable"),
    ("Internal Server Error", "upstream_error"),
    ("the total is wrong", "unknown"),
    ("", "unknown"),
]


@pytest.mark.parametrize(("text", "kind"), WORDS)
def test_words_are_asked_last(text, kind):
    assert kind_of(evidence_of(RuntimeError(text))) == kind


FINISHES = {
    "length": "truncated_output", "max_tokens": "truncated_output", "MAX_TOKENS": "truncated_output",
    "missing": "truncated_output", "content_filter": "content_refused", "refusal": "content_refused",
    "SAFETY": "content_refused", "no_candidates": "content_refused", "empty": "invalid_output",
    "MALFORMED_FUNCTION_CALL": "invalid_output", "error": "upstream_error", "failed": "upstream_error",
    "insufficient_system_resource": "overloaded", "cancelled": "cancelled", "stop": "unknown",
    "tool_calls": "unknown", "end_turn": "unknown",
}  # fmt: skip


@pytest.mark.parametrize(("reason", "kind"), FINISHES.items())
def test_why_a_model_stopped_means(reason, kind):
    assert kind_of(e(codes=(f"finish:{reason}",))) == kind


def test_a_finish_that_says_nothing_leaves_the_word_to_the_next():
    assert kind_of(e(codes=("finish:stop", "finish:empty"))) == "invalid_output"
