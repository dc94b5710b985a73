"""Nobody reads what the log writes: a worker goes on all the same."""

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from perdure import App
from perdure.model.filters import JobFilter
from perdure.model.states import State
from perdure.observers.event_lines import JsonFormatter
from perdure.observers.log_queue import LogQueue, LogStream
from tests.engine.kit import until
from tests.stores.kit import file_in, furnished

JOBS = 300  # which take more lines than a pipe does


class Unread:
    """The log at its loudest, into a pipe that nobody reads until `read` is called."""

    def __init__(self) -> None:
        reads, writes = os.pipe()
        self._reader, self.stream = os.fdopen(reads, "rb"), os.fdopen(writes, "w")
        self._thread = threading.Thread(target=self._reader.read, daemon=True)
        self.log = logging.getLogger("perdure")
        self._before = (self.log.handlers[:], self.log.level, self.log.propagate)

    def begin(self, handler: logging.Handler) -> None:
        self._handler = handler
        handler.setFormatter(JsonFormatter())
        self.log.handlers[:], self.log.propagate = [handler], False
        self.log.setLevel(logging.DEBUG)

    @property
    def full(self) -> bool:
        return LogStream(self.stream).stuck

    def read(self) -> None:
        self._thread.start()

    def close(self) -> None:
        thread = getattr(self._handler, "_thread", None)
        self._handler.close()
        if thread is not None:
            thread.join()
        self.log.handlers[:], self.log.level, self.log.propagate = self._before
        self.stream.close()
        self._thread.join()
        self._reader.close()


@pytest.fixture
def unread() -> Iterator[Unread]:
    made = Unread()
    yield made
    made.close()


@pytest.fixture
def app(tmp_path) -> Iterator[App]:
    app = App(f"sqlite:///{furnished(file_in(tmp_path))}")
    app.pipeline("p", app.stage(echo))
    yield app
    app.close()


def echo(item):
    return item


def succeeded(app: App) -> int:
    chosen = JobFilter(states=(State.SUCCEEDED,))
    return app._session.opened.reader.preview(chosen).count


def test_a_log_that_nobody_reads_keeps_no_worker_from_its_work(app, unread):
    unread.begin(LogQueue(LogStream(unread.stream), JsonFormatter()))
    app.get_pipeline("p").enqueue_many(range(JOBS))
    with app.working(concurrency=8):
        until(lambda: succeeded(app) == JOBS, "all jobs have succeeded")
        assert unread.full
    unread.read()


def test_a_log_that_is_written_at_once_keeps_it(app, unread):
    """The broken twin: as it was before lines had a queue."""
    unread.begin(logging.StreamHandler(unread.stream))
    app.get_pipeline("p").enqueue_many(range(JOBS))
    with app.working(concurrency=8):
        until(lambda: unread.full, "the pipe is full")
        assert succeeded(app) < JOBS
        unread.read()
        until(lambda: succeeded(app) == JOBS, "somebody reads, and all jobs succeed")
