"""The benchmark of the log keeps working, and every way of logging has really written."""

import json
import sys

from benchmarks import logs


def test_the_whole_of_it_makes_a_table_and_json(tmp_path, monkeypatch, capsys):
    written = tmp_path / "logs.json"
    monkeypatch.setattr(sys, "argv", ["logs.py", "--quick", "--json", str(written)])
    logs.main()
    found = {way: costs[0] for way, costs in json.loads(written.read_text()).items()}
    assert tuple(found) == logs.WAYS
    assert found["none"]["lines"] == 0
    for way in ("text, direct", "JSON, direct", "JSON, queued"):
        assert found[way]["lines"] >= logs.JOBS_QUICK, way
    assert 0 < found["text, queued"]["lines"] < logs.JOBS_QUICK
    assert all(cost["pump_ms"] > 0 and cost["dropped"] == 0 for cost in found.values())
    assert capsys.readouterr().out.count("\n| ") == len(logs.WAYS)


def test_what_a_line_costs_is_what_the_pump_takes_more_than_without_a_log():
    bare = {"lines": 0, "bytes": 0, "pump_ms": 100.0, "process_ms": 0.0, "dropped": 0}
    table = logs.told({"none": [bare], "JSON, queued": [bare | {"pump_ms": 150.0}]}, jobs=5_000)
    assert table[-1].split(" | ")[3:5] == ["150", "10.0"]
