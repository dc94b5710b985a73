"""Vocabularies: public codes by kind, stage and status, and the codes that an upstream speaks."""

import pytest

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.limits import PUBLIC_CODE_CHARS_MAX
from perdure.rules.policy import Policy
from perdure.rules.policy_form import policy_form, policy_from
from perdure.rules.vocabulary import GATEWAY, KIND_NAMES, REPORTS, VOCABULARIES, Vocabulary

FINE = Vocabulary(
    "fine",
    dict.fromkeys(Kind, "broken"),
    {"broken": Kind.INTERNAL, "read_failed": Kind.STORAGE_TRANSIENT, "asked_in_vain": Kind.NETWORK},
    {"E1": "read_failed"},
    stages={
        "read": {Kind.STORAGE_TRANSIENT: "read_failed", Kind.AUTH: "read_{status}_refused"},
        "ask": {Kind.NETWORK: "asked_in_vain"},
    },
    statuses={Kind.INVALID_REQUEST: "provider_{status}", Kind.AUTH: "provider_{status}"},
    wire=True,
)

CODES = [
    (Kind.STORAGE_TRANSIENT, "read", None, "read_failed"),
    (Kind.STORAGE_TRANSIENT, "read", 503, "read_failed"),
    (Kind.STORAGE_TRANSIENT, "write", None, "broken"),
    (Kind.STORAGE_TRANSIENT, None, 503, "broken"),
    (Kind.NETWORK, "ask", None, "asked_in_vain"),
    (Kind.INVALID_REQUEST, "ask", 422, "provider_422"),
    (Kind.INVALID_REQUEST, None, 400, "provider_400"),
    (Kind.INVALID_REQUEST, None, 599, "provider_599"),
    (Kind.INVALID_REQUEST, "ask", None, "broken"),
    (Kind.INVALID_REQUEST, "ask", 200, "broken"),  # an error in an answer that says 200
    (Kind.INVALID_REQUEST, "ask", 399, "broken"),
    (Kind.INVALID_REQUEST, "ask", 600, "broken"),
    (Kind.AUTH, "read", 403, "read_403_refused"),
    (Kind.AUTH, "ask", 403, "provider_403"),
    (Kind.AUTH, "read", None, "broken"),
]


@pytest.mark.parametrize(("kind", "stage", "status", "code"), CODES)
def test_a_public_code_may_depend_on_stage_and_status(kind, stage, status, code):
    assert FINE.code(kind, stage=stage, status=status) == code


KINDS_OF = [
    ("broken", Kind.INTERNAL),
    ("E1", Kind.STORAGE_TRANSIENT),
    ("provider_422", Kind.INVALID_REQUEST),
    ("read_403_refused", Kind.AUTH),
    (
        "provider_503",
        Kind.UPSTREAM_UNAVAILABLE,
    ),  # as the status alone is judged, whatever the table's kind
    ("provider_429", Kind.RATE_LIMITED),
    ("provider_200", None),
    ("provider_600", None),
    ("provider_4xx", None),
    ("provider_42", None),
    ("provider_", None),
    ("provider_4220", None),
    ("read_failed_", None),
]


@pytest.mark.parametrize(("code", "kind"), KINDS_OF)
def test_a_public_code_stands_for_one_kind(code, kind):
    assert FINE.kind_of(code) is kind


def test_a_code_that_is_made_of_a_status_is_never_read_from_an_answer():
    assert FINE.meaning_of(("E1",)) == (Kind.STORAGE_TRANSIENT, "E1")
    assert FINE.meaning_of(("provider_422", "read_403_refused")) is None


def test_of_several_codes_the_first_that_is_known_counts():
    assert FINE.meaning_of(("odd", "E1", "broken")) == (Kind.STORAGE_TRANSIENT, "E1")
    assert FINE.meaning_of(()) is None


def test_only_the_gateway_s_vocabulary_of_ours_comes_over_a_wire():
    assert [name for name, words in VOCABULARIES.items() if words.wire] == ["gateway"]
    assert GATEWAY.meaning_of(("timeout",)) is None
    assert GATEWAY.meaning_of(("TIMEOUT",)) == (Kind.TIMEOUT, "TIMEOUT")
    assert KIND_NAMES.meaning_of(("timeout",)) is None


def test_without_public_codes_the_names_of_the_kinds_are_the_public_codes():
    words = Vocabulary("acme", kinds={"E_BUSY": "overloaded", "timeout": "timeout"}, wire=True)
    assert all(words.code(kind) == kind.value for kind in Kind)
    assert words.meaning_of(("timeout", "E_BUSY")) == (Kind.OVERLOADED, "E_BUSY")


