"""perdure metrics: what Prometheus reads of a store, and the rules for alerts."""

import json
from contextlib import closing

import pytest
import yaml
from click.testing import CliRunner

import perdure
from perdure.app.session import metrics
from perdure.config import load
from perdure.model.errors import CallerError, ConfigError
from perdure.surfaces.cli.root import cli
from tests.observers.scraping import Scraped, names_in


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_metrics_of_a_store_are_printed_and_the_same_as_json(tmp_path):
    url = f"sqlite:///{tmp_path}/work.db"
    with closing(perdure.App(url)) as app:
        app.pipeline("printing", app.stage(lambda item: item, name="say")).enqueue_many([1, 2, 3])
    seen = Scraped(said("metrics", "show", "--store", url))
    told = json.loads(said("metrics", "show", "--json", "--store", url))
    assert seen.values.keys() == {(one["metric"], frozenset(one["labels"].items())) for one in told}
    assert seen("perdure_jobs_created_total", pipeline="printing") == 3
    (created,) = [one for one in told if one["metric"] == "perdure_jobs_created_total"]
    assert created == {
        "metric": "perdure_jobs_created_total",
        "labels": {"pipeline": "printing"},
        "value": 3.0,
    }


def test_the_rules_are_printed_as_prometheus_reads_them():
    rules = said("metrics", "alerts")
    names = [one["name"] for one in yaml.safe_load(rules)["groups"]]
    assert names == ["perdure-ratios", "perdure-alerts", "perdure-review", "perdure-slo"]
    assert "perdure_jobs_ended_total" in names_in(rules)


def test_without_its_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda _: None)
    with pytest.raises(
        CallerError, match=r"^--metrics-port needs .*pip install 'perdure\[metrics\]'$"
    ):
        metrics.check_metrics_extra("--metrics-port")


def test_a_port_that_is_none_is_refused_in_one_line():
    for port in ("65536", "-1", "http"):
        with pytest.raises(ConfigError, match=rf"PERDURE_METRICS_PORT is '{port}'; it must be"):
            load({"PERDURE_METRICS_PORT": port})
    assert load({"PERDURE_METRICS_PORT": "off"}).metrics_port is None
    assert load({"PERDURE_METRICS_PORT": "65535"}).metrics_port == 65_535
