"""How long an attempt may take: its limit, and one timer for all limits of the same length.

Stages with the same timeout end in the order in which they began, so they stand in a line and only the
first of them needs a timer. A timer each costs four times as much, and is nearly always cancelled.
"""

import asyncio
from collections import OrderedDict

_LINES_MAX = 64  # a stage has one timeout; more than so many stages have timers of their own


class Limit:
    """The time of one attempt. When it is over, the task that made this is cancelled; ``passed`` says why."""

    __slots__ = ("_ended", "_line", "_task", "_timer", "ends_at", "passed")

    def __init__(self) -> None:
        self.passed = False
        self.ends_at = 0.0
        self._ended = False
        self._task = asyncio.current_task()  # who sets it may be another one
        self._line: _Line | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, time_s: float, line: "_Line | None" = None) -> None:
        """From now on there is so much time; ``line`` is that of its length."""
        if self._ended or self.passed:
            return
        if self._line is not None or self._timer is not None:
            self.unset()
        events = asyncio.get_running_loop()
        self.ends_at = events.time() + time_s
        if line is None:
            self._timer = events.call_at(self.ends_at, self.over)
        else:
            self._line = line
            line.add(self, events)

    def unset(self) -> None:
        """The time does not run; it may be set again."""
        if self._line is not None:
            self._line.drop(self)
            self._line = None
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clear(self) -> None:
        """The attempt has ended, and is not to be set again."""
        self._ended = True
        self.unset()

    def over(self) -> None:
        """The time is over."""
        self.passed = True
        if self._task is not None:
            self._task.cancel()


class _Line:
    """Limits of one length, the next to end first."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Limit, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, limit: Limit, events: asyncio.AbstractEventLoop) -> None:
        self._waiting[limit] = None
        if self._timer is None:
            self._timer = events.call_at(limit.ends_at, self._ring, events)

    def drop(self, limit: Limit) -> None:
        self._waiting.pop(limit, None)

    def _ring(self, events: asyncio.AbstractEventLoop) -> None:
        """End what has to end, and set the timer for the next; the one it was set for may be long gone."""
        self._timer = None
        now = events.time()
        while self._waiting:
            first = next(iter(self._waiting))
            if first.ends_at > now:
                self._timer = events.call_at(first.ends_at, self._ring, events)
                return
            del self._waiting[first]
            first.over()


class Limits:
    """The lines of one event loop."""

    def __init__(self) -> None:
        self._lines: dict[float, _Line] = {}

    def line(self, time_s: float) -> _Line | None:
        """The line of that length, if there are not too many."""
        found = self._lines.get(time_s)
        if found is None and len(self._lines) < _LINES_MAX:
            found = self._lines[time_s] = _Line()
        return found
