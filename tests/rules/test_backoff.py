"""Four curves and four jitters: the published sequences, and what holds for every one of them."""

from statistics import fmean

import pytest
from hypothesis import given, strategies as st

from perdure.model.errors import ConfigError
from perdure.model.limits import DELAY_S_MAX
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread, base_delay_s, jittered_s

LATEST = 1.0 - 2.0**-53  # the largest chance below 1

# Each design's published numbers: policy, base delays after failure 1, 2, 3…, the least and the
# most that its jitter makes of the first of them.
PUBLISHED = {
    "reports: 30, 120, 480 s, ±20 %": (
        Backoff(Curve.SCHEDULE, cap_s=None, steps_s=(30.0, 120.0, 480.0)),
        Jitter(Spread.PROPORTIONAL, ratio=0.2),
        [30, 120, 480],
        (24, 36),
    ),
    "converter: 5 s × 2^n and up to 5 s more, no cap": (
        Backoff(Curve.EXPONENTIAL, base_s=5.0, factor=2.0, cap_s=None),
        Jitter(Spread.ADDITIVE, add_s_max=5.0),
        [5, 10, 20, 40, 80],
        (5, 10),
    ),
    "datasets: 1 s doubling to 60 s, ±25 %": (
        Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=60.0),
        Jitter(Spread.PROPORTIONAL, ratio=0.25),
        [1, 2, 4, 8, 16, 32, 60, 60, 60],
        (0.75, 1.25),
    ),
    "datasets-llm: 1 s doubling to 30 s": (
        Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=30.0),
        Jitter(Spread.PROPORTIONAL, ratio=0.25),
        [1, 2, 4, 8, 16, 30, 30],
        (0.75, 1.25),
    ),
    "datasets, linear: base × n up to the cap": (
        Backoff(Curve.LINEAR, base_s=1.0, cap_s=5.0),
        Jitter(Spread.NONE),
        [1, 2, 3, 4, 5, 5, 5],
        (1, 1),
    ),
    "datasets, fixed: always the base": (
        Backoff(Curve.FIXED, base_s=1.0, cap_s=60.0),
        Jitter(Spread.NONE),
        [1, 1, 1, 1],
        (1, 1),
    ),
    "verifier: 60 s doubling to an hour, no jitter": (
        Backoff(Curve.EXPONENTIAL, base_s=60.0, factor=2.0, cap_s=3600.0),
        Jitter(Spread.NONE),
        [60, 120, 240, 480, 960, 1920, 3600, 3600],
        (60, 60),
    ),
    "gateway-worker: 1, 2, 4 s, ±20 %": (
        Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=None),
        Jitter(Spread.PROPORTIONAL, ratio=0.2),
        [1, 2, 4],
        (0.8, 1.2),
    ),
    "full jitter: anything up to the base": (
        Backoff(Curve.FIXED, base_s=10.0),
        Jitter(Spread.FULL),
        [10, 10],
        (0, 10),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sequence_comes_out(name):
    backoff, _, delays, _ = PUBLISHED[name]
    assert [base_delay_s(backoff, n) for n in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_jitter_spreads_the_first_delay_as_far_as_it_says(name):
    backoff, jitter, _, (least, most) = PUBLISHED[name]
    base_s = base_delay_s(backoff, 1)
    assert jittered_s(jitter, base_s, 0.0) == pytest.approx(least)
    assert jittered_s(jitter, base_s, LATEST) == pytest.approx(most)


def test_after_the_last_step_a_schedule_stays_on_it():
    backoff = Backoff(Curve.SCHEDULE, cap_s=None, steps_s=(30.0, 120.0, 480.0))
    assert [base_delay_s(backoff, n) for n in (4, 5, 1000)] == [480, 480, 480]


def test_a_schedule_is_capped_too():
    backoff = Backoff(Curve.SCHEDULE, cap_s=100.0, steps_s=(30.0, 120.0))
    assert [base_delay_s(backoff, n) for n in (1, 2)] == [30, 100]


@pytest.mark.parametrize("n", [0, -1])
def test_before_the_first_failure_counts_as_the_first(n):
    assert base_delay_s(Backoff(base_s=3.0), n) == 3.0


def test_the_mean_of_evenly_drawn_delays_is_the_base():
    jitter = Jitter(Spread.PROPORTIONAL, ratio=0.25)
    draws = [jittered_s(jitter, 2.0, (n + 0.5) / 100) for n in range(100)]
    assert fmean(draws) == pytest.approx(2.0)
    assert 1.5 <= min(draws) < max(draws) <= 2.5


def test_the_cap_comes_before_the_jitter():
    backoff = Backoff(Curve.EXPONENTIAL, base_s=1.0, cap_s=60.0)
    jitter = Jitter(Spread.PROPORTIONAL, ratio=0.25)
    at_the_cap = {jittered_s(jitter, base_delay_s(backoff, 20), n / 8) for n in range(8)}
    assert len(at_the_cap) == 8  # clamped last, the upper half would all sleep the same 60 s
    assert max(at_the_cap) > 60.0


lengths = st.floats(0.0, DELAY_S_MAX, allow_subnormal=False)
curves = st.one_of(
    st.builds(
        Backoff,
        st.sampled_from([Curve.EXPONENTIAL, Curve.LINEAR, Curve.FIXED]),
        base_s=lengths,
        factor=st.floats(1.0, 100.0),
        cap_s=st.none() | lengths,
    ),
    st.builds(
        Backoff,
        st.just(Curve.SCHEDULE),
        cap_s=st.none() | lengths,
        steps_s=st.lists(lengths, min_size=1, max_size=8).map(lambda steps: tuple(sorted(steps))),
    ),
)
jitters = st.builds(Jitter, st.sampled_from(Spread), ratio=st.floats(0.0, 1.0), add_s_max=lengths)
chances = st.floats(0.0, 1.0, exclude_max=True)
failures = st.integers(1, 1000) | st.integers(1, 2**63) | st.integers(1, 10**400)


@given(curves, failures)
def test_a_base_delay_is_never_negative_and_never_over_its_cap(backoff, n):
    cap_s = DELAY_S_MAX if backoff.cap_s is None else backoff.cap_s
    assert 0.0 <= base_delay_s(backoff, n) <= cap_s


@given(curves, failures, failures)
def test_a_later_failure_never_waits_less(backoff, one, other):
    low, high = sorted((one, other))
    assert base_delay_s(backoff, low) <= base_delay_s(backoff, high)


@given(jitters, lengths, chances)
def test_jitter_exceeds_the_base_by_its_own_share_at_most(jitter, base_s, chance):
    delay_s = jittered_s(jitter, base_s, chance)
    share_s = {
        Spread.NONE: 0.0,
        Spread.FULL: 0.0,
        Spread.PROPORTIONAL: base_s * jitter.ratio,
        Spread.ADDITIVE: jitter.add_s_max,
    }[jitter.spread]
    assert 0.0 <= delay_s <= (base_s + share_s) * (1 + 1e-12)


@given(jitters, lengths, chances)
def test_only_full_and_proportional_jitter_may_shorten_a_wait(jitter, base_s, chance):
    if jitter.spread in (Spread.NONE, Spread.ADDITIVE):
        assert jittered_s(jitter, base_s, chance) >= base_s
    if jitter.spread is Spread.PROPORTIONAL:
        assert jittered_s(jitter, base_s, chance) >= base_s * (1 - jitter.ratio) * (1 - 1e-9)


@given(jitters, lengths, chances, chances)
def test_more_chance_is_never_a_shorter_wait(jitter, base_s, one, other):
    low, high = sorted((one, other))
    assert jittered_s(jitter, base_s, low) <= jittered_s(jitter, base_s, high)


NAN = float("nan")
WRONG = [
    (
        lambda: Backoff("cubic"),
        ["backoff.curve", "'cubic'", "exponential, fixed, linear, schedule"],
    ),
    (lambda: Backoff(base_s=-1.0), ["backoff.base_s", "-1.0", "between 0 and 31,622,400"]),
    (lambda: Backoff(base_s=NAN), ["backoff.base_s", "nan"]),
    (lambda: Backoff(base_s=float("inf")), ["backoff.base_s", "inf"]),
    (lambda: Backoff(base_s="2"), ["backoff.base_s", "'2'"]),
    (lambda: Backoff(factor=0.5), ["backoff.factor", "0.5", "between 1 and 100"]),
    (lambda: Backoff(factor=101), ["backoff.factor", "101", "between 1 and 100"]),
    (lambda: Backoff(cap_s=-0.1), ["backoff.cap_s", "-0.1", "between 0 and"]),
    (lambda: Backoff(cap_s=NAN), ["backoff.cap_s", "nan"]),
    (lambda: Backoff(Curve.SCHEDULE), ["backoff.steps_s", "()", "'schedule'"]),
    (lambda: Backoff(Curve.FIXED, steps_s=(1.0,)), ["backoff.steps_s", "(1.0,)", "'fixed'"]),
    (lambda: Backoff(Curve.SCHEDULE, steps_s=(1.0, -2.0)), ["backoff.steps_s", "-2.0"]),
    (lambda: Jitter("some"), ["jitter.spread", "'some'", "additive, full, none, proportional"]),
    (lambda: Jitter(ratio=1.5), ["jitter.ratio", "1.5", "between 0 and 1"]),
    (lambda: Jitter(ratio=NAN), ["jitter.ratio", "nan"]),
    (lambda: Jitter(Spread.ADDITIVE, add_s_max=-5), ["jitter.add_s_max", "-5", "between 0 and"]),
]


@pytest.mark.parametrize(("make", "named"), WRONG)
def test_a_wrong_number_is_refused_by_field_value_and_range(make, named):
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(word in str(caught.value) for word in named), str(caught.value)


def test_names_from_a_file_are_as_good_as_members():
    assert Backoff("linear") == Backoff(Curve.LINEAR)
    assert Backoff("linear").curve is Curve.LINEAR
    assert Jitter("none").spread is Spread.NONE
