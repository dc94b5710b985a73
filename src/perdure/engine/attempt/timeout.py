"""How long an attempt may take, and what ends it when its time is over.

The time of an attempt is its stage's timeout, or less where the job's deadline comes first. It runs from the stage's
first step: not while a plain stage waits for a thread, nor while a child process starts.

Who enforces it: here a timer of the event loop cancels the task of the attempt (`Limit`), which ends an async stage,
gives up the thread of a plain one and kills the child of one with ``process=True``; the outcome is `TimedOut`. Where a
worker cannot do that, because its event loop is blocked, say, the attempt is overrun, and the upkeep of any worker
settles it (`upkeep/overrun_attempts.py`). A deadline that passes while the job waits is `upkeep/expired_jobs.py`.

One timer for all limits of the same length: stages with the same timeout end in the order in which they began, so they
stand in a line and only the first of them needs a timer. A timer each costs four times as much, and is nearly always
cancelled.
"""

import asyncio
from collections import OrderedDict

from perdure.engine.attempt.context import AttemptNotes
from perdure.model.jobs import Claim
from perdure.model.outcomes import TimedOut, Unbegun

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
        """End in ``time_s`` from now. ``line_of`` holds the limits of that length; without it, use a timer of our own."""
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

    def line_of(self, time_s: float) -> _Line | None:
        """The line of that length, if there are not too many."""
        found = self._lines.get(time_s)
        if found is None and len(self._lines) < _LINES_MAX:
            found = self._lines[time_s] = _Line()
        return found


class AttemptTime:
    """The time of one attempt: the stage's own, or what is left until the job's deadline."""

    __slots__ = (
        "_came_at",
        "_clock",
        "_deadline_s",
        "_events",
        "_limit",
        "_limits",
        "_notes",
        "_time_s",
        "_timeout_s",
        "has_begun",
    )

    def __init__(
        self, claim: Claim, timeout_s: float, notes: AttemptNotes, limits: Limits | None
    ) -> None:
        self.has_begun = False
        self._timeout_s = timeout_s
        self._notes = notes
        self._limits = limits
        self._limit = Limit()
        self._time_s = 0.0
        self._events = asyncio.get_running_loop()
        self._clock = self._events.time
        self._came_at = self._clock()
        self._deadline_s: float | None = None
        if claim.deadline_at is not None:
            self._deadline_s = (claim.deadline_at - claim.claimed_at).total_seconds()

    @property
    def is_over(self) -> bool:
        """Whether our limit has passed."""
        return self._limit.passed

    def left_s(self, *, after_s: float = 0.0) -> float:
        """How long the stage may run if it begins after a while."""
        if self._deadline_s is None:
            return self._timeout_s
        return min(self._timeout_s, self._deadline_s - after_s)

    def waited_s(self) -> float:
        """How long ago the attempt came to us."""
        return self._clock() - self._came_at

    def begin(self, time_s: float) -> None:
        """The stage begins now, and has this much time."""
        self.has_begun = True
        self._time_s = time_s
        self._notes.begin(time_s, self._clock)
        shared = self._limits is not None and time_s == self._timeout_s
        self._limit.set(time_s, self._limits.line_of(time_s) if self._limits and shared else None)

    def wait(self) -> None:
        """It has not begun after all: until it does, only the job's deadline counts."""
        self.has_begun = False
        self._limit.unset()
        if self._deadline_s is not None:
            self._limit.set(self._deadline_s - self.waited_s())

    def begin_late(self) -> None:
        """As `begin`, on the stage's own thread, which has come free at last."""
        time_s = max(0.0, self.left_s(after_s=self.waited_s()))
        self._notes.begin(time_s, self._clock)
        self._events.call_soon_threadsafe(self.begin, time_s)

    def overdue(self) -> TimedOut | Unbegun:
        """The outcome of an attempt whose limit has passed."""
        return TimedOut(self._time_s) if self.has_begun else Unbegun()

    def end(self) -> None:
        """The attempt has ended; no timer is left."""
        self._limit.clear()
