"""Find workers that have gone silent, and settle what dead workers held.

Two steps, each guarded. First one statement declares dead every worker whose lease has run out,
if we have ourselves been heard without a gap for as long; from then on the dead one can neither
beat, claim nor record. Only then are its jobs read and settled as lost, through the same walk as
every other end of an attempt, guarded by their tokens. Two sweepers may do this at once: the second
finds the tokens moved on. If we die in between, the next sweep goes on from the tables.
"""

from collections.abc import Callable
from random import Random

from perdure.engine.observe import Observers
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.chore import NOTHING, Swept, write
from perdure.engine.upkeep.left_callers import record_of_left_caller
from perdure.model.events import EventName
from perdure.model.jobs import LostClaim, Record
from perdure.model.limits import LOST_BATCH_MAX
from perdure.model.outcomes import Interrupted, Lost
from perdure.ports import Store


class SilentWorkers:
    """Declares the silent dead."""

    name = "deaths"

    def __init__(self, store: Store, worker: int, *, observers: Observers) -> None:
        self._store = store
        self._worker = worker
        self._observers = observers

    def once(self) -> Swept:
        """Declare dead whose lease has run out."""
        for worker in self._store.mark_dead(by=self._worker):
            self._observers.tell(EventName.WORKER_LOST, worker=worker, why="silent")
        return NOTHING


class LostJobs:
    """Settles what the dead have left. ``died`` hears who they were: one may have had a probe out."""

    name = "lost jobs"

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        worker: int,
        *,
        chance: Random,
        observers: Observers,
        died: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._died = died
        self._catalogue = catalogue
        self._worker = worker
        self._chance = chance
        self._observers = observers
        self._warned_of: int | None = None

    def once(self) -> Swept:
        """Settle a batch of lost jobs."""
        found = self._store.lost_claims(limit=LOST_BATCH_MAX, lanes=self._catalogue.lane_nos())
        records = [record for lost in found if (record := self.record_of(lost)) is not None]
        moved = write(self._store, records, by=self._worker, observers=self._observers)
        for worker in {lost.worker for lost in found}:
            self._died(worker)
        if not records:
            self._warn_of_strangers()
        return Swept(moved, more=moved > 0 and len(found) == LOST_BATCH_MAX)

    def record_of(self, lost: LostClaim) -> Record | None:
        """What is to be written about a lost job; None when its stage is not known here."""
        claim = lost.claim
        place = self._catalogue.place_of(claim)
        if place is None:
            return None  # left for a worker that knows it
        laid, stage = place
        ours = lost.death.why == "stopped"  # we ended it ourselves, at shutdown: not its fault
        outcome = Interrupted("shutdown") if ours else Lost(lost.death)
        elapsed_s = max(0.0, (lost.seen_at - claim.claimed_at).total_seconds())
        ending = Ending(claim, outcome, elapsed_s, lost.worker)
        if lost.on_lost is not None:
            return record_of_left_caller(ending, lost.on_lost, laid, stage)
        return settle(ending, laid, stage, chance=self._chance.random(), now=lost.seen_at)

    def _warn_of_strangers(self) -> None:
        """Lost jobs of a stage that we do not know wait for a worker that does: say so, once."""
        for lost in self._store.lost_claims(limit=1):
            claim = lost.claim
            known = self._catalogue.stage(claim.pipeline, claim.stage) is not None
            if not known and claim.no != self._warned_of:
                self._warned_of = claim.no
                self._observers.tell(
                    EventName.STAGE_UNKNOWN,
                    job_id=claim.id,
                    request_id=claim.request_id,
                    pipeline=claim.pipeline,
                    stage=claim.stage,
                )