X = {kind.value: "X" for kind in Kind}
WRONG = [
    ({"wire": True}, ["vocabulary.wire", "names of our own kinds", "vocabulary.kinds"]),
    ({"wire": "yes"}, ["vocabulary.wire", "'yes'"]),
    ({"name": ""}, ["vocabulary.name", "''"]),
    ({"kinds": {"a b": "timeout"}, "wire": True}, ["vocabulary.kinds", "'a b'", "one word"]),
    ({"kinds": {"error": "timeout"}, "wire": True}, ["vocabulary.kinds", "'error'"]),
    ({"kinds": {"17": "timeout"}, "wire": True}, ["vocabulary.kinds", "'17'"]),
    ({"kinds": {"E1": "slow"}}, ["vocabulary.kinds.E1", "'slow'"]),
    ({"kinds": {"E1": "auth", "timeout": "auth"}, "wire": True}, ["vocabulary.kinds.timeout", "'auth'", "matches"]),
    ({"kinds": {"E1": "auth"}, "internal": {"timeout": "E1"}}, ["timeout", "'auth'", "name of a kind"]),
    ({"kinds": 3}, ["vocabulary.kinds", "3", "table"]),
    ({"codes": {"slow": "X"}}, ["vocabulary.codes", "'slow'"]),
    ({"codes": X | {"timeout": "a b"}, "kinds": {"X": "unknown"}}, ["vocabulary.codes.timeout", "'a b'"]),
    ({"codes": X | {"timeout": 7}, "kinds": {"X": "unknown"}}, ["vocabulary.codes.timeout", "7"]),
    ({"codes": X | {"timeout": "e_{status}"}}, ["vocabulary.codes.timeout", "vocabulary.statuses"]),
    ({"stages": {"read": {"timeout": ""}}}, ["vocabulary.stages.read.timeout", "''"]),
    ({"stages": {"read": {"slow": "E"}}}, ["vocabulary.stages.read", "'slow'"]),
    ({"stages": {"read": "E"}}, ["vocabulary.stages.read", "'E'", "table"]),
    ({"stages": {"read": {"timeout": "E"}}}, ["names no kind for the codes: E"]),
    ({"statuses": {"timeout": "é_{status}"}}, ["vocabulary.statuses.timeout", "'é_{status}'"]),
    ({"internal": {"E1": "E"}}, ["names no kind for the codes: E"]),
    ({"wires": True}, ["vocabulary", "'wires'", "'wire'"]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "named"), WRONG)
def test_what_is_wrong_in_a_vocabulary_is_named(form, named):
    with pytest.raises(ConfigError) as caught:
        policy_from({"name": "p", "vocabulary": form})
    assert all(word in str(caught.value) for word in named), str(caught.value)


def test_what_is_no_vocabulary_is_refused():
    with pytest.raises(ConfigError, match=r"vocabulary is 'gateway'; it must be a Vocabulary"):
        Policy("p", vocabulary="gateway")
    with pytest.raises(ConfigError, match=r"vocabulary.stages is \['read'\]"):
        Vocabulary("v", stages=["read"])


def test_a_public_code_has_64_characters_at_most():
    longest = "x" * PUBLIC_CODE_CHARS_MAX
    assert PUBLIC_CODE_CHARS_MAX == 64
    assert Vocabulary("v", dict.fromkeys(Kind, longest), {longest: Kind.UNKNOWN}).codes
    with pytest.raises(ConfigError, match="64 characters at most"):
        Vocabulary("v", dict.fromkeys(Kind, longest + "x"), {longest + "x": Kind.UNKNOWN})
    template = "x" * (PUBLIC_CODE_CHARS_MAX - 3) + "{status}"
    assert len(Vocabulary("v", statuses={Kind.AUTH: template}).code(Kind.AUTH, status=403)) == 64
    with pytest.raises(ConfigError, match="64 characters at most"):
        Vocabulary("v", statuses={Kind.AUTH: "x" + template})


@pytest.mark.parametrize("words", [FINE, *VOCABULARIES.values()], ids=lambda words: words.name)
def test_a_vocabulary_survives_being_written_down(words):
    assert policy_from(policy_form(Policy("p", vocabulary=words))).vocabulary == words


# -- [000] ---------------------------------------------------------------------------------

REPORTED = [
    ("ask", Kind.TIMEOUT, None, "llm_timeout"),
    ("ask", Kind.TIMEOUT, 408, "llm_timeout"),
    ("ask", Kind.NETWORK, None, "llm_network_error"),
    ("ask", Kind.AMBIGUOUS, None, "llm_network_error"),
    ("ask", Kind.RATE_LIMITED, 429, "llm_rate_limited"),
    ("ask", Kind.UPSTREAM_ERROR, 500, "llm_provider_5xx"),
    ("ask", Kind.UPSTREAM_UNAVAILABLE, 503, "llm_provider_5xx"),
    ("ask", Kind.INVALID_REQUEST, 422, "llm_provider_422"),
    ("ask", Kind.AUTH, 401, "llm_provider_401"),
    ("ask", Kind.NOT_FOUND, 404, "llm_provider_404"),
    ("ask", Kind.INVALID_REQUEST, None, "llm_call_failed"),
    ("ask", Kind.INVALID_OUTPUT, None, "llm_output_invalid_json"),
    ("validate", Kind.INVALID_OUTPUT, None, "schema_validation_failed"),
    ("read", Kind.NOT_FOUND, 404, "file_context_not_found"),
    ("read", Kind.STORAGE_TRANSIENT, 503, "s3_read_failed"),
    ("read", Kind.RATE_LIMITED, 503, "s3_read_failed"),
    ("write", Kind.STORAGE_TRANSIENT, 503, "s3_write_failed"),
    ("write", Kind.AUTH, 403, "s3_write_failed"),
    ("save", Kind.STORAGE_TRANSIENT, None, "db_update_failed"),
    ("ask", Kind.INTERNAL, None, "processing_failed"),
    ("ask", Kind.WORKER_LOST, None, "processing_failed"),
]


@pytest.mark.parametrize(("stage", "kind", "status", "code"), REPORTED)
def test_the_codes_of_report_jobs(stage, kind, status, code):
    assert REPORTS.code(kind, stage=stage, status=status) == code
