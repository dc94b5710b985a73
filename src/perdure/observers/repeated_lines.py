"""Lines that say the same of one job after the other, summed up once a second: for people, who would read none of them.

The first few of a kind are written whole, and name the jobs to look at. The rest of that second becomes one line with
their number. Which lines are of a kind is a matter of their event, their level and what of their fields tells of a
cause: not of the job, the attempt or the times. What is not about a job is never summed up, but for plain words.
"""

import logging
from collections.abc import Callable, Hashable

from msgspec import Struct

from perdure.observers.event_lines import EventWords

_WINDOW_S = 1.0
_WHOLE_MAX = 3  # lines of a kind in a second
_WORDS_CHARS_MAX = 200
_CAUSES = (
    "pipeline",
    "stage",
    "status",
    "reason",
    "error_kind",
    "error_code",
    "raised",
    "upstream",
    "upstream_status",
    "gate_state",
)


class _Window(Struct):
    """The lines of one kind since it was opened: ``whole`` were written, ``more`` are yet to be told."""

    until_s: float
    last: logging.LogRecord
    whole: int = 0
    more: int = 0


class Repeats:
    """What was written lately, by kind; for one thread. ``line_of`` writes a record whole."""

    def __init__(self, line_of: Callable[[logging.LogRecord], str]) -> None:
        self._line_of = line_of
        self._windows: dict[Hashable, _Window] = {}  # in the order in which they end

    @property
    def next_s(self) -> float | None:
        """When something is to be told next, if anything is."""
        for window in self._windows.values():
            return window.until_s
        return None

    def lines_of(self, record: logging.LogRecord, now_s: float) -> list[str]:
        """What to write when this record comes."""
        lines = self.lines_due(now_s)
        kind = _kind_of(record)
        if kind is None:
            return [*lines, self._line_of(record)]
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(now_s + _WINDOW_S, record)
        if window.whole < _WHOLE_MAX:
            window.whole += 1
            return [*lines, self._line_of(record)]
        window.more += 1
        window.last = record
        return lines

    def lines_due(self, now_s: float) -> list[str]:
        """The sums of the seconds that are over."""
        over = []
        for kind, window in self._windows.items():
            if window.until_s > now_s:
                break
            over.append(kind)
        windows = [self._windows.pop(kind) for kind in over]
        return [self._sum_of(window) for window in windows if window.more]

    def lines_left(self) -> list[str]:
        """The sums of all that is not told yet."""
        left = [window for window in self._windows.values() if window.more]
        self._windows.clear()
        return [self._sum_of(window) for window in left]

    def _sum_of(self, window: _Window) -> str:
        last = window.last
        text = f"… and {window.more:,} more like it in the last second: {_words_of(last)}"
        record = logging.LogRecord(last.name, last.levelno, last.pathname, 0, text, None, None)
        record.created = last.created
        return self._line_of(record)


def _kind_of(record: logging.LogRecord) -> Hashable | None:
    """What its line has in common with others of its kind; None if it is written whole in any case."""
    event, fields = getattr(record, "perdure_event", None), getattr(record, "perdure", {})
    if event is None:
        return (record.levelno, str(record.msg))
    if "job_id" not in fields:
        return None
    return (record.levelno, event, *(fields.get(name) for name in _CAUSES))


def _words_of(record: logging.LogRecord) -> str:
    event, fields = getattr(record, "perdure_event", None), getattr(record, "perdure", {})
    if event is None:
        return record.getMessage()[:_WORDS_CHARS_MAX]
    causes = {name: fields[name] for name in _CAUSES if name in fields}
    return f"{EventWords(event, causes)}; the last is {fields['job_id']}"
