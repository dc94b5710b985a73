"""perdure demo, as people run it: real processes, real signals, nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.demo.script import Fault
from tests.demo.kit import marked, swept, until

pytestmark = pytest.mark.story

DEMO = (sys.executable, "-m", "perdure.surfaces.cli", "demo")


class Place:
    """A folder for temporary files; its path is in the environment of all that runs there."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "temporary files"
        self.temporary.mkdir()
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.mark = str(self.temporary)
        self.environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PERDURE_STORE": "sqlite:////nowhere/of-mine.db",
            "PERDURE_CONCURRENCY": "1",
            "http_proxy": "http://127.0.0.1:9",
        }

    def demo(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DEMO, *options],
            cwd=self.elsewhere,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    @contextmanager
    def begun(self, words: str) -> Iterator[subprocess.Popen[str]]:
        """A tour that has just written a line with these words."""
        with subprocess.Popen(
            DEMO,
            cwd=self.elsewhere,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert any(re.search(words, line) for line in process.stdout)
                yield process
            finally:
                process.kill()

    def nothing_left(self) -> None:
        """No process (one that was just killed may take a moment), no file here or beside us."""
        assert [*self.temporary.iterdir(), *self.elsewhere.iterdir()] == []
        until("no process is left", lambda: not marked(self.mark), within_s=30)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    here = Place(tmp_path)
    with swept(here.mark):
        yield here


def test_a_small_tour_strikes_every_fault_accounts_for_every_item_and_leaves_nothing(place):
    done = place.demo("--items", "30", "--seed", "4", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    books = said["books"]
    assert said["ok"]
    assert said["complaints"] == said["findings"] == []
    assert (books["accepted"], books["succeeded"] + books["failed"]) == (30, 30)
    assert all(said["faults"][fault.value] > 0 for fault in Fault), said["faults"]
    assert said["faults"]["crash"] == 3  # with the others, beside suspects, alone
    causes = {(one["reason"], one["kind"], one["count"]) for one in said["failures"]}
    assert causes == {("fatal", "invalid_request", 2), ("crashed", "worker_lost", 1)}
    assert said["rescued"] == said["bereaved"] - 1
    # Which item meets which faults depends on who was killed; it has met two kinds at least.
    kinds = {
        kind for line in said["history"] for kind in re.findall(r"retry in \S+ s: (\w+) \(", line)
    }
    assert len(kinds) >= 2, said["history"]
    assert "killed worker" in done.stderr
    place.nothing_left()


def test_a_tour_in_which_faults_do_not_strike_fails_and_names_them(place):
    kept = place.elsewhere / "kept here"
    left_out = ["429", "timeout", "crash", "sigkill"]
    without = [word for fault in left_out for word in ("--without", fault)]
    done = place.demo("--items", "20", *without, "--keep", str(kept))
    assert done.returncode == 1, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("NOT AS PROMISED")]
    assert [line.split(": ")[2].split()[0] for line in said] == left_out
    assert "20 in = 18 succeeded + 2 failed; nothing unaccounted" in done.stdout
    until("no process is left", lambda: not marked(place.mark), within_s=30)
    assert {"demo.db", "worker-A.log", "worker-B.log"} <= {one.name for one in kept.iterdir()}
    again = place.demo("--keep", str(kept))
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


def test_a_tour_that_is_not_done_in_time_fails_and_says_what_is_stuck(place):
    done = place.demo("--items", "500", "--limit-s", "0.1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "THE TIME RAN OUT: 500 items were not finished after" in done.stdout
    assert "NOT AS PROMISED" not in done.stdout
    assert "on a slow machine: perdure demo --items 200" in done.stdout
    assert "queued at fetch" in done.stdout
    place.nothing_left()


STARTED = "started worker B"
AT_WORK = "succeeded [1-9]"


@pytest.mark.parametrize(
    ("when", "number", "status"),
    [
        (AT_WORK, signal.SIGINT, 130),
        (STARTED, signal.SIGTERM, 143),
        (STARTED, signal.SIGHUP, 129),
    ],
)
def test_a_tour_that_is_told_to_end_cleans_up_first(place, when, number, status):
    with place.begun(when) as process:
        process.send_signal(number)
        assert process.wait(30) == status
    place.nothing_left()


def test_the_workers_of_a_tour_that_is_killed_end_with_it(place):
    with place.begun(AT_WORK) as process:
        process.kill()
        process.wait(30)
    until("no process is left", lambda: not marked(place.mark), within_s=30)
