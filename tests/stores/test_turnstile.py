"""The writers' line: two processes take turns, and a stopped one costs a bounded wait."""

import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest

from perdure.model.errors import StoreBusy
from perdure.stores.sqlite.turnstile import Turnstile
from tests.stores.kit import Place, file_in

TURNS = 60

# Takes turns and signs each in a common book; with "plain", by the lock alone, without the line.
SIGNER = """
import fcntl, os, sys, time
from contextlib import contextmanager
from perdure.stores.sqlite.turnstile import Turnstile

path, name, turns, how = sys.argv[1:]
line = Turnstile(path, wait_s_max=60)

@contextmanager
def plain():
    give_up_at = time.monotonic() + 60
    line._take(line._main, give_up_at)
    try:
        yield
    finally:
        fcntl.flock(line._main, fcntl.LOCK_UN)

turn = line.held if how == "fair" else plain
print("ready", flush=True)
sys.stdin.readline()
with open(path + "-book", "a", buffering=1) as book:
    for _ in range(int(turns)):
        with turn():
            book.write(name)
            book.flush()
            time.sleep(0.002)
"""

# Takes its turn and keeps it until it is told to end.
HOLDER = """
import sys
from perdure.stores.sqlite.turnstile import Turnstile

with Turnstile(sys.argv[1], wait_s_max=60).held():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def start():
    """Start python programs; end them, by their own ids, whatever happens."""
    started: list[subprocess.Popen[str]] = []

    def program(source: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield program
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def signed(start, path: str, how: str) -> str:
    """The signatures of two processes that take as many turns each as they can."""
    signers = [start(SIGNER, path, name, str(TURNS), how) for name in "ab"]
    for signer in signers:
        said(signer, "ready")
    for signer in signers:
        signer.stdin.write("go\n")
        signer.stdin.flush()
    assert [signer.wait(60) for signer in signers] == [0, 0]
    return Path(f"{path}-book").read_text()


def longest_run(book: str) -> int:
    return max(len(list(run)) for _, run in groupby(book))


def test_two_processes_take_turns(tmp_path, start):
    book = signed(start, file_in(tmp_path), "fair")
    assert sorted(book) == ["a"] * TURNS + ["b"] * TURNS
    turns = [len(list(run)) for _, run in groupby(book)]
    # Each may sign alone before the other has begun and after it has ended.
    assert max(turns[1:-1], default=0) <= 5, book


def test_a_lock_without_a_line_would_let_one_starve_the_other(tmp_path, start):
    book = signed(start, file_in(tmp_path), "plain")
    assert longest_run(book) > 5, book


def test_a_stopped_holder_costs_the_other_a_bounded_wait(tmp_path, start):
    place = Place(file_in(tmp_path), wait_s_max=0.3)
    place.put()
    holder = start(HOLDER, place.path)
    said(holder, "held")
    holder.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="it may be stopped"):
        place.put()
    assert 0.3 <= time.monotonic() - began < 5.0
    assert place.reader.books().queued == 1  # readers never wait in line
    holder.send_signal(signal.SIGCONT)
    assert holder.communicate("end\n")[0] == ""
    place.put()
    place.clean()
    place.close()


def test_a_holder_that_dies_lets_go(tmp_path, start):
    place = Place(file_in(tmp_path))
    holder = start(HOLDER, place.path)
    said(holder, "held")
    holder.kill()
    holder.wait(10)
    place.put()
    place.close()


def test_one_who_waits_in_vain_leaves_the_line_for_others(tmp_path, start):
    path = file_in(tmp_path)
    holder = start(HOLDER, path)
    said(holder, "held")
    hasty = Turnstile(path, wait_s_max=0.05)
    with pytest.raises(StoreBusy), hasty.held():
        raise AssertionError("the line was not kept")
    holder.communicate("end\n")
    with Turnstile(path, wait_s_max=1.0).held():
        pass
    with hasty.held():
        pass


def test_what_is_raised_in_a_turn_ends_the_turn(tmp_path):
    line, other = (Turnstile(file_in(tmp_path), wait_s_max=0.2) for _ in range(2))
    with pytest.raises(ZeroDivisionError), line.held():
        raise ZeroDivisionError
    with other.held():
        pass
    line.close()
    other.close()
