"""The demonstration itself: 10,000 samples, a kill, an outage, a withdrawn key, a real model; and that it notices what is wrong."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.house.tree import ROOT


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the demonstration adds
    from examples.datasets import demo

    return demo


def test_its_source_and_plan_have_the_faults_of_the_document(demo, tmp_path):
    demo.write_source(tmp_path / "source", 10_000)
    lines = (tmp_path / "source").read_text().splitlines()
    too_long = sum(len(line) > demo.PROMPT_CHARS_MAX for line in lines)
    assert (len(lines), too_long) == (10_000, 100)
    plans = {}
    demo.plan_faults(SimpleNamespace(plan=lambda id, *faults: plans.update({id: faults})), "x", 10_000)  # fmt: skip
    once = [faults for faults in plans.values() if len(faults) == 1]
    assert (len(once), len(plans) - len(once)) == (502, 10)
    assert {faults[0].name for faults in once} == set(demo.FAULTS)
    long, doomed = demo.too_long(10_000), demo.doomed(10_000)
    assert {json.loads(line)["id"] for line in lines if len(line) > demo.PROMPT_CHARS_MAX} == long
    assert {id.partition("/")[2] for id, faults in plans.items() if len(faults) > 3} == doomed


def test_a_death_that_was_not_planned_and_a_row_that_is_missing_are_told(demo, tmp_path):
    shown = demo.Demonstration(SimpleNamespace(folder=tmp_path), 2_000)
    shown.shard = tmp_path / "ab"
    ids = [f"s{number:05}" for number in range(2_000) if number % 500 != 11 and number != 1_000]
    rows = [{"id": id, "artifact": "abcd" if id in ("s00020", "s00007") else "cdef"} for id in ids]
    dead = [*(("label", f"reviews/{id}") for id in demo.too_long(2_000) | demo.doomed(2_000)),
            ("pick", "reviews:line-1001"), ("keep", "reviews/s00020")]  # fmt: skip
    letters = [{"stage": stage, "key": key} for stage, key in dead]
    keys = {key for _, key in dead}
    before = [row for row in rows if f"reviews/{row['id']}" not in keys]
    shown.check_plan(letters, before, rows)
    assert shown.wrong == []
    shown.check_plan([*letters, {"stage": "label", "key": "reviews/s00100"}], before[1:], rows)
    assert shown.wrong == [
        "dead letters of label that were not to be, or are missing: ['reviews/s00100'], and not []",
        "rows before mending that were not to be, or are missing: ['reviews/s00000', 'reviews/s00100'], and not []",
    ]


def test_a_fault_that_struck_nobody_a_stage_done_twice_and_books_that_do_not_balance_are_told(demo, tmp_path):  # fmt: skip
    ended = SimpleNamespace(returncode=1, stdout="", stderr="they do not balance")
    system = SimpleNamespace(folder=tmp_path, run=lambda *_: ended, number=lambda _: 2)
    (tmp_path / "report.html").write_text("<svg")
    shown = demo.Demonstration(system, 10_000)
    shown.close_books(SimpleNamespace(url="", struck={"429": 3}))
    told = "\n".join(shown.wrong)
    assert "the fault '500' struck nobody" in told
    assert "the fault '429'" not in told
    assert "finished stages that were done twice: 2, and not 0" in told
    assert "the exit of the audit: 1, and not 0" in told
    assert "pictures in the report: 1, and not 5" in told


@pytest.mark.long
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("time", ["first", "second"])
def test_ten_thousand_samples_end_complete_whatever_strikes(tmp_path, time):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DATASETS_")}  # fmt: skip
    command = ["make", "-s", "-C", str(ROOT), "example-datasets"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert said.rstrip().splitlines()[-1].startswith("everything is as it must be")
    assert "were killed with SIGKILL; both are started again" in said
    assert "its queue is held, and nothing is aborted" in said
    assert "the rate of failures is 100 %, the budget is 10 %" in said
    assert "\nclean\n" in said
    counts = (
        r"status=completed total=10000 succeeded=(\d+) failed=(\d+) dlq=(\d+) skipped=20 pending=0"
    )
    first, mended = (tuple(map(int, found)) for found in re.findall(counts, said))
    blocked = int(re.search(r"(\d+) of a folder that could not be written to", said)[1])
    assert blocked > 0
    assert first == (9_980 - 111 - blocked, 111 + blocked, 111 + blocked)
    assert mended == (9_979, 1, 1)
