"""A policy is data that is checked where it is written."""

import ast
import dataclasses
import inspect
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.model.decisions import Fail, Retry
from perdure.model.errors import ConfigError, UnknownName
from perdure.model.kinds import GROUPS, Kind
from perdure.model.outcomes import Raised
from perdure.model.verdicts import Failure
from perdure.rules.backoff import Backoff
from perdure.rules.classify import classify
from perdure.rules.decide import FLOWING, Standing, decide
from perdure.rules.evidence import evidence_of
from perdure.rules.policy import FAIL, RETRY, RULED, Action, HintMode, Hints, Policy, Rule, Scope
from perdure.rules.policy_form import policy_from
from perdure.rules.presets import PRESETS, preset
from perdure.rules.rule_choice import kinds_left, rule_for
from perdure.rules.vocabulary import Vocabulary

NOW = datetime(2026, 3, 1, tzinfo=UTC)
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
    (lambda: Hints(s_max=-1), ["hint.s_max", "-1"]),
    (lambda: Hints(s_max=float("inf")), ["hint.s_max", "inf"]),
    (lambda: Hints("later"), ["hint.mode", "'later'", "exact, floor, ignore"]),
    (lambda: Hints(counted=1), ["hint.counted", "1", "true or false"]),
    (lambda: Hints(kinds=["slow"]), ["hint.kinds", "'slow'", "rate_limited"]),
    (lambda: Policy("p", hint="exact"), ["hint", "'exact'"]),
    (lambda: Policy("", version=1), ["name", "''", "1 to 100"]),
    (lambda: Policy("p", version=0), ["version", "0", "between 1 and"]),
    (lambda: Policy("p", deadline_s=-1), ["deadline_s", "-1"]),
    (lambda: Policy("p", profile="async"), ["profile", "'async'", "background, sync"]),
    (lambda: Policy("p", exhausted="retry"), ["exhausted", "'retry'", "fail, hand_over"]),
    (lambda: Policy("p", exhausted="hand_over"), ["hand_over", "background", "sync"]),
    (lambda: Policy("p", inline_s_max=1), ["inline_s_max", "background", "sync"]),
    (lambda: Policy("p", retriable=429), ["retriable", "429", "list"]),
    (lambda: Policy("p", retriable=[42]), ["retriable", "42", "HTTP statuses"]),
    (lambda: Policy("p", retriable=[True]), ["retriable", "True"]),
    (lambda: Policy("p", retriable=["all", ""]), ["retriable", "''"]),
    (
        lambda: Policy("p", retriable=[503], otherwise=RETRY),
        ["retriable", "503", "otherwise (retry)"],
    ),
    (
        lambda: Policy("p", retriable="all", otherwise="wait"),
        ["retriable", "'all'", "otherwise (wait)"],
    ),
    (lambda: Policy("p", otherwise="repeat"), ["otherwise", "'repeat'", "retry"]),
    (lambda: Policy("p", otherwise=None), ["otherwise", "None", "Rule"]),
    (lambda: Policy.based_on("standard", name="p", otherwise=3), ["otherwise", "3", "Rule"]),
    (lambda: Policy("p", rules=None), ["rules", "None", "Mapping"]),
    (lambda: Policy("p", rules=["timeout"]), ["rules", "['timeout']", "Mapping"]),
    (lambda: Policy.based_on("standard", name="p", rules=[]), ["rules", "[]", "Mapping"]),
    (lambda: Policy("p", matches=None), ["matches", "None", "list of Match"]),
    (lambda: Policy("p", matches=[3]), ["matches", "3", "Match"]),
    (lambda: Hints(kinds=None), ["hint.kinds", "None"]),
    (lambda: Vocabulary("v", internal={"X": 5}), ["vocabulary.internal.X", "5", "one word"]),
    (lambda: Vocabulary("v", internal={5: "auth"}), ["vocabulary.internal", "5", "one word"]),
    (lambda: Vocabulary("v", kinds={5: "auth"}), ["vocabulary.kinds", "5", "one word"]),
    (lambda: Vocabulary("v", kinds={"": "auth"}), ["vocabulary.kinds", "''", "one word"]),
    (lambda: Vocabulary("v", kinds={"x y": "auth"}), ["vocabulary.kinds", "'x y'", "one word"]),
    (lambda: Policy("p", crash_is_failure="no"), ["crash_is_failure", "'no'"]),
    (lambda: Policy("p", rules={"timeout": "repeat"}), ["rules.timeout", "'repeat'", "retry"]),
    (lambda: Policy("p", rules={"timeout": 3}), ["rules.timeout", "3", "Rule"]),
    (lambda: Policy("p", rules={3: RETRY}), ["rules", "3", "timeout", "transient"]),
    (lambda: Policy("p", deadline_s=0), ["deadline_s", "0", "nothing would ever begin"]),
    (lambda: Policy.based_on("standart", name="p"), ["based_on", "'standart'", "standard"]),
    (lambda: Policy.based_on(None, name="p"), ["based_on", "None", "standard"]),
    (lambda: Policy.based_on("standard", name="p", atempts=3), ["'atempts'", "attempts_max"]),
    (lambda: Policy.based_on("standard", name="p", waits_max=-1), ["waits_max", "-1"]),
    (lambda: Policy.based_on("standard", name="p", rules={"slow": "retry"}), ["rules", "'slow'"]),
    (lambda: Policy("p", scope="run"), ["scope", "'run'", "job, stage"]),
    (
        lambda: Policy("p", rules={"worker_lost": FAIL}),
        ["rules", "'worker_lost'", "crashes_max", "crash_is_failure"],
    ),
    (lambda: Policy("p", retriable=["worker_lost"]), ["retriable", "'worker_lost'", "crashes_max"]),
    (lambda: Policy("p", rules={"slow": RETRY}), ["rules", "'slow'", "rate_limited", "transient"]),
    (lambda: Rule("repeat"), ["rule.action", "'repeat'", "fail, hand_over, hold, retry, wait"]),
    (lambda: Rule("retry", attempts_max=0), ["rule.attempts_max", "0", "between 1 and"]),
    (lambda: Rule("retry", hint="later"), ["rule.hint", "'later'"]),
]


