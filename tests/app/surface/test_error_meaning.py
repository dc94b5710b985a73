"""What a policy makes of an error outside of a stage is what it makes of it inside."""

import httpx2
import pytest

from perdure import ConfigError, Kind, StageError, meaning_of


def answered(status: int, body: object = None, **headers: str) -> httpx2.HTTPStatusError:
    told = {name.replace("_", "-"): text for name, text in headers.items()}
    answer = httpx2.Response(
        status, json=body, headers=told, request=httpx2.Request("GET", "http://x")
    )
    with pytest.raises(httpx2.HTTPStatusError) as raised:
        answer.raise_for_status()
    return raised.value


def test_it_has_the_kind_the_words_of_the_vocabulary_the_wait_and_the_status():
    error = answered(429, {"error": {"code": "tier_3"}}, retry_after="7")
    meant = meaning_of(error, "gateway-worker")
    found = (meant.kind, meant.code, meant.wait_s, meant.status)
    assert found == (Kind.RATE_LIMITED, "RATE_LIMITED", 7.0, 429)
    assert "tier_3" not in meant.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (answered(401), "CONFIG_MISSING"),
        (answered(422), "INVALID_REQUEST"),
        (answered(500), "UPSTREAM_ERROR"),
        (httpx2.ReadTimeout("x"), "TIMEOUT"),
        (httpx2.ConnectError("x"), "UPSTREAM_UNAVAILABLE"),
    ],
)
def test_without_a_body_the_status_or_the_class_says_it(error, code):
    meant = meaning_of(error, "gateway-worker")
    assert (meant.code, meant.wait_s) == (code, None)


def test_what_a_stage_would_say_for_users_counts_and_no_policy_is_the_standard_one():
    error = StageError("input_invalid", "x", public_code="odd", public_message="It is odd.")
    meant = meaning_of(error)
    assert (meant.kind, meant.code, meant.message) == (Kind.INPUT_INVALID, "odd", "It is odd.")
    assert meaning_of(answered(503)).code == "upstream_unavailable"


def test_a_policy_that_nobody_has_is_refused_by_name():
    with pytest.raises(ConfigError, match="gateway-wroker"):
        meaning_of(ValueError(), "gateway-wroker")
