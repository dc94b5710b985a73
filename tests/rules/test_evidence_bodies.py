"""What error bodies say, as each service writes them."""

import json

import pytest

from perdure.model.limits import BODY_BYTES_READ_MAX, FACTS_MAX
from perdure.rules.error_bodies import NOTHING, Body, read_body


def google(*details, code=429, status="RESOURCE_EXHAUSTED"):
    return {"error": {"code": code, "status": status, "message": "m", "details": [*details]}}


CODES = [
    ({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}, ("insufficient_quota",)),
    ({"error": {"code": None, "type": "invalid_request_error"}}, ("invalid_request_error",)),
    ({"message": "m", "type": "tokens", "code": "rate_limit_exceeded"}, ("rate_limit_exceeded", "tokens")),
    (
        {"type": "error", "error": {"type": "rate_limit_error", "details": {"error_code": "ramp"}}},
        ("ramp", "rate_limit_error"),
    ),
    (google({"@type": "ErrorInfo", "reason": "API_KEY_INVALID"}), ("API_KEY_INVALID", "RESOURCE_EXHAUSTED")),
    ([google()], ("RESOURCE_EXHAUSTED",)),
    ({"error": {"code": "content_filter", "innererror": {"code": "Policy"}}}, ("Policy", "content_filter")),
    ({"Error": {"Code": "SlowDown", "Message": "m"}}, ("SlowDown",)),
    ({"message": "m", "__type": "com.amazon.coral#ThrottlingException"}, ("ThrottlingException",)),
    ({"object": "error", "type": "rate_limited", "code": "1300"}, ("rate_limited",)),
    ({"detail": [{"type": "missing", "msg": "field required"}]}, ("missing",)),
    ({"detail": {"error": "quota"}}, ("quota",)),
    ({"detail": {"error": {"code": "E_KEY", "type": "t"}}}, ("E_KEY", "t")),  # FastAPI
    ({"detail": {"code": "E_KEY", "error": {}}}, ("E_KEY",)),
    ({"errors": [{"reason": "rateLimitExceeded"}]}, ("rateLimitExceeded",)),
    ({"error": "invalid_grant", "error_description": "d"}, ("invalid_grant",)),
    ({"error": "model 'x' not found"}, ()),
    ({"error": "busy", "error_type": "overloaded"}, ("overloaded", "busy")),
    ({"error": {"metadata": {"error_type": "rate_limit"}}}, ("rate_limit",)),
    ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, ("server_error", "response.failed")),
    ({"type": "https://example.com/problems/out-of-credit/", "title": "t"}, ("out-of-credit",)),
    ({"type": "about:blank", "status": 503}, ()),
    ({"response": {"ok": True}, "code": "busy"}, ("busy",)),
    ({"error": {"code": "a", "error_code": "b"}, "code": "c", "type": "d"}, ("b", "a", "c", "d")),
    ('<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>', ("SlowDown",)),
    (b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n', ("overloaded_error",)),
    ('data: {"choices": []}\n\ndata: nonsense\n\ndata: [1]\n\ndata: {"code": "last"}\n\n', ("last",)),
    ("data: nonsense\n\n", ()),
    ('\ufeff {"error": {"code": "bom"}}', ("bom",)),
    ("{broken", ()),
    ("", ()),
    (None, ()),
    (5, ()),
    ([], ()),
    (object(), ()),
]  # fmt: skip


@pytest.mark.parametrize(("body", "codes"), CODES)
def test_the_codes_of_a_body_are_read_the_most_specific_first(body, codes):
    assert read_body(body).codes == codes


@pytest.mark.parametrize(("body", "codes"), CODES[:20])
def test_a_body_as_text_says_the_same(body, codes):
    assert read_body(json.dumps(body)) == read_body(json.dumps(body).encode()) == read_body(body)


MESSAGES = [
    ({"error": {"message": "m"}}, "m"),
    ({"message": "m"}, "m"),
    ({"error": {"code": "x"}, "message": "outer"}, "outer"),
    ({"Error": {"Message": "m"}}, "m"),
    ({"error": "text of it"}, "text of it"),
    ({"error": "invalid_grant", "error_description": "expired"}, "expired"),
    ({"detail": "Unauthorized"}, "Unauthorized"),
    ({"detail": [{"msg": "field required"}]}, "field required"),
    ("<Error><Code>X</Code><Message>m &amp; n</Message></Error>", "m &amp; n"),
    ("<html><head><TITLE>502 Bad Gateway</TITLE></head>...", "502 Bad Gateway"),
    ("Service Unavailable\n", "Service Unavailable"),
    ("{broken", "{broken"),
    ({"error": {"message": ""}}, ""),
]


