"""A policy is data that is checked where it is written."""

import dataclasses

import pytest

from perdure.model.errors import ConfigError, UnknownName
from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, RETRY, Action, HintMode, Policy, Rule, Scope
from perdure.rules.presets import PRESETS, STANDARD, preset

NAN = float("nan")
WRONG = [
    (lambda: Policy("p", attempts_max=0), ["attempts_max", "0", "between 1 and 1000000"]),
    (lambda: Policy("p", attempts_max=1_000_001), ["attempts_max", "1000001"]),
    (lambda: Policy("p", attempts_max="3"), ["attempts_max", "'3'"]),
    (lambda: Policy("p", waits_max=-1), ["waits_max", "-1", "between 0 and 1000000"]),
    (lambda: Policy("p", crashes_max=0), ["crashes_max", "0", "between 1 and"]),
    (lambda: Policy("p", snoozes_max=-1), ["snoozes_max", "-1"]),
    (lambda: Policy("p", wait_s_max=-0.5), ["wait_s_max", "-0.5", "between 0 and"]),
    (lambda: Policy("p", wait_s_max=NAN), ["wait_s_max", "nan"]),
    (lambda: Policy("p", hint_s_max=-1), ["hint_s_max", "-1"]),
    (lambda: Policy("p", hint_s_max=float("inf")), ["hint_s_max", "inf"]),
    (lambda: Policy("p", hint="later"), ["hint", "'later'", "exact, floor, ignore"]),
    (lambda: Policy("p", scope="run"), ["scope", "'run'", "job, stage"]),
    (lambda: Policy("p", rules={"slow": RETRY}), ["rules", "'slow'", "rate_limited"]),
    (lambda: Rule("repeat"), ["rule.action", "'repeat'", "fail, retry, wait"]),
    (lambda: Rule("retry", attempts_max=0), ["rule.attempts_max", "0", "between 1 and"]),
    (lambda: Rule("retry", hint="later"), ["rule.hint", "'later'"]),
]


@pytest.mark.parametrize(("make", "named"), WRONG)
def test_a_wrong_value_is_refused_by_field_value_and_range(make, named):
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(word in str(caught.value) for word in named), str(caught.value)


def test_names_from_a_file_are_as_good_as_members():
    written = Policy("p", hint="exact", scope="job", rules={"timeout": Rule("wait", hint="ignore")})
    assert written.hint is HintMode.EXACT
    assert written.scope is Scope.JOB
    assert written.rule(Kind.TIMEOUT) == Rule(Action.WAIT, hint=HintMode.IGNORE)


def test_a_kind_without_a_rule_is_answered_otherwise():
    assert Policy("p").rule(Kind.TIMEOUT) is FAIL
    assert Policy("p", otherwise=RETRY).rule(Kind.TIMEOUT) is RETRY


def test_a_policy_does_not_change_after_it_is_made():
    rules = {Kind.TIMEOUT: RETRY}
    policy = Policy("p", rules=rules)
    rules[Kind.NETWORK] = RETRY
    assert policy.rule(Kind.NETWORK) is FAIL
    with pytest.raises(TypeError):
        policy.rules[Kind.NETWORK] = RETRY
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.attempts_max = 9


def test_the_label_is_name_and_version():
    assert Policy("mine", version=7).label == "mine/7"


def test_the_standard_preset_is_as_it_is_documented():
    assert STANDARD.attempts_max == 5
    assert (STANDARD.waits_max, STANDARD.wait_s_max) == (20, 86_400.0)
    assert (STANDARD.crashes_max, STANDARD.crash_is_failure) == (3, False)
    assert STANDARD.backoff == Backoff(Curve.EXPONENTIAL, base_s=2.0, factor=2.0, cap_s=300.0)
    assert STANDARD.jitter == Jitter(Spread.PROPORTIONAL, ratio=0.25)
    assert STANDARD.hint is HintMode.FLOOR
    assert STANDARD.scope is Scope.STAGE
    waits = {kind for kind in Kind if STANDARD.rule(kind).action is Action.WAIT}
    assert waits == {Kind.RATE_LIMITED, Kind.QUOTA_WINDOW}
    once_more = {kind for kind in Kind if STANDARD.rule(kind).attempts_max == 2}
    assert once_more == {Kind.UNKNOWN, Kind.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("kind", Kind)
def test_the_standard_preset_retries_nothing_that_is_final(kind):
    final = KINDS[kind].failure_class is FailureClass.FINAL
    assert (STANDARD.rule(kind).action is Action.FAIL) == final


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_found_by_its_own_name(name):
    assert preset(name).name == name


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"no policy preset 'standart'; one of: .*standard"):
        preset("standart")
