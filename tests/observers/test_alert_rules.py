"""The alert rules and the page about them name only what there is."""

import re

import pytest
import yaml

from perdure.app.session.metrics import alert_rules
from perdure.model.metrics import LABELS, METRICS
from perdure.surfaces.cli.root import cli
from tests.house.tree import ROOT
from tests.observers.scraping import names_in

RULES = [rule for group in yaml.safe_load(alert_rules())["groups"] for rule in group["rules"]]
ALERTS = [one for one in RULES if "alert" in one]
RECORDED = [one["record"] for one in RULES if "record" in one]
PAGE = (ROOT / "docs" / "howto-metrics.md").read_text(encoding="utf-8")
TABLE = {one.name: one for one in METRICS}
OURS = {"store", "le"}  # beside the labels of the table


def test_every_metric_that_a_rule_or_the_page_names_is_in_the_table():
    assert names_in(alert_rules()) - set(TABLE) == set()
    assert names_in(PAGE) - set(TABLE) == set()


def test_every_recorded_number_that_is_named_is_recorded():
    named = re.findall(r"\b(?:pipeline|stage|upstream|gate):perdure_\w+:\w+", alert_rules() + PAGE)
    assert set(named) == set(RECORDED)


@pytest.mark.parametrize("rule", RULES, ids=lambda one: one.get("alert") or one["record"])
def test_a_rule_asks_for_labels_that_its_metrics_have(rule):
    """A label that no metric has would make a rule silent."""
    for metric, matchers in re.findall(r"(perdure_[a-z0-9_]+)(?:\{([^}]*)\})?", rule["expr"]):
        name = metric if metric in TABLE else re.sub(r"_(bucket|count|sum)$", "", metric)
        if name not in TABLE:
            continue  # a part of a recorded name
        asked = set(re.findall(r"(\w+)(?==~?\")", matchers))
        assert asked <= {*TABLE[name].labels, *OURS}, (metric, asked)
    grouped = re.findall(r"(?:by|on) \(([^)]*)\)", rule["expr"])
    assert {one.strip() for part in grouped for one in part.split(",")} <= {*LABELS, *OURS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda one: one["alert"])
def test_an_alert_says_how_urgent_it_is_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "remedy"}
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert used <= set(LABELS)
    assert f"| {rule['alert']} |" in PAGE
    for words in rule["annotations"]["remedy"].split("perdure ")[1:]:
        check_command(re.split(r"[;,.:)]( |$)", words)[0].split())


def check_command(words: list[str]) -> None:
    """A command that a text names exists, with its options; where it is given any, none that it needs is missing."""
    command, left = cli, list(words)
    context = command.make_context("perdure", [], resilient_parsing=True)
    while left and hasattr(command, "get_command"):
        found = command.get_command(context, left[0])
        assert found is not None, words
        command = found
        left.pop(0)
    given = {one for one in left if one.startswith("--")}
    options = [one for one in command.params if one.opts[0].startswith("--")]
    assert given <= {name for one in options for name in one.opts}, words
    missing = [one.opts for one in options if one.required and given.isdisjoint(one.opts)]
    assert not (given and missing), (words, missing)


def test_a_command_that_there_is_not_is_caught():
    with pytest.raises(AssertionError):
        check_command(["gates", "open"])
    with pytest.raises(AssertionError):
        check_command(["dead", "groups", "--reason"])
    with pytest.raises(AssertionError):
        check_command(["dead", "discard", "--older-than", "30d"])


def test_the_page_lists_every_alert_and_no_other():
    assert re.findall(r"^\| (Perdure\w+) \|", PAGE, re.MULTILINE) == [
        one["alert"] for one in ALERTS
    ]
