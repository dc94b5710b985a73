"""Who feeds runs: processes that may be killed at any line, and are started again with the same items.

What is real: `engine.runs.Runs` and every step of `engine.feeding.Feeder`. What stands in is what `Pipeline.run` has
between the steps: a pause where the run has no room, and the same step again when the store was away.
"""

import json
from random import Random
from typing import Any

from perdure.engine.batch.feeding import Feeder
from perdure.engine.batch.item_jobs import FeedTerms
from perdure.engine.batch.runs import Runs
from perdure.engine.enqueue import new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline
from perdure.model.errors import NotChangeable, RunAborted, StoreFull, StoreUnavailable
from perdure.model.operations import Deed
from perdure.model.runs import RunView
from tests.sim.checker import Checker
from tests.sim.clocks import MachineClock
from tests.sim.connected import Connect, Connected
from tests.sim.feeds import WITHOUT_LIMITS, Feed
from tests.sim.process import Kernel, Process
from tests.sim.strand import Strand
from tests.sim.swarm import Setup
from tests.sim.world import World

_AWAY = (StoreUnavailable, StoreFull)
_DEED = Deed("feeder", "more items")
_MEDDLING = {"pause": 0.1, "cancel": 0.02}  # of each step; it is aborted by its budget


class Feeding:
    """One process after the other, each of which feeds the same items to the run of the same name."""

    def __init__(
        self,
        world: World,
        setup: Setup,
        catalogue: Catalogue,
        checker: Checker,
        kernel: Kernel,
        connect: Connect,
        feed: Feed,
    ) -> None:
        self._world = world
        self._setup = setup
        self._kernel = kernel
        self._connect = connect
        self._checker = checker
        self._feed = feed
        self._observers = Observers([checker.told])
        line = catalogue.pipeline(feed.pipeline)
        assert line is not None
        self._line: LaidPipeline = line
        self._items = [self._item(number) for number in range(feed.items)]
        clock = MachineClock(world, setup.skew_s)
        self._clock = clock
        self._ids = Ids(clock, Random(world.rng.getrandbits(32)))
        expected = checker.runs.expected.setdefault(feed.name, set())
        expected |= {new_job(self._ids, line, one).payload_json for one in self._items}
        self.name = feed.name
        self.over = False

    def start(self, delay_s: float = 0.0) -> None:
        """A new process, unless all items are in."""
        if self.over:
            return
        process = self._kernel.process("feeder")
        process.on_death = lambda: self._world.after(self._world.rng.uniform(0.0, 3.0), self.start)
        strand: Strand
        strand = self._world.strand(
            process.name,
            lambda: self._live(self._connect(strand, process), strand, process, delay_s),
            process,
        )

    def _item(self, number: int) -> dict[str, Any]:
        """The same for every feeder of a run: drawn from its name."""
        feed, chance = self._feed, Random(f"{self._world.seed} {self._feed.name} {number}")
        stages = [stage.name for stage in self._line.stages]
        poison = chance.choice(stages) if chance.random() < self._setup.poison else None
        # some of what clients take as well, each once in a run
        key = f"{feed.pipeline}{number + 1}" if number < 5 else f"{feed.name}:{number}"
        return {
            "n": number,
            "of": feed.name,
            "key": key,
            "poison": poison,
            "gone": chance.random() < 0.1,
        }

    def _live(self, sides: Connected, strand: Strand, process: Process, delay_s: float) -> None:
        strand.sleep(delay_s)
        runs = Runs(sides.store, sides.control, sides.reader, self._observers)
        options = self._feed.options
        while not self.over:
            try:
                self.over = self._fed(runs, sides, strand, process, options)
            except _AWAY:
                self._world.seen["feedings begun again"] += 1
            except RunAborted:
                self._world.seen["runs that cannot be gone on with"] += 1
                options = {} if self._world.chaos else WITHOUT_LIMITS
            except NotChangeable:  # it was cancelled
                self.over = True
            if not self.over:
                strand.sleep(self._world.rng.uniform(0.1, self._setup.ttl_s))
        self._kernel.exit(process, 0)

    def _fed(
        self,
        runs: Runs,
        sides: Connected,
        strand: Strand,
        process: Process,
        options: dict[str, Any],
    ) -> bool:
        """Feed all items and say that they are in; False when the run was stopped before."""
        feed = self._feed
        opened = runs.open(
            self._line, self._ids, name=feed.name, owner=feed.owner, options=options, deed=_DEED
        )
        feeder = Feeder(
            runs,
            self._line,
            opened,
            self._items,
            ids=self._ids,
            by=process.name,
            terms=FeedTerms(
                owner=feed.owner, key="key" if feed.keyed else None, backlog_max=feed.backlog_max
            ),
            monotonic=self._clock.monotonic,
        )
        before = 0
        while not feeder.over:
            self._vanish(process, strand)
            before = feeder.fed.items
            self._step(feeder, strand)
            self._meddle(process, opened.run)
        more = feeder.fed.items > before
        self._checker.runs.fed_to_the_end(opened.run.no, feeder.fed, more=more)
        feeder.leave()
        self._world.seen["runs sealed"] += feeder.fed.whole
        return feeder.fed.whole

    def _step(self, feeder: Feeder, strand: Strand) -> None:
        try:
            went_on = feeder.once()
        except _AWAY:
            self._world.seen["chunks sent again"] += 1
            went_on = False
        if not went_on:
            strand.sleep(self._world.rng.uniform(0.05, 1.0))

    def _meddle(self, process: Process, run: RunView) -> None:
        """Now and then somebody pauses or cancels the run between two steps, or in the middle of the next one."""
        for verb, chance in _MEDDLING.items():
            on = self._world.chaos and f"run_{verb}" in self._setup.strikes
            if on and self._world.rng.random() < chance:
                self._strike(f"{process.name} {verb}", verb, run)

    def _strike(self, name: str, verb: str, run: RunView) -> None:
        strand: Strand
        strand = self._world.strand(
            name, lambda: self._struck(self._connect(strand, None), verb, run)
        )

    def _struck(self, sides: Connected, verb: str, run: RunView) -> None:
        runs = Runs(sides.store, sides.control, sides.reader, self._observers)
        try:
            getattr(runs, verb)(run, _DEED)
        except (*_AWAY, NotChangeable):
            return
        self._world.struck[f"run_{verb}"] += 1

    def _vanish(self, process: Process, strand: Strand) -> None:
        chance = self._setup.chances.get("feeder_lost", 0.0)
        if self._world.chaos and self._world.rng.random() < chance:
            self._world.struck["feeder_lost"] += 1
            self._kernel.die(process, 9)
            strand.sleep(0.0)


def gone(payload_json: str) -> bool:
    """Whether the source of an item is no longer there."""
    item = json.loads(payload_json)
    return isinstance(item, dict) and bool(item.get("gone"))
