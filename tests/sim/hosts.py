"""Hosts: a real supervisor and its real working processes, on the simulated kernel.

What is real: `Supervisor`, `Lease`, `Worker` with its `Loop`, `Pump`, `Gatekeeper` and `Upkeep`, and `engine.run`.
What stands in: the kernel for `os`, a strand for each thread, a virtual event loop, and, for the last
act of a worker (`os._exit`), the end of its simulated process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.upstreams import DeclaredUpstream, Upstreams
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.supervise.supervisor import Supervisor
from perdure.engine.upkeep.rounds import Upkeep, UpkeepSettings
from perdure.engine.upkeep.schedules import Schedule, declare
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.shutdown import EXIT_DEAD
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.errors import WorkerDead
from perdure.model.workers import Role
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.bulkwork import BulkWork
from tests.sim.clocks import MachineClock
from tests.sim.connected import Connected
from tests.sim.loop import VirtualLoop
from tests.sim.process import Kernel, Process
from tests.sim.remote import Remote, Wire
from tests.sim.strand import Bell, Strand
from tests.sim.swarm import Setup
from tests.sim.world import World

SUSPECT_IDLE_S = 20.0  # as app.work sets it


class SimWorker(Worker):
    """A worker whose last act ends a simulated process, not ours."""

    leave: Callable[[int], None]
    strand: Strand
    world: World

    def _pulse_step(self, now: float) -> None:
        before = self._runner.blocked
        super()._pulse_step(now)
        self.world.seen["event loops found blocked"] += self._runner.blocked and not before

    def _step(self) -> float:
        """No turn takes no time at all."""
        before = self._clock.monotonic()
        wait_s = super()._step()
        if self._clock.monotonic() == before:
            self.strand.sleep(0.0001)
        return wait_s

    def _end(self, last: Exception | None) -> None:
        self.leave(EXIT_DEAD if isinstance(last, WorkerDead) else self._shutdown.exit_status)


@dataclass(slots=True)
class Machine:
    """Everything that hosts share."""

    world: World
    setup: Setup
    kernel: Kernel
    wire: Wire
    store: SqliteStore
    catalogue_in: Callable[[Process, bool], Catalogue]
    observers: Observers
    concurrency: dict[Role, int]
    upstreams: tuple[DeclaredUpstream, ...] = ()
    ticking: bool = True  # whether the app still declares its schedules

    def connect(self, strand: Strand, process: Process) -> Connected:
        """The three sides of the store, each at the other end of the wire."""
        connection = self.store._connection
        store, control, reader = (
            Remote(self.wire, side, strand, process=process)
            for side in (self.store, SqliteControl(connection), SqliteReader(connection))
        )
        return Connected(store, control, reader)

    def schedules(self, catalogue: Catalogue) -> list[Schedule]:
        """What the app declares, as far as a process knows the pipelines."""
        made = []
        for name, period_s in self.setup.periods_s.items() if self.ticking else ():
            line = catalogue.pipeline(name)
            if line is not None:
                made.append(declare(f"{period_s}s", line, {"by": "schedule"}, name=f"of {name}"))
        return made


class Host:
    """One machine's `perdure worker`, started again whenever it has ended."""

    def __init__(
        self, machine: Machine, name: str, ttl_s: float, *, narrow: bool = False, processes: int = 1
    ) -> None:
        self.name = name
        self.processes = processes
        self.ttl_s = ttl_s
        self.narrow = narrow
        self.stays_down = False
        self._machine = machine
        self.clock = MachineClock(machine.world, machine.setup.skew_s)
        self.process: Process
        self.supervisor: Supervisor | None = None
        self.start()

    @property
    def children(self) -> list[Process]:
        """Its living working processes."""
        return [child for child in self.process.children if not child.dead]

    def start(self) -> None:
        """Start a supervisor."""
        if self.stays_down:
            return
        machine = self._machine
        self.supervisor = None
        self.process = machine.kernel.process(self.name)
        self.process.on_death = self._restart
        strand = machine.world.strand(self.process.name, self._supervise, self.process)
        self._bell = Bell(strand)
        self._strand = strand

    def _restart(self) -> None:
        world = self._machine.world
        pause_s = world.rng.uniform(0.0, self._machine.setup.ttl_s * 1.5) if world.chaos else 0.1
        world.after(pause_s, self.start)

    def _supervise(self) -> None:
        machine, process, bell = self._machine, self.process, self._bell
        ttl_s = self.ttl_s
        remote = Remote(
            machine.wire,
            machine.store,
            self._strand,
            slow_s_max=ttl_s / 3,
            process=process,
            excuse=lambda: self._excuse(process),
        )
        supervisor = Supervisor(
            store=remote,
            spawn=lambda role, worker: self._spawn(process, role, worker),
            clock=self.clock,
            observers=machine.observers,
            name=process.name,
            ttl_s=ttl_s,
            grace_s=machine.setup.grace_s,
            processes=self.processes,
        )
        self.supervisor = supervisor
        process.on_terminate = supervisor.drain
        process.on_child = bell.set
        while not supervisor.done:
            supervisor.once()
            bell.wait(min(0.25, ttl_s / 6))
            bell.clear()
        machine.kernel.exit(process, supervisor.exit_status or 0)

    def _excuse(self, supervisor: Process) -> None:
        for child in supervisor.children:
            if child.worker is not None:
                self._machine.wire.checker.ledger.workers[child.worker].excused = True

    def _spawn(self, supervisor: Process, role: Role, worker: int) -> Process:
        child = self._machine.kernel.process(f"{self.name}.{role.value}", supervisor)
        child.worker = worker
        strand: Strand
        strand = self._machine.world.strand(
            child.name, lambda: self._work(child, strand, role, worker), child
        )
        return child

    def _work(self, child: Process, strand: Strand, role: Role, number: int) -> None:
        machine = self._machine
        strand.sleep(machine.world.rng.uniform(0.0, 0.5))  # a process has to start
        child.loop = VirtualLoop(machine.world, child, self.clock)
        setup, concurrency = machine.setup, machine.concurrency[role]
        catalogue = machine.catalogue_in(child, self.narrow)
        chance = Random(machine.world.rng.getrandbits(32))
        store = Remote(machine.wire, machine.store, strand, process=child, freezes=True)
        sides = machine.connect(strand, child)
        gates = Gatekeeper(
            store,
            sides.control,
            Upstreams({one.name: one for one in machine.upstreams}).all(catalogue.stages()),
            number,
            catalogue=catalogue,
            clock=self.clock,
            chance=chance,
            observers=machine.observers,
        )
        bell = Bell(strand)
        if setup.ears:
            store.listen(bell.speak)
        worker = SimWorker(
            store,
            catalogue,
            WorkerIdentity(number, role.isolation, concurrency),
            WorkerSettings(
                concurrency=concurrency,
                grace_s=setup.grace_s,
                poll_s=setup.poll_s,
                tick_s=setup.poll_s / 2,
                idle_s_max=None if role is Role.MAIN else SUSPECT_IDLE_S,
                blocked_s_max=setup.overrun_s / 2,
            ),
            clock=self.clock,
            chance=chance,
            observers=machine.observers,
            upkeep=Upkeep(
                sides,
                catalogue,
                number,
                UpkeepSettings(setup.retention, margin_s=setup.overrun_s, patience_s=setup.ttl_s),
                schedules=machine.schedules(catalogue),
                clock=self.clock,
                chance=chance,
                observers=machine.observers,
                gates=gates,
                bulks=BulkWork(machine, child, catalogue, number).ring,
            )
            if role is Role.MAIN
            else None,
            gates=gates,
        )
        worker.leave = lambda status: machine.kernel.exit(child, status)
        worker.strand, worker.world = strand, machine.world
        child.idle = lambda: worker._pump.empty
        worker._runner._events = child.loop
        worker._loop._wakeup = bell
        child.on_terminate = worker.drain
        child.on_orphaned = worker.drain_now
        if child.parent is None or child.parent.dead:  # its pipe is closed already
            worker.drain_now()
        worker._loop._run()
