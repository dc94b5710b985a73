"""The benchmark of whole workers keeps working, and cannot cheat: a drain counts what was finished."""

import fcntl
import subprocess
import sys

import pytest
from benchmarks.stores.places import Places
from benchmarks.workers import ledger, measures
from benchmarks.workers.crew import Crew, _writing, state_of
from benchmarks.workers.measures import CONTENDERS, Sizes, _at_work, drained, summary
from benchmarks.workers.perdure_side import Perdure
from benchmarks.workers.told import told

from tests.engine.kit import until

SCHEMES = ("sqlite", "postgresql")
EACH = [(scheme, name) for scheme in SCHEMES for name in CONTENDERS[scheme]]
# A worker of each kind starts several processes: one of each store in every run, the others in the long one.
SOME = [
    pytest.param(
        *one,
        marks=() if one in (("sqlite", "huey"), ("postgresql", "perdure")) else pytest.mark.long,
    )
    for one in EACH
]
TINY = Sizes(
    rounds=1,
    jobs=20,
    jobs_slow=5,
    retries=20,
    retries_pgqueuer=10,
    retries_slow=3,
    singles=5,
    samples=2,
    steady=10,
    in_flight=10,
)


@pytest.fixture
def places(postgres, tmp_path) -> Places:
    return Places(postgres, tmp_path)


@pytest.mark.parametrize(("scheme", "name"), SOME)
def test_every_contender_drains_jobs_that_fail_once(places, scheme, name):
    assert measures.retries(places, scheme, name, TINY) > 0


def test_our_worker_is_timed(places):
    assert len(measures.pick_up(places, "sqlite", ["perdure"], TINY)["perdure"]) == TINY.samples


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_our_worker_is_timed_under_load_and_weighed(places, scheme):
    assert len(measures.pick_up(places, scheme, ["perdure"], TINY)["perdure"]) == TINY.samples
    assert len(measures.steady(places, scheme, ["perdure"], TINY)["perdure"]) == TINY.steady
    assert measures.memory(places, scheme, "perdure", TINY) > 10


@pytest.mark.parametrize(("scheme", "name"), EACH)
def test_every_contender_enqueues_one_by_one_and_many_at_once(places, scheme, name):
    assert measures.bulk(places, scheme, name, TINY) > 0
    assert measures.single(places, scheme, name, TINY) > 0


@pytest.mark.parametrize(("scheme", "name"), SOME)
def test_nobody_begins_while_the_jobs_are_enqueued(places, scheme, name):
    """Every process of the crew, and those below: a look finds them all at rest, and then all at work."""
    with _at_work(places, scheme, name, count=2) as (contender, workers):
        family = workers._family()
        with workers.frozen():
            assert {state_of(pid) for pid in family} == {"T"}
            contender.enqueue("timed", [{"sent_ns": 0}] * 5)
            assert ledger.lines(workers.folder, "timed") == []
        assert "T" not in {state_of(pid) for pid in family}
        workers.until(lambda: len(ledger.lines(workers.folder, "timed")) == 5, within_s=30)


def test_nobody_is_stopped_with_a_file_locked(tmp_path):
    """A process that locks its file again and again, as one that polls does; what it has locked is seen."""
    file = tmp_path / "locked"
    program = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'w')\n"
        "while True:\n"
        "    fcntl.flock(file, fcntl.LOCK_EX); time.sleep(0.02)\n"
        "    fcntl.flock(file, fcntl.LOCK_UN); time.sleep(0.01)\n"
    )
    one = subprocess.Popen([sys.executable, "-c", program, str(file)])
    crew = Crew(tmp_path, [one], tmp_path / "log")
    try:
        until(lambda: _writing([one.pid]), "it has its lock")
        for _ in range(10):
            with crew.frozen(), file.open() as ours:
                fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        one.kill()
        one.wait()


def test_an_enqueue_that_fails_leaves_nobody_standing_still(places):
    with _at_work(places, "sqlite", "perdure") as (_, workers):
        with pytest.raises(ZeroDivisionError), workers.frozen():
            _ = 1 // 0
        assert "T" not in {state_of(pid) for pid in workers._family()}


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
