"""The schemes of others are what their names say, and the bound is a bound."""

import pytest

from perdure.simulate.replies import Form
from perdure.simulate.rivals import RIVALS, Melee
from perdure.simulate.scene import Fleet
from perdure.simulate.strategies import oracle
from perdure.simulate.upstream import Brownout, UpstreamModel
from tests.simulate.kit import down, played, scene


def delays(name, hint_s=None, chance=0.5, tries=8):
    found, last_s = [], 0.0
    for failures in range(1, tries + 1):
        last_s = RIVALS[name].delay(failures, last_s, hint_s, chance)
        found.append(round(last_s, 3))
    return found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("fixed", [5, 5, 5, 5, 5, 5, 5, 5]),
        ("expo", [1, 2, 4, 8, 16, 32, 60, 60]),
        ("expo-25", [1, 2, 4, 8, 16, 32, 60, 60]),
        ("expo-equal", [0.75, 1.5, 3, 6, 12, 24, 45, 45]),
        ("expo-full", [0.5, 1, 2, 4, 8, 16, 30, 30]),
        ("decorrelated", [2, 3.5, 5.75, 9.125, 14.188, 21.781, 33.172, 50.258]),
        ("sdk", [0.438, 0.875, 1.75, 3.5, 7, 7, 7, 7]),
    ],
)
def test_the_delays_of_a_scheme(name, wanted):
    assert delays(name) == wanted


@pytest.mark.parametrize("name", ["expo-25", "expo-full", "expo-equal"])
def test_at_the_cap_jitter_still_spreads(name):
    assert len({delays(name, chance=chance)[-1] for chance in (0.0, 0.3, 0.6, 0.9)}) == 4


def test_what_each_does_with_a_hint():
    assert delays("hint-exact", hint_s=7.0, tries=2) == [7.0, 7.0]
    assert delays("hint-floor", hint_s=1.5, tries=4) == [1.5, 1.5, 2.0, 4.0]
    assert delays("sdk", hint_s=7.0, tries=2) == [7.0, 7.0]
    assert delays("sdk", hint_s=61.0, tries=1) == [0.438]
    assert delays("expo", hint_s=7.0, tries=1) == [1.0]


@pytest.mark.parametrize("name", RIVALS)
def test_every_job_ends_or_is_left_over(name):
    history = Melee(down(), RIVALS[name], 1).run()
    assert history.done + history.given_up == 300
    assert history.given_up == (300 if name == "sdk-3" else 0)
    assert sum(history.answers.values()) == len(history.starts_s)
    assert history.answers[Form.OK] == history.done


def test_who_ignores_a_hint_is_early_and_who_heeds_it_is_not():
    slow = scene(upstream=UpstreamModel(rate_per_s=1.0, burst=1.0), jobs=50)
    assert Melee(slow, RIVALS["expo-full"], 1).run().early > 0
    for name in ("hint-exact", "hint-floor", "sdk"):
        assert Melee(slow, RIVALS[name], 1).run().early == 0


def test_the_same_seed_gives_the_same_melee():
    first, again = (Melee(down(), RIVALS["decorrelated"], 3).run() for _ in range(2))
    assert first == again


def test_rejected_calls_that_count_keep_everybody_out():
    livelocked = scene(
        1_000,
        upstream=UpstreamModel(rate_per_s=10.0, burst=10.0, rejected_count=True),
        horizon_s=600.0,
    )
    assert Melee(livelocked, RIVALS["expo-full"], 1).run().left_over > 800
    assert played(livelocked).left_over == 0


# -- the bound -----------------------------------------------------------------------------


def test_the_bound_is_what_arithmetic_says():
    history = oracle(down(30.0), 1)
    assert history.finished_s == pytest.approx(30.0 + (300 - 20) / 20 + 1.0, abs=0.3)
    assert history.wasted == 0
    assert history.calls_between(0.0, 30.0) == 0
    assert oracle(scene(), 1).finished_s == pytest.approx((300 - 10) / 10 + 1.0, abs=0.3)


def test_the_bound_keeps_to_the_fleet_s_slots():
    free = UpstreamModel(rate_per_s=None, spread=0.0)
    assert oracle(scene(upstream=free, fleet=Fleet(2, 5)), 1).finished_s == pytest.approx(30.0)


def test_the_bound_repeats_what_nobody_can_foresee():
    history = oracle(scene(upstream=UpstreamModel(fault_share=0.5)), 1)
    assert history.done == 300
    assert history.wasted == pytest.approx(300, rel=0.2)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "upstream",
    [
        UpstreamModel(rate_per_s=10.0, burst=10.0),
        UpstreamModel(outages_s=((0.0, 30.0), (40.0, 50.0))),
        UpstreamModel(
            rate_per_s=None, timeout_s=10.0, brownout=Brownout(5.0, 60.0, factor=5.0, slots=20)
        ),
    ],
)
def test_nobody_beats_the_bound(upstream, seed):
    one = scene(upstream=upstream)
    least_s = oracle(one, seed).finished_s
    assert played(one, seed=seed).finished_s >= least_s * 0.98
    for name in ("expo-full", "sdk"):
        assert Melee(one, RIVALS[name], seed).run().finished_s >= least_s * 0.98
