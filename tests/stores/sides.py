"""Several stores driven in step: the same call on each, and their answers in words that are the same.

Stores number jobs, workers, lanes and runs as they like. So a call names them by what the test calls
them, each side looks its own numbers up, and in an answer the numbers become names again.
"""

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from perdure.model.errors import PerdureError
from perdure.model.filters import EVERY_JOB
from perdure.model.gates import GateLook
from perdure.model.jobs import Claim, Conflict, Counters, Enqueued, Receipt, RecordRefused, Stale
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkView,
    LanePause,
    LaneScope,
    LoggedDeed,
    LoggedRefusal,
)
from perdure.model.runs import ItemView, RunView
from perdure.model.states import State
from perdure.model.views import AttemptView, CaptureView, JobView, LaneView, RunFigures
from perdure.model.workers import WorkerView
from perdure.testing import OpenedStore

# What the number of a noun counts, and what its other fields number.
COUNTS: dict[type, str] = {
    Claim: "job", Receipt: "job", Stale: "job", RecordRefused: "job", Enqueued: "job", JobView: "job",
    WorkerView: "worker", LaneView: "lane", RunView: "run", BulkView: "bulk", LoggedDeed: "deed",
    Conflict: "job", ItemView: "job", CaptureView: "capture",
}  # fmt: skip
NUMBERED = {
    "lane": "lane", "worker": "worker", "run": "run", "redrive_run": "run", "parent": "run",
    "job_no": "job", "cursor": "job", "go_on_after": "job",
}  # fmt: skip

PLAIN = frozenset({str, int, float, bool, type(None), datetime, State, Counters})


def _fields(noun: type) -> list[str]:
    """The names of the fields of a noun, whether it is a dataclass or a `Struct`."""
    if issubclass(noun, msgspec.Struct):
        return list(noun.__struct_fields__)
    return [one.name for one in fields(noun)]


@cache
def _parts(noun: type) -> tuple[tuple[str, str | None], ...]:
    """The fields of a noun, and what each of them numbers."""
    return tuple(
        (name, COUNTS.get(noun) if name == "no" else NUMBERED.get(name)) for name in _fields(noun)
    )


NOUNS = {one.__name__: _fields(one) for one in (*COUNTS, AttemptView)}


