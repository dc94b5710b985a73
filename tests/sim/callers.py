"""Callers that wait for their pipeline in a process of their own, and that may vanish at any line.

What is real: every step of `engine.call.Call`, and so `begin` with its limit and its wish. What stands
in is what lies between the steps: the stages, of which only the outcome is drawn.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from perdure.engine.call import Call, CallTerms, Over, Step, Try
from perdure.engine.enqueue import new_job
from perdure.engine.gates.caller_gates import CallerGates
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, Stage
from perdure.model.errors import StageError, StoreError, StoreFull, StoreUnavailable, UnknownName
from perdure.model.jobs import OnLost
from perdure.model.outcomes import Death, Outcome, Raised, Returned
from perdure.model.workers import NewWorker, Role
from perdure.rules.evidence import evidence_of
from perdure.rules.presets import preset
from tests.sim.checker import Checker
from tests.sim.clocks import MachineClock
from tests.sim.connected import Connect, Connected
from tests.sim.process import Kernel, Process
from tests.sim.stages import LONG, SHORT
from tests.sim.strand import Strand
from tests.sim.swarm import Setup
from tests.sim.world import World

CALL_POLICY = preset("gateway-sync")
CALL_WAIT_S_MAX = 10.0
_LEASE_S = 6 * 3_600.0  # as app/calling/calls.py has it: nobody beats for a caller
_AWAY = (StoreUnavailable, StoreFull)


class Callers:
    """One process after the other, each of which makes some calls until it ends or vanishes."""

    def __init__(
        self,
        world: World,
        setup: Setup,
        catalogue: Catalogue,
        checker: Checker,
        kernel: Kernel,
        connect: Connect,
    ) -> None:
        self._world = world
        self._setup = setup
        self._catalogue = catalogue
        self._checker = checker
        self._kernel = kernel
        self._connect = connect
        self._left = setup.calls
        self._observers = Observers([checker.told])

    def start(self) -> None:
        """A new process, unless all calls are made."""
        if not self._left or not self._world.chaos:
            return
        process = self._kernel.process("caller")
        process.on_death = lambda: self._world.after(self._world.rng.uniform(0.0, 3.0), self.start)
        strand: Strand
        strand = self._world.strand(
            process.name,
            lambda: self._live(self._connect(strand, process), strand, process),
            process,
        )

    def _live(self, sides: Connected, strand: Strand, process: Process) -> None:
        clock = MachineClock(self._world, self._setup.skew_s)
        chance = Random(self._world.rng.getrandbits(32))
        ids = Ids(clock, chance)
        worker = self._registered(sides, strand)
        while self._left and self._world.chaos:
            strand.sleep(self._world.rng.expovariate(2 * self._setup.calls / self._setup.chaos_s))
            if not self._world.chaos:
                break
            self._left -= 1
            line = self._catalogue.pipeline(self._world.rng.choice((LONG, SHORT)))
            assert line is not None
            key = f"call{self._world.rng.randint(1, 4)}" if self._world.rng.random() < 0.3 else None
            terms = CallTerms(
                CALL_POLICY,
                self._world.rng.uniform(1.0, CALL_WAIT_S_MAX),
                self._world.rng.choice(tuple(OnLost)),
            )
            call = Call(
                sides.store,
                sides.reader,
                line,
                new_job(ids, line, {"call": self._left}, key=key),
                terms,
                worker=worker,
                clock=clock,
                chance=chance,
                observers=self._observers,
                gates=partial(self._gates, sides),
            )
            self._whole(call, strand, process, worker)
        if self._world.rng.random() < 0.5:
            self._ended(sides, worker)
        self._kernel.exit(process, 0)

    def _gates(self, sides: Connected, stage: Stage) -> CallerGates | None:
        upstream = self._setup.outside.upstream(stage.name)
        if upstream is None:
            return None
        return CallerGates(sides.reader, sides.control, upstream, "caller")

    def _registered(self, sides: Connected, strand: Strand) -> int:
        boot = f"{self._world.rng.getrandbits(128):032x}"
        while True:
            try:
                return sides.store.add_worker(NewWorker(boot, "caller", Role.CALLER, _LEASE_S))
            except _AWAY:
                strand.sleep(1.0)

    def _ended(self, sides: Connected, worker: int) -> None:
        """As `app/calling/calls.py` does when a process exits: as well as it can."""
        try:
            sides.store.end_worker(worker, Death("stopped"))
        except _AWAY:
            self._world.seen["callers that left without a word"] += 1

    def _whole(self, call: Call, strand: Strand, process: Process, worker: int) -> None:
        """All steps of one call; what may have been lost is sent again, but not for ever."""
        take: Callable[[], Step] = call.begin
        resent = 0
        while True:
            try:
                step: Step = take()
            except UnknownName:
                self._world.seen["calls whose job is pruned"] += 1
                return
            except _AWAY:
                resent += 1
                if resent > 4:
                    self._world.seen["calls of unknown effect"] += 1
                    return
                strand.sleep(self._world.rng.uniform(0.05, 1.0))
                take = take if take == call.begin else call.resend
                continue
            except StoreError as error:
                self._world.broken("E1", f"a call: {error!r}")
            if isinstance(step, Over):
                self._world.seen["calls answered"] += 1
                return
            take, resent = self._tried(call, step, strand, process, worker), 0

    def _tried(
        self, call: Call, step: Try, strand: Strand, process: Process, worker: int
    ) -> Callable[[], Step]:
        """Run a stage, in place of the app; what has to be told about it."""
        if step.pause_s:
            strand.sleep(step.pause_s)
        if self._vanishes():
            self._kernel.die(process, 9)
        if call.left_s <= 0:
            return call.end_wait
        self._checker.began(step.claim.id, step.claim.token, worker)
        took_s = self._world.rng.expovariate(1 / self._setup.work_s)
        strand.sleep(min(took_s, call.left_s))
        if self._vanishes():
            self._kernel.die(process, 9)
        if took_s >= call.left_s:
            return lambda: call.end_wait(took_s)
        if self._world.rng.random() < 0.1:
            return lambda: call.leave(took_s)
        outcome = self._outcome()
        return lambda: call.end_stage(outcome, took_s)

    def _vanishes(self) -> bool:
        chance = self._setup.chances.get("caller_lost", 0.0)
        struck = self._world.chaos and self._world.rng.random() < chance
        self._world.struck["caller_lost"] += struck
        return struck

    def _outcome(self) -> Outcome:
        match self._world.rng.choice(("done", "done", "network", "limited", "fatal")):
            case "network":
                return Raised(evidence_of(ConnectionResetError("gone")))
            case "limited":
                wait_s = self._world.rng.uniform(0.0, 20.0)
                return Raised(evidence_of(StageError("rate_limited", "slow down", wait_s=wait_s)))
            case "fatal":
                return Raised(evidence_of(StageError("invalid_request", "cannot ever work")))
            case _:
                return Returned('{"of":"call"}')
