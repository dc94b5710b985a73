"""The tour itself, called as a function: when things go wrong with it and not with the work."""

import os
import signal
import sys
from io import StringIO

import pytest
from rich.console import Console

from perdure.demo.tour import Interrupts, TourOrder, TourSnapshot, give_tour
from perdure.surfaces.cli.demo_panel import panel, progress_line
from tests.demo.kit import marked, swept, until

WORKER = (sys.executable, "-m", "perdure.surfaces.cli", "worker")


@pytest.fixture
def folder(tmp_path):
    with swept(str(tmp_path)):
        yield tmp_path


def test_a_worker_that_ends_by_itself_ends_the_tour_with_its_last_words(folder):
    lame = (sys.executable, "-c", "print('no such luck'); raise SystemExit(5)")
    summary = give_tour(TourOrder(items=20, seed=1, folder=folder, command=lame), lambda shot: None)
    assert any(
        "ended by itself with status 5; its last words: no such luck" in one
        for one in summary.complaints
    )
    assert summary.books.queued == 20


@pytest.fixture
def broken_off(folder):
    """What was shown of a tour whose screen broke when three items were done."""
    shots: list[TourSnapshot] = []

    def show(shot: TourSnapshot) -> None:
        shots.append(shot)
        if shot.look.settled >= 3:
            assert len(marked(str(folder))) >= 4
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        give_tour(TourOrder(items=20, seed=1, folder=folder, command=WORKER), show)
    return shots


def test_a_screen_that_breaks_leaves_no_process_and_all_it_showed_adds_up(broken_off, folder):
    until("no process is left", lambda: not marked(str(folder)), within_s=30)
    for shot in broken_off:
        books, look = shot.look.books, shot.look
        assert 0 <= look.retrying <= books.queued
        assert look.settled + books.queued + books.processing == 20
        assert f"{look.settled} of 20 done" in progress_line(shot)
        screen = Console(width=80, file=StringIO())
        with screen.capture() as drawn:
            screen.print(panel(shot))
        lines = drawn.get().splitlines()
        assert len(lines) < 24
        assert f"{books.succeeded} succeeded  {books.failed} failed" in lines[1]


def test_a_signal_is_heard_once_and_not_while_we_clean_up():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.deafen()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    with Interrupts() as interrupts:
        interrupts.deafen()
        os.kill(os.getpid(), signal.SIGHUP)