class Side:
    """One of the stores, and its own numbers for what the test has named."""

    def __init__(self, name: str, opened: OpenedStore) -> None:
        self.name = name
        self.store = opened.store
        self.control = opened.control
        self.reader = opened.reader
        self._numbers: dict[tuple[str, object], int] = {}
        self._names: dict[tuple[str, int], object] = {}
        self._attempts: dict[tuple[int, int], list[AttemptView]] = {}

    def learn(self, kind: str, name: object, number: int) -> None:
        self._numbers[kind, name] = number
        self._names[kind, number] = name

    def no(self, kind: str, name: object) -> int:
        return self._numbers[kind, name]

    def maybe_no(self, kind: str, name: object | None) -> int | None:
        return None if name is None else self.no(kind, name)

    def name_of(self, kind: str, number: int) -> object:
        return self._names.get((kind, number), f"an unknown {kind}")

    def attempts(self, job: JobView, *, again: bool) -> list[AttemptView]:
        """Of one job; as read before, if its token has not been raised since."""
        place = (job.no, job.token)
        if again or place not in self._attempts:
            self._attempts[place] = self.reader.attempts(job.no)
        return self._attempts[place]

    def close(self) -> None:
        self.store.close()
        self.reader.close()

    # -- answers -----------------------------------------------------------------------------

    def told(self, value: Any) -> Any:
        """A value without numbers that are this side's own."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in SPECIAL:
            return SPECIAL[kind](self, value)
        if is_dataclass(value) or isinstance(value, msgspec.Struct):
            return (
                kind.__name__,
                *(self._field(getattr(value, name), counts) for name, counts in _parts(kind)),
            )
        if isinstance(value, dict):
            return {key: self.told(one) for key, one in value.items()}
        if isinstance(value, frozenset):
            return sorted(map(repr, map(self.told, value)))
        if isinstance(value, list | tuple):
            return [self.told(one) for one in value]
        return value

    def _field(self, value: Any, counts: str | None) -> Any:
        if counts is None:
            return value if type(value) in PLAIN else self.told(value)
        return None if value is None else self.name_of(counts, value)

    def told_lane(self, value: LaneView) -> Any:
        name, closed_by = self.name_of("lane", value.no), self._words(value.closed_by)
        return (name, closed_by, value.ready, value.later, value.lane.upstream)

    def told_pause(self, value: LanePause) -> Any:
        of_run = value.scope is LaneScope.RUN
        name = self.name_of("run", int(value.name)) if of_run else value.name
        return (value.scope, name, value.reason, value.paused_by, value.paused_at)

    def told_deed(self, value: LoggedDeed) -> Any:
        of_run = value.subject.isdigit()
        subject = self.name_of("run", int(value.subject)) if of_run else value.subject
        return (value.done_at, value.by_whom, value.verb, subject, value.reason)

    def told_figures(self, value: RunFigures) -> Any:
        """A mean is a quotient, which stores round as they like."""
        mean_s = value.success_mean_s
        rounded = replace(value, success_mean_s=None if mean_s is None else round(mean_s, 6))
        return ("figures", *(self.told(getattr(rounded, name)) for name in _fields(RunFigures)))

    def told_look(self, value: GateLook) -> Any:
        alive = sorted(repr(self.name_of("worker", no)) for no in value.alive)
        return (value.now, alive, *map(self.told, (value.rows, value.samples, value.slices)))

    def told_refusal(self, value: RecordRefused) -> Any:
        return ("refused", value.id, value.token)

    def _words(self, text: str | None) -> str | None:
        """What closes a lane, sorted by name and not by number."""
        if text is None:
            return None
        words = [
            re.sub(r"^run (\d+)", lambda found: f"run {self.name_of('run', int(found[1]))}", one)
            for one in text.split("; ")
        ]
        return "; ".join(sorted(words))


SPECIAL: dict[type, Callable[[Side, Any], Any]] = {
    GateLook: Side.told_look,
    LaneView: Side.told_lane,
    LanePause: Side.told_pause,
    LoggedDeed: Side.told_deed,
    RecordRefused: Side.told_refusal,
    RunFigures: Side.told_figures,
}


class Differ(AssertionError):
    """Two sides have given different answers to the same call."""


class Sides:
    """All of them; the first is the measure of the others."""

    def __init__(self, sides: list[Side]) -> None:
        self.all = sides
        self.first = sides[0]

    def each(self, what: str, call: Callable[[Side], Any]) -> dict[str, Any]:
        """Make a call on each side; their own answers, if these mean the same."""
        answers = {side.name: _answer(call, side) for side in self.all}
        self.same(what, answers)
        return answers

    def same(self, what: str, answers: dict[str, Any]) -> None:
        meant = {side.name: side.told(answers[side.name]) for side in self.all}
        measure = meant[self.first.name]
        for name, answer in meant.items():
            if answer != measure:
                place, one, other = apart(measure, answer)
                raise Differ(f"{what}{place}:\n  {self.first.name}: {one!r}\n  {name}: {other!r}")

    def learn(self, kind: str, name: object, numbers: dict[str, int]) -> None:
        for side in self.all:
            side.learn(kind, name, numbers[side.name])

    def close(self) -> None:
        for side in self.all:
            side.close()


def apart(one: Any, other: Any, place: str = "") -> tuple[str, Any, Any]:
    """Where two answers differ first, and in what."""
    for part, mine, theirs in _pairs(one, other):
        if mine != theirs:
            return apart(mine, theirs, f"{place}, {part}")
    return place, one, other


def _pairs(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [(str(key), one[key], other[key]) for key in one]
    both = (one, other)
    if all(isinstance(each, list | tuple) for each in both) and len(one) == len(other):
        noun = NOUNS.get(str(one[0])) if isinstance(one, tuple) and one else None
        names = [f"{one[0]} {one[1]}", *noun] if noun else [f"[{n}]" for n in range(len(one))]
        return list(zip(names, one, other, strict=True))
    return []


def _answer(call: Callable[[Side], Any], side: Side) -> Any:
    try:
        return call(side)
    except PerdureError as error:
        return f"raised {type(error).__name__}"


def by_job_id(lines: list[LoggedRefusal]) -> list[LoggedRefusal]:
    """In an order that is the same whatever the numbers."""
    return sorted(lines, key=lambda one: (one.job_id, one.why))


def dump(side: Side, *, whole: bool = True) -> dict[str, Any]:
    """All that can be read of a store; unless ``whole``, attempts only of jobs that have moved."""
    reader = side.reader
    jobs = reader.jobs(limit=500)
    bulks = reader.bulks()
    return {
        "jobs": jobs,
        "attempts": {job.id: side.attempts(job, again=whole) for job in jobs},
        "books": reader.books(),
        "depths": reader.depths(),
        "flows": reader.flows(),
        "minutes": reader.flows(minutes=True),
        "deaths": reader.deaths(),
        "open jobs": {
            owner: reader.open_jobs(owner) for owner in sorted({job.owner for job in jobs})
        },
        "failures": reader.failures(),
        "lanes": reader.lanes(),
        "workers": reader.workers(),
        "pauses": frozenset(reader.pauses()),  # by name, and a run's name is its number
        "gates": reader.gates(),
        "told about gates": side.store.look_at_gates(["vendor", "account"], worker=0, samples={}),
        "runs": reader.runs(),
        "schedules": reader.schedules(),
        "dead groups": reader.dead_groups(EVERY_JOB),
        "lanes of runs": sorted(str(side.name_of("lane", no)) for no in side.store.run_lanes()),
        "bulks": bulks,
        "refusals": {one.id: by_job_id(reader.refusals(one.no)) for one in bulks},
        "payloads": {job.id: reader.payloads(job.no) for job in jobs} if whole else {},
        "captures": {job.id: reader.captures(job.no) for job in jobs} if whole else {},
        "deeds": reader.deeds(limit=20),
    }
