"""The way of a log line from whoever logs to the stream: a bounded queue, and one thread that writes.

Always true:

* Whoever logs waits for no stream. A record is put into a queue, and made into a line on the thread that writes it.
* Lines are dropped in two cases only: the queue is full because the stream takes nothing, or the stream is gone. They are
  counted, and their number is a line of its own as soon as lines can be written again. A full queue before a stream
  that does take lines means that the writing thread lacks time: then whoever logs lets it have some.
* A write ends with a line and is no longer than a pipe takes at once, so that lines of several processes on one pipe do
  not get mixed up.
* A process that ends in order writes what it has accepted, for as long as the stream takes it, within bounds. One that
  is killed loses what it has not written.
* A forked child has a queue and a thread of its own. What its parent had accepted, the parent writes.
"""

import atexit
import logging
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TextIO
from weakref import WeakSet

from perdure.model.events import Event, EventName
from perdure.model.limits import LOG_LINES_MAX
from perdure.observers.event_lines import level_of, log_record_of
from perdure.observers.repeated_lines import Repeats

_BATCH_LINES = 64  # between two looks at what else is due
_WRITE_BYTES_MAX = select.PIPE_BUF
# Waits are counted, not timed: on a machine that has no time for us, the thread that writes gets none either.
_ROOM_WAIT_S, _ROOM_WAITS_MAX = 0.001, 5_000  # for a writing thread that has no time
_FLUSH_WAIT_S, _FLUSH_WAITS_MAX = 0.05, 100
_STUCK_WAITS_MAX = 20  # of these, with a stream that takes nothing
_OUR_OWN = {"name": "perdure", "levelno": logging.ERROR, "levelname": "ERROR"}


