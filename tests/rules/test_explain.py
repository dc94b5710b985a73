"""What `perdure policy explain` answers, without the command around it."""

from datetime import UTC, datetime

import pytest

from perdure.model.errors import CallerError, UnknownName
from perdure.model.kinds import KINDS, Kind
from perdure.model.nouns import replace
from perdure.model.verdicts import Failure
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.explain import Question, explain, schedule, schedule_of_waits
from perdure.rules.failure_spec import DescribedFailure, failure_of
from perdure.rules.matchers import Match
from perdure.rules.policy import Policy, Rule
from perdure.rules.presets import preset
from perdure.rules.vocabulary import VOCABULARIES

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(spec, policy="standard", **answer):
    chosen = preset(policy) if isinstance(policy, str) else policy
    return failure_of(DescribedFailure(spec, **answer), chosen, NOW)


KINDS_BY_SPEC = [
    ("http:503", "upstream_unavailable"),
    ("http:404", "not_found"),
    ("kind:billing", "billing"),
    ("exception:TimeoutError", "timeout"),
    ("exception:openai.RateLimitError", "rate_limited"),
    ("sqlstate:40001", "storage_transient"),
    ("sqlstate:40p01", "storage_transient"),
    ("s3:NoSuchKey", "not_found"),
    ("lost", "worker_lost"),
]


@pytest.mark.parametrize(("spec", "kind"), KINDS_BY_SPEC)
def test_words_become_the_failure_they_describe(spec, kind):
    failure, code = asked(spec)
    assert (failure.kind, code) == (kind, None)


def test_a_public_code_is_remembered():
    failure, code = asked("code:GW_TIMEOUT", "converter")
    assert (failure.kind, code) == ("timeout", "GW_TIMEOUT")


def test_what_the_server_answered_is_heard():
    failure, _ = asked("http:429", headers=(("retry-after", "7"),))
    assert failure.hint_s == 7.0
    failure, _ = asked("http:429", body='{"error": {"code": "insufficient_quota"}}')
    assert failure.kind == "billing"
    failure, _ = asked("exception:Exception", body='{"error": {"code": 503}}')
    assert failure.status == 503


def test_a_policys_own_lines_of_the_table_are_asked_too():
    own = Policy("own", matches=(Match("content_refused", status=451),))
    assert asked("http:451", own)[0].kind == "content_refused"


WRONG = [
    ("http:99", CallerError, "100 to 599"),
    ("http:٤٠٤", CallerError, "100 to 599"),
    ("http:", CallerError, "http:STATUS"),
    ("htp:404", CallerError, "'http'"),
    ("lost:now", CallerError, "not understood"),
    ("kind:rate_limitd", UnknownName, "'rate_limited'"),
    ("code:NOPE", UnknownName, "no code 'NOPE'"),
    ("exception:ReadTimeot", UnknownName, "'ReadTimeout'"),
    ("exception:openai.APITimeoutEror", UnknownName, "'openai.APITimeoutError'"),
    ("sqlstate:4000", CallerError, "five letters"),
    ("s3:SlowDwn", UnknownName, "'SlowDown'"),
]


@pytest.mark.parametrize(("spec", "error", "words"), WRONG)
def test_words_that_describe_nothing_are_refused(spec, error, words):
    with pytest.raises(error) as caught:
        asked(spec)
    assert words in str(caught.value)


def test_a_schedule_ends_with_the_end():
    rows = schedule(preset("reports"), Question(Failure(Kind.TIMEOUT, "test")))
    assert [(n, one.action) for n, one in rows] == [
        (1, "retry"),
        (2, "retry"),
        (3, "retry"),
        (4, "fail"),
    ]


def test_a_schedule_of_waits_is_told_once():
    rows = schedule(preset("standard"), Question(Failure(Kind.RATE_LIMITED, "test")))
    assert [one.counted for _, one in rows] == [False]


def test_waits_are_told_one_by_one_up_to_the_end():
    rows = schedule_of_waits(preset("standard"), Question(Failure(Kind.RATE_LIMITED, "test")))
    assert [one.action for one in rows] == ["retry"] * 20 + ["fail"]
    assert schedule_of_waits(preset("standard"), Question(Failure(Kind.TIMEOUT, "test"))) == []


def test_waits_without_a_bound_are_cut():
    patient = Policy("patient", waits_max=10**6, otherwise=Rule("wait"))
    rows = schedule_of_waits(patient, Question(Failure(Kind.TIMEOUT, "test")))
    assert len(rows) == 1_000