@pytest.mark.parametrize(("make", "named"), WRONG)
def test_a_wrong_value_is_refused_by_field_value_and_range(make, named):
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(word in str(caught.value) for word in named), str(caught.value)


def test_names_from_a_file_are_as_good_as_members():
    written = Policy("p", scope="job", rules={"timeout": Rule("wait", hint=Hints("ignore"))})
    assert written.scope is Scope.JOB
    assert written.rules[Kind.TIMEOUT] == Rule(Action.WAIT, hint=Hints(HintMode.IGNORE))


def ruled(policy, kind, **seen):
    return rule_for(policy, Failure(Kind(kind), "test", **seen))


def test_a_kind_without_a_rule_is_answered_otherwise():
    assert ruled(Policy("p"), "timeout") == (FAIL, "otherwise")
    assert ruled(Policy("p", otherwise=RETRY), "timeout") == (RETRY, "otherwise")
    assert ruled(Policy("p", otherwise="retry"), "timeout") == (RETRY, "otherwise")
    based = Policy.based_on(Policy("p"), name="q", otherwise="retry")
    assert ruled(based, "timeout") == (RETRY, "otherwise")
    mixed = Policy("p", rules={"timeout": RETRY})
    assert ruled(mixed, "timeout") == (RETRY, "rules.timeout")


def test_a_list_is_asked_before_otherwise_and_after_the_rules():
    policy = Policy("p", rules={"auth": RETRY}, retriable=(503, "timeout"))
    assert ruled(policy, "auth") == (RETRY, "rules.auth")
    assert ruled(policy, "timeout") == (RETRY, "retriable")
    assert ruled(policy, "network") == (FAIL, "retriable")
    assert ruled(policy, "upstream_unavailable", status=503) == (RETRY, "retriable")
    assert ruled(policy, "upstream_error", status=500) == (FAIL, "retriable")


def test_a_list_without_numbers_goes_by_kind_even_when_a_status_is_known():
    policy = Policy("p", retriable=("upstream_error",))
    assert ruled(policy, "upstream_error", status=500) == (RETRY, "retriable")


RESET = ConnectionResetError("reset by peer")


def answer(policy, error):
    verdict = classify(Raised(evidence_of(error)), now=NOW)
    return decide(Standing(), verdict, policy, FLOWING, NOW, 0.5)


def test_a_policy_of_ones_own_retries_what_the_one_below_it_retries():
    forgetful = Policy("mine", rules={"network": "retry"})
    assert isinstance(answer(forgetful, RESET), Fail)  # it is ambiguous, which has no rule
    mine = Policy.based_on("standard", name="mine", rules={"network": "retry"})
    assert isinstance(answer(mine, RESET), Retry)


