"""Gate, window and pace together drain a queue through an outage and a rate limit.

The bounds are those of the benchmark to come: a waste of 0.05 and (20 + probes) / jobs per success,
nobody earlier than told, everything done even where rejected calls count towards the limit.
"""

import pytest

from perdure.rules.gate.gate import GateState
from tests.rules.gate.small_upstream import Upstream, Worker

MINUTE = {"outage_s": 60.0, "rate_per_s": 20.0, "burst": 20.0}
BURST = {"outage_s": 0.0, "rate_per_s": 10.0, "burst": 10.0}

# upstream, jobs, the drain time allowed from the first success on, as a multiple of the soonest.
SCENES = {
    "a minute's outage, then 20/s": (MINUTE, 1000, 1.3),
    "45 minutes": ({**MINUTE, "outage_s": 2700.0}, 1000, 1.3),
    "a burst over 10/s": (BURST, 1500, 1.15),
    "the same without hints": ({**BURST, "hints": False}, 1500, 1.15),
    "rejected calls count": ({**BURST, "rejected_count": True}, 1500, 1.2),
    "rejected calls count, without hints": (
        {**BURST, "rejected_count": True, "hints": False},
        1500,
        1.2,
    ),
    "slow calls at 2/s": (
        {"outage_s": 0.0, "rate_per_s": 2.0, "burst": 10.0, "latency_s": 8.0},
        300,
        1.4,
    ),
    "no burst at all": ({**BURST, "burst": 1.0}, 1500, 1.8),
}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("scene", SCENES)
def test_a_queue_drains_with_little_waste_and_nobody_early(scene, seed):
    given, jobs, drain_max = SCENES[scene]
    upstream = Upstream(**given)
    books = Worker(upstream, jobs, seed=seed).drained(within_s=20_000.0)
    waste = books.wasted / jobs
    drain = (books.ended_s - books.found_s) / upstream.soonest_s(jobs)
    told = f"seed {seed}: waste {waste:.3f}, drain {drain:.2f}, {books}"
    assert books.done == jobs, told
    assert books.early == 0, told
    assert waste <= 0.05 + (20 + books.probes) / jobs, told
    assert drain <= drain_max, told
    assert books.trips <= 1, told
    assert books.found_s - upstream.outage_s <= max_gap_s(books.probes) + upstream.latency_s * 1.2


def max_gap_s(probes):
    return min(2.0 * probes, 120.0) * 1.2


def test_the_restart_after_an_outage_peaks_at_little_more_than_the_limit():
    upstream = Upstream(**MINUTE)
    books = Worker(upstream, 1000, seed=3).drained(within_s=20_000.0)
    assert books.peak(upstream) <= 2.5


def all_at_once(gate, settings, pace, now):
    """The broken twin: what waits is released as soon as the probe has succeeded."""
    return 1_000 if gate.state is GateState.FLOWING else 0


def test_releasing_everything_at_once_fails_the_same_bounds():
    upstream = Upstream(**MINUTE)
    books = Worker(upstream, 150, seed=3, starts=all_at_once).drained(within_s=20_000.0)
    assert books.peak(upstream) > 2.5
    assert books.wasted / 150 > 0.05 + (20 + books.probes) / 150
