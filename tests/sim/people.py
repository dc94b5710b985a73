"""Clients that enqueue, each unsure of what the store has heard; and how everybody is started."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.stages import Catalogue
from perdure.model.errors import StoreFull, StoreUnavailable
from perdure.model.jobs import Enqueued, NewJob
from perdure.model.nouns import replace
from perdure.ports import Store
from tests.sim.callers import Callers
from tests.sim.checker import Checker
from tests.sim.clocks import MachineClock
from tests.sim.connected import Connect, Connected
from tests.sim.feeders import Feeding
from tests.sim.following import Follower
from tests.sim.operators import VERBS, Operator
from tests.sim.process import Kernel
from tests.sim.stages import LONG, LONG_STAGES, SHORT, SHORT_STAGES
from tests.sim.strand import Strand
from tests.sim.swarm import Setup
from tests.sim.world import World


class Client:
    """Enqueues its share of the items during the first half of the chaos."""

    def __init__(
        self, world: World, setup: Setup, catalogue: Catalogue, checker: Checker, items: int
    ) -> None:
        self._world = world
        self._setup = setup
        self._catalogue = catalogue
        self._checker = checker
        self._left = items
        self._keys: list[tuple[str, str]] = []
        clock = MachineClock(world, setup.skew_s)
        self._ids = Ids(clock, Random(world.rng.getrandbits(32)))
        self.over = False

    def body(self, sides: Connected, strand: Strand) -> None:
        """Enqueue in small batches until all is acknowledged."""
        rng = self._world.rng
        pause_s = self._setup.chaos_s / 2 / max(self._left, 1)
        while self._left > 0:
            strand.sleep(min(rng.expovariate(1 / pause_s), self._setup.chaos_s / 8))
            batch = [self._job() for _ in range(min(self._left, rng.randint(1, 4)))]
            self._left -= len(batch)
            for job, answer in zip(batch, self._sent(sides.store, strand, batch), strict=True):
                self._checker.acknowledged(job, answer)
        self.over = True

    def send_more(self, store: Store, jobs: int) -> None:
        """Enqueue some more at the store itself, that nothing is wrong with."""
        batch = [replace(self._job(), run_at=None, deadline_s=None, key=None) for _ in range(jobs)]
        answers = store.enqueue(batch)
        self._checker.committed("enqueue", (batch,), {}, answers)

    def _sent(self, store: Store, strand: Strand, batch: list[NewJob]) -> list[Enqueued]:
        """Send until answered; a client that forgot its jobs makes them anew under their keys."""
        rng = self._world.rng
        while True:
            try:
                return enqueue(store, batch)
            except (StoreUnavailable, StoreFull):
                strand.sleep(rng.uniform(0.05, 1.0))
                if all(job.key is not None for job in batch) and rng.random() < 0.5:
                    self._world.seen["batches enqueued anew under their keys"] += 1
                    batch[:] = [self._again(job) for job in batch]

    def _again(self, job: NewJob) -> NewJob:
        line = self._catalogue.pipeline(job.pipeline)
        assert line is not None
        return new_job(self._ids, line, {"again": job.id}, key=job.key, owner=job.owner)

    def _job(self) -> NewJob:
        rng = self._world.rng
        pipeline, stages = rng.choice(((LONG, LONG_STAGES), (SHORT, SHORT_STAGES)))
        key, owner = self._key(pipeline)
        line = self._catalogue.pipeline(pipeline)
        assert line is not None
        poison = rng.choice(stages) if rng.random() < self._setup.poison else None
        late = rng.random() < 0.1
        now = self._world.clock.now()
        return new_job(
            self._ids,
            line,
            {"n": self._left, "poison": poison},
            owner=owner,
            key=key,
            priority=rng.choice((0, 0, 0, 5)),
            run_at=now + timedelta(seconds=rng.uniform(0, 20)) if late else None,
            ordered_at=now - timedelta(seconds=self._left % 60) if self._left % 4 == 0 else None,
            deadline_s=self._setup.ttl_s * rng.uniform(0.5, 5) if rng.random() < 0.1 else None,
            if_failed="retry" if key is not None and rng.random() < 0.3 else "keep",
        )

    def _key(self, pipeline: str) -> tuple[str | None, str]:
        """None, a new key, or one that was used before, perhaps by somebody else."""
        rng = self._world.rng
        if rng.random() < 0.5:
            return None, ""
        if rng.random() < 0.3:
            return f"{pipeline}{rng.randint(1, 5)}", rng.choice(("", "ann"))
        return f"{pipeline}:{rng.getrandbits(40)}", ""


def people(
    world: World,
    setup: Setup,
    catalogue: Catalogue,
    checker: Checker,
    kernel: Kernel,
    connect: Connect,
    follower: Follower,
) -> tuple[list[Client], list[Feeding]]:
    """Start them all; those whose work has to be waited for."""
    _start(world, "follower", follower.body, connect)
    clients = []
    for number in range(setup.clients):
        client = Client(world, setup, catalogue, checker, -(-setup.items // setup.clients))
        clients.append(client)
        _start(world, f"client{number}", client.body, connect)
    for verb in VERBS:
        if setup.strikes.get(verb):
            operator = Operator(world, setup, catalogue, checker, verb)
            _start(world, f"operator {verb}", operator.body, connect)
    if setup.calls:
        callers = Callers(world, setup, catalogue, checker, kernel, connect)
        callers.start()
    feedings = []
    for feed in setup.feeds:
        for _ in range(feed.feeders):
            feeding = Feeding(world, setup, catalogue, checker, kernel, connect, feed)
            feedings.append(feeding)
            feeding.start(feed.begins_s)
    return clients, feedings


def _start(
    world: World, name: str, body: Callable[[Connected, Strand], None], connect: Connect
) -> None:
    strand: Strand
    strand = world.strand(name, lambda: body(connect(strand, None), strand))
