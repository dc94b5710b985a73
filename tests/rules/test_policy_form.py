"""Policies in files: they round-trip, and what is wrong is named."""

import json
import tomllib

import pytest
import tomli_w
from hypothesis import given, strategies as st

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.matchers import Match
from perdure.rules.policy import RETRY, WAIT, Action, Hints, Policy, Rule
from perdure.rules.policy_form import policy_form, policy_from
from perdure.rules.presets import PRESETS, preset
from perdure.rules.vocabulary import KIND_NAMES, Vocabulary

lengths = st.floats(0.0, 1e6)
counts = st.integers(1, 1000)
backoffs = st.builds(
    Backoff,
    st.sampled_from(["exponential", "linear", "fixed"]),
    base_s=lengths,
    factor=st.floats(1.0, 100.0),
    cap_s=st.none() | lengths,
) | st.builds(
    Backoff, st.just("schedule"), steps_s=st.lists(lengths, min_size=1, max_size=4).map(tuple)
)
jitters = st.builds(
    Jitter,
    st.sampled_from(["none", "proportional", "additive", "full"]),
    ratio=st.floats(0, 1),
    add_s_max=lengths,
)
hints = st.builds(
    Hints,
    st.sampled_from(["floor", "exact", "ignore"]),
    counted=st.booleans(),
    s_max=lengths,
    kinds=st.frozensets(st.sampled_from(Kind)),
)
actions = st.sampled_from([one for one in Action if one is not Action.HAND_OVER])
rules = st.builds(
    Rule,
    actions,
    attempts_max=st.none() | counts,
    backoff=st.none() | backoffs,
    jitter=st.none() | jitters,
    hint=st.none() | hints,
    heed_server=st.none() | st.booleans(),
)
lists = (
    st.none()
    | st.sampled_from(["all", "none"])
    | st.lists(
        st.integers(100, 599) | st.sampled_from(["timeout", "httpx.ReadError"]),
        min_size=1,
        max_size=4,
    ).map(tuple)
)
matches = st.lists(
    st.builds(
        Match, st.sampled_from(Kind), status=st.integers(400, 599), code=st.none() | st.just("x")
    ),
    max_size=3,
).map(tuple)
own_words = Vocabulary("own", dict.fromkeys(Kind, "X"), {"X": Kind.UNKNOWN})
fine_words = Vocabulary(
    "fine",
    kinds={"E1": Kind.AUTH},
    internal={"E2": "E1"},
    stages={"a": {Kind.AUTH: "E1"}},
    statuses={Kind.AUTH: "auth_{status}"},
    wire=True,
)


def _answered(answers, **given):
    """A list and an ``otherwise`` do not go together."""
    return Policy(retriable=answers[0], otherwise=answers[1], **given)


answers = st.tuples(lists, st.just(Rule("fail"))) | st.tuples(st.none(), rules)
policies = st.builds(
    _answered,
    answers,
    name=st.sampled_from(["a", "my-policy"]),
    version=counts,
    attempts_max=counts,
    waits_max=counts,
    wait_s_max=lengths,
    crashes_max=counts,
    deadline_s=st.none() | st.floats(0.001, 1e6),
    scope=st.sampled_from(["stage", "job"]),
    backoff=backoffs,
    jitter=jitters,
    hint=hints,
    rules=st.dictionaries(
        st.sampled_from(sorted(set(Kind) - {Kind.WORKER_LOST})), rules, max_size=4
    ),
    matches=matches,
    vocabulary=st.sampled_from([KIND_NAMES, own_words, fine_words]),
    crash_is_failure=st.booleans(),
    heed_server=st.booleans(),
    weak_share=st.none() | st.floats(0.01, 1.0),
)


@given(policies)
def test_a_policy_survives_json(policy):
    assert policy_from(json.loads(json.dumps(policy_form(policy)))) == policy


@given(policies)
def test_a_policy_survives_toml(policy):
    assert policy_from(tomllib.loads(tomli_w.dumps(policy_form(policy)))) == policy


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_toml(name):
    assert policy_from(tomllib.loads(tomli_w.dumps(policy_form(preset(name))))) == preset(name)


