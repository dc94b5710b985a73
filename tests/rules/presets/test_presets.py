"""Each document's numbers, tables and codes, to the letter."""

from datetime import UTC, datetime

import pytest

from perdure.model.kinds import Kind
from perdure.model.verdicts import Failure
from perdure.rules.explain import Question, explain
from perdure.rules.failure_spec import DescribedFailure, failure_of
from perdure.rules.policy import Policy
from perdure.rules.policy_form import policy_form, policy_from
from perdure.rules.presets import PRESETS, preset
from perdure.rules.vocabulary import CLASSES, CONVERTER, GATEWAY


def asked(policy, kind, attempt=1, *, hint_s=None, waits=1, crashes=1, status=None):
    failure = Failure(Kind(kind), "test", hint_s=hint_s, status=status)
    return explain(preset(policy), Question(failure, attempt, waits, crashes))


# preset, kind, (least, most) after each attempt, then how it ends
SEQUENCES = [
    ("reports", "timeout", [(24, 36), (96, 144), (384, 576)], "exhausted"),
    ("reports", "rate_limited", [(24, 36), (96, 144), (384, 576)], "exhausted"),
    ("reports", "network", [(24, 36), (96, 144), (384, 576)], "exhausted"),
    ("reports", "ambiguous", [(24, 36), (96, 144), (384, 576)], "exhausted"),
    ("reports", "storage_transient", [(24, 36), (96, 144), (384, 576)], "exhausted"),
    ("converter", "upstream_error", [(5, 10), (10, 15)], "exhausted"),
    ("converter", "unknown", [(5, 10), (10, 15)], "exhausted"),
    ("converter", "storage_transient", [(5, 10), (10, 15)], "exhausted"),
    ("datasets", "invalid_request", [(0.75, 1.25), (1.5, 2.5)], "exhausted"),
    ("datasets", "unknown", [(0.75, 1.25), (1.5, 2.5)], "exhausted"),
    ("datasets-llm", "network", [(0.75, 1.25), (1.5, 2.5)], "exhausted"),
    ("datasets-once", "network", [], "fatal"),
    (
        "verifier",
        "upstream_error",
        [(n, n) for n in (60, 120, 240, 480, 960, 1920, 3600)],
        "exhausted",
    ),
    ("gateway-worker", "timeout", [(0.8, 1.2), (1.6, 2.4)], "exhausted"),
    ("gateway-worker", "invalid_output", [(0.8, 1.2), (1.6, 2.4)], "exhausted"),
    ("gateway-worker", "rate_limited", [(0.8, 1.2), (1.6, 2.4)], "exhausted"),
    ("gateway-worker", "unknown", [(0.8, 1.2)], "exhausted"),
    ("gateway-worker", "internal", [(0.8, 1.2)], "exhausted"),
    ("gateway-costly", "timeout", [(0.8, 1.2)], "exhausted"),
    ("gateway-costly", "unknown", [(0.8, 1.2)], "exhausted"),
    ("standard", "network", [(1.5, 2.5), (3, 5), (6, 10), (12, 20)], "exhausted"),
    ("standard", "unknown", [(1.5, 2.5)], "exhausted"),
    ("standard", "resource_exhausted", [(1.5, 2.5)], "exhausted"),
    ("standard", "invalid_output", [(1.5, 2.5), (3, 5)], "exhausted"),
]


@pytest.mark.parametrize(("policy", "kind", "waits_s", "end"), SEQUENCES)
def test_a_published_sequence_is_kept_to_the_letter(policy, kind, waits_s, end):
    for attempt, (least, most) in enumerate(waits_s, start=1):
        answer = asked(policy, kind, attempt)
        assert answer.action == "retry"
        assert (answer.delay_s.min, answer.delay_s.max) == pytest.approx((least, most))
        assert answer.counted
    last = asked(policy, kind, len(waits_s) + 1)
    assert (last.action, last.failed_reason, last.delay_s) == ("fail", end, None)


def test_a_model_may_have_five_tries_by_a_policy_based_on_its_preset():
    """Five tries have four waits, the last of which are 4 s and 8 s, spread by a quarter."""
    patient = Policy.based_on("datasets-llm", name="patient", attempts_max=5)
    failure = Failure(Kind.NETWORK, "test")
    for attempt, wait_s in enumerate((1, 2, 4, 8), start=1):
        answer = explain(patient, Question(failure, attempt))
        assert (answer.delay_s.min, answer.delay_s.max) == (wait_s * 0.75, wait_s * 1.25)
    assert explain(patient, Question(failure, 5)).failed_reason == "exhausted"


