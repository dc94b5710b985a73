"""What to do about a verdict: the table, the exact limits, the words, and that it is total."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, strategies as st

from perdure.model.decisions import (
    CancelJob,
    Counted,
    Fail,
    HandOver,
    Hold,
    Release,
    Retry,
    Succeed,
)
from perdure.model.errors import ConfigError
from perdure.model.jobs import ZERO, Counters
from perdure.model.kinds import KINDS, Blame, Kind, PauseScope
from perdure.model.limits import DELAY_S_MAX
from perdure.model.nouns import replace
from perdure.model.outcomes import Origin
from perdure.model.states import FailedReason
from perdure.model.verdicts import Failure, Handback, Overdue, Pause, Stop, Success
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.decide import FLOWING, GateView, Standing, decide
from perdure.rules.policy import RULED, Action, Hints, Policy, Rule
from perdure.rules.presets import PRESETS, preset
from perdure.rules.rule_choice import rule_for
from perdure.rules.sentence import whole_units

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MIDDLE = 0.5  # the chance at which proportional jitter adds nothing

PLAIN = Policy(
    "plain", version=2, attempts_max=3, waits_max=2, wait_s_max=100.0, crashes_max=3,
    snoozes_max=2, hint=Hints(s_max=60.0, kinds=frozenset(Kind)),
    backoff=Backoff("exponential", base_s=1.0, factor=2.0, cap_s=30.0),
    jitter=Jitter("proportional", ratio=0.5),
    rules={
        Kind.NETWORK: Rule("retry"),
        Kind.RATE_LIMITED: Rule("wait"),
        Kind.UNKNOWN: Rule("retry", attempts_max=2),
        Kind.TIMEOUT: Rule(
            "retry", attempts_max=9, backoff=Backoff("fixed", base_s=7.0), jitter=Jitter("none")
        ),
        Kind.OVERLOADED: Rule("wait", hint=Hints("exact")),
    },
)  # fmt: skip

NETWORK = Failure(Kind.NETWORK, "python class", "reset")
LIMITED = Failure(Kind.RATE_LIMITED, "http status", "HTTP 429")
BAD = Failure(Kind.INPUT_INVALID, "stated by the stage", "no pages")
LOST = Failure(Kind.WORKER_LOST, "worker lost", "the worker was killed by SIGKILL")
APART = Failure(
    Kind.WORKER_LOST,
    "stage process lost",
    "the process in which the stage ran exited with status 9",
    apart=True,
)


def decided(
    verdict,
    *,
    policy=PLAIN,
    past=ZERO,
    deadline_s=None,
    gate=FLOWING,
    now=NOW,
    chance=MIDDLE,
    **counters,
):
    deadline_at = None if deadline_s is None else NOW + timedelta(seconds=deadline_s)
    standing = Standing(Counters(**counters), past, deadline_at)
    return decide(standing, verdict, policy, gate, now, chance)


def hinted(failure, hint_s):
    return Failure(failure.kind, failure.rule, failure.detail, hint_s)


@dataclass(frozen=True)
class Case:
    """Counters before the event, the verdict, and what comes of it."""

    verdict: object
    counters: dict
    expected: tuple
    text: str


F, W, C, S = Counted.FAILURES, Counted.WAITS, Counted.CRASHES, Counted.SNOOZES
CASES = {
    "first failure": Case(
        NETWORK, {}, (1.0, F),
        "retry in 1 s: network (the connection failed before an answer came); attempt 1 of 3 failed",
    ),
    "second failure": Case(
        NETWORK, {"failures": 1}, (2.0, F),
        "retry in 2 s: network (the connection failed before an answer came); attempt 2 of 3 failed",
    ),
    "failure at the limit": Case(
        NETWORK, {"failures": 2}, (FailedReason.EXHAUSTED, F),
        "fail: network (the connection failed before an answer came); attempt 3 of 3 was the last",
    ),
    "failure beyond the limit": Case(
        NETWORK, {"failures": 7}, (FailedReason.EXHAUSTED, F),
        "fail: network (the connection failed before an answer came); attempt 8 failed, and 3 are allowed when it fails like this",
    ),
    "other counters do not count": Case(
        NETWORK, {"waits": 9, "crashes": 2, "snoozes": 9, "releases": 9, "starts": 30}, (1.0, F),
        "retry in 1 s: network (the connection failed before an answer came); attempt 1 of 3 failed",
    ),
    "not retried": Case(
        BAD, {}, (FailedReason.FATAL, F),
        "fail: input_invalid (the item itself is broken or of the wrong form); "
        "this kind is not retried",
    ),
    "a kind's own limit": Case(
        Failure(Kind.UNKNOWN, "nobody knew"), {"failures": 1}, (FailedReason.EXHAUSTED, F),
        "fail: unknown (the failure is of a kind that nobody has named yet); "
        "attempt 2 of 2 was the last",
    ),
    "a kind's own curve and limit": Case(
        Failure(Kind.TIMEOUT, "stage timeout"), {"failures": 5}, (7.0, F),
        "retry in 7 s: timeout (no answer came within the time allowed); attempt 6 of 9 failed",
    ),
    "first wait": Case(
        LIMITED, {}, (1.0, W),
        "retry in 1 s: rate_limited (the upstream asked us to slow down); "
        "attempt not counted, wait 1 of 2",
    ),
    "a wait after failures": Case(
        LIMITED, {"failures": 2}, (1.0, W),
        "retry in 1 s: rate_limited (the upstream asked us to slow down); "
        "attempt not counted, wait 1 of 2",
    ),
    "a hint above the backoff": Case(
        hinted(LIMITED, 17.25), {"waits": 1}, (17.25, W),
        "retry in 17.2 s: rate_limited (the upstream asked us to slow down), the server asked for "
        "17.2 s; attempt not counted, wait 2 of 2",
    ),
    "a hint below the backoff": Case(
        hinted(NETWORK, 0.5), {"failures": 1}, (2.0, F),
        "retry in 2 s: network (the connection failed before an answer came), the server asked for 0.5 s; "
        "attempt 2 of 3 failed",
    ),
    "an exact hint below the backoff": Case(
        hinted(Failure(Kind.OVERLOADED, "http status"), 0.5), {"waits": 1}, (0.5, W),
        "retry in 0.5 s: overloaded (the upstream is overloaded for everybody), the server asked "
        "for 0.5 s; attempt not counted, wait 2 of 2",
    ),
    "one wait too many": Case(
        LIMITED, {"waits": 2, "waited_s": 31.5}, (FailedReason.EXHAUSTED, W),
        "fail: rate_limited (the upstream asked us to slow down); waited 2 times and 31.5 s in all, "
        "the policy allows 2 times and 100 s",
    ),
    "waited too long in all": Case(
        hinted(LIMITED, 60.0), {"waits": 1, "waited_s": 40.5}, (FailedReason.EXHAUSTED, W),
        "fail: rate_limited (the upstream asked us to slow down); waited 1 times and 40.5 s in all, "
        "the policy allows 2 times and 100 s",
    ),
    "a hint over its cap": Case(
        hinted(LIMITED, 60.5), {}, (FailedReason.EXHAUSTED, F),
        "fail: rate_limited (the upstream asked us to slow down); the server asked for 60.5 s, "
        "more than the policy accepts",
    ),
    "first crash": Case(
        LOST, {}, (0.0, C),
        "retry at once: the worker was killed by SIGKILL, crash 1 of 3; it will run beside other "
        "suspects",
    ),
    "second crash": Case(
        LOST, {"crashes": 1}, (0.0, C),
        "retry at once: the worker was killed by SIGKILL, crash 2 of 3; "
        "it will run alone in a process of its own",
    ),
    "crash at the limit": Case(
        LOST, {"crashes": 2}, (FailedReason.CRASHED, C),
        "fail: the worker was killed by SIGKILL, crash 3 of 3 was the last",
    ),
    "a crash in the stage's own process": Case(
        APART, {"crashes": 1}, (0.0, C),
        "retry at once: the process in which the stage ran exited with status 9, crash 2 of 3; it will run in a "
        "new process",
    ),
    "the last crash in the stage's own process": Case(
        APART, {"crashes": 2}, (FailedReason.CRASHED, C),
        "fail: the process in which the stage ran exited with status 9, crash 3 of 3 was the last",
    ),
    "failures do not make a crash worse": Case(
        LOST, {"failures": 2}, (0.0, C),
        "retry at once: the worker was killed by SIGKILL, crash 1 of 3; it will run beside other "
        "suspects",
    ),
    "a snooze": Case(
        Pause(12.0, "the batch runs"), {}, (12.0, S),
        "again in 12 s: the stage asked for it (the batch runs)",
    ),
    "the last snooze": Case(
        Pause(0.0), {"snoozes": 1}, (0.0, S), "again in 0 s: the stage asked for it",
    ),
    "one snooze too many": Case(
        Pause(1.0), {"snoozes": 2}, (FailedReason.EXHAUSTED, S),
        "fail: the stage snoozed more than 2 times",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_standing_and_a_verdict_give_this_decision(name):
    case = CASES[name]
    decision = decided(case.verdict, **case.counters)
    if isinstance(decision, Retry):
        assert (decision.delay_s, decision.counted) == case.expected
    else:
        assert isinstance(decision, Fail)
        assert (decision.reason, decision.counted) == case.expected
    assert decision.why.text == case.text
    assert decision.why.policy == "plain/2"


def test_success_keeps_value_and_label():
    decision = decided(Success('{"a":1}', "passed"), failures=2)
    assert isinstance(decision, Succeed)
    assert (decision.value_json, decision.label) == ('{"a":1}', "passed")
    assert decision.why.text == "done"


@pytest.mark.parametrize(
    ("verdict", "kind", "text"),
    [
        (Stop("obsolete"), CancelJob, "cancelled (obsolete)"),
        (Stop(), CancelJob, "cancelled"),
        (
            Handback("shutdown"),
            Release,
            "given back unfinished (shutdown); nothing counted",
        ),
        (Handback(), Release, "given back unfinished; nothing counted"),
    ],
)
def test_cancel_and_release_say_why(verdict, kind, text):
    decision = decided(verdict, failures=99, crashes=99, deadline_s=-1)
    assert isinstance(decision, kind)
    assert decision.why.text == text


# -- limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_the_attempts_of_a_job_are_exactly_the_limit(limit):
    policy = Policy("p", attempts_max=limit, otherwise=Rule("retry"))
    counters, tries = ZERO, 0
    while True:
        tries += 1
        decision = decide(Standing(counters), NETWORK, policy, FLOWING, NOW, MIDDLE)
        counters = counters.after_event(decision.counted)
        if isinstance(decision, Fail):
            break
    assert tries == limit
    assert counters.failures == limit


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_crashes_of_a_job_are_exactly_the_limit(limit):
    policy = Policy("p", crashes_max=limit)
    ends = [isinstance(decided(LOST, policy=policy, crashes=n), Fail) for n in range(limit + 1)]
    assert ends == [False] * (limit - 1) + [True, True]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_job_waits_as_often_as_the_limit_and_not_once_more(limit):
    policy = Policy("p", waits_max=limit, otherwise=Rule("wait"))
    ends = [isinstance(decided(LIMITED, policy=policy, waits=n), Fail) for n in range(limit + 2)]
    assert ends == [False] * limit + [True, True]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_job_snoozes_as_often_as_the_limit_and_not_once_more(limit):
    policy = Policy("p", snoozes_max=limit)
    ends = [isinstance(decided(Pause(1), policy=policy, snoozes=n), Fail) for n in range(limit + 2)]
    assert ends == [False] * limit + [True, True]


def test_the_total_wait_may_reach_its_bound_but_not_pass_it():
    assert isinstance(decided(hinted(LIMITED, 60.0), waited_s=40.0), Retry)
    assert isinstance(decided(hinted(LIMITED, 60.0), waited_s=40.001), Fail)


def test_a_crash_that_is_a_failure_too_ends_the_job_at_either_limit():
    policy = Policy("reports", attempts_max=4, crashes_max=3, crash_is_failure=True)
    fine = decided(LOST, policy=policy, failures=2)
    last = decided(LOST, policy=policy, failures=3)
    poison = decided(LOST, policy=policy, crashes=2, failures=2)
    assert isinstance(fine, Retry)
    assert (last.reason, last.counted) == (FailedReason.EXHAUSTED, Counted.CRASHES)
    assert last.why.text == (
        "fail: the worker was killed by SIGKILL; a crash counts as a failure here, "
        "and attempt 4 of 4 was the last"
    )
    assert poison.reason is FailedReason.CRASHED


SUMS = [
    (NETWORK, {"failures": 1}, {"failures": 1}),
    (LIMITED, {"waits": 1}, {"waits": 1}),
    (hinted(LIMITED, 60.0), {"waited_s": 20.0}, {"waited_s": 21.0}),
    (LOST, {"crashes": 1}, {"crashes": 1}),
]


@pytest.mark.parametrize(("verdict", "now", "past"), SUMS)
def test_the_scope_says_whose_counters_the_limits_look_at(verdict, now, past):
    by_stage = PLAIN
    by_job = Policy(
        "j",
        attempts_max=3,
        waits_max=2,
        wait_s_max=100.0,
        crashes_max=3,
        hint=PLAIN.hint,
        scope="job",
        rules=PLAIN.rules,
    )
    earlier = Counters(**past)
    assert isinstance(decided(verdict, policy=by_stage, past=earlier, **now), Retry)
    assert isinstance(decided(verdict, policy=by_job, past=earlier, **now), Fail)


def test_a_snooze_is_counted_by_stage_in_either_scope():
    policy = Policy("j", snoozes_max=2, scope="job")
    assert isinstance(decided(Pause(1), policy=policy, past=Counters(snoozes=9)), Retry)


# -- hints -------------------------------------------------------------------------------


def with_hints(mode, jitter=None):
    return Policy(
        "h",
        hint=Hints(mode, s_max=60.0, kinds=frozenset(Kind)),
        backoff=Backoff("fixed", base_s=10.0),
        jitter=jitter or Jitter("proportional", ratio=1.0),
        otherwise=Rule("retry"),
    )


@pytest.mark.parametrize(
    ("mode", "hint_s", "chance", "delay_s", "is_hinted"),
    [
        ("floor", 30.0, 0.0, 30.0, True),
        ("floor", 30.0, 0.99, 30.0, True),
        ("floor", 5.0, 0.0, 5.0, True),
        ("floor", 5.0, 0.5, 10.0, False),
        ("floor", 10.0, 0.5, 10.0, True),
        ("floor", 0.0, 0.5, 10.0, False),
        ("exact", 30.0, 0.0, 30.0, True),
        ("exact", 5.0, 0.99, 5.0, True),
        ("exact", 0.0, 0.5, 10.0, False),
        ("ignore", 30.0, 0.5, 10.0, False),
        ("ignore", 10.0, 0.5, 10.0, False),
        ("ignore", 5.0, 0.0, 0.0, False),
        ("floor", 60.0, 0.5, 60.0, True),
    ],
)
def test_the_mode_says_what_a_hint_does(mode, hint_s, chance, delay_s, is_hinted):
    decision = decided(hinted(NETWORK, hint_s), policy=with_hints(mode), chance=chance)
    assert (decision.delay_s, decision.hinted) == (delay_s, is_hinted)
    assert decision.why.hint_s == hint_s


@pytest.mark.parametrize(
    ("hint_s", "delay_s", "is_hinted"), [(5.0, 5.0, True), (None, 10.0, False)]
)
def test_what_is_handed_over_waits_for_the_hint_or_as_a_retry_would(hint_s, delay_s, is_hinted):
    policy = replace(with_hints("floor"), profile="sync", otherwise=Rule("hand_over"))
    decision = decided(hinted(NETWORK, hint_s), policy=policy)
    assert (decision.delay_s, decision.hinted) == (delay_s, is_hinted)


def test_why_a_handed_over_job_rests_as_long_as_it_does_is_kept_as_for_a_retry():
    policy = Policy(
        "p",
        profile="sync",
        otherwise=Rule("hand_over"),
        backoff=Backoff("fixed", base_s=0.3, cap_s=None),
        jitter=Jitter("additive", add_s_max=0.5),
        own_delay=lambda failures, kind: "soon",
    )
    decision = decided(NETWORK, policy=policy, chance=0.5)
    assert isinstance(decision, HandOver)
    assert (decision.why.base_s, decision.why.jitter_s) == pytest.approx((0.3, 0.25))
    assert decision.delay_s == pytest.approx(0.55)
    told = "own_delay answered 'soon', so the policy's curve was used"
    assert told in decision.why.text
    assert told not in decision.why.public  # what a user's code says is for those who run it


def test_without_a_hint_every_mode_backs_off():
    for mode in ("floor", "exact", "ignore"):
        decision = decided(NETWORK, policy=with_hints(mode))
        assert (decision.delay_s, decision.hinted) == (10.0, False)


@pytest.mark.parametrize("mode", ["floor", "exact"])
def test_a_hint_over_the_cap_ends_the_job_as_exhausted(mode):
    decision = decided(hinted(NETWORK, 60.001), policy=with_hints(mode))
    assert (decision.reason, decision.kind) == (FailedReason.EXHAUSTED, Kind.NETWORK)
    assert decision.why.hint_s == 60.001


def test_a_hint_that_is_ignored_cannot_end_the_job():
    assert decided(hinted(NETWORK, 1e9), policy=with_hints("ignore")).delay_s == 10.0


def test_a_hint_does_not_save_what_is_not_retried():
    assert decided(hinted(BAD, 5.0)).reason is FailedReason.FATAL


def test_the_decision_shows_how_its_delay_came_about():
    why = decided(hinted(NETWORK, 0.25), failures=1, chance=0.75).why
    assert (why.base_s, why.jitter_s, why.hint_s) == (2.0, 0.5, 0.25)
    assert (why.rule, why.matched) == ("rules.network", "python class")


def test_a_fatal_decision_shows_the_gate():
    assert decided(BAD, gate=GateView("held")).why.gate == "held"


# -- deadlines ---------------------------------------------------------------------------


def test_a_retry_that_would_start_exactly_at_the_deadline_is_made():
    assert isinstance(decided(NETWORK, deadline_s=1.0), Retry)


@pytest.mark.parametrize("verdict", [NETWORK, LIMITED, Pause(1.0)])
def test_a_retry_that_would_start_after_the_deadline_expires_the_job(verdict):
    decision = decided(verdict, deadline_s=0.999)
    assert isinstance(decision, Fail)
    assert decision.reason is FailedReason.EXPIRED
    assert decision.why.text.startswith(
        "fail: the deadline would pass before the next try; otherwise: "
    )


@pytest.mark.parametrize("failures", [0, 2])  # with tries left, and without
def test_a_deadline_that_passed_while_the_stage_ran_is_named_with_its_moment(failures):
    slow = Failure(Kind.TIMEOUT, "stage timeout", "no end within 60 s")
    passed = f"the deadline passed at {NOW:%Y-%m-%d %H:%M:%S} UTC"
    assert passed in decided(slow, deadline_s=0, failures=failures).why.text
    assert "the deadline passed" not in decided(slow, deadline_s=0.5, failures=failures).why.text
    assert "the deadline" not in decided(BAD, deadline_s=0).why.text  # that is not why


def test_what_expires_keeps_its_kind_and_counter():
    decision = decided(LIMITED, deadline_s=0)
    assert (decision.kind, decision.counted) == (Kind.RATE_LIMITED, Counted.WAITS)
    assert decided(Pause(5), deadline_s=0).kind is Kind.TIMEOUT


def test_a_crash_past_the_deadline_expires_the_job():
    assert decided(LOST, deadline_s=-1).reason is FailedReason.EXPIRED
    assert isinstance(decided(LOST, deadline_s=0), Retry)


def test_what_fails_anyway_does_not_expire():
    assert decided(BAD, deadline_s=-1).reason is FailedReason.FATAL
    assert decided(NETWORK, deadline_s=-1, failures=2).reason is FailedReason.EXHAUSTED


def test_what_was_not_begun_because_its_deadline_had_passed_says_so():
    decision = decided(Overdue(), deadline_s=-1, failures=2)
    assert (decision.reason, decision.counted) == (FailedReason.EXPIRED, None)
    assert decision.why.text == (
        "fail: the deadline had passed before the stage could begin; nothing was tried"
    )


def test_a_success_after_the_deadline_is_a_success():
    assert isinstance(decided(Success("1"), deadline_s=-1), Succeed)


# -- everything --------------------------------------------------------------------------

lengths = st.floats(0.0, DELAY_S_MAX)
counts = st.integers(0, 2**40)
counters = st.builds(
    Counters,
    starts=counts,
    failures=counts,
    waits=counts,
    crashes=counts,
    snoozes=counts,
    probes=counts,
    releases=counts,
    waited_s=st.floats(0, 1e12),
)
backoffs = st.builds(
    Backoff,
    st.sampled_from(["exponential", "linear", "fixed"]),
    base_s=lengths,
    factor=st.floats(1.0, 100.0),
    cap_s=st.none() | lengths,
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
rules = st.builds(
    Rule,
    st.sampled_from([one for one in Action if one is not Action.HAND_OVER]),
    attempts_max=st.none() | st.integers(1, 100),
    backoff=st.none() | backoffs,
    jitter=st.none() | jitters,
    hint=st.none() | hints,
)
limits = st.integers(1, 1_000_000)
policies = st.builds(
    Policy,
    name=st.just("any"),
    attempts_max=limits,
    waits_max=limits,
    wait_s_max=lengths,
    crashes_max=limits,
    snoozes_max=limits,
    backoff=backoffs,
    jitter=jitters,
    hint=hints,
    rules=st.dictionaries(st.sampled_from(RULED), rules, max_size=5),
    otherwise=rules,
    scope=st.sampled_from(["stage", "job"]),
    crash_is_failure=st.booleans(),
)
standings = st.builds(
    Standing,
    counters,
    counters,
    st.none() | st.floats(-1e6, 1e9).map(lambda s: NOW + timedelta(seconds=s)),
)
failures = st.builds(
    Failure,
    st.sampled_from(Kind),
    st.just("a rule"),
    st.text(max_size=20),
    st.none() | st.floats(0, 1e12),
)
verdicts = st.one_of(
    failures,
    st.builds(Success, st.just("1")),
    st.builds(Pause, st.floats(), st.text(max_size=20)),
    st.builds(Stop, st.text(max_size=20)),
    st.builds(Handback, st.text(max_size=20)),
)
chances = st.floats(0.0, 1.0, exclude_max=True)


@given(standings, verdicts, policies, st.sampled_from(["flowing", "held"]), chances)
def test_every_verdict_of_every_job_under_every_policy_has_a_decision(
    standing, verdict, policy, gate, chance
):
    decision = decide(standing, verdict, policy, GateView(gate), NOW, chance)
    assert isinstance(decision, Succeed | Retry | Fail | CancelJob | Release)
    assert decision.why.text
    assert decision.why.policy == "any/1"
    if isinstance(decision, Retry):
        assert 0.0 <= decision.delay_s <= 2 * DELAY_S_MAX
        at = NOW + timedelta(seconds=decision.delay_s)
        assert standing.deadline_at is None or at <= standing.deadline_at


def asked(mode: str, action: str, backoff: Backoff, jitter: Jitter, hint_s: float, chance: float):
    """The delay under a policy that allows everything."""
    policy = Policy(
        "h",
        hint=Hints(mode, s_max=DELAY_S_MAX, kinds=frozenset(Kind)),
        attempts_max=9,
        wait_s_max=DELAY_S_MAX,
        backoff=backoff,
        jitter=jitter,
        otherwise=Rule(action),
    )
    decision = decided(hinted(NETWORK, hint_s), policy=policy, chance=chance)
    assume(isinstance(decision, Retry))  # the sum of all waits has a bound, too
    return decision.delay_s


actions = st.sampled_from(["retry", "wait"])


@given(actions, backoffs, jitters, lengths, chances)
def test_a_retry_is_never_earlier_than_its_hint_nor_than_its_backoff(
    action, backoff, jitter, hint_s, chance
):
    delay_s = asked("floor", action, backoff, jitter, hint_s, chance)
    assert delay_s >= hint_s
    assert delay_s >= asked("ignore", action, backoff, jitter, hint_s, chance)


@given(actions, backoffs, jitters, lengths, chances)
def test_an_exact_hint_is_the_delay(action, backoff, jitter, hint_s, chance):
    assert asked("exact", action, backoff, jitter, hint_s or 1.0, chance) == (hint_s or 1.0)


def ends_late(decision, counters: Counters, policy: Policy, rule: Rule) -> bool:
    """Whether a retry breaks one of the limits."""
    after = counters.after_event(decision.counted, waited_s=decision.delay_s)
    return (
        after.failures >= (rule.attempts_max or policy.attempts_max)
        if decision.counted is Counted.FAILURES
        else after.waits > policy.waits_max or after.waited_s > policy.wait_s_max * (1 + 1e-9)
        if decision.counted is Counted.WAITS
        else after.crashes >= policy.crashes_max
    )


small = st.integers(0, 6)


@given(
    st.builds(Counters, failures=small, waits=small, crashes=small, waited_s=st.floats(0, 500)),
    failures,
    chances,
)
def test_no_retry_is_given_beyond_a_limit(counters, failure, chance):
    decision = decide(Standing(counters), failure, PLAIN, FLOWING, NOW, chance)
    assert isinstance(decision, Fail) or not ends_late(
        decision, counters, PLAIN, rule_for(PLAIN, failure)[0]
    )


def test_one_retry_too_many_would_be_caught():
    lenient = Policy("lenient", attempts_max=4, otherwise=Rule("retry"))
    decision = decided(NETWORK, policy=lenient, failures=2)
    assert isinstance(decision, Retry)
    assert ends_late(decision, Counters(failures=2), PLAIN, rule_for(PLAIN, NETWORK)[0])


@given(standings, verdicts, policies, chances)
def test_the_same_question_always_has_the_same_answer(standing, verdict, policy, chance):
    once, again = (decide(standing, verdict, policy, FLOWING, NOW, chance) for _ in range(2))
    assert repr(once) == repr(again)


@pytest.mark.parametrize("kind", Kind)
def test_the_standard_preset_has_an_answer_for_each_kind(kind):
    decision = decided(Failure(kind, "a rule", "the worker went silent"), policy=preset("standard"))
    if isinstance(decision, Retry):
        by_person = kind in (Kind.BILLING, Kind.AUTH)
        usual_s = 60.0 if by_person else 2.0
        assert decision.delay_s == (0.0 if kind is Kind.WORKER_LOST else usual_s)
    else:
        assert decision.reason is FailedReason.FATAL


# -- gates, the server's word, holding and handing over ----------------------------------


@pytest.mark.parametrize("state", ["held", "probing"])
def test_a_failure_of_the_upstream_behind_a_gate_is_a_wait(state):
    decision = decided(NETWORK, gate=GateView(state), failures=2)
    assert (type(decision), decision.counted) == (Retry, Counted.WAITS)
    assert decision.why.gate == state


WEAK = replace(PLAIN, weak_share=0.25)
HALF = GateView(failed=11, known=20)


def test_while_the_upstream_fails_many_calls_its_failure_is_a_wait_with_the_share_in_words():
    decision = decided(NETWORK, policy=WEAK, gate=HALF, failures=2, waits=1)
    assert (type(decision), decision.counted) == (Retry, Counted.WAITS)
    assert decision.delay_s == 1.0  # the first delay, however often it has waited
    assert (
        "11 of the last 20 calls that count failed: attempt not counted, wait 2 of 2"
        in decision.why.text
    )


def test_behind_a_held_gate_a_job_that_has_waited_often_does_not_wait_the_longer():
    """Its short waits for a weak upstream made it five minutes, and the gate flowed again after two seconds."""
    decision = decided(NETWORK, policy=WEAK, gate=GateView("held"), waits=1)
    assert (decision.counted, decision.delay_s) == (Counted.WAITS, 1.0)
    patient = decided(NETWORK, policy=PLAIN, gate=GateView("held"), waits=1)
    assert patient.delay_s > 1.0


@pytest.mark.parametrize(
    ("policy", "gate", "grows"),
    [
        ("WEAK", GateView(failed=0, known=1), False),  # the pace of its gate spares the upstream
        ("WEAK", GateView(), True),  # nobody else does
        ("PLAIN", GateView(failed=0, known=20), True),
    ],
)
def test_a_wait_is_as_long_as_the_first_where_a_pace_spares_the_upstream(policy, gate, grows):
    waits = replace({"WEAK": WEAK, "PLAIN": PLAIN}[policy], otherwise=Rule("wait"), rules={})
    first = decided(NETWORK, policy=waits, gate=gate)
    second = decided(NETWORK, policy=waits, gate=gate, waits=1)
    assert (second.delay_s > first.delay_s) is grows


@pytest.mark.parametrize(
    ("failed", "known", "counted"),
    [
        (4, 20, Counted.FAILURES),
        (5, 20, Counted.WAITS),
        (20, 20, Counted.WAITS),
        (0, 0, Counted.FAILURES),
    ],
)
def test_the_share_is_reached_exactly(failed, known, counted):
    gate = GateView(failed=failed, known=known)
    assert decided(NETWORK, policy=WEAK, gate=gate).counted is counted


@pytest.mark.parametrize(
    "spent", [{"waits": 2}, {"waits": 1, "waited_s": 100.0}, {"waits": 1, "waited_s": 99.5}]
)
def test_a_job_that_has_waited_as_often_or_as_long_as_it_may_pays_again(spent):
    decision = decided(NETWORK, policy=WEAK, gate=HALF, **spent)
    assert (type(decision), decision.counted) == (Retry, Counted.FAILURES)
    assert "attempt 1 of 3 failed" in decision.why.text
    last = decided(NETWORK, policy=WEAK, gate=HALF, failures=2, **spent)
    assert (type(last), last.reason) == (Fail, FailedReason.EXHAUSTED)


def test_an_item_that_always_fails_costs_its_waits_and_then_its_attempts():
    """Two waits and three attempts: five calls, where a healthy upstream would see three."""
    waits = failures = calls = 0
    while True:
        calls += 1
        decision = decided(NETWORK, policy=WEAK, gate=HALF, waits=waits, failures=failures)
        if isinstance(decision, Fail):
            break
        waits += decision.counted is Counted.WAITS
        failures += decision.counted is Counted.FAILURES
    assert calls == 5


@pytest.mark.parametrize("kind", [kind for kind in Kind if KINDS[kind].blame is not Blame.UPSTREAM])
def test_what_the_upstream_is_not_to_blame_for_counts_however_weak_it_is(kind):
    policy = replace(WEAK, otherwise=Rule("retry"), rules={})
    failure = Failure(kind, "test")
    weak = decided(failure, policy=policy, gate=HALF)
    assert weak == decided(failure, policy=policy, gate=FLOWING)


def test_what_the_policy_would_not_try_again_fails_however_weak_the_upstream_is():
    policy = replace(WEAK, rules={Kind.NETWORK: Rule("fail")})
    assert isinstance(decided(NETWORK, policy=policy, gate=HALF), Fail)


def test_a_hint_binds_the_job_that_met_it_while_the_upstream_is_weak_too():
    failure = Failure(Kind.NETWORK, "test", hint_s=30.0)
    assert decided(failure, policy=WEAK, gate=HALF).delay_s == 30.0


def test_a_hint_over_the_cap_ends_the_job_however_weak_the_upstream_is():
    failure = Failure(Kind.NETWORK, "test", hint_s=60.5)
    decision = decided(failure, policy=WEAK, gate=HALF)
    assert (decision.reason, decision.why.rule) == (FailedReason.EXHAUSTED, "hint.s_max")
    assert decision.hold == Hold(PauseScope.UPSTREAM)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "standard"])
@pytest.mark.parametrize("kind", [Kind.UPSTREAM_ERROR, Kind.TIMEOUT])
def test_the_presets_of_others_decide_the_same_however_weak_the_upstream_is(name, kind):
    failure, policy = Failure(kind, "test"), preset(name)
    weak = decided(failure, policy=policy, gate=HALF)
    assert weak == decided(failure, policy=policy, gate=FLOWING)


def test_a_failure_that_is_not_the_upstreams_counts_behind_a_gate_too():
    policy = Policy("p", otherwise=Rule("retry"))
    decision = decided(
        Failure(Kind.INVALID_OUTPUT, "test"), policy=policy, gate=GateView("held"), failures=0
    )
    assert decision.counted is Counted.FAILURES


def test_a_probe_that_fails_costs_its_job_nothing():
    decision = decided(NETWORK, gate=GateView("probing", probe=True), failures=2, waits=2)
    assert (type(decision), decision.counted, decision.delay_s) == (Retry, Counted.PROBES, 0.0)


def test_a_probe_that_fails_counts_where_it_tells_of_the_job():
    gate = GateView("probing", probe=True, of_job=True)
    decision = decided(NETWORK, gate=gate)
    assert (type(decision), decision.counted, decision.why.gate) == (
        Retry,
        Counted.FAILURES,
        "probing",
    )
    assert decision.why.text.endswith(
        "attempt 1 of 3 failed; it was the gate's probe, and counts: others were answered since this job first failed"
    )
    assert decision.delay_s == decided(NETWORK).delay_s
    last = decided(NETWORK, gate=gate, failures=2)
    assert (type(last), last.reason) == (Fail, FailedReason.EXHAUSTED)


def test_the_servers_word_that_it_is_useless_ends_it():
    refused = Failure(Kind.NETWORK, "test", server_says=False)
    decision = decided(refused)
    assert decision.reason is FailedReason.FATAL
    assert "the server says" in decision.why.text
    stubborn = Policy("p", heed_server=False, otherwise=Rule("retry"))
    assert isinstance(decided(refused, policy=stubborn), Retry)


def test_a_rule_may_heed_the_server_or_not_whatever_its_policy_does():
    refused = Failure(Kind.NETWORK, "test", server_says=False)
    deaf = Policy(
        "p", rules={Kind.NETWORK: Rule("retry", heed_server=False), Kind.TIMEOUT: "retry"}
    )
    assert isinstance(decided(refused, policy=deaf), Retry)
    other = Failure(Kind.TIMEOUT, "test", server_says=False)
    assert decided(other, policy=deaf).why.rule == "heed_server"
    rules = {Kind.NETWORK: Rule("retry", heed_server=True)}
    hearing = Policy("p", heed_server=False, rules=rules, otherwise=Rule("retry"))
    assert decided(refused, policy=hearing).why.rule == "heed_server"
    assert isinstance(decided(other, policy=hearing), Retry)


@pytest.mark.parametrize("kind", [Kind.AUTH, Kind.BILLING])
def test_the_servers_word_that_it_is_useless_fails_no_item_where_the_credential_is_held(kind):
    refused = Failure(kind, "test", server_says=False)
    decision = decided(refused, policy=preset("standard"))
    assert (type(decision), decision.hold) == (Retry, Hold(PauseScope.CREDENTIAL))
    heeding = Policy("p", rules={kind: Rule("hold", heed_server=True)})
    assert decided(refused, policy=heeding).why.rule == "heed_server"


@pytest.mark.parametrize("kind", [one for one in RULED if KINDS[one].scope is not PauseScope.JOB])
def test_the_servers_word_that_it_is_useless_fails_no_item_where_others_are_held_too(kind):
    refused = Failure(kind, "test", server_says=False)
    decision = decided(refused, policy=Policy("p", otherwise="hold"))
    assert (type(decision), decision.hold) == (Retry, Hold(KINDS[kind].scope))


@pytest.mark.parametrize("kind", [one for one in RULED if KINDS[one].scope is PauseScope.JOB])
def test_the_servers_word_that_it_is_useless_ends_what_is_held_for_nobody_else(kind):
    holding = Policy("p", otherwise="hold")
    refused = Failure(kind, "test", server_says=False)
    assert decided(refused, policy=holding).why.rule == "heed_server"
    assert isinstance(decided(Failure(kind, "test"), policy=holding), Retry)


@pytest.mark.parametrize("gate", [GateView("held"), GateView("probing", probe=True)])
def test_the_servers_word_that_it_is_useless_ends_it_behind_a_gate_too(gate):
    refused = Failure(Kind.NETWORK, "test", server_says=False)
    assert decided(refused, gate=gate).reason is FailedReason.FATAL


UNSTORABLE = Failure(Kind.INTERNAL, "result cannot be stored", "the result is a set", final=True)


@pytest.mark.parametrize("gate", [FLOWING, GateView("held"), GateView("probing", probe=True)])
@pytest.mark.parametrize("action", ["retry", "wait", "hold", "fail"])
def test_a_result_that_cannot_be_stored_ends_it_whatever_the_policy_says(action, gate):
    stubborn = Policy("p", heed_server=False, otherwise=Rule(action))
    decision = decided(UNSTORABLE, policy=stubborn, gate=gate)
    assert (decision.reason, decision.counted, decision.hold) == (FailedReason.FATAL, F, None)
    assert decision.why.text == (
        "fail: internal (the stage's own code has a defect); the result is a set; the next try would end "
        "the same, so no policy asks for it"
    )
    assert decision.why.rule == "unstorable"


@pytest.mark.parametrize("name", PRESETS)
def test_a_result_that_cannot_be_stored_ends_it_in_every_preset(name):
    assert decided(UNSTORABLE, policy=preset(name)).reason is FailedReason.FATAL


def test_a_failure_that_nobody_knows_is_told_with_what_was_raised_and_whose_code_did():
    unknown = Failure(Kind.UNKNOWN, "nobody knew", "'k'", names=("builtins.KeyError",))
    told = "unknown (the failure is of a kind that nobody has named yet"
    assert f"{told});" in decided(unknown).why.text
    own = decided(replace(unknown, origin=Origin.OWN))
    assert f"{told}; own code: KeyError);" in own.why.text
    assert (
        f"{told}; library: KeyError);" in decided(replace(unknown, origin=Origin.LIBRARY)).why.text
    )
    assert own.delay_s == decided(unknown).delay_s


def test_the_servers_word_that_it_may_help_changes_nothing_here():
    assert isinstance(decided(Failure(Kind.NETWORK, "test", server_says=True)), Retry)


def test_a_hint_holds_whatever_shares_the_upstream():
    assert decided(hinted(LIMITED, 17.0)).hold == Hold(PauseScope.UPSTREAM, 17.0)
    assert decided(LIMITED).hold is None
    own = Policy("p", otherwise=Rule("retry"), hint=Hints(kinds=frozenset(Kind)))
    unfit = hinted(Failure(Kind.INVALID_OUTPUT, "test"), 17.0)
    assert decided(unfit, policy=own).hold is None


def test_a_hint_over_the_cap_holds_until_a_person_looks():
    assert decided(hinted(LIMITED, 61.0)).hold == Hold(PauseScope.UPSTREAM, None)


def test_hold_waits_and_holds_until_the_hint_or_a_person():
    policy = Policy("p", rules={Kind.BILLING: Rule("hold")}, hint=Hints(kinds=frozenset(Kind)))
    broke = Failure(Kind.BILLING, "test")
    decision = decided(broke, policy=policy, failures=99)
    assert (decision.counted, decision.hold) == (Counted.WAITS, Hold(PauseScope.CREDENTIAL))
    known = decided(hinted(broke, 30.0), policy=policy)
    assert known.hold == Hold(PauseScope.CREDENTIAL, 30.0)


def test_an_uncounted_hint_is_a_wait_and_without_it_a_failure():
    policy = Policy("p", otherwise=Rule("retry"), hint=Hints(counted=False))
    assert decided(hinted(LIMITED, 3.0), policy=policy).counted is Counted.WAITS
    assert decided(LIMITED, policy=policy).counted is Counted.FAILURES


SYNC = Policy(
    "sync",
    profile="sync",
    attempts_max=2,
    inline_s_max=1.0,
    exhausted="hand_over",
    backoff=Backoff("fixed", base_s=0.5),
    jitter=Jitter("none"),
    rules={Kind.NETWORK: Rule("retry"), Kind.RATE_LIMITED: Rule("hand_over")},
    hint=Hints(kinds=frozenset(Kind)),
)


def test_the_sync_profile_hands_over_instead_of_giving_up():
    assert decided(NETWORK, policy=SYNC).delay_s == 0.5
    last = decided(NETWORK, policy=SYNC, failures=1)
    assert isinstance(last, HandOver)
    assert last.why.text == (
        "hand over to a durable job: network (the connection failed before an answer came); "
        "attempt 2 of 2 was the last"
    )
    assert decided(BAD, policy=SYNC).reason is FailedReason.FATAL


def test_the_sync_profile_does_not_wait_longer_than_it_may():
    decision = decided(hinted(NETWORK, 1.5), policy=SYNC)
    assert isinstance(decision, HandOver)
    assert decision.delay_s == 1.5


def test_handing_over_at_once_takes_the_hint_along():
    decision = decided(hinted(LIMITED, 30.0), policy=SYNC)
    assert (type(decision), decision.delay_s) == (HandOver, 30.0)
    assert decision.hold == Hold(PauseScope.UPSTREAM, 30.0)


@pytest.mark.parametrize("answer", [-1.0, float("nan"), float("inf"), 1e12, "soon", None, True])
def test_an_own_delay_that_makes_no_sense_is_replaced_and_told(answer):
    policy = Policy(
        "own",
        otherwise=Rule("retry"),
        backoff=Backoff("fixed", base_s=4.0),
        jitter=Jitter("none"),
        own_delay=lambda failures, kind: answer,
    )
    decision = decided(NETWORK, policy=policy)
    assert decision.delay_s == 4.0
    assert f"own_delay answered {answer!r}, so the policy's curve was used" in decision.why.text


class Unspeakable(float):
    """A number that can neither be compared nor shown."""

    def __ge__(self, other):
        raise RuntimeError("compared")

    __le__ = __ge__

    def __repr__(self) -> str:
        raise RuntimeError("shown")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyError("tier"), "raised KeyError('tier')"),
        (SystemExit(3), "raised SystemExit(3)"),
        (ValueError("x" * 5_000), "raised ValueError('xxx"),
        (None, "answered a Unspeakable"),
    ],
)
def test_an_own_delay_that_raises_is_replaced_and_told_in_short(raised, told):
    def own(failures, kind):
        if raised is not None:
            raise raised
        return Unspeakable(3.0)

    policy = Policy(
        "own",
        otherwise=Rule("retry"),
        backoff=Backoff("fixed", base_s=4.0),
        jitter=Jitter("none"),
        own_delay=own,
    )
    decision = decided(NETWORK, policy=policy)
    assert decision.delay_s == 4.0
    assert f"; own_delay {told}" in decision.why.text
    assert decision.why.text.endswith("so the policy's curve was used")
    assert len(decision.why.text) < 400


def test_a_persons_interrupt_is_no_answer_of_an_own_delay():
    def own(failures, kind):
        raise KeyboardInterrupt

    policy = Policy("own", otherwise=Rule("retry"), own_delay=own)
    with pytest.raises(KeyboardInterrupt):
        decided(NETWORK, policy=policy)


@pytest.mark.parametrize("wrong", [{"own_delay": 3.0}, {"matches": ("network",)}])
def test_a_policy_takes_only_functions_and_matches_of_ones_own(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        Policy("own", **wrong)


def test_an_own_delay_that_makes_sense_is_heard():
    policy = Policy(
        "own",
        otherwise=Rule("retry"),
        jitter=Jitter("none"),
        own_delay=lambda failures, kind: failures * 10 + len(kind.value),
    )
    assert decided(NETWORK, policy=policy).delay_s == 17.0


@pytest.mark.parametrize(
    ("length_s", "words"),
    [
        (0.0, "0 s"), (59.5, "59.5 s"), (60.0, "1 minute"), (100.0, "100 s"), (3_600.0, "1 hour"), (5_400.0, "90 minutes"),
        (86_400.0, "1 day"), (604_800.0, "7 days"), (604_801.0, "604801 s"),
    ],
)  # fmt: skip
def test_a_length_that_somebody_has_set_is_told_in_whole_units(length_s, words):
    assert whole_units(length_s) == words