def test_a_policy_that_is_based_on_another_differs_in_what_is_given_alone():
    standard = preset("standard")
    mine = Policy.based_on("standard", name="mine", attempts_max=9, rules={"billing": "fail"})
    assert (mine.label, mine.attempts_max) == ("mine/1", 9)
    assert mine.rules == {**standard.rules, Kind.BILLING: FAIL}
    changed = {"name", "version", "attempts_max", "rules"}
    for one in dataclasses.fields(Policy):
        same = getattr(mine, one.name) == getattr(standard, one.name)
        assert same is (one.name not in changed), one.name
    assert Policy.based_on(mine, name="more", version=4).rules == mine.rules
    assert Policy.based_on(mine, name="more", version=4).label == "more/4"


def test_a_group_stands_for_each_of_its_kinds_that_has_no_rule_of_its_own():
    twice = Rule("retry", attempts_max=2)
    for rules in ({"timeout": FAIL, "transient": twice}, {"transient": twice, "timeout": FAIL}):
        policy = Policy("p", rules=rules)
        assert policy.rules == {
            kind: FAIL if kind is Kind.TIMEOUT else twice for kind in GROUPS["transient"]
        }


def test_a_group_is_laid_over_the_rules_of_the_policy_below():
    mine = Policy.based_on("standard", name="mine", rules={"output": "fail", "auth": "retry"})
    assert mine.rules[Kind.INVALID_OUTPUT] == mine.rules[Kind.TRUNCATED_OUTPUT] == FAIL
    assert mine.rules[Kind.AUTH] == RETRY
    assert mine.rules[Kind.BILLING] == preset("standard").rules[Kind.BILLING]


def test_a_list_of_what_is_retried_may_name_a_group():
    listed = Policy("p", retriable=[503, "transient"]).retriable
    assert listed == (503, *sorted(GROUPS["transient"]))
    assert policy_from({"name": "p", "retriable": [503, "transient"]}).retriable == listed


def test_the_kinds_that_nobody_speaks_about_are_known():
    assert Kind.AMBIGUOUS in kinds_left(Policy("p", rules={"network": "retry"}))
    assert kinds_left(Policy("p", rules=dict.fromkeys(RULED, FAIL))) == ()
    assert kinds_left(Policy("p", retriable="all")) == ()
    for kind in kinds_left(preset("standard")):
        assert ruled(preset("standard"), kind)[1] == "otherwise"
    assert Kind.WORKER_LOST not in kinds_left(Policy("p"))  # crashes have a limit, and no rule


def test_a_policy_does_not_change_after_it_is_made():
    rules = {Kind.TIMEOUT: RETRY}
    policy = Policy("p", rules=rules)
    rules[Kind.NETWORK] = RETRY
    assert Kind.NETWORK not in policy.rules
    with pytest.raises(TypeError):
        policy.rules[Kind.NETWORK] = RETRY
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.attempts_max = 9


def test_the_label_is_name_and_version():
    assert Policy("mine", version=7).label == "mine/7"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_found_by_its_own_name(name):
    assert preset(name).name == name


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"no policy preset 'standart'; one of: .*standard"):
        preset("standart")


@pytest.mark.parametrize("kind", [Policy, Rule])
def test_what_a_type_checker_is_told_has_every_field_in_its_order(kind):
    tree = ast.parse(Path(inspect.getfile(kind)).read_text(encoding="utf-8"))
    (defined,) = [
        one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == kind.__name__
    ]
    (told,) = [
        one
        for one in ast.walk(defined)
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    assert [one.arg for one in told.args.args] == [
        "self",
        *(one.name for one in dataclasses.fields(kind)),
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Policy("x", rules={"network": "retyr"}), "rules.network is 'retyr'; did you mean 'retry'? One of: fail, hand_over, "),
        (lambda: Policy.based_on("standard", name="x", atempts_max=3), "policy has no field 'atempts_max'; did you mean 'attempts_max'? One of: "),
        (lambda: Policy("x", backoff=Backoff("expo")), "backoff.curve is 'expo'; did you mean 'exponential'? One of: "),
    ],
)  # fmt: skip
def test_a_misspelt_word_is_answered_with_the_one_that_was_meant(wrong, words):
    with pytest.raises(ConfigError) as told:
        wrong()
    assert str(told.value).startswith(words)