FATAL = [
    ("reports", kind)
    for kind in (
        "invalid_output", "truncated_output", "input_invalid", "invalid_request", "auth",
        "not_found", "too_large", "content_refused", "config_missing", "billing", "unknown",
        "internal",
    )
] + [
    ("converter", kind)
    for kind in (
        "rate_limited", "invalid_request", "invalid_output", "not_found", "auth", "too_large",
        "input_invalid", "billing", "quota_window", "content_refused", "config_missing",
    )
] + [
    ("datasets-llm", kind)
    for kind in ("invalid_request", "auth", "invalid_output", "unknown", "billing")
] + [
    ("verifier", kind) for kind in ("invalid_request", "auth", "billing", "internal", "not_found")
] + [
    (preset_name, kind)
    for preset_name in ("gateway-worker", "gateway-costly")
    for kind in ("config_missing", "invalid_request", "auth", "billing", "too_large")
] + [
    ("gateway-sync", kind)
    for kind in ("config_missing", "invalid_request", "internal", "unknown", "auth")
] + [("standard", kind) for kind in ("invalid_request", "too_large", "internal", "input_invalid")]  # fmt: skip


@pytest.mark.parametrize(("policy", "kind"), FATAL)
def test_what_a_document_calls_fatal_fails_at_once(policy, kind):
    answer = asked(policy, kind)
    assert (answer.action, answer.failed_reason) == ("fail", "fatal")


def test_the_verifier_takes_a_hint_exactly_uncounted_and_bounded():
    first = asked("verifier", "rate_limited", 8, hint_s=53.0)
    assert (first.delay_s.min, first.delay_s.max, first.counted) == (53.0, 53.0, False)
    assert asked("verifier", "rate_limited", 1, hint_s=53.0, waits=20).action == "retry"
    over = asked("verifier", "rate_limited", 1, hint_s=53.0, waits=21)
    assert (over.action, over.failed_reason) == ("fail", "exhausted")


def test_the_verifier_counts_a_rate_limit_without_a_hint():
    assert asked("verifier", "rate_limited", 2).counted
    assert asked("verifier", "rate_limited", 8).failed_reason == "exhausted"


@pytest.mark.parametrize("policy", ["reports", "datasets", "gateway-worker", "gateway-costly"])
def test_a_hint_is_a_floor_and_counted_in_the_other_seed_presets(policy):
    answer = asked(policy, "rate_limited", 1, hint_s=600.0)
    assert (answer.delay_s.min, answer.delay_s.max) == (600.0, 600.0)
    assert answer.counted
    assert answer.hold == "upstream"


def test_a_hint_shorter_than_the_backoff_changes_nothing():
    answer = asked("reports", "rate_limited", 1, hint_s=1.0)
    assert (answer.delay_s.min, answer.delay_s.max) == pytest.approx((24, 36))


def test_a_hint_matters_only_for_rate_limits_and_overload_in_seed_presets():
    answer = asked("reports", "upstream_unavailable", 1, hint_s=600.0)
    assert answer.delay_s.max == pytest.approx(36)
    assert answer.hint_s == 600.0
    assert asked("reports", "overloaded", 1, hint_s=600.0).delay_s.min == 600.0


LISTENING = [name for name in PRESETS if name not in ("converter", "datasets-once")]


@pytest.mark.parametrize("policy", LISTENING)
def test_a_hint_over_a_day_fails_the_job_and_holds_the_upstream(policy):
    answer = asked(policy, "rate_limited", 1, hint_s=86_401.0)
    assert (answer.action, answer.failed_reason) == ("fail", "exhausted")
    assert answer.hint_s == 86_401.0
    assert answer.hold == "upstream"


def test_a_hint_of_a_day_is_still_waited_for():
    assert asked("reports", "rate_limited", 1, hint_s=86_400.0).delay_s.min == 86_400.0


def test_the_sync_profile_retries_once_then_hands_over():
    first = asked("gateway-sync", "timeout", 1)
    assert first.action == "retry"
    assert (first.delay_s.min, first.delay_s.max) == pytest.approx((0.3, 0.8))
    assert first.profile == "sync"
    assert asked("gateway-sync", "timeout", 2).action == "hand_over"


@pytest.mark.parametrize("hint_s", [None, 0.1, 30.0])
def test_the_sync_profile_never_waits_out_a_rate_limit(hint_s):
    answer = asked("gateway-sync", "rate_limited", 1, hint_s=hint_s)
    assert answer.action == "hand_over"


def test_the_sync_profile_hands_over_when_a_hint_is_longer_than_it_may_wait():
    assert asked("gateway-sync", "overloaded", 1, hint_s=0.9).action == "hand_over"
    assert asked("gateway-sync", "overloaded", 1, hint_s=0.5).action == "retry"


def test_a_crash_is_a_failure_in_reports_and_has_its_own_counter_elsewhere():
    answer = asked("reports", "worker_lost", 2)
    assert answer.counted
    assert (answer.delay_s.min, answer.delay_s.max) == pytest.approx((96, 144))
    third = asked("reports", "worker_lost", 3, crashes=3)
    assert (third.delay_s.min, third.delay_s.max) == pytest.approx((384, 576))
    assert asked("reports", "worker_lost", 4, crashes=4).failed_reason == "exhausted"
    assert asked("gateway-sync", "worker_lost", 1).failed_reason == "crashed"
    other = asked("standard", "worker_lost", 4)
    assert (other.action, other.counted) == ("retry", False)
    assert asked("standard", "worker_lost", 1, crashes=3).failed_reason == "crashed"


