"""Evidence from a name alone, as a person writes it."""

from datetime import UTC, datetime

import pytest

from perdure.model.outcomes import Raised
from perdure.rules.classify import classify
from perdure.rules.explain_names import evidence_for_name, known_names, known_s3_codes
from perdure.rules.matchers.family import short_name
from perdure.rules.matchers.s3 import CODES

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

NAMES = [
    ("ReadTimeout", "httpx.ReadTimeout", "timeout"),
    ("httpx.ReadTimeout", "httpx.ReadTimeout", "timeout"),
    ("httpx2.ReadTimeout", "httpx2.ReadTimeout", "timeout"),
    ("httpx._exceptions.ReadTimeout", "httpx.ReadTimeout", "timeout"),
    ("ConnectTimeout", "httpx.ConnectTimeout", "network"),
    ("TimeoutError", "builtins.TimeoutError", "timeout"),
    ("asyncio.TimeoutError", "builtins.TimeoutError", "timeout"),
    ("ConnectionError", "builtins.ConnectionError", "network"),
    ("MemoryError", "builtins.MemoryError", "resource_exhausted"),
    ("KeyError", "builtins.KeyError", "unknown"),
    ("IOError", "builtins.OSError", "unknown"),
    ("JSONDecodeError", "json.JSONDecodeError", "invalid_output"),
    ("ValidationError", "msgspec.ValidationError", "invalid_output"),
    ("openai.RateLimitError", "openai.RateLimitError", "rate_limited"),
    ("RateLimitError", "openai.RateLimitError", "rate_limited"),
    ("openai._exceptions.APIConnectionError", "openai.APIConnectionError", "network"),
    ("anthropic.OverloadedError", "anthropic.OverloadedError", "overloaded"),
    ("cohere.TooManyRequestsError", "cohere.TooManyRequestsError", "rate_limited"),
    ("google.genai.errors.ServerError", "google.ServerError", "upstream_error"),
    ("SerializationFailure", "psycopg.SerializationFailure", "storage_transient"),
    ("psycopg.errors.UniqueViolation", "psycopg.UniqueViolation", "invalid_request"),
    ("psycopg.OperationalError", "psycopg.OperationalError", "storage_transient"),
    ("SyntaxError", "builtins.SyntaxError", "internal"),
    ("psycopg.errors.SyntaxError", "psycopg.SyntaxError", "internal"),
    ("redis.exceptions.AuthenticationError", "redis.AuthenticationError", "auth"),
    ("botocore.exceptions.ReadTimeoutError", "botocore.ReadTimeoutError", "timeout"),
    ("HTTPError", "httpx.HTTPError", "unknown"),
    ("httpx.HTTPStatusError", "httpx.HTTPStatusError", "unknown"),
    ("litellm.ContextWindowExceededError", "litellm.ContextWindowExceededError", "too_large"),
]


@pytest.mark.parametrize(("name", "short", "kind"), NAMES)
def test_a_name_gives_evidence_that_is_judged(name, short, kind):
    evidence = evidence_for_name(name)
    assert evidence is not None
    assert evidence.names[0] == short
    assert evidence.names[-2:] == ("builtins.Exception", "builtins.BaseException")
    assert classify(Raised(evidence), now=NOW).kind.value == kind


def test_a_name_brings_its_ancestry():
    evidence = evidence_for_name("ReadTimeout")
    assert evidence is not None
    assert evidence.names[1:3] == ("httpx.TimeoutException", "httpx.TransportError")
    failure = evidence_for_name("SerializationFailure")
    assert failure is not None
    assert (failure.names[1], failure.sqlstate) == ("psycopg.OperationalError", "40001")


@pytest.mark.parametrize(
    "name", ["Nonsense", "openai.Nonsense", "", ".", "httpx.", "nowhere.ReadTimeout"]
)
def test_a_name_that_nobody_knows_gives_none(name):
    assert evidence_for_name(name) is None


def test_every_known_name_gives_evidence_and_means_something():
    for name in known_names():
        evidence = evidence_for_name(name)
        assert evidence is not None
        assert classify(Raised(evidence), now=NOW).rule


def test_the_known_names_are_bare_and_qualified_and_sorted():
    names = known_names()
    assert {"ReadTimeout", "httpx.ReadTimeout", "SerializationFailure", "KeyError"} <= set(names)
    assert list(names) == sorted(set(names))


def test_the_known_codes_of_s3_are_those_of_the_table():
    assert set(known_s3_codes()) == set(CODES)
    assert "SlowDown" in known_s3_codes()


@pytest.mark.parametrize(
    ("name", "short"), [("a.b.c.D", "a.D"), ("a.D", "a.D"), ("D", "D"), ("", ""), ("a.", "a.")]
)
def test_a_short_name_has_the_package_and_the_class(name, short):
    assert short_name(name) == short
