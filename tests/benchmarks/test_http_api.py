"""The benchmark of the HTTP API keeps working, and its verdicts follow from its figures."""

import json
import sys
from typing import Any

import pytest
from benchmarks.serving.measures import area

from benchmarks import http_api


def measured(tmp_path, monkeypatch, *only: str) -> dict[str, Any]:
    written = tmp_path / "http.json"
    words = [word for one in only for word in ("--only", one)]
    quick = ["http_api.py", "--quick", "--store", "sqlite", "--json", str(written), *words]
    monkeypatch.setattr(sys, "argv", quick)
    http_api.main()
    found: dict[str, Any] = json.loads(written.read_text())["sqlite"]
    return found


def test_what_time_tells_is_measured(tmp_path, monkeypatch, capsys):
    found = measured(tmp_path, monkeypatch, "telling")
    assert set(found) == {"telling"}
    assert found["telling"]["tries"] == http_api.QUICK.tries
    assert capsys.readouterr().out.count("aim") == 1


@pytest.mark.long
def test_the_whole_of_it_makes_lines_and_json(tmp_path, monkeypatch, capsys):
    found = measured(tmp_path, monkeypatch)
    assert set(found) == set(http_api.MEASURES)
    assert found["creates"]["bare"]["per_s"] > 0
    assert (found["load"]["errors"], found["load"]["books"]) == (0, "balanced")
    assert found["load"]["statuses"]["list 200"] > 0
    assert found["listeners"]["5"]["heard_share"] > 0
    assert found["telling"]["tries"] == http_api.QUICK.tries
    assert len(found["answers"]) > 12
    assert all(set(one) == {"1000", "2000"} for one in found["answers"].values())
    assert capsys.readouterr().out.count("aim") == 5


def test_an_area_is_one_where_times_tell_all_and_a_half_where_they_tell_nothing():
    assert area([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert area([1.0, 2.0], [3.0, 4.0]) == 0.0
    assert area([1.0, 2.0, 2.0], [1.0, 2.0, 2.0]) == 0.5


def test_errors_growth_and_a_time_that_tells_miss_their_aims():
    bad = {
        "load": {"statuses": {}, "errors": 1, "shed": 0, "memory_mib": [10, 20], "books": "off"},
        "telling": {"auc": 0.7, "tries": 10},
    }
    assert http_api.told("sqlite", bad).count("MISSED") == 4
    slow = {"/api/jobs": {"1000": 1.0, "2000": 2.1}, "/api/dead": {"1000": 1.0, "2000": 1.9}}
    told = http_api.told("sqlite", {"answers": slow})
    assert "answers: 1 of 2 within 2 x; aim all: MISSED" in told
