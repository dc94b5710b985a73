"""The writers' line: two processes take turns, and a stopped one costs a bounded wait."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.model.errors import StoreBusy
from perdure.stores.sqlite.turnstile import Turnstile
from tests.stores.kit import Place, file_in

ROUNDS = 20

# Takes one turn for every line it reads, and signs it in a book.
WAITER = """
import sys
from perdure.stores.sqlite.turnstile import Turnstile

line = Turnstile(sys.argv[1], wait_s_max=60)
with open(sys.argv[1] + "-book", "a") as book:
    for _ in sys.stdin:
        with line.hold():
            book.write("x")
            book.flush()
"""

# Takes its turn and keeps it until it is told to end.
HOLDER = """
import sys
from perdure.stores.sqlite.turnstile import Turnstile

with Turnstile(sys.argv[1], wait_s_max=60).hold():
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
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
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


def passed_over(start, path: str, again) -> int:
    """How often a waiting process was passed over by one that came back for a second turn.

    ``again`` takes the second turn. The first is taken here; the other process is in line before
    it ends.
    """
    line, book = Turnstile(path, wait_s_max=60), Path(f"{path}-book")
    waiter = start(WAITER, path)
    over = 0
    for done in range(ROUNDS):
        with line.hold():
            waiter.stdin.write("go\n")
            waiter.stdin.flush()
            until(lambda: in_line(path), "the other process is in line")
        with again(line):
            over += book.stat().st_size == done
        until(lambda signed=done + 1: book.stat().st_size == signed, "the other has had its turn")
    line.close()
    return over


def in_line(path: str) -> bool:
    """Whether somebody waits for the turn that is being had."""
    place = os.open(f"{path}-next", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(place)


def until(condition, what: str) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at, f"not within 30 s: {what}"
        time.sleep(0.0005)


@contextmanager
def without_the_line(line: Turnstile):
    """The lock alone, as it would be without a turnstile before it."""
    line._take(line._main, time.monotonic() + 30)
    try:
        yield
    finally:
        fcntl.flock(line._main, fcntl.LOCK_UN)


def test_a_process_that_comes_back_at_once_does_not_pass_one_that_waits(tmp_path, start):
    assert passed_over(start, file_in(tmp_path), Turnstile.hold) == 0


def test_a_lock_without_a_line_would_let_one_pass_the_other(tmp_path, start):
    assert passed_over(start, file_in(tmp_path), without_the_line) > 0


def test_a_stopped_holder_costs_the_other_a_bounded_wait(tmp_path, start):
    place = Place(file_in(tmp_path), wait_s_max=0.3)
    place.put()
    holder = start(HOLDER, place.path)
    said(holder, "held")
    holder.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="it may be stopped"):
        place.put()
    assert time.monotonic() - began >= 0.3
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
    holder.wait(30)
    place.put()
    place.close()


def test_one_who_waits_in_vain_leaves_the_line_for_others(tmp_path, start):
    path = file_in(tmp_path)
    holder = start(HOLDER, path)
    said(holder, "held")
    hasty = Turnstile(path, wait_s_max=0.05)
    with pytest.raises(StoreBusy), hasty.hold():
        raise AssertionError("the line was not kept")
    holder.communicate("end\n")
    with Turnstile(path, wait_s_max=1.0).hold():
        pass
    with hasty.hold():
        pass


def test_a_line_that_is_left_in_the_middle_of_a_turn_is_left_quietly(tmp_path):
    line, other = (Turnstile(file_in(tmp_path), wait_s_max=0.2) for _ in range(2))
    turn = line.hold()
    turn.__enter__()
    line.close()
    turn.__exit__(None, None, None)
    with other.hold():
        pass
    other.close()


def test_what_is_raised_in_a_turn_ends_the_turn(tmp_path):
    line, other = (Turnstile(file_in(tmp_path), wait_s_max=0.2) for _ in range(2))
    with pytest.raises(ZeroDivisionError), line.hold():
        raise ZeroDivisionError
    with other.hold():
        pass
    line.close()
    other.close()
