"""The benchmark of whole workers keeps working, and cannot cheat: a drain counts what was finished."""

import pytest
from benchmarks.stores.places import Places
from benchmarks.workers import measures
from benchmarks.workers.measures import CONTENDERS, Sizes, drained, summary
from benchmarks.workers.perdure_side import Perdure
from benchmarks.workers.told import told

SCHEMES = ("sqlite", "postgresql")
EACH = [(scheme, name) for scheme in SCHEMES for name in CONTENDERS[scheme]]
TINY = Sizes(
    rounds=1, jobs=20, jobs_slow=5, retries=20, retries_slow=3, samples=2, in_flight=10
)  # fmt: skip


@pytest.fixture
def places(postgres, tmp_path) -> Places:
    return Places(postgres, tmp_path)


@pytest.mark.parametrize(("scheme", "name"), EACH)
def test_every_contender_drains_jobs_that_fail_once(places, scheme, name):
    assert measures.retries(places, scheme, name, TINY) > 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_our_worker_is_timed_and_weighed(places, scheme):
    assert len(measures.pick_up(places, scheme, "perdure", TINY)) == TINY.samples
    assert measures.memory(places, scheme, "perdure", TINY) > 10


def test_a_contender_that_loses_a_job_is_refused(places, monkeypatch):
    class Losing(Perdure):
        def enqueue(self, what, payloads):
            super().enqueue(what, payloads[1:])

    monkeypatch.setitem(CONTENDERS["sqlite"], "perdure", Losing)
    with pytest.raises(AssertionError, match="finished 4 of 5 jobs"):
        drained(places, "sqlite", "perdure", "nothing", 5)


def test_the_table_says_where_an_aim_is_missed():
    found = {
        "noise": [{"load": 0.0}],
        "sqlite": {
            "drain, 1 process": {
                "perdure": summary("drain, 1 process", [900.0]),
                "huey": summary("drain, 1 process", [100.0]),
            },
            "pick-up": {
                "perdure": summary("pick-up", [[1.0, 3.0]]),
                "huey": summary("pick-up", [[2.0, 6.0]]),
            },
        },
    }
    said = told(found)
    assert "9.0x (aim 10x)" in said
    assert "2.0x ok" in said
