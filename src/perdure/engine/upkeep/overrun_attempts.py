"""End attempts that are held past their hard deadline, by workers that go on beating.

A stage ends by its own timeout, and its worker says so. What is still held long after that is held by a worker that is
alive and does not answer for it: a blocked event loop, a thread that hangs, a defect of ours. It is settled as timed
out, through the walk, guarded by its token; the holder's result is refused from then on, and its pump stops
the run when it next looks at what it holds. A caller's job, which has a limit of its own, goes to a worker or ends
as cancelled, as the caller asked.

A store that was away must not burn attempts: results that were ready meanwhile are on their way. So we act
only when the store has answered us without a gap for a while, and leave each attempt more than its time.
"""

from random import Random

from perdure.engine.observe import Observers
from perdure.engine.record import Ending
from perdure.engine.settle import Gates, settle
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.upkeep.chore import NOTHING, Swept, write
from perdure.engine.upkeep.left_callers import record_of_left_caller
from perdure.model.jobs import Overrun, Record
from perdure.model.limits import OVERRUN_BATCH_MAX
from perdure.model.outcomes import TimedOut
from perdure.ports import Clock, Store

# A hard deadline is not one to the second, and PostgreSQL walks what was held before the last vacuum.
LOOK_S = 5.0


class OverrunAttempts:
    """Ends what hangs.

    ``margin_s`` is what an attempt may take beyond its stage's timeout; ``patience_s`` how long the store must have
    answered before we act.
    """

    name = "overruns"

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        worker: int,
        *,
        margin_s: float,
        patience_s: float,
        clock: Clock,
        chance: Random,
        observers: Observers,
        gates: Gates | None = None,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._worker = worker
        self._margin_s = margin_s
        self._patience_s = patience_s
        self._clock = clock
        self._chance = chance
        self._observers = observers
        self._gates = gates
        self._answered_at: float | None = None
        self._steady_at = 0.0

    def once(self) -> Swept:
        """Settle a batch of attempts that are overrun; looks every few seconds only."""
        if self._answered_at is not None and self._clock.monotonic() < self._answered_at + LOOK_S:
            return NOTHING
        answered_at, self._answered_at = self._answered_at, None
        found = self._store.overrun(self._limits_s(), limit=OVERRUN_BATCH_MAX)
        now = self._answered_at = self._clock.monotonic()
        if answered_at is None or now - answered_at > LOOK_S + self._patience_s:
            self._steady_at = now
        if now - self._steady_at < self._patience_s:
            return NOTHING
        settled = [(one, record) for one in found if (record := self.record_of(one)) is not None]
        ours = [record for one, record in settled if one.worker == self._worker]
        others = [record for one, record in settled if one.worker != self._worker]
        # Written by nobody: if our own pump still sends its record, this must not pass for an earlier sending of it.
        moved = write(self._store, ours, by=None, observers=self._observers)
        moved += write(self._store, others, by=self._worker, observers=self._observers)
        return Swept(moved)

    def record_of(self, overrun: Overrun) -> Record | None:
        """What is to be written about an overrun attempt; None when its stage is not known here."""
        place = self._catalogue.place_of(overrun.claim)
        # None: a lane of ours with a stage that is not, of another version of the pipeline.
        return None if place is None else self._record(overrun, *place)

    def _record(self, overrun: Overrun, laid: LaidPipeline, stage: Stage) -> Record:
        ending = ending_of(overrun, stage)
        if overrun.on_lost is not None:
            return record_of_left_caller(ending, overrun.on_lost, laid, stage)
        chance = self._chance.random()
        return settle(ending, laid, stage, chance=chance, now=overrun.seen_at, gates=self._gates)

    def _limits_s(self) -> dict[int, float]:
        known = self._catalogue.timeouts_s()
        return {lane: timeout_s + self._margin_s for lane, timeout_s in known.items()}


def ending_of(overrun: Overrun, stage: Stage) -> Ending:
    """The end of an attempt that has run out of time, seen from outside."""
    claim = overrun.claim
    elapsed_s = max(0.0, (overrun.seen_at - claim.claimed_at).total_seconds())
    timeout_s = stage.timeout_s if overrun.on_lost is None else elapsed_s
    return Ending(claim, TimedOut(timeout_s), elapsed_s, overrun.worker)