def test_rate_limits_wait_without_spending_attempts_in_standard():
    for attempt in (1, 5, 50):
        answer = asked("standard", "rate_limited", attempt)
        assert (answer.action, answer.counted) == ("retry", False)
    assert asked("standard", "rate_limited", 1, waits=21).failed_reason == "exhausted"


@pytest.mark.parametrize("kind", ["billing", "auth"])
def test_standard_holds_the_credential_where_a_person_has_to_act(kind):
    answer = asked("standard", kind)
    assert (answer.action, answer.counted, answer.hold) == ("retry", False, "credential")


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (429, "retry"),
        (500, "retry"),
        (502, "retry"),
        (503, "retry"),
        (504, "retry"),
        (408, "retry"),
        (425, "retry"),
        (501, "fail"),
        (520, "fail"),
        (529, "fail"),
        (400, "fail"),
    ],
)
def test_datasets_llm_goes_by_its_list_of_statuses(status, action):
    kinds = {
        429: "rate_limited",
        408: "timeout",
        425: "timeout",
        504: "timeout",
        400: "invalid_request",
        501: "invalid_request",
        529: "overloaded",
    }
    kind = kinds.get(status, "upstream_error")
    assert asked("datasets-llm", kind, status=status).action == action


def test_a_list_may_name_exceptions():
    failure = Failure(Kind.UNKNOWN, "test", names=("Mint.TransportError", "builtins.Exception"))
    assert explain(preset("datasets-llm"), Question(failure)).action == "retry"


# [002]'s list of what passes: rate limits, network, a pool without room, bad data, memory
PASSING = [
    "http:429", "exception:socket.gaierror", "exception:ConnectionResetError",
    "exception:asyncio.IncompleteReadError", "exception:queue.Full", "exception:asyncio.QueueFull",
    "exception:json.JSONDecodeError", "exception:UnicodeDecodeError", "exception:MemoryError",
]  # fmt: skip


@pytest.mark.parametrize("policy", ["datasets", "standard"])
@pytest.mark.parametrize("spec", PASSING)
def test_what_sample_pipelines_call_transient_has_a_kind_and_is_tried_again(policy, spec):
    failure, _ = failure_of(
        DescribedFailure(spec), preset(policy), datetime(2026, 3, 1, tzinfo=UTC)
    )
    assert failure.kind is not Kind.UNKNOWN
    assert explain(preset(policy), Question(failure)).action == "retry"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_reason_and_names_the_rules_it_implements(name):
    found = PRESETS[name]
    assert len(found.reason) > 60
    assert found.implements
    versions = {"standard": 3, "gateway-worker": 2, "gateway-costly": 2}
    assert found.policy.version == versions.get(name, 1)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "standard"])
def test_the_presets_of_others_count_every_failure_however_weak_the_upstream_is(name):
    assert preset(name).weak_share is None


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_being_written_down(name):
    assert policy_from(policy_form(preset(name))) == preset(name)


def test_the_ten_public_codes_of_the_converter_are_complete():
    assert set(CONVERTER.kinds) == {
        "NOT_PDF",
        "TOO_LARGE",
        "GW_4XX",
        "GW_5XX",
        "GW_TIMEOUT",
        "IO_ERROR",
        "NOT_READY",
        "EXPIRED",
        "FORBIDDEN",
        "UNKNOWN",
    }
    assert set(CONVERTER.internal.values()) <= set(CONVERTER.kinds)


RETRYABLE_CODES = {"GW_5XX", "GW_TIMEOUT", "IO_ERROR", "UNKNOWN"}


@pytest.mark.parametrize("code", CONVERTER.kinds)
def test_the_converter_retries_exactly_the_codes_that_its_document_names(code):
    failure = Failure(CONVERTER.kinds[code], "test")
    answer = explain(preset("converter"), Question(failure, code=code))
    assert (answer.action == "retry") == (code in RETRYABLE_CODES)
    assert answer.code == code


GATEWAY_RETRYABLE = {
    "RATE_LIMITED", "INVALID_UPSTREAM_RESPONSE", "TIMEOUT", "UPSTREAM_UNAVAILABLE",
    "UPSTREAM_ERROR", "INTERNAL_ERROR", "UNKNOWN",
}  # fmt: skip


@pytest.mark.parametrize("code", GATEWAY.kinds)
def test_the_gateway_retries_exactly_the_codes_that_its_document_names(code):
    failure = Failure(GATEWAY.kinds[code], "test")
    answer = explain(preset("gateway-worker"), Question(failure))
    assert len(GATEWAY.kinds) == 9
    assert (answer.action == "retry") == (code in GATEWAY_RETRYABLE)
    assert answer.code == code


def test_the_verifier_speaks_in_three_classes():
    assert set(CLASSES.kinds) == {"final", "retryable", "rate_limited"}
    for code, kind in CLASSES.kinds.items():
        assert CLASSES.code(kind) == code
