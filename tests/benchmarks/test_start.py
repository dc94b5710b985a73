"""The benchmark of starts keeps working: everybody is really started, and what fails is said to have failed."""

import json
import sys

import pytest

from benchmarks import start


@pytest.mark.long
def test_the_whole_of_it_makes_a_table_and_json(tmp_path, monkeypatch, capsys):
    written = tmp_path / "start.json"
    monkeypatch.setattr(sys, "argv", ["start.py", "--quick", "--json", str(written)])
    start.main()
    found = json.loads(written.read_text())
    assert set(found) == {"import", "--version"}
    assert set(found["import"]) == {"perdure", "procrastinate", "celery", "huey"}
    assert set(found["--version"]) == {"perdure", "procrastinate", "celery"}
    assert capsys.readouterr().out.count("\n| ") == 2


def test_the_table_has_the_ratio_to_the_peer_and_leaves_out_what_a_contender_has_not():
    found = {"import": {"perdure": 0.3, "procrastinate": 0.2, "celery": 0.1}}
    assert start.told(found)[-1] == "| import | 0.300 s | 0.200 s | 0.100 s |  | 1.50 |"


def test_a_contender_that_does_not_start_ends_the_benchmark_by_its_name():
    with pytest.raises(SystemExit, match="import nowhere has failed"):
        start.cpu_s([sys.executable, "-c", "import nowhere"])
