"""A virtual-time simulator of policies and gates: scenes, rivals, the bound, the table, pictures."""

from perdure.simulate.ask import SimulationQuestion, scenario_of
from perdure.simulate.fairness import Fairness, fairness
from perdure.simulate.measure import Aim, Measured, Row, row
from perdure.simulate.plots import draw, require_matplotlib
from perdure.simulate.ranges import FigureRange, OutageCase, Ranges, outage_ranges, scene_ranges
from perdure.simulate.scenarios import SCENARIOS, Scenario, scenarios_named
from perdure.simulate.strategies import Strategy, strategy
from perdure.simulate.table import form, markdown_lines, summary_lines, text_lines

__all__ = [
    "SCENARIOS",
    "Aim",
    "Fairness",
    "Measured",
    "OutageCase",
    "SimulationQuestion",
    "FigureRange",
    "Ranges",
    "Row",
    "Scenario",
    "Strategy",
    "scenarios_named",
    "draw",
    "fairness",
    "form",
    "markdown_lines",
    "outage_ranges",
    "require_matplotlib",
    "row",
    "scenario_of",
    "scene_ranges",
    "strategy",
    "summary_lines",
    "text_lines",
]
