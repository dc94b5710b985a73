"""What this process has done, counted from what observers are told; read by the collector of metrics.

It stands on the way of every job, so that what is common to a stage is looked up once and kept.
"""

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from msgspec import Struct

from perdure.model.events import Event, EventName
from perdure.model.kinds import GROUPS, KINDS, Kind, Sign
from perdure.model.metrics import (
    ATTEMPT_FAILURES,
    ATTEMPT_SECONDS,
    ATTEMPTS_CAPTURED,
    CALL_SECONDS,
    EVENTS_TOLD,
    RESULTS_REFUSED,
    RETRY_DELAY,
    TIME_TO_SUCCESS,
    TURN_SECONDS,
    WORKERS_LOST,
    Metric,
)
from perdure.observers.shared_figures import FigureCells, Series

_RESULTS: Mapping[EventName, str] = {
    EventName.JOB_ADVANCED: "succeeded",
    EventName.JOB_SUCCEEDED: "succeeded",
    EventName.JOB_RETRIED: "retried",
    EventName.JOB_FAILED: "failed",
    EventName.JOB_RELEASED: "released",
    EventName.JOB_CANCELLED: "cancelled",
}
# Every job has these; what they tell is counted in the tallies and in the histograms.
_EVERYDAY = {
    EventName.JOB_ENQUEUED,
    EventName.JOB_CLAIMED,
    EventName.JOB_PROGRESSED,
    *_RESULTS,
}

_CALL_BUCKETS, _JOB_BUCKETS = CALL_SECONDS.buckets, TIME_TO_SUCCESS.buckets
assert (ATTEMPT_SECONDS.buckets, RETRY_DELAY.buckets) == (_CALL_BUCKETS, _JOB_BUCKETS)

_living: "WeakSet[ProcessFigures]" = WeakSet()


class _StagePlaces(Struct):
    """The first cells of what is common to attempts of a stage with one result."""

    seconds: int
    captured: int
    success: int
    delay: int


class ProcessFigures:
    """An observer that counts, and whatever else its process has to say in numbers."""

    def __init__(self, cells: FigureCells | None = None) -> None:
        self._kept: dict[EventName, Callable[[Event], None]] = dict.fromkeys(
            _RESULTS, self._note_attempt
        )
        self._kept |= {one: self._note_event for one in EventName if one not in _EVERYDAY}
        self._begin(cells or FigureCells())
        _living.add(self)

    def _begin(self, cells: FigureCells) -> None:
        self._lock = threading.Lock()
        self._cells = cells
        self._numbers = cells.numbers
        self._stages: dict[tuple[EventName, object, object], _StagePlaces] = {}
        self._calls: dict[tuple[EventName, str, str | None, bool], int] = {}
        self._turn = cells.place(TURN_SECONDS)
        # What is known beforehand is there from the start: of a series that begins with 1, no rate is known.
        for cause in ("stale", "unwritable"):
            self._cells.place(RESULTS_REFUSED, cause)
        for cause in ("ended", "silent"):
            self._cells.place(WORKERS_LOST, cause)
        for name in EventName:
            if name not in _EVERYDAY:
                self._cells.place(EVENTS_TOLD, name.value)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        note = self._kept.get(event.name)
        if note is not None:
            with self._lock:
                note(event)

    def add_turn(self, elapsed_s: float) -> None:
        """A turn with the store took so long."""
        with self._lock:
            self._observe(TURN_SECONDS.buckets, self._turn, elapsed_s)

    def read(self) -> dict[Series, list[float]]:
        """All numbers so far."""
        with self._lock:
            return self._cells.read()

    def begin_anew(self) -> None:
        """In a process that was forked off: the cells are its parent's, and a thread of that may have had the lock."""
        self._begin(FigureCells())

    def _note_event(self, event: Event) -> None:
        self._count(EVENTS_TOLD, event.name.value)
        if event.name is EventName.RESULT_REFUSED:
            self._count(
                RESULTS_REFUSED, "stale" if event.fields.get("reason") is None else "unwritable"
            )
        elif event.name is EventName.WORKER_LOST:
            self._count(WORKERS_LOST, "silent" if event.fields.get("why") == "silent" else "ended")

    def _note_attempt(self, event: Event) -> None:
        fields: Mapping[str, Any] = event.fields
        duration_ms = fields.get("duration_ms")
        if duration_ms is None:  # a wait that was cancelled or has expired: nothing was attempted
            return
        name, get = event.name, fields.get
        pipeline, stage, kind = get("pipeline"), get("stage"), get("error_kind")
        places = self._stages.get((name, pipeline, stage))
        if places is None:
            places = self._places_of(name, pipeline, stage)
        elapsed_s = duration_ms / 1000
        self._observe(_CALL_BUCKETS, places.seconds, elapsed_s)
        if kind is not None:
            self._count(ATTEMPT_FAILURES, str(pipeline), str(stage), _kind_word(kind))
        if get("captures"):
            self._numbers[places.captured] += 1.0
        if name is EventName.JOB_SUCCEEDED:
            age_ms = get("age_ms")
            if age_ms is not None:
                self._observe(_JOB_BUCKETS, places.success, age_ms / 1000)
        elif name is EventName.JOB_RETRIED:
            self._observe(_JOB_BUCKETS, places.delay, (get("delay_ms") or 0) / 1000)
        upstream = get("upstream")
        if upstream is not None:
            call = (name, upstream, kind, get("upstream_status") is not None)
            first = self._calls.get(call)
            if first is None:
                first = self._cells.place(CALL_SECONDS, upstream, _outcome(name, kind, call[3]))
                self._calls[call] = first
            self._observe(_CALL_BUCKETS, first, elapsed_s)

    def _places_of(self, name: EventName, pipeline: object, stage: object) -> _StagePlaces:
        place, where = self._cells.place, (str(pipeline), str(stage))
        found = _StagePlaces(
            seconds=place(ATTEMPT_SECONDS, *where, _RESULTS[name]),
            captured=place(ATTEMPTS_CAPTURED, *where),
            success=place(TIME_TO_SUCCESS, str(pipeline)),
            delay=place(RETRY_DELAY, *where),
        )
        self._stages[name, pipeline, stage] = found
        return found

    def _count(self, metric: Metric, *labels: str) -> None:
        self._numbers[self._cells.place(metric, *labels)] += 1.0

    def _observe(self, buckets: tuple[float, ...], first: int, value: float) -> None:
        """One more value of a histogram: its bucket, and behind all buckets the sum."""
        numbers = self._numbers
        numbers[first + bisect_left(buckets, value)] += 1.0
        numbers[first + len(buckets) + 1] += value


def _kind_word(kind: object) -> str:
    """A kind that we have; another one comes of a stored row that somebody has changed."""
    return str(kind) if kind in KINDS else Kind.UNKNOWN.value


def _outcome(name: EventName, kind: str | None, has_status: bool) -> str:
    """What the end of a call says about its upstream; an HTTP status says that somebody has answered."""
    if kind is None:
        return "other" if name in (EventName.JOB_RELEASED, EventName.JOB_CANCELLED) else "ok"
    facts = KINDS[Kind(_kind_word(kind))]
    if facts.sign is Sign.BAD:
        return "failed"
    if kind in GROUPS["limits"]:
        return "limited"
    answered = facts.sign is Sign.GOOD or (facts.proved_by_status and has_status)
    return "ok" if answered else "other"


def _begin_anew() -> None:
    for one in list(_living):
        one.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