@pytest.mark.parametrize(("body", "message"), MESSAGES)
def test_the_message_of_a_body_is_read(body, message):
    found = read_body(body)
    assert found.message == message
    assert dict(found.facts).get("message", "") == message


def test_the_message_is_kept_short_as_a_fact():
    found = read_body({"error": {"message": "long " * 1_000}})
    assert len(found.message) == 2_000
    assert len(dict(found.facts)["message"]) == 500


STATUSES = [
    ({"error": {"code": 429}}, 429),
    ({"error": {"code": "502"}}, 502),
    ({"error": {"status": 503}}, 503),
    ({"error": {"httpStatus": 504, "code": "TIMEOUT"}}, 504),
    ({"status": 503, "title": "problem"}, 503),
    ({"statusCode": 500}, 500),
    ({"error": {"code": 200}}, None),
    ({"error": {"code": 600}}, None),
    ({"error": {"code": "5O3"}}, None),
    ({"error": {"code": "٤٢٩"}}, None),
    ({"error": {"code": 429.0}}, None),
    ({"error": {"code": True}}, None),
    ({"error": {"code": 10**30}}, None),
]


@pytest.mark.parametrize(("body", "status"), STATUSES)
def test_the_status_in_a_body_is_read(body, status):
    assert read_body(body).status == status


FACTS = [
    (google({"@type": "RetryInfo", "retryDelay": "53s"}), ("retryDelay", "53s")),
    (google({"violations": [{"quotaId": "PerDay"}]}), ("quotaId", "PerDay")),
    ({"error": {"metadata": {"quotaResetDelay": "1h"}}}, ("quotaResetDelay", "1h")),
    ({"error": {"metadata": {"quotaResetTimeStamp": "t"}}}, ("quotaResetTimeStamp", "t")),
    ({"error": {"metadata": {"resets_at": 1772366445}}}, ("resets_at", "1772366445")),
    ({"retryAfterMs": 1500, "error": {"code": "x"}}, ("retryAfterMs", "1500")),
    ({"error": {"retryAfterMs": 1500.5}}, ("retryAfterMs", "1500.5")),
    ({"retryAfterSeconds": "7"}, ("retryAfterSeconds", "7")),
    ({"retry_after": 0.5}, ("retryAfterSeconds", "0.5")),
    ({"error": {"retryable": False}}, ("retryable", "false")),
    ({"error": {"retryable": True}}, ("retryable", "true")),
    ({"error": {"metadata": {"limit_source": "x"}}}, ("limit_source", "x")),
    ({"Error": {"Code": "x"}, "originalStatusCode": 400}, ("originalStatusCode", "400")),
]


@pytest.mark.parametrize(("body", "fact"), FACTS)
def test_the_fields_that_count_are_kept(body, fact):
    assert fact in read_body(body).facts


@pytest.mark.parametrize("value", [None, [], {}, 10**400])
def test_a_field_that_is_no_plain_value_is_not_kept(value):
    assert read_body({"error": {"retryDelay": value}}).facts == ()


def test_many_quotas_do_not_crowd_out_the_delay():
    quotas = [{"quotaId": f"q{n}"} for n in range(50)]
    facts = read_body(google({"violations": quotas}, {"retryDelay": "5s"})).facts
    assert [value for name, value in facts if name == "quotaId"] == ["q0", "q1", "q2"]
    assert ("retryDelay", "5s") in facts
    assert len(facts) <= FACTS_MAX


def test_a_field_is_kept_once():
    assert read_body({"error": {"a": {"retryable": True}, "b": {"retryable": True}}}).facts == (
        ("retryable", "true"),
    )


def test_a_body_that_says_nothing_says_nothing():
    assert read_body({}) == NOTHING == Body()


def test_only_the_head_of_a_huge_body_is_read():
    huge = "x" * BODY_BYTES_READ_MAX + '"}}'
    assert read_body('{"error": {"code": "lost", "message": "' + huge).codes == ()
    assert read_body(b"<Error><Code>SlowDown</Code>" + b"x" * 50_000_000).codes == ("SlowDown",)


def test_a_body_that_no_parser_takes_is_text():
    assert read_body("[" * 100_000).codes == ()
    assert read_body('{"a": ' + "1" * 5_000 + "}").codes == ()
    assert read_body(bytearray(b'{"code": "x1"}')).codes == ("x1",)