def test_an_answer_is_plain_data():
    form = explain(preset("reports"), Question(Failure(Kind.TIMEOUT, "test"))).as_form()
    assert form["class"] == "retryable"
    assert form["delay_s"] == {"min": 24.0, "max": 36.0}
    last = explain(preset("reports"), Question(Failure(Kind.TIMEOUT, "test"), 4)).as_form()
    assert (last["delay_s"], last["failed_reason"]) == (None, "exhausted")


@pytest.mark.parametrize("words", VOCABULARIES.values(), ids=VOCABULARIES)
def test_the_public_message_is_the_kinds_own_sentence(words):
    assert all(words.message(kind) == KINDS[kind].sentence for kind in Kind)


def test_a_long_schedule_is_cut():
    patient = Policy("patient", attempts_max=1_000, otherwise=Rule("retry"))
    assert len(schedule(patient, Question(Failure(Kind.TIMEOUT, "test")))) == 50


LETTER = [
    ("reports", "http:409", "fail", "llm_provider_409"),
    ("reports", "exception:openai.ConflictError", "fail", "llm_call_failed"),
    ("reports", "http:501", "retry", "llm_provider_5xx"),
    ("reports", "code:llm_provider_422", "fail", "llm_provider_422"),
    ("converter", "http:409", "fail", "GW_4XX"),
    ("converter", "http:501", "retry", "GW_5XX"),
    ("converter", "s3:SlowDown", "retry", "IO_ERROR"),
    ("converter", "code:PARSE_ERROR", "fail", "GW_4XX"),
    ("converter", "code:GW_UNAVAILABLE", "retry", "GW_5XX"),
    ("converter", "code:MEMORY_ERROR", "retry", "IO_ERROR"),
    ("verifier", "http:501", "retry", "retryable"),
    ("gateway-worker", "http:501", "retry", "UPSTREAM_ERROR"),
    ("gateway-sync", "lost", "fail", "INTERNAL_ERROR"),
    ("datasets-llm", "exception:Mint.TransportError", "retry", "unknown"),
    ("datasets-llm", "exception:Mint.HTTPError", "retry", "unknown"),
    ("datasets-llm", "http:529", "fail", "overloaded"),
    ("standard", "http:501", "fail", "invalid_request"),
    ("standard", "exception:myapp.Unheard", "retry", "unknown"),
]


@pytest.mark.parametrize(("policy", "spec", "action", "code"), LETTER)
def test_a_preset_follows_its_document_to_the_letter(policy, spec, action, code):
    failure, public = asked(spec, policy)
    answer = explain(preset(policy), Question(failure, code=public))
    assert (answer.action, answer.code) == (action, code)


@pytest.mark.parametrize("code", [429, 502])
def test_an_error_in_the_body_of_a_200_is_the_error(code):
    body = f'{{"error": {{"code": {code}, "message": "x"}}}}'
    failure, _ = asked("http:200", "datasets-llm", body=body)
    assert explain(preset("datasets-llm"), Question(failure)).action == "retry"


def test_what_decided_is_named_even_when_no_rule_for_the_kind_did():
    refused, _ = asked("http:503", headers=(("x-should-retry", "false"),))
    assert explain(preset("standard"), Question(refused)).rule == "heed_server"
    long, _ = asked("http:429", headers=(("retry-after", "90000"),))
    assert explain(preset("standard"), Question(long)).rule == "hint.s_max"


def test_a_deadline_ends_the_schedule_where_the_next_try_would_come_too_late():
    policy = Policy(
        "p",
        attempts_max=9,
        deadline_s=60.0,
        rules={"network": "retry"},
        backoff=Backoff("fixed", base_s=25.0),
        jitter=Jitter("none"),
    )
    failure = Failure(Kind.NETWORK, "test")
    answers = [answer for _, answer in schedule(policy, Question(failure))]
    assert [(one.action, one.failed_reason) for one in answers] == [
        ("retry", None),
        ("retry", None),
        ("fail", "expired"),
    ]
    late = replace(policy, backoff=Backoff("fixed", base_s=3600.0, cap_s=None), deadline_s=1.0)
    answer = explain(late, Question(failure))
    assert (answer.action, answer.failed_reason) == ("fail", "expired")
    assert "the deadline would pass before the next try" in answer.why
