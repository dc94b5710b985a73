"""The benchmark of the gates keeps working, and what it times has really happened."""

import json
import sys

import pytest
from benchmarks.stores import gated
from benchmarks.stores.ours import counted
from benchmarks.stores.places import Places

from benchmarks import gates
from perdure.model.gates import GateState


@pytest.fixture
def places(postgres, tmp_path) -> Places:
    return Places(postgres, tmp_path, log_files=1)


@pytest.fixture(params=gates.SCHEMES)
def field(request, places):
    with places.fresh(request.param) as url:
        made = gated.GatedField(url, rows=gated.FEW)
        yield made
        made.close()


def test_claims_go_past_the_held_jobs_and_a_probe_takes_one_of_them(field):
    reader = field.ours.opened.reader
    before = [one.ready for one in reader.depths()]
    field.look()
    for _ in range(3):
        wall_ms, cpu_ms = field.probe()
        assert wall_ms > 0
        assert cpu_ms >= 0
    gate = reader.gate(gated.GATE)
    assert (gate.state, gate.generation) == (GateState.HELD, 7)
    assert counted(field.ours.url) == (0, 3)
    assert [one.ready for one in reader.depths()] == before
    assert reader.audit() == []
    assert field.measure()[0] > 0
    assert [one.ready for one in reader.depths()] == before


def test_a_probe_that_finds_no_job_is_refused(places):
    with places.fresh("sqlite") as url:
        empty = gated.GatedField(url, rows=0)
        with pytest.raises(AssertionError, match="no job was claimed"):
            empty.probe()
        empty.close()


@pytest.mark.long
def test_the_whole_of_it_makes_tables_and_json(postgres, tmp_path, monkeypatch, capsys):
    written = tmp_path / "gates.json"
    monkeypatch.setattr(
        sys, "argv", ["gates.py", "--quick", "--store", "sqlite", "--json", str(written)]
    )
    gates.main()
    found = json.loads(written.read_text())
    assert set(found["sqlite"]) == {"claim of 100", "look at gates", "probe"}
    assert found["sqlite"]["probe"]["2000"]["samples"] == gates.SAMPLES_QUICK
    assert "aim 2 x" in capsys.readouterr().out


def test_a_claim_that_is_thrice_as_slow_misses_the_aim():
    slow = {"p50_ms": 3.0, "p99_ms": 3.0, "cpu_p50_ms": 3.0, "cpu_p99_ms": 3.0}
    quick = dict.fromkeys(slow, 1.0)
    assert "3.00 x; aim 2 x: MISSED" in gates.told(
        "sqlite", {"claim of 100": {"200": quick, "1000000": slow}}
    )
    assert ": met" in gates.told("sqlite", {"claim of 100": {"200": slow, "1000000": quick}})