WRONG = [
    ({}, ["policy", "'name'", "must be given"]),
    ({"name": "p", "atempts_max": 3}, ["'atempts_max'", "did you mean 'attempts_max'"]),
    ({"name": "p", "attempts_max": "3"}, ["attempts_max", "'3'", "whole number between 1"]),
    ({"name": "p", "attempts_max": True}, ["attempts_max", "True"]),
    ({"name": "p", "weak_share": 0}, ["weak_share", "0", "between 0.01 and 1"]),
    ({"name": "p", "weak_share": "most"}, ["weak_share", "'most'", "number"]),
    ({"name": "p", "backoff": 5}, ["backoff", "5", "table"]),
    ({"name": "p", "backoff": {"base_s": -1}}, ["backoff.base_s", "-1", "between 0 and"]),
    ({"name": "p", "backoff": {"curve": "log"}}, ["backoff.curve", "'log'", "linear"]),
    ({"name": "p", "backoff": {"step_s": 1}}, ["backoff", "'step_s'", "'steps_s'"]),
    ({"name": "p", "jitter": {"ratio": 2}}, ["jitter.ratio", "2"]),
    ({"name": "p", "hint": {"mode": "late"}}, ["hint.mode", "'late'", "floor"]),
    ({"name": "p", "hint": {"kinds": "some"}}, ["hint.kinds", "'some'"]),
    ({"name": "p", "hint": {"kinds": ["slow"]}}, ["hint.kinds", "'slow'"]),
    ({"name": "p", "rules": {"slow": "retry"}}, ["rules", "'slow'"]),
    ({"name": "p", "rules": {"timeout": "again"}}, ["rule.action", "'again'"]),
    ({"name": "p", "rules": {"timeout": {"attempts_max": 2}}}, ["rules.timeout", "'action'"]),
    (
        {"name": "p", "rules": {"timeout": {"action": "retry", "backoff": {"base_s": -1}}}},
        ["rules.timeout", "backoff.base_s", "-1"],
    ),
    ({"name": "p", "rules": {"timeout": 3}}, ["rules.timeout", "3", "table"]),
    ({"name": "p", "matches": {}}, ["matches", "list"]),
    ({"name": "p", "matches": [{"kind": "timeout"}]}, ["timeout", "matches nothing"]),
    ({"name": "p", "matches": [{"status": 400}]}, ["matches[0]", "'kind'"]),
    ({"name": "p", "vocabulary": "gatway"}, ["vocabulary", "'gatway'", "'gateway'"]),
    ({"name": "p", "vocabulary": {"codes": {"timeout": "T"}}}, ["vocabulary", "no code for"]),
    ({"name": "p", "vocabulary": 3}, ["vocabulary", "3"]),
    ({"name": "p", "own_delay": 3}, ["'own_delay'"]),
    ({"name": "p", "based_on": "standart"}, ["based_on", "'standart'", "standard"]),
    ({"name": "p", "based_on": 3}, ["based_on", "3", "standard"]),
    ({"based_on": "standard"}, ["policy", "'name'", "must be given"]),
    ({"name": "p", "based_on": "standard", "atempts_max": 3}, ["'atempts_max'", "did you mean"]),
    ({"name": "p", "based_on": "standard", "backoff": 5}, ["backoff", "5", "table"]),
    ({"name": "p", "based_on": "standard", "backoff": {"base_s": -1}}, ["backoff.base_s", "-1"]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "named"), WRONG)
def test_what_is_wrong_in_a_file_is_named(form, named):
    with pytest.raises(ConfigError) as caught:
        policy_from(form)
    assert all(word in str(caught.value) for word in named), str(caught.value)


