"""The tour's processes: found, held still, killed and ended, down to the last grandchild."""

import os
import signal
import sys
from pathlib import Path

import pytest

from perdure.demo import crew as crew_module
from perdure.demo.crew import Crew, DemoWorker, Grip, descendants, parents_of_all, strike
from tests.demo.kit import marked, state_of, swept, until

# A parent with a child in a session of its own, as a supervisor has; both deaf to SIGTERM if told.
FAMILY = """
import signal, subprocess, sys, time
deaf = sys.argv[1] == "deaf"
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
rest = "import signal, time; " + ("signal.signal(15, signal.SIG_IGN); " if deaf else "")
child = subprocess.Popen([sys.executable, "-c", rest + "print('up', flush=True); time.sleep(60)"],
                         start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
if not deaf:
    def end(*_):
        child.kill(); child.wait(); sys.exit(0)
    signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture
def mark(tmp_path):
    """What every process of the test has in its environment."""
    text = f"mark of {tmp_path}"
    with swept(text):
        yield text


@pytest.fixture
def hire(tmp_path, mark, monkeypatch):
    """Start a family as a crew does; the crew is left, and so ends them, in the test."""

    def start(manner: str) -> tuple[Crew, DemoWorker]:
        environment = {**os.environ, "DEMO_MARK": mark}
        command = [sys.executable, "-c", FAMILY, manner]
        crew = Crew(command, folder=tmp_path, environment=environment)
        demo_worker = crew.hire()
        until("the family is up", lambda: "ready" in demo_worker.log.read_text(), within_s=20)
        return crew, demo_worker

    return start


def test_children_in_sessions_of_their_own_are_found(hire, mark):
    crew, demo_worker = hire("meek")
    with crew:
        (child,) = descendants(demo_worker.pid)
        assert {demo_worker.pid, child} == set(marked(mark))
        assert os.getsid(child) != os.getsid(demo_worker.pid)


def test_ps_and_proc_agree_about_who_is_whose_child(hire):
    crew, demo_worker = hire("meek")
    with crew:
        by_ps, by_proc = crew_module._parents_by_ps(), parents_of_all()
        (child,) = descendants(demo_worker.pid)
        for pid in (os.getpid(), demo_worker.pid, child):
            assert by_ps[pid] == by_proc[pid]


def test_a_grip_holds_all_still_and_lets_all_go(hire):
    crew, demo_worker = hire("meek")
    with crew:
        (child,) = descendants(demo_worker.pid)
        with Grip(demo_worker):
            until("both are stopped", lambda: both(demo_worker, child) == {"T"}, within_s=30)
        until("both go on", lambda: both(demo_worker, child) <= {"S", "R"}, within_s=30)
        assert not demo_worker.killed


def both(demo_worker: DemoWorker, child: int) -> set[str | None]:
    return {state_of(demo_worker.pid), state_of(child)}


def test_a_strike_leaves_nobody(hire, mark):
    crew, demo_worker = hire("deaf")
    with crew:
        strike(demo_worker)
        until("all are gone", lambda: not marked(mark), within_s=30)
        assert demo_worker.killed
        assert demo_worker.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("manner", ["meek", "deaf"])
def test_leaving_the_crew_ends_the_willing_and_the_unwilling(hire, mark, monkeypatch, manner):
    monkeypatch.setattr(crew_module, "_END_S_MAX", 5.0 if manner == "meek" else 0.2)
    crew, demo_worker = hire(manner)
    assert len(marked(mark)) == 2
    with crew:
        pass
    until("all are gone", lambda: not marked(mark), within_s=30)
    assert demo_worker.process.returncode == (0 if manner == "meek" else -signal.SIGKILL)


def test_leaving_the_crew_by_an_exception_ends_everybody(hire, mark):
    crew, _ = hire("meek")
    with pytest.raises(ZeroDivisionError), crew:
        _ = 1 / 0
    until("all are gone", lambda: not marked(mark), within_s=30)


def test_a_command_that_dies_with_its_parent_is_not_started_for_a_parent_that_has_ended(
    tmp_path, mark
):
    program = Path(crew_module.__file__).with_name("die_with_parent.py")
    nobody = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "pass"])
    assert nobody == 0
    said = tmp_path / "said"
    status = os.spawnv(
        os.P_WAIT,
        sys.executable,
        [sys.executable, str(program), "1", sys.executable, "-c", f"open({str(said)!r}, 'w')"],
    )
    assert status == 1
    assert not said.exists()
