"""The memory in which processes count: numbers that outlive their writer, and never fall."""

import mmap
import os
import signal
import threading
from contextlib import closing

import pytest

from perdure.model.events import Event, EventName
from perdure.model.metrics import ATTEMPT_FAILURES, EVENTS_TOLD, METRICS, TURN_SECONDS
from perdure.observers import shared_figures
from perdure.observers.process_figures import ProcessFigures
from perdure.observers.shared_figures import (
    PIECE_BYTES,
    FigureCells,
    SharedCells,
    cells_in,
    read_sums,
)

AWAY = Event(EventName.STORE_AWAY, {"reason": "gone"})
TOLD = (EVENTS_TOLD.name, ("store_away",))


@pytest.fixture
def shared():
    with closing(SharedCells(3)) as one:
        yield one


def sums(shared: SharedCells) -> dict:
    with mmap.mmap(shared.file, 0, prot=mmap.PROT_READ) as memory:
        return read_sums(memory)


def test_pieces_are_added_up_and_one_that_nobody_has_written_to_is_nothing(shared):
    for piece in (0, 2):
        counting = ProcessFigures(cells_in(shared.file, piece))
        counting(AWAY)
        counting.add_turn(0.004)
    found = sums(shared)
    assert found[TOLD] == [2.0]
    counts = found[TURN_SECONDS.name, ()]
    assert (sum(counts[:-1]), counts[-1]) == (2.0, pytest.approx(0.008))
    assert counts[TURN_SECONDS.buckets.index(0.005)] == 2.0


def test_a_writer_that_is_killed_leaves_its_numbers_and_the_next_one_goes_on(shared):
    for killed in (1, 2):
        child = os.fork()
        if child == 0:
            ProcessFigures(cells_in(shared.file, 1))(AWAY)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert sums(shared)[TOLD] == [float(killed)]
    ProcessFigures(cells_in(shared.file, 1))(AWAY)
    assert sums(shared)[TOLD] == [3.0]


def test_a_name_that_was_being_written_at_the_end_is_not_read():
    """What counts is how many bytes of names there are, and that is written last."""
    piece = bytearray(PIECE_BYTES)
    cells = FigureCells(piece)
    cells.numbers[cells.place(EVENTS_TOLD, "a")] += 1
    at = 16 + cells._head[1]
    piece[at : at + 4] = b'\x40\x00["'  # half a name
    again = FigureCells(piece)
    assert again.read() == {(EVENTS_TOLD.name, ("a",)): [1.0]}
    again.numbers[again.place(EVENTS_TOLD, "b")] += 1
    assert FigureCells(piece).read() == {
        (EVENTS_TOLD.name, ("a",)): [1.0],
        (EVENTS_TOLD.name, ("b",)): [1.0],
    }


def test_where_there_is_no_more_room_what_is_new_is_lost_and_nothing_else():
    cells = FigureCells()
    kept = cells.place(TURN_SECONDS)
    names = 0
    while (cells.place(ATTEMPT_FAILURES, "p" * 90, f"stage {names}", "timeout")) != (
        cells.place(ATTEMPT_FAILURES, "q" * 90, f"stage {names}", "timeout")
    ):
        names += 1
    assert 100 < names < 10_000
    cells.numbers[cells.place(ATTEMPT_FAILURES, "p" * 90, "one too many", "timeout")] += 7
    cells.numbers[kept] += 1
    assert sum(numbers[0] for numbers in cells.read().values()) == 1.0


def test_histograms_fill_the_cells_before_the_names_and_stop_there(monkeypatch):
    monkeypatch.setattr(shared_figures, "_CELLS", 100)
    cells = FigureCells()
    places = [cells.place(TURN_SECONDS, str(n)) for n in range(20)]
    width = TURN_SECONDS.width
    assert places[: len(set(places)) - 1] == [n * width for n in range(len(set(places)) - 1)]
    assert max(places) + max(one.width for one in METRICS) <= 100


def test_a_piece_of_another_version_is_begun_anew_and_not_read(shared):
    cells_in(shared.file, 0)._head[0] = 4711
    assert sums(shared) == {}
    ProcessFigures(cells_in(shared.file, 0))(AWAY)
    assert sums(shared)[TOLD] == [1.0]


def test_threads_that_count_at_once_lose_nothing():
    counting = ProcessFigures()
    threads = [
        threading.Thread(target=lambda: [counting(AWAY) for _ in range(2_000)]) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert counting.read()[TOLD] == [8_000.0]


def test_a_process_that_was_forked_off_while_somebody_counted_counts_for_itself(shared):
    """Two that write to one piece would take each other's cells for new series."""
    counting = ProcessFigures(cells_in(shared.file, 0))
    counting(AWAY)
    with counting._lock:  # as another thread of the parent might hold it
        child = os.fork()
        if child == 0:
            counting(AWAY)
            os._exit(int(counting.read()[TOLD][0]))
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert sums(shared)[TOLD] == [1.0]


@pytest.mark.parametrize(
    ("name", "kind", "status", "outcome"),
    [
        (EventName.JOB_SUCCEEDED, None, None, "ok"),
        (EventName.JOB_ADVANCED, None, None, "ok"),
        (EventName.JOB_RETRIED, None, None, "ok"),  # a snooze: it was answered
        (EventName.JOB_RETRIED, "invalid_output", None, "ok"),
        (EventName.JOB_FAILED, "invalid_request", 400, "ok"),
        (EventName.JOB_FAILED, "invalid_request", None, "other"),
        (EventName.JOB_RETRIED, "timeout", None, "failed"),
        (EventName.JOB_FAILED, "upstream_error", 500, "failed"),
        (EventName.JOB_RETRIED, "rate_limited", 429, "limited"),
        (EventName.JOB_RETRIED, "quota_window", 429, "limited"),
        (EventName.JOB_RETRIED, "worker_lost", None, "other"),
        (EventName.JOB_RETRIED, "no kind of ours", None, "failed"),
        (EventName.JOB_RELEASED, None, None, "other"),
        (EventName.JOB_CANCELLED, None, None, "other"),
    ],
)
def test_what_a_call_says_about_its_upstream(name, kind, status, outcome):
    counting = ProcessFigures()
    fields = {"pipeline": "p", "stage": "s", "duration_ms": 20.0, "upstream": "u"}
    counting(Event(name, fields | {"error_kind": kind, "upstream_status": status}))
    called = [labels for metric, labels in counting.read() if metric.startswith("perdure_upstream")]
    assert called == [("u", outcome)]


def test_what_was_never_attempted_is_no_attempt():
    counting = ProcessFigures()
    counting(Event(EventName.JOB_CANCELLED, {"pipeline": "p", "stage": "s", "duration_ms": None}))
    assert not any(name == "perdure_attempt_seconds" for name, _ in counting.read())
