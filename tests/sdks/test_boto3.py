"""botocore's own exceptions: object storage and Bedrock."""

import json

import pytest

from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.sdks.kit import (
    PATIENT_S,
    RETRIED_IN_REPORTS,
    TIMEOUT_S,
    Case,
    Sdk,
    cases,
    check,
    seen,
    waits_in_reports,
)
from tests.sdks.wires import aws_event

boto3 = Sdk("boto3")
botocore_config = Sdk("botocore.config")


def made(service, url, timeout_s=PATIENT_S):
    config = botocore_config.Config(
        retries={"total_max_attempts": 1},
        connect_timeout=PATIENT_S,
        read_timeout=timeout_s,
        s3={"addressing_style": "path"},
    )
    session = boto3.session.Session()
    return session.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="AKIACANARY0123456789",
        aws_secret_access_key="c4n4ry",
        config=config,
    )


@pytest.fixture(scope="module")
def s3(upstream):
    client = made("s3", upstream.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def bedrock(upstream):
    client = made("bedrock-runtime", upstream.url)
    yield client
    client.close()


def xml(status, code, headers=None):
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    return Answer(status, body, {"Content-Type": "application/xml", **(headers or {})})


S3 = cases(
    Case("no such key", xml(404, "NoSuchKey"), "not_found", rule="s3 code NoSuchKey"),
    Case("no such bucket", xml(404, "NoSuchBucket"), "not_found"),
    Case("slow down", xml(503, "SlowDown", {"Retry-After": "5"}), "rate_limited", 5.0, "s3 code SlowDown"),
    Case("slow down in milliseconds", xml(503, "SlowDown", {"x-amz-retry-after": "700"}), "rate_limited", 0.7),
    Case("internal error", xml(500, "InternalError"), "storage_transient"),
    Case("unavailable", xml(503, "ServiceUnavailable"), "storage_transient"),
    Case("request timeout is a 400", xml(400, "RequestTimeout"), "storage_transient"),
    Case("access denied", xml(403, "AccessDenied"), "auth"),
    Case("wrong signature", xml(403, "SignatureDoesNotMatch"), "auth"),
    Case("clock is wrong", xml(403, "RequestTimeTooSkewed"), "auth"),
    Case("too large", xml(400, "EntityTooLarge"), "too_large"),
    Case("precondition", xml(412, "PreconditionFailed"), "invalid_request"),
    Case("aborted", xml(409, "OperationAborted"), "storage_transient"),
    Case("bare 429", Answer(429, ""), "rate_limited"),
    Case("bare 503", Answer(503, ""), "upstream_unavailable"),
    Case("quota of a clone", xml(403, "QuotaExceeded"), "billing"),
    Case("closed", CLOSED, "ambiguous"),
    Case("reset", RESET, "ambiguous"),
)  # fmt: skip


@S3
def test_a_failure_of_s3_means(upstream, s3, case):
    upstream.script(case.answer)
    evidence = check(case, lambda: s3.get_object(Bucket="b", Key="k"))
    assert len(upstream.requests) == 1
    assert "CANARY" not in str(evidence)


@pytest.mark.parametrize(
    ("code", "kind"), [("InternalError", "storage_transient"), ("SlowDown", "rate_limited")]
)
def test_a_copy_that_failed_half_way_comes_with_200(upstream, s3, code, kind):
    upstream.script(xml(200, code))
    _, verdict = seen(lambda: s3.copy_object(Bucket="b", Key="k", CopySource="b/j"))
    assert (verdict.kind, verdict.rule) == (kind, f"s3 code {code}")


PASSING = [
    xml(500, "InternalError"), xml(503, "ServiceUnavailable"), xml(400, "RequestTimeout"), xml(503, "SlowDown"),
    CLOSED, RESET, Answer(502, ""),
]  # fmt: skip
LASTING = [xml(404, "NoSuchKey"), xml(403, "AccessDenied"), xml(400, "EntityTooLarge")]


@pytest.mark.parametrize("answer", PASSING)
def test_a_report_job_tries_a_passing_fault_of_s3_again(upstream, s3, answer):
    upstream.script(answer)
    assert waits_in_reports(lambda: s3.get_object(Bucket="b", Key="k")) == RETRIED_IN_REPORTS


@pytest.mark.parametrize("answer", LASTING)
def test_a_report_job_does_not_try_again_what_s3_refuses_for_good(upstream, s3, answer):
    upstream.script(answer)
    assert waits_in_reports(lambda: s3.get_object(Bucket="b", Key="k")) == []


def test_a_body_that_is_cut_off_is_ambiguous(upstream, s3):
    upstream.script(Answer(200, b"half", after=After.CUT))
    body = s3.get_object(Bucket="b", Key="k")["Body"]
    _, verdict = seen(body.read)
    assert verdict.kind == "ambiguous"


def test_no_answer_in_time_is_a_timeout(upstream):
    upstream.script(HANGING)
    client = made("s3", upstream.url, TIMEOUT_S)
    assert seen(lambda: client.get_object(Bucket="b", Key="k"))[1].kind == "timeout"
    client.close()


def test_a_refused_connection_was_never_sent(closed_port):
    client = made("s3", closed_port)
    _, verdict = seen(lambda: client.get_object(Bucket="b", Key="k"))
    assert (verdict.kind, verdict.rule) == ("network", "botocore.EndpointConnectionError")
    client.close()


def test_a_certificate_that_nobody_trusts_is_a_setting(untrusted):
    client = made("s3", untrusted.url)
    assert seen(lambda: client.get_object(Bucket="b", Key="k"))[1].kind == "config_missing"
    client.close()


def test_a_call_that_was_never_made_is_the_caller_s(s3):
    assert seen(lambda: s3.get_object(Bucket="b"))[1].kind == "invalid_request"


def test_a_client_without_credentials_lacks_a_setting(upstream, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    client = boto3.session.Session().client(
        "s3", endpoint_url=upstream.url, region_name="us-east-1"
    )
    _, verdict = seen(lambda: client.get_object(Bucket="b", Key="k"))
    assert (verdict.kind, verdict.rule) == ("config_missing", "botocore.NoCredentialsError")
    client.close()


def aws(status, code, headers=None, **fields):
    return Answer(
        status, {"message": "no", **fields}, {"x-amzn-ErrorType": code, **(headers or {})}
    )


BEDROCK = cases(
    Case("throttled", aws(429, "ThrottlingException"), "rate_limited", rule="bedrock code ThrottlingException"),
    Case("model not ready", aws(429, "ModelNotReadyException"), "upstream_unavailable"),
    Case("quota is a 400", aws(400, "ServiceQuotaExceededException"), "quota_window"),
    Case("unavailable", aws(503, "ServiceUnavailableException"), "upstream_unavailable"),
    Case("internal", aws(500, "InternalServerException"), "upstream_error"),
    Case("model timeout", aws(408, "ModelTimeoutException"), "timeout"),
    Case("model error", aws(424, "ModelErrorException", originalStatusCode=500), "ambiguous"),
    Case("model refused the request", aws(424, "ModelErrorException", originalStatusCode=400), "invalid_request"),
    Case("validation", aws(400, "ValidationException"), "invalid_request"),
    Case("input too long", Answer(400, {"message": "Input is too long for requested model."}, {"x-amzn-ErrorType": "ValidationException"}), "too_large"),
    Case("denied", aws(403, "AccessDeniedException"), "auth"),
    Case("not found", aws(404, "ResourceNotFoundException"), "not_found"),
    Case("529", Answer(529, {"message": "overloaded"}), "overloaded"),
)  # fmt: skip

CONVERSE = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}


@BEDROCK
def test_a_failure_of_bedrock_means(upstream, bedrock, case):
    upstream.script(case.answer)
    check(case, lambda: bedrock.converse(**CONVERSE))
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("throttlingException", "rate_limited"),
        ("modelStreamErrorException", "ambiguous"),
        ("internalServerException", "upstream_error"),
        ("serviceUnavailableException", "upstream_unavailable"),
        ("validationException", "invalid_request"),
    ],
)
def test_an_error_inside_a_stream_has_a_small_first_letter(upstream, bedrock, code, kind):
    headers = {
        ":message-type": "exception",
        ":exception-type": code,
        ":content-type": "application/json",
    }
    frame = aws_event(headers, json.dumps({"message": "no"}).encode())
    upstream.script(Answer(200, frame, {"Content-Type": "application/vnd.amazon.eventstream"}))
    evidence, verdict = seen(lambda: list(bedrock.converse_stream(**CONVERSE)["stream"]))
    assert verdict.kind == kind, (verdict, evidence)
    assert "botocore.exceptions.EventStreamError" in evidence.names


def test_a_converse_answer_that_was_cut_is_truncated(upstream, bedrock):
    message = {"role": "assistant", "content": [{"text": "Hel"}]}
    usage = {"inputTokens": 5, "outputTokens": 1, "totalTokens": 6}
    body = {"output": {"message": message}, "stopReason": "max_tokens", "usage": usage}
    upstream.script(Answer(200, {**body, "metrics": {"latencyMs": 1}}))
    evidence, verdict = seen(lambda: bedrock.converse(**CONVERSE))
    assert (verdict.kind, verdict.rule) == ("truncated_output", "finish reason max_tokens")
    assert evidence.usage == (("input_tokens", 5), ("output_tokens", 1))
