"""Periodic jobs: declared in code, kept in the store, ticked by whoever has the duty.

Always true: a schedule's row holds its next moment. A tick moves the row from that moment to a later one and accepts
the job of the moment, in one transaction and only if the row still stands there; so a moment makes one job,
whoever ticks and however often. The job's key is the schedule's name and the moment, which says the same a second time.

Who is authoritative: the code for which schedules there are, the row for their rule, item and next moment, and
the store's clock for what is due. Each worker puts what its app declares when it starts; a row of that name and rule
keeps its moment, so a restart neither skips nor repeats a tick. A schedule that no running app declares any more is
left alone, due or not.

What was missed is made up for once: after an outage there is one job, for the latest moment that has
passed, and the next one comes at the next moment of the rule. If we die before the tick, another ticks; if
after, the row has moved on.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from perdure.engine.enqueue import PRIORITY_MAX, admit_item
from perdure.engine.idempotency import key_from_moment
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline, check_name
from perdure.engine.upkeep.chore import NOTHING, Swept
from perdure.engine.upkeep.cron import Rhythm, rhythm_in, rhythm_of
from perdure.model.jobs import NewJob
from perdure.model.limits import TICKS_BATCH_MAX
from perdure.model.operations import NewSchedule, ScheduleView, Tick
from perdure.ports import Control, Reader
from perdure.rules.field_checks import whole_number


class Schedule(Struct, frozen=True):
    """A periodic enqueue as an app declares it. ``payload_json`` was checked by `engine/payloads.py`."""

    name: str
    pipeline: str
    rhythm: Rhythm
    payload_json: str
    owner: str = ""
    priority: int = 0


def declare(
    spec: str,
    laid: LaidPipeline,
    item: Any,
    *,
    name: str | None = None,
    owner: str = "",
    timezone: str | None = None,
    priority: int = 0,
) -> Schedule:
    """A schedule as a person declares it, checked; named after its pipeline unless told otherwise."""
    own_name = laid.name if name is None else name
    check_name("schedule", own_name)
    if owner != "":
        check_name("owner", owner)
    whole_number("priority", priority, -PRIORITY_MAX, PRIORITY_MAX)
    rhythm = rhythm_of(spec, timezone=timezone)
    payload_json = admit_item(item, laid.stages[0])
    return Schedule(own_name, laid.name, rhythm, payload_json, owner, priority)


class Declaring:
    """Puts the declared schedules into the store, once."""

    name = "declaring schedules"

    def __init__(self, control: Control, reader: Reader, declared: Sequence[Schedule]) -> None:
        self._control = control
        self._reader = reader
        self._left = list(declared)

    def once(self) -> Swept:
        """Put those that are not there yet; called again after an error, it goes on."""
        if self._left:
            now = self._reader.now()
            while self._left:
                self._control.put_schedule(new_schedule(self._left[0], now))
                self._left.pop(0)
        return NOTHING


class Ticking:
    """Enqueues the jobs of the moments that have come."""

    name = "schedules"

    def __init__(
        self,
        control: Control,
        reader: Reader,
        catalogue: Catalogue,
        declared: Sequence[Schedule],
        *,
        ids: Ids,
        observers: Observers,
    ) -> None:
        self._control = control
        self._reader = reader
        self._catalogue = catalogue
        self._declared = {one.name: one for one in declared}
        self._ids = ids
        self._observers = observers

    def once(self) -> Swept:
        """Tick the declared schedules that are due, those that have been due for longest first."""
        if not self._declared:
            return NOTHING
        due = [row for row in self._reader.schedules(due=True) if row.name in self._declared]
        if not due:
            return NOTHING
        now = self._reader.now()  # after the look: what was due then is due now
        done = sum(self._tick(row, now) for row in due[:TICKS_BATCH_MAX])
        return Swept(done, more=len(due) > TICKS_BATCH_MAX)

    def _tick(self, row: ScheduleView, now: datetime) -> bool:
        tick = self.tick_of(row, now)
        made = None if tick is None else self._control.tick(tick)
        if made is None:
            return False
        owner = self._declared[row.name].owner
        self._observers.tell_enqueued(row.pipeline, [made], owner=owner)
        return made.created

    def tick_of(self, row: ScheduleView, now: datetime) -> Tick | None:
        """The tick of a row that is due; None when its rule or its pipeline is not known here."""
        rhythm, laid = rhythm_in(row.spec), self._catalogue.pipeline(row.pipeline)
        if rhythm is None or laid is None:
            return None  # another version of the app has put it, and ticks it
        first = laid.stages[0]
        moment = rhythm.latest(now, since=row.next_at)
        job = NewJob(
            id=self._ids.next(),
            pipeline=row.pipeline,
            lane=laid.lane_nos[first.name],
            stage=first.name,
            payload_json=row.payload_json,
            owner=self._declared[row.name].owner,
            priority=self._declared[row.name].priority,
            key=key_from_moment(row.name, moment),
            policies_s=laid.deadline_s,
        )
        return Tick(row.name, row.next_at, rhythm.after(now), job)


def new_schedule(schedule: Schedule, now: datetime) -> NewSchedule:
    """A declared schedule as the store takes it; ``now`` is the store's."""
    return NewSchedule(
        schedule.name,
        schedule.pipeline,
        schedule.rhythm.text,
        schedule.payload_json,
        schedule.rhythm.after(now),
    )
