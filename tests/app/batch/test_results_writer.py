"""Results on their way into a file while the store comes and goes: each line once, and no outage counts for another."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from perdure import App
from perdure.app.batch import results_writer
from perdure.app.batch.results_writer import Writer
from perdure.app.runs import Run, Sink
from perdure.engine.pauses import Absence
from perdure.model.errors import StoreUnavailable


@pytest.fixture
def run(tmp_path, monkeypatch) -> Iterator[Run]:
    """A run of seven items that has ended; three are read at once."""
    monkeypatch.setattr("perdure.engine.batch.results.ITEM_PAGE_ROWS", 3)
    app = App(f"sqlite:///{tmp_path}/p.db")
    app.pipeline("p", app.stage(name="same")(lambda item: item))
    with app.working():
        run = app.get_pipeline("p").run(list(range(7)), name="a", key=str)
        run.wait(wait_s=30)
    yield run
    app.close()


class Faulty:
    """A reader whose store is away at some of its looks."""

    def __init__(self, run: Run, is_away: Callable[[int], bool]) -> None:
        self._reader = run._session.opened.reader
        self._is_away = is_away
        self.looks = 0

    def items(self, *arguments, **named):
        self.looks += 1
        if self._is_away(self.looks):
            raise StoreUnavailable("away")
        return self._reader.items(*arguments, **named)


class Settled(threading.Event):
    """Set after so many waits, none of which takes any time."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._waits = waits

    def wait(self, timeout=None):
        self._waits -= 1
        if self._waits <= 0:
            self.set()
        return self.is_set()


def keys(text: str) -> list[str]:
    return [json.loads(line)["key"] for line in text.splitlines()]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_each_line_is_there_once_when_the_store_was_away_meanwhile(tmp_path, run, kind):
    out = tmp_path / "out"
    reader, read = None, []
    if kind == "pipe":
        os.mkfifo(out)
        reader = threading.Thread(target=lambda: read.append(out.read_text()), daemon=True)
        reader.start()
    settled = threading.Event()
    settled.set()
    with Sink(out) as sink:
        faulty = Faulty(run, lambda look: look == 2)
        writer = Writer(faulty, run.view(), "items", settled, sink, None, {})
        writer.write()
    if reader is not None:
        reader.join(20)
    assert keys(read[0] if read else out.read_text()) == [str(n) for n in range(7)]
    assert writer.results == 7


@pytest.fixture
def slow_clock(monkeypatch) -> None:
    """Two minutes pass between two questions for the time."""
    minutes = count(step=120.0)
    slow = partial(Absence, monotonic=lambda: next(minutes))
    monkeypatch.setattr(results_writer, "Absence", slow)


def test_a_second_outage_is_waited_for_as_the_first_was(tmp_path, run, slow_clock):
    """Looks 1 to 3 read all there is; 4 and 8 are the outages, with all read again in between."""
    with Sink(tmp_path / "out") as sink:
        faulty = Faulty(run, lambda look: look in (4, 8))
        writer = Writer(faulty, run.view(), "items", Settled(6), sink, None, {})
        writer.write()
    assert faulty.looks > 8
    assert keys((tmp_path / "out").read_text()) == [str(n) for n in range(7)]


def test_a_store_that_never_shows_the_whole_is_given_up(tmp_path, run, slow_clock):
    faulty = Faulty(run, lambda look: look % 2 == 0)
    with pytest.raises(StoreUnavailable), Sink(tmp_path / "out") as sink:
        Writer(faulty, run.view(), "items", Settled(100), sink, None, {}).write()
    assert faulty.looks == 4
