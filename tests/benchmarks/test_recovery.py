"""The benchmark of recoveries keeps working: what it times has happened, and a bound that is missed is said to be."""

import sys

import pytest

from benchmarks import recovery
from tests.servers.postgres import Server


def judged(*taken_s: float) -> str:
    return recovery.told({"the thing": {"limit_s": 2.0, "taken_s": [*taken_s]}}).splitlines()[1]


def test_the_worst_of_all_is_what_counts():
    assert judged(0.5, 1.5, 1.0).split() == ["the", "thing", "3", "1.50", "2", "0.75", "met"]
    assert judged(0.5, 3.0, 1.0).split() == ["the", "thing", "3", "3.00", "2", "1.50", "MISSED"]


def test_what_was_never_noticed_is_missed_and_what_could_not_be_measured_is_said():
    assert judged(1.0, float("inf")).endswith("inf  MISSED")
    assert judged().endswith("not measured")


def test_a_story_that_breaks_down_shows_its_logs(capsys):
    def breaks_down() -> None:
        with recovery.told_quietly(None):
            print("worker a says")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks_down()
    assert capsys.readouterr() == ("", "worker a says\n")


def test_a_killed_child_is_timed_by_the_claim_that_comes_after(postgres):
    [took_s] = recovery.each_on("sqlite", recovery.child_killed, postgres, 1)
    assert took_s > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_bound_is_measured_once_and_the_table_has_a_line_for_each(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["recovery.py", "--rounds", "1"])
    recovery.main()
    lines = capsys.readouterr().out.splitlines()
    for one in recovery.BOUNDS:
        [line] = [line for line in lines if line.startswith(one.what)]
        assert line.endswith(("met", "MISSED", "not measured"))


@pytest.mark.long
def test_a_server_that_crashes_under_clients_is_timed_from_its_return():
    with Server() as server:
        [took_s] = recovery.crashed(server, 1)
    assert took_s > 0
