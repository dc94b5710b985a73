"""docs/simulator.md holds what the simulator says; a small part is played again here."""

import pytest
from tools import simulator

from perdure.simulate import SCENARIOS

TEXT = simulator.PAGE.read_text(encoding="utf-8")
STALE = "run `make docs-simulator`"


def test_a_scenario_played_again_is_what_the_document_says():
    row, lines = simulator.section("W1")
    assert "\n".join(lines) in TEXT, STALE
    assert row.scenario.title in TEXT


def test_the_line_about_fairness_is_what_the_document_says():
    assert simulator.fairness_line() in TEXT, STALE


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_in_the_document(name):
    assert f"### {name}: {SCENARIOS[name].title}" in TEXT, STALE


def test_every_picture_is_there_and_small():
    for name in simulator.DRAWN:
        path = simulator.PICTURES / f"{name}.svg"
        assert f"pictures/{name}.svg" in TEXT
        assert 1_000 < path.stat().st_size < 100_000


def test_another_seed_would_be_noticed():
    _, lines = simulator.section("W1", seeds=1)
    assert "\n".join(lines) not in TEXT
