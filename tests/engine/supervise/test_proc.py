"""What /proc says about a process: runs, stopped, ended and how; and that a number given again is another process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.engine.supervise.proc import Gone, ProcessTable, Running, Stopped, has_proc
from tests.engine.kit import until


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def line(state: str, *, started: int = 77, status: int = 0, name: str = "a name) (S 1") -> str:
    fields = ["0"] * 50
    fields[0], fields[19], fields[49] = state, str(started), str(status)
    return f"12 ({name}) {' '.join(fields)}\n"


def pretended(root: Path, text: str) -> ProcessTable:
    (root / "proc/12").mkdir(parents=True, exist_ok=True)
    (root / "proc/12/stat").write_text(text)
    return ProcessTable(12, root=root)


def test_a_process_that_runs_stops_and_goes_on_is_seen_to(sleeper):
    host = ProcessTable(sleeper.pid)
    assert host.look() == Running()
    os.kill(sleeper.pid, signal.SIGSTOP)
    until(lambda: host.look() == Stopped(), "it is seen to be stopped")
    os.kill(sleeper.pid, signal.SIGCONT)
    until(lambda: host.look() == Running(), "it is seen to go on")


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9), ("", 0)],
)
def test_how_a_process_ended_is_seen_until_its_parent_has_asked(code, status):
    process = subprocess.Popen([sys.executable, "-c", code])
    host = ProcessTable(process.pid)
    until(lambda: isinstance(host.look(), Gone), "it has ended")
    assert host.look() == Gone(status)
    process.wait()
    assert host.look() == Gone(None)


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("R", Running()), ("S", Running()), ("D", Running()), ("I", Running()),
        ("T", Stopped()), ("t", Stopped()), ("X", Gone(0)),
    ],
)  # fmt: skip
def test_every_state_of_the_kernel_is_one_of_ours(tmp_path, state, seen):
    assert pretended(tmp_path, line(state)).look() == seen


def test_a_number_that_was_given_again_is_another_process(tmp_path):
    host = pretended(tmp_path, line("S", started=77))
    assert host.look() == Running()
    pretended(tmp_path, line("S", started=78))
    assert host.look() == Gone(None)


def test_a_process_that_had_ended_before_we_looked_stays_gone(tmp_path):
    host = ProcessTable(12, root=tmp_path)
    pretended(tmp_path, line("S"))
    assert host.look() == Gone(None)


def test_without_proc_there_is_nothing_to_see(tmp_path):
    assert has_proc()
    assert not has_proc(tmp_path)
