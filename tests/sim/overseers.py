"""What operators do to runs and to dead letters in bulk, over a bad wire."""

from random import Random
from typing import Any

from perdure.engine.batch.runs import Runs
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.bulks import Bulks
from perdure.engine.stages import Catalogue
from perdure.model.errors import (
    CallerError,
    NotChangeable,
    RunAborted,
    StoreFull,
    StoreUnavailable,
)
from perdure.model.filters import JobFilter
from perdure.model.nouns import replace
from perdure.model.operations import BulkVerb, BulkView, Deed
from perdure.model.runs import RunStatus, RunView
from tests.sim.checker import Checker
from tests.sim.clocks import MachineClock
from tests.sim.connected import Connected
from tests.sim.feeds import WITHOUT_LIMITS
from tests.sim.stages import LONG, LONG_STAGES, SHORT
from tests.sim.strand import Strand
from tests.sim.swarm import Setup
from tests.sim.world import World

AWAY = (StoreUnavailable, StoreFull)
DEED = Deed("operator", "because")


class Overseer:
    """Somebody who looks after runs and dead letters."""

    def __init__(
        self, world: World, setup: Setup, catalogue: Catalogue, checker: Checker, verb: str
    ) -> None:
        self._world = world
        self._setup = setup
        self._catalogue = catalogue
        self._checker = checker
        self._verb = verb
        self._observers = Observers([checker.told])
        self._ids = Ids(MachineClock(world, setup.skew_s), Random(world.rng.getrandbits(32)))

    def _said(self, what: str) -> None:
        self._world.seen[what] += 1

    # -- dead letters --------------------------------------------------------------------

    def _redrive(self, sides: Connected, strand: Strand) -> None:
        self._world.struck["redrive"] += 1
        verb = self._world.rng.choice((BulkVerb.REDRIVE, BulkVerb.REDRIVE, BulkVerb.RETRY))
        bulk = self._begun(sides, strand, verb)
        if bulk is not None and self._world.rng.random() < 0.3:
            self._stopped_and_resumed(sides, strand, bulk)

    def _discard(self, sides: Connected, strand: Strand) -> None:
        self._world.struck["discard"] += 1
        self._begun(sides, strand, BulkVerb.DISCARD)

    def _bulk_stop(self, sides: Connected, strand: Strand) -> None:
        """Somebody else's operation is stopped, and perhaps gone on with."""
        try:
            running = sides.reader.bulks(running=True)
        except AWAY:
            return
        if running:
            self._stopped_and_resumed(sides, strand, self._world.rng.choice(running))

    def _begun(self, sides: Connected, strand: Strand, verb: BulkVerb) -> BulkView | None:
        """Begin a bulk operation, under the same id until it is answered; workers go through it."""
        chosen, settings, bulk_id = self._chosen(), self._settings(), self._ids.next()
        if verb is BulkVerb.CANCEL:
            chosen = replace(chosen, owner="ann")  # who has a few; there must be work left
        bulks = self._bulks(sides)
        for _ in range(5):
            try:
                if verb is not BulkVerb.REDRIVE:
                    rated = verb in (BulkVerb.RETRY, BulkVerb.RUN_NOW)
                    plain = replace(settings, canary=0) if rated else BulkSettings()
                    return bulks.begin(verb, chosen, plain, deed=DEED, bulk_id=bulk_id)
                return bulks.begin_redrive(
                    chosen, settings, deed=DEED, ids=self._ids, bulk_id=bulk_id
                )
            except AWAY:
                strand.sleep(self._world.rng.uniform(0.1, 2.0))
            except CallerError:
                self._said("re-drives of no pipeline in particular")
                return None
        self._said("bulk operations given up")
        return None

    def _chosen(self) -> JobFilter:
        rng, runs = self._world.rng, sorted(self._checker.ledger.runs)
        pipeline = rng.choice((None, LONG, SHORT))
        if runs and rng.random() < 0.4:
            return JobFilter(run=rng.choice(runs))
        return JobFilter(pipeline=pipeline, owner=rng.choice((None, None, None, "ann")))

    def _settings(self) -> BulkSettings:
        rng = self._world.rng
        return (
            BulkSettings(
                stage=rng.choice((None, None, None, LONG_STAGES[1])),
                canary=rng.choice((0, 0, 1, 3)),
                canary_share=rng.choice((0.0, 0.5, 0.9)),
                rate_per_s=rng.choice((None, None, 0.5, 5.0)),
            )
            if rng.random() < 0.7
            else BulkSettings(from_start=True)
        )

    def _bulks(self, sides: Connected) -> Bulks:
        return Bulks(sides.store, sides.control, sides.reader, self._catalogue, self._observers)

    def _stopped_and_resumed(self, sides: Connected, strand: Strand, bulk: BulkView) -> None:
        bulks, rng = self._bulks(sides), self._world.rng
        strand.sleep(rng.uniform(0.0, 2.0))
        if not self._done(strand, lambda: bulks.stop(self._now(sides, bulk), DEED)):
            return
        self._world.struck["bulk_stop"] += 1
        strand.sleep(rng.uniform(0.0, self._setup.ttl_s))
        if self._world.chaos and rng.random() < 0.7:
            self._done(strand, lambda: bulks.resume(self._now(sides, bulk), DEED))

    def _now(self, sides: Connected, bulk: BulkView) -> BulkView:
        return sides.reader.bulks(id=bulk.id)[0]

    def _done(self, strand: Strand, deed: Any) -> bool:
        """A deed, until it is answered; whether it could be done. Nobody forgets what he has begun."""
        while True:
            try:
                deed()
            except AWAY:
                strand.sleep(self._world.rng.uniform(0.1, 2.0))
            except (NotChangeable, RunAborted):
                self._said("deeds on runs and bulk operations refused")
                return False
            else:
                return True

    # -- runs ----------------------------------------------------------------------------

    def _run_pause(self, sides: Connected, strand: Strand) -> None:
        """Pause a run, and let it go on after a while."""
        run = self._one_run(sides, RunStatus.RUNNING)
        if run is None:
            return
        runs = self._runs(sides)
        if self._done(strand, lambda: runs.pause(run, DEED)):
            self._world.struck["run_pause"] += 1
            strand.sleep(self._setup.ttl_s * self._world.rng.uniform(0.1, 2.0))
            self._done(strand, lambda: runs.resume(self._run_now(sides, run), DEED, WITHOUT_LIMITS))

    def _run_resume(self, sides: Connected, strand: Strand) -> None:
        """Let a run go on that was aborted: as it is, or with larger budgets."""
        run = self._one_run(sides, RunStatus.ABORTED)
        if run is None:
            return
        more = self._world.rng.choice(({}, WITHOUT_LIMITS, WITHOUT_LIMITS, WITHOUT_LIMITS))
        if self._done(strand, lambda: self._runs(sides).resume(run, DEED, more)):
            self._world.struck["run_resume"] += 1

    def _run_cancel(self, sides: Connected, strand: Strand) -> None:
        run = self._one_run(sides, RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.ABORTED)
        if run is not None and self._done(strand, lambda: self._runs(sides).cancel(run, DEED)):
            self._world.struck["run_cancel"] += 1

    def _runs(self, sides: Connected) -> Runs:
        return Runs(sides.store, sides.control, sides.reader, self._observers)

    def _one_run(self, sides: Connected, *states: RunStatus) -> RunView | None:
        known = [one for one in self._checker.ledger.runs.values() if one.status in states]
        if not known:
            return None
        try:
            return sides.reader.run(self._world.rng.choice(known).id)
        except AWAY:
            return None

    def _run_now(self, sides: Connected, run: RunView) -> RunView:
        found = sides.reader.run(run.id)
        assert found is not None
        return found
