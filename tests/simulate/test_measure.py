"""The table says what happened, and a missed aim is shown as missed."""

import pytest
from tools.simulator import change

from perdure.model.errors import CallerError, UnknownName
from perdure.model.nouns import replace
from perdure.rules.presets import preset
from perdure.simulate import SCENARIOS, form, row, scenarios_named, summary_lines, text_lines
from perdure.simulate.measure import Row, aims_of
from perdure.simulate.scenarios import Scenario
from perdure.simulate.table import markdown_lines
from tests.simulate.kit import STANDARD, down, scene

SMALL = Scenario("S1", "small", lambda _: scene(), ("expo-full", "sdk-3"), drain_max=1.3)


@pytest.fixture(scope="module")
def small():
    return row(SMALL, STANDARD, seeds=2)


def test_a_row_has_the_gate_first_and_the_oracle_last(small):
    names = [one.strategy for one in small.measures]
    assert names == ["gate", "no-gate", "expo-full", "sdk-3", "oracle"]
    assert small.of("gate").seeds == 2
    assert small.of("gate").done == 300
    assert small.of("oracle").drain == 1.0
    assert small.of("sdk-3").lost > 200


def test_the_gate_meets_its_aims_in_a_burst(small):
    assert [aim.text for aim in small.aims if not aim.met] == []


def test_a_missed_aim_is_shown_as_missed(small):
    poor = replace(small.of("gate"), waste=1.0, drain=2.0, early=1, lost=1.0, spent_held=1)
    aims = aims_of(SMALL, poor)
    assert len(aims) == 5
    assert [aim.met for aim in aims] == [False] * 5
    shown = "\n".join(text_lines(Row(SMALL, small.measures, aims)))
    assert shown.count("✗") == 5
    assert shown.count("✓") == 0
    line = list(summary_lines([Row(SMALL, small.measures, aims)]))[-1]
    assert "✗ wasted, drain, early, jobs, attempts" in line


def test_who_does_not_finish_has_no_drain_and_is_called_stuck():
    never = Scenario("S2", "never", lambda _: down(10_000.0, horizon_s=60.0), (), drain_max=1.1)
    found = row(never, STANDARD, seeds=1, rivals=False)
    assert found.of("gate").drain is None
    assert "drain ÷ bound not finished ≤ 1.1" in [aim.text for aim in found.aims if not aim.met]


def test_the_unavoidable_is_no_waste_of_the_gate_s():
    faulty = scene(upstream=SCENARIOS["W6a"].scene(1).upstream)
    found = row(Scenario("S3", "faults", lambda _: faulty, ()), STANDARD, seeds=1, rivals=False)
    gate = found.of("gate")
    assert gate.waste > 0.05
    assert gate.waste_max > 0.15
    assert found.aims[0].met


def test_the_table_has_a_column_for_everything_and_json_the_same_numbers(small):
    lines = list(markdown_lines(small))
    head = next(line for line in lines if line.startswith("| strategy"))
    assert all(line.count("|") == head.count("|") for line in lines if line.startswith("|"))
    plain = form(small)
    assert plain["strategies"][0]["waste"] == small.of("gate").waste
    assert plain["strategies"][0]["title"] == "standard, gates"
    assert {aim["met"] for aim in plain["aims"]} == {True}


def test_scenarios_are_found_by_name_whole_or_by_family():
    assert [one.name for one in scenarios_named("w5")] == ["W5"]
    assert [one.name for one in scenarios_named("W2")] == ["W2a", "W2b", "W2c", "W2d"]
    assert [one.name for one in scenarios_named("W2C")] == ["W2c"]
    assert [one.name for one in scenarios_named("W13")] == ["W13a", "W13b"]
    assert {one.name.rstrip("abcd") for one in SCENARIOS.values()} == {
        f"W{n}" for n in range(1, 17)
    }


@pytest.mark.parametrize("name", ["W17", "", "W", "2", "W1a"])
def test_a_scenario_that_there_is_not_is_refused_with_the_names_that_there_are(name):
    with pytest.raises(UnknownName, match="W1, W2a"):
        scenarios_named(name)


def test_a_policy_for_callers_is_not_simulated():
    with pytest.raises(CallerError, match="gateway-sync"):
        row(SMALL, preset("gateway-sync"), seeds=1)


@pytest.mark.parametrize(
    ("value", "against", "shown"),
    [(5, 10, "−50 %"), (10, 5, "+100 %"), (10.01, 10, "±0 %"), (9.99, 10, "±0 %"), (1, 0, "–")],
)
def test_a_change_is_told_with_its_sign(value, against, shown):
    assert change(value, against) == shown
