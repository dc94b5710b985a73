"""Pipes for the log to write its lines to."""

import logging
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from perdure.observers.event_lines import JsonFormatter
from perdure.observers.log_queue import LogQueue, LogStream


class Pipe:
    """A pipe that nobody reads until `read` is called."""

    def __init__(self) -> None:
        reads, writes = os.pipe()
        self._reader = os.fdopen(reads, "rb")
        self.stream = os.fdopen(writes, "w")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._taken = b""

    def read(self) -> None:
        """Read it from now on."""
        self._thread.start()

    def lines(self) -> list[str]:
        """All that was written until now; nothing more can be."""
        self.stream.close()
        self._thread.join()
        return self._taken.decode().splitlines()

    def hang_up(self) -> None:
        """There is nobody who could read."""
        self._reader.close()

    def close(self) -> None:
        self.stream.close()
        self._reader.close()

    def _read(self) -> None:
        self._taken = self._reader.read()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.fixture
def queue_to(log, pipe) -> Iterator[Callable[..., LogQueue]]:
    """Makes the log write to a stream, by a queue; its thread has ended before a pipe is closed."""
    made: list[LogQueue] = []
    before = set(threading.enumerate())

    def make(
        stream: LogStream, formatter: logging.Formatter | None = None, kind=LogQueue, **more: object
    ) -> LogQueue:
        made.append(kind(stream, formatter or JsonFormatter(), **more))
        log.handlers[:] = made
        log.propagate = False
        log.setLevel(logging.DEBUG)
        return made[-1]

    yield make
    pipe.hang_up()
    for one in made:
        one.close()
    for thread in (
        set(threading.enumerate()) - before
    ):  # also those of a queue that the test has closed
        if thread.name == "perdure-log":
            thread.join()
