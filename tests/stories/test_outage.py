"""An outage, two real workers and 2,000 waiting jobs: it costs what the simulator says, on either store.

The short stories are the same with an outage of six seconds and fewer jobs.
"""

import pytest

from perdure.model.nouns import replace
from perdure.simulate import OutageCase
from perdure.simulate.scene import Fleet
from tests.stories.kit import on_both, on_both_long
from tests.stories.toll import SEEDS, shut, simulated, spent, spent_while_held, strays, suffered

pytestmark = pytest.mark.story

MINUTE = OutageCase(
    jobs=2_000,
    outage_s=60.0,
    latency_s=0.2,
    down_s=0.05,
    fleet=Fleet(workers=2, concurrency=32, poll_s=0.2),
)
COMPARED = (
    "calls_in_outage",
    "wasted",
)  # how quickly it drains is held on virtual time, in tests/simulate
SHORT = replace(MINUTE, jobs=200, outage_s=6.0)


def assert_as_simulated(story, case, *, seeds=SEEDS, restart_s=None):
    ranges = simulated(case.scene, seeds=seeds)
    toll = suffered(story, case.scene, "gated", restart_s=restart_s)
    assert toll.states == {"succeeded": case.jobs}
    assert strays(toll, ranges, *COMPARED) == [], (toll, ranges)
    assert spent_while_held(story) == []
    story.assert_audit_is_clean()


def assert_not_as_simulated(story, case):
    ranges = simulated(case.scene)
    toll = suffered(story, case.scene, "ungated")
    assert strays(toll, ranges, *COMPARED) == [*COMPARED], (toll, ranges)
    story.assert_audit_is_clean()


def test_a_failure_that_is_counted_while_the_gate_is_held_is_seen():
    held_us = shut(
        [
            (9_000_000, "declare gate"),
            (10_000_000, "trip gate"),
            (12_000_000, "send probe"),
            (12_100_000, "probe failed"),
            (14_000_000, "send probe"),
            (14_200_000, "flow gate"),
        ]
    )
    assert held_us == [(10_000_000, 14_200_000)]
    before, racing, after = (
        (9_000_000, 9_900_000),
        (9_950_000, 10_050_000),
        (14_300_000, 14_400_000),
    )
    assert spent(held_us, [before, racing, after]) == []
    assert len(spent(held_us, [(12_000_000, 12_100_000)])) == 1  # a probe's
    assert len(spent(held_us, [(9_000_000, 11_500_000)])) == 1  # of before, and it ought to know


@on_both_long
def test_a_short_outage_costs_what_the_simulator_says(story):
    assert_as_simulated(story, SHORT, seeds=40)


@pytest.mark.long  # its twin without processes is in tests/simulate/test_promises.py
def test_without_a_gate_a_short_outage_costs_far_more(story):
    assert_not_as_simulated(story, SHORT)


@pytest.mark.long
@on_both
def test_a_minutes_outage_costs_what_the_simulator_says(story):
    assert_as_simulated(story, MINUTE)


@pytest.mark.long
@on_both
def test_killing_both_workers_inside_an_outage_changes_nothing(story):
    assert_as_simulated(story, MINUTE, restart_s=20.0)


@pytest.mark.long
@on_both
def test_without_a_gate_a_minutes_outage_costs_far_more(story):
    assert_not_as_simulated(story, MINUTE)