@pytest.mark.parametrize(
    ("form", "mistakes"),
    [
        ({"attempts_max": 0, "deadline_s": 0}, ["lacks", "attempts_max is 0", "deadline_s is 0"]),
        (
            {"name": "p", "rules": {"slow": "retry", "auth": "try"}, "matches": [{}, 3]},
            ["'slow'", "rules.auth", "matches[0]", "matches[1]"],
        ),
        ({"name": "p", "backoff": {"a": 1, "b": 2}, "jitter": 3}, ["'a'", "'b'", "jitter is 3"]),
        # One fact about the profile, however many fields it concerns.
        ({"name": "p", "inline_s_max": 2, "exhausted": "hand_over"}, ["belong to profile 'sync'"]),
        # Whether it is a caller's policy is not known, so nobody says that these are wrong.
        ({"name": "p", "based_on": "x", "inline_s_max": 2, "backoff": {"steps_s": [1]}}, ["based_on"]),
        ({"name": "p", "profile": "sink", "inline_s_max": 2, "weak_share": 0.5}, ["profile is 'sink'"]),
    ],
)  # fmt: skip
def test_all_mistakes_are_told_at_once_and_none_that_is_not_there(form, mistakes):
    with pytest.raises(ConfigError) as caught:
        policy_from(form)
    told = str(caught.value).splitlines()
    assert len(told) == len(mistakes), told
    assert all(word in line for word, line in zip(mistakes, told, strict=True)), told


BASED = """
name = "mine"
based_on = "gateway-sync"
profile = "background"
inline_s_max = "none"
exhausted = "fail"
deadline_s = 900

[backoff]
cap_s = 60

[rules]
transient = "retry"
limits = "wait"
timeout = { action = "retry", attempts_max = 2 }
"""


def test_a_file_may_say_only_what_differs_from_another_policy():
    base, mine = preset("gateway-sync"), policy_from(tomllib.loads(BASED))
    assert (mine.label, mine.deadline_s, mine.inline_s_max) == ("mine/1", 900, None)
    assert mine.backoff == replace(base.backoff, cap_s=60)
    assert (mine.jitter, mine.hint, mine.vocabulary) == (base.jitter, base.hint, base.vocabulary)
    assert mine.rules[Kind.AMBIGUOUS] == RETRY
    assert mine.rules[Kind.TIMEOUT] == Rule("retry", attempts_max=2)
    assert mine.rules[Kind.QUOTA_WINDOW] == WAIT
    assert policy_from(tomllib.loads(tomli_w.dumps(policy_form(mine)))) == mine


@pytest.mark.parametrize("name", PRESETS)
def test_a_file_that_changes_nothing_is_the_policy_below_it(name):
    mine = policy_from({"name": name, "based_on": name, "version": preset(name).version})
    assert mine == preset(name)


def test_a_caller_does_not_wait_until_an_upstream_is_better():
    form = {"name": "p", "based_on": "standard", "profile": "sync", "inline_s_max": 1.0}
    assert policy_from(form).weak_share is None
    for own in (form | {"weak_share": 0.3}, {"name": "p", "profile": "sync", "weak_share": 0.3}):
        with pytest.raises(ConfigError) as told:
            policy_from(own)
        assert str(told.value).startswith("weak_share is 0.3, and this policy's profile is 'sync'")
        assert str(told.value).endswith("leave weak_share out")


def test_a_file_may_take_the_weak_share_from_the_policy_below_or_change_it():
    assert policy_from({"name": "p", "based_on": "standard"}).weak_share == 0.25
    for said, share in (("none", None), (0.5, 0.5)):
        mine = policy_from({"name": "p", "based_on": "standard", "weak_share": said})
        assert mine.weak_share == share
        assert policy_from(tomllib.loads(tomli_w.dumps(policy_form(mine)))) == mine


def test_another_curve_does_not_keep_the_steps_of_the_one_below():
    steps = next(one.policy for one in PRESETS.values() if one.policy.backoff.steps_s)
    form = {"name": "p", "based_on": steps.name, "backoff": {"curve": "fixed", "base_s": 9}}
    assert policy_from(form).backoff == replace(steps.backoff, curve="fixed", base_s=9, steps_s=())


def test_code_cannot_be_written_down():
    with pytest.raises(ConfigError, match="own_delay"):
        policy_form(Policy("p", own_delay=lambda failures, kind: 1.0))


def test_an_own_vocabulary_must_name_a_kind_for_each_code():
    codes = {kind.value: "X" for kind in Kind}
    with pytest.raises(ConfigError, match="names no kind for the codes: X"):
        policy_from({"name": "p", "vocabulary": {"codes": codes, "kinds": {}}})
