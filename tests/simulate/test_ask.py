"""A user's own case: read as it is meant, refused with the way to say it."""

import pytest

from perdure.model.errors import CallerError
from perdure.simulate import SimulationQuestion, row, scenario_of
from perdure.simulate.ask import rate, seconds
from tests.simulate.kit import STANDARD


@pytest.mark.parametrize(("text", "value_s"), [("45m", 2700), ("90s", 90), ("1h30m", 5400)])
def test_a_time_is_read(text, value_s):
    assert seconds("--outage", text) == value_s


@pytest.mark.parametrize(
    ("text", "per_s"), [("20/s", 20), ("500/min", 500 / 60), ("1800/h", 0.5), ("0.5/s", 0.5)]
)
def test_a_rate_is_read(text, per_s):
    assert rate("--rate", text) == pytest.approx(per_s)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (SimulationQuestion(rate="20"), "--rate is '20'"),
        (SimulationQuestion(rate="0/s"), "--rate is '0/s'"),
        (SimulationQuestion(rate="-1/s"), "--rate"),
        (SimulationQuestion(rate="1/day"), "--rate"),
        (SimulationQuestion(outage="45"), "--outage is '45'"),
        (SimulationQuestion(outage="soon"), "--outage"),
        (SimulationQuestion(outage="9999h"), "--outage"),
        (SimulationQuestion(latency="0s"), "--latency"),
        (SimulationQuestion(jobs=0), "--jobs is 0"),
        (SimulationQuestion(jobs=10**7), "--jobs"),
        (SimulationQuestion(workers=0), "--workers is 0"),
        (SimulationQuestion(concurrency=10**6), "--concurrency"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(asked, named):
    with pytest.raises(CallerError, match=named):
        scenario_of(asked)


def test_a_case_becomes_a_scene():
    scene = scenario_of(SimulationQuestion(jobs=100, outage="10s", rate="5/s", latency="2s")).scene(
        1
    )
    assert scene.upstream.outages_s == ((0.0, 10.0),)
    assert (scene.upstream.rate_per_s, scene.upstream.latency_s) == (5.0, 2.0)
    assert (scene.jobs, scene.fleet.calls_max) == (100, 100)


@pytest.mark.parametrize(
    ("asked", "drain_max"),
    [
        (SimulationQuestion(jobs=2_000, outage="60s"), 1.15),
        (SimulationQuestion(jobs=1_900, outage="60s"), None),
        (SimulationQuestion(jobs=12_000, outage="45m"), 1.3),
        (SimulationQuestion(jobs=11_000, outage="45m"), None),
        (SimulationQuestion(rate=None), None),
    ],
)
def test_the_drain_has_an_aim_where_there_is_enough_to_drain(asked, drain_max):
    assert scenario_of(asked).drain_max == drain_max


def test_a_case_can_be_played():
    found = row(scenario_of(SimulationQuestion(jobs=100, outage="10s")), STANDARD, seeds=1)
    assert found.of("gate").done == 100