class LogStream:
    """Where lines go: the file behind a stream, past its buffers and locks, or else the stream itself.

    A write may wait for whoever reads, so it must not hold anything that others need: not even at the process's end.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._torn = False  # a write has ended within a line
        try:
            self._fd = None if stream is None else stream.fileno()
        except (OSError, ValueError):  # it has none
            self._fd = None

    def write(self, lines: Sequence[str]) -> int:
        """Write these; how many were lost because nothing can be written there."""
        lost = 0
        for chunk, count in _chunks(lines):
            try:
                self._write(chunk)
            except (OSError, ValueError):  # nobody reads any more, no room, closed
                lost += count
        return lost

    @property
    def stuck(self) -> bool:
        """Whether it would take nothing now."""
        if self._fd is None:
            return False
        return not _is_ready(self._fd, 0)

    def _write(self, chunk: bytes) -> None:
        if self._fd is None:
            if self._stream is None:
                raise OSError("there is no stream")
            self._stream.write(chunk.decode())
            self._stream.flush()
            return
        left = b"\n" + chunk if self._torn else chunk
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:  # somebody who shares it does not want to wait; we do
                _is_ready(self._fd, 1_000)
                continue
            self._torn = bool(left)


class LogQueue(logging.Handler):
    """Takes records on any thread, and writes them on its own; ``dropped`` counts those that it could not."""

    def __init__(
        self,
        stream: LogStream,
        formatter: logging.Formatter,
        *,
        sums_up: bool = False,
        lines_max: int = LOG_LINES_MAX,
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._stream = stream
        self._sums_up = sums_up
        self._lines_max = lines_max
        self.begin_anew()
        _ALL.add(self)

    def begin_anew(self) -> None:
        """Be without a thread, as after a fork; what was accepted before is not ours."""
        self._queue: SimpleQueue[logging.LogRecord | _Mark] = SimpleQueue()
        self._one_at_a_time = threading.RLock()  # a signal may interrupt whoever holds it
        self._repeats = Repeats(self.format) if self._sums_up else None
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self._told = 0  # of these
        self._since = 0  # lines that were written after those that are not told
        self._writes = 0
        self._given_up_at: int | None = None  # after so many writes

    # -- on any thread -------------------------------------------------------------------

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record, without the lock that handlers usually have: nothing here needs it."""
        wanted: object = self.filter(record)  # since Python 3.12 it may be another record
        if wanted:
            self.emit(wanted if isinstance(wanted, logging.LogRecord) else record)
        return bool(wanted)

    def emit(self, record: logging.LogRecord) -> None:
        """Put it in the line, or drop it."""
        if self._queue.qsize() >= self._lines_max and not self._await_room():
            self._count_dropped(1)
            return
        self._queue.put(record)
        if self._thread is None:
            self._start()

    def flush(self) -> None:
        """Wait until all that was accepted is written; not for a stream that takes nothing."""
        if self._thread is None:
            return
        mark = _Mark()
        self._queue.put(mark)
        stuck = 0
        for _ in range(_FLUSH_WAITS_MAX):
            before = self._writes
            if mark.reached.wait(_FLUSH_WAIT_S) or self._writes == self._given_up_at:
                return
            stuck = stuck + 1 if self._writes == before and self._stream.stuck else 0
            if stuck == _STUCK_WAITS_MAX:
                self._given_up_at = before
                return

    def close(self) -> None:
        """Write what was accepted, as `flush` does, and let the thread go; what comes after all has another one.

        `logging.config.dictConfig` closes the handlers of everybody, also those that it leaves in their places.
        """
        self.flush()
        with self._one_at_a_time:
            if self._thread is not None:
                self._thread = None
                self._queue.put(_Mark(last=True))
        super().close()

    def _await_room(self) -> bool:
        """Whether there is room at last."""
        for _ in range(_ROOM_WAITS_MAX):
            if self._queue.qsize() < self._lines_max:
                return True
            if self._stream.stuck:
                return False
            if self._thread is None or not self._thread.is_alive():
                self._thread = None
                self._start()
            time.sleep(_ROOM_WAIT_S)
        return False

    def _count_dropped(self, count: int) -> None:
        with self._one_at_a_time:
            self.dropped += count

    def _start(self) -> None:
        with self._one_at_a_time:
            if self._thread is None:
                thread = threading.Thread(target=self._write_on, name="perdure-log", daemon=True)
                with suppress(RuntimeError):  # none to be had: the next line asks again
                    thread.start()
                    self._thread = thread

    # -- on the thread that writes -------------------------------------------------------

    def _write_on(self) -> None:
        last = False
        while not last:
            mark, lines = self._take()
            last = mark is not None and mark.last
            self._write(lines, caught_up=mark is not None or self._queue.empty())
            if mark is not None:
                mark.reached.set()

    def _take(self) -> "tuple[_Mark | None, list[str]]":
        """The next lines; with a mark, those before it and all that is still to be told."""
        lines: list[str] = []
        for one in self._next_ones():
            if isinstance(one, _Mark):
                return one, lines + ([] if self._repeats is None else self._repeats.lines_left())
            lines += self._lines_of(one)
        if self._repeats is not None:
            lines += self._repeats.lines_due(time.monotonic())
        return None, lines

    def _next_ones(self) -> "Iterator[logging.LogRecord | _Mark]":
        next_s = None if self._repeats is None else self._repeats.next_s
        wait_s = None if next_s is None else max(0.0, next_s - time.monotonic())
        with suppress(Empty):
            yield self._queue.get(timeout=wait_s)
            for _ in range(_BATCH_LINES - 1):
                yield self._queue.get_nowait()

    def _lines_of(self, record: logging.LogRecord) -> list[str]:
        try:
            if self._repeats is None:
                return [self.format(record)]
            return self._repeats.lines_of(record, time.monotonic())
        except Exception as error:
            words = (
                f"a log line cannot be written: {type(error).__name__}; it is {record.msg!r:.80}"
            )
            return [self.format(logging.makeLogRecord({**_OUR_OWN, "msg": words}))]

    def _write(self, lines: list[str], *, caught_up: bool) -> None:
        lost = self._stream.write(lines)
        self._writes += 1
        if lost:
            self._count_dropped(lost)
            return
        dropped = self.dropped
        self._since = self._since + len(lines) if dropped > self._told else 0
        is_time = caught_up or self._since >= self._lines_max
        if dropped > self._told and is_time:
            told = self.tell(EventName.LINES_DROPPED, dropped=dropped - self._told)
            self._told, self._since = (dropped, 0) if told else (self._told, self._since)

    def tell(self, name: EventName, **fields: object) -> bool:
        """Write an event of the log's own; False if it was lost."""
        event = Event(name, fields)
        return self._stream.write([self.format(log_record_of(event, level_of(event)))]) == 0


class _Mark:
    """A place in the line: ``reached`` when all before it is written. After the ``last`` nothing is."""

    def __init__(self, *, last: bool = False) -> None:
        self.last = last
        self.reached = threading.Event()


def _chunks(lines: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Lines as bytes, as many together as a pipe takes at once, and how many they are."""
    chunk, count = b"", 0
    for line in lines:
        one = line.encode("utf-8", "backslashreplace") + b"\n"
        if chunk and len(chunk) + len(one) > _WRITE_BYTES_MAX:
            yield chunk, count
            chunk, count = b"", 0
        chunk, count = chunk + one, count + 1
    if chunk:
        yield chunk, count


def _is_ready(fd: int, wait_ms: int) -> bool:
    """Whether a file takes something, or says at once that it does not."""
    poll = select.poll()  # not select: with many files open, numbers are beyond its reach
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(wait_ms))


_ALL: "WeakSet[LogQueue]" = WeakSet()


def _begin_all_anew() -> None:
    for one in list(_ALL):
        one.begin_anew()


def _flush_all() -> None:
    for one in list(_ALL):
        one.flush()


os.register_at_fork(after_in_child=_begin_all_anew)
# The library flushes at the end, too, but not those whom a dictConfig has closed.
atexit.register(_flush_all)
