"""Upkeep: the chores that some worker has to do for all of them.

Who does what: each chore belongs to a duty, a row that one living worker at a time has, for three seconds by the store's
clock unless it renews it. Chores over all tables have one duty; those that need to know stages or schedules have one
for each set of these, so that two apps on one store, or workers of different queues, each find somebody who knows
their jobs. Three chores have no duty. Any worker may find another dead, because the holder of a duty may not have been
steady for long enough to say so. Each worker stores the schedules of its app, and looks after the runs
whose jobs end in it.

A duty only saves work. Who has lost one without knowing (a pause, a slow store) does no harm: every write of a
chore is guarded by a token, a moment or a lease, and of two sweepers one finds that things have moved on. When its
holder dies, a duty is free as soon as the death is known, and otherwise when its time is over.

One chore's trouble is not the others': a chore that fails is told once and tried again in the next round. Only when
the store is away the round ends, for the others would wait for it in vain; the next one begins behind the chore
that met it.
"""

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from msgspec import Struct

from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.bulk_duty import BulkCall
from perdure.engine.upkeep.chore import NOTHING, Chore, Swept
from perdure.engine.upkeep.expired_jobs import ExpiredJobs
from perdure.engine.upkeep.lost_workers import LostJobs, SilentWorkers
from perdure.engine.upkeep.overrun_attempts import OverrunAttempts
from perdure.engine.upkeep.prune import CHANGES_S, Prune
from perdure.engine.upkeep.run_watch import RunWatch
from perdure.engine.upkeep.schedules import Declaring, Schedule, Ticking
from perdure.engine.upkeep.suspects import SuspectsLeft
from perdure.model.errors import StoreBusy, StoreError, StoreUnavailable, WorkerDead
from perdure.model.events import EventName
from perdure.model.operations import Retention
from perdure.ports import Clock, Control, Reader, Store

DUTY = "upkeep"
DUTY_TTL_S = 3.0  # rounds come every second: two may be late before another worker takes over


class UpkeepSettings(Struct, frozen=True):
    """How the upkeep judges: see `OverrunAttempts` for ``margin_s`` and ``patience_s``."""

    retention: Retention
    margin_s: float
    patience_s: float
    leaves_suspects: bool = False  # to other workers, and says so
    changes_s: float = CHANGES_S


class Sides(Protocol):
    """The three sides of one store."""

    @property
    def store(self) -> Store:
        """The writes of the walk."""
        ...

    @property
    def control(self) -> Control:
        """What operators and the upkeep do."""
        ...

    @property
    def reader(self) -> Reader:
        """The reads."""
        ...


class _Task(Struct, frozen=True):
    """A chore, and the duty that it belongs to."""

    duty: str | None
    chore: Chore


class Upkeep:
    """The sweeper's step."""

    def __init__(
        self,
        sides: Sides,
        catalogue: Catalogue,
        worker: int,
        settings: UpkeepSettings,
        *,
        schedules: Sequence[Schedule] = (),
        clock: Clock,
        chance: Random,
        observers: Observers,
        gates: Gatekeeper | None = None,
        bulks: Callable[[], None] | None = None,
    ) -> None:
        store, control, reader = sides.store, sides.control, sides.reader
        self._control = control
        self._worker = worker
        self._observers = observers
        known = f"{DUTY} {knowledge(catalogue, schedules)}"
        self._runs = _Task(None, RunWatch(store, control, reader, catalogue, observers=observers))
        died = _nobody if gates is None else gates.note_death
        lost = LostJobs(store, catalogue, worker, chance=chance, observers=observers, died=died)
        overrun = OverrunAttempts(
            store,
            catalogue,
            worker,
            margin_s=settings.margin_s,
            patience_s=settings.patience_s,
            clock=clock,
            chance=chance,
            observers=observers,
            gates=gates,
        )
        ids = Ids(clock, chance)
        ticking = Ticking(control, reader, catalogue, schedules, ids=ids, observers=observers)
        prune = Prune(control, settings.retention, changes_s=settings.changes_s, clock=clock)
        self._tasks = [
            _Task(None, SilentWorkers(store, worker, observers=observers)),
            _Task(None, Declaring(control, reader, schedules)),
            _Task(known, lost),
            _Task(DUTY, ExpiredJobs(store, worker, observers=observers)),
            _Task(known, overrun),
            _Task(known, ticking),
            self._runs,
            _Task(DUTY, prune),
        ]
        if settings.leaves_suspects:
            left = SuspectsLeft(store, catalogue, clock=clock, observers=observers)
            self._tasks.append(_Task(None, left))
        if bulks is not None:
            self._tasks.append(_Task(None, BulkCall(reader, bulks)))
        self._begin = 0
        self._failing: dict[str, str] = {}
        self.more = False  # whether a chore has stopped at its bound, so that the next round may come at once

    def once(self) -> int:
        """One round of the chores whose duties are ours; how many jobs were moved."""
        held: dict[str, bool] = {}
        jobs, self.more = 0, False
        for task in self._tasks[self._begin :] + self._tasks[: self._begin]:
            self._begin = (self._begin + 1) % len(self._tasks)  # should the store be away now
            swept = self._turn(task, held)
            jobs += swept.jobs
            self.more = self.more or swept.more
        self._begin = 0
        return jobs

    def look_at_runs(self) -> None:
        """Look after runs now: jobs of some have just ended."""
        self._turn(self._runs, {})

    def _turn(self, task: _Task, held: dict[str, bool]) -> Swept:
        try:
            swept = task.chore.once() if self._has(task.duty, held) else NOTHING
        except (WorkerDead, StoreUnavailable) as error:
            if isinstance(error, StoreBusy):
                return self._note_failure(task.chore, error)
            raise
        except StoreError as error:
            return self._note_failure(task.chore, error)
        self._failing.pop(task.chore.name, None)
        return swept

    def _has(self, duty: str | None, held: dict[str, bool]) -> bool:
        if duty is None:
            return True
        if duty not in held:
            held[duty] = self._control.take_duty(duty, worker=self._worker, ttl_s=DUTY_TTL_S)
        return held[duty]

    def _note_failure(self, chore: Chore, error: StoreError) -> Swept:
        reason = str(error)
        if self._failing.get(chore.name) != reason:
            self._failing[chore.name] = reason
            self._observers.tell(EventName.CHORE_FAILED, chore=chore.name, reason=reason)
        return NOTHING


def knowledge(catalogue: Catalogue, schedules: Sequence[Schedule]) -> str:
    """A short hash of the lanes and schedules that a sweeper knows; equal for equal sweepers."""
    known = repr((sorted(catalogue.lane_nos()), sorted(one.name for one in schedules)))
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def _nobody(worker: int) -> None:
    """Where no gates are kept, nobody's probe is lost."""
