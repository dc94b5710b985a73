"""One seed from beginning to end: chaos, healing, liveness, a clean stop, the last audit."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from perdure.engine import (
    claim as claim_module,
    enqueue as enqueue_module,
    loop as loop_module,
    supervisor as supervisor_module,
    upstreams as upstreams_module,
)
from perdure.engine.call import HARD_MORE_S
from perdure.engine.chores import (
    expired as expired_module,
    lost as lost_module,
    prune as prune_module,
)
from perdure.engine.gates import change_of
from perdure.engine.observe import Observers
from perdure.model.limits import SUSPECTS_TOGETHER_MAX
from perdure.model.operations import Deed
from perdure.model.workers import Role
from perdure.rules.gate import Gate
from perdure.rules.hold import release
from perdure.stores.moments import to_us
from perdure.stores.sqlite import claiming as store_module
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.callers import CALL_POLICY, CALL_WAIT_S_MAX
from tests.sim.checker import Checker
from tests.sim.connected import Connected
from tests.sim.history import answered
from tests.sim.hosts import Host, Machine
from tests.sim.invariants import Violation
from tests.sim.nemesis import Nemesis
from tests.sim.people import Client, people
from tests.sim.process import Kernel, Process
from tests.sim.remote import Remote, Wire
from tests.sim.stages import Script, catalogue_of, lay
from tests.sim.strand import Strand
from tests.sim.swarm import Setting, as_drawn, setup_of
from tests.sim.tables import check_tables
from tests.sim.world import World

_LOOKS = 8  # comparisons of the tables with the history during the chaos
_PEOPLE_LOOK_US = 10_000_000  # between two looks for gates that wait for a person
_WORK_ROUNDS = 12  # after which every gate must flow: probes in a row, and one that is lost
_SLICES_S = 30.0


@dataclass(slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    digest: str = ""
    entries: int = 0
    simulated_s: float = 0.0
    jobs: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None
    tail: list[str] = field(default_factory=list)
    about: list[str] = field(default_factory=list)


class Simulation:
    """The parts of one world, put together."""

    def __init__(self, seed: int, setting: Setting) -> None:
        self.world = World(seed)
        self.setup = setting(setup_of(self.world.rng))
        self.kernel = Kernel(self.world)
        self.connection = Connection(":memory:", self.world.clock)
        SqliteSchema(self.connection, "sqlite:///:memory:").upgrade()
        self.store = SqliteStore(self.connection)
        self.reader = SqliteReader(self.connection)
        self.control = SqliteControl(self.connection)
        self.concurrency = {
            Role.MAIN: self.setup.concurrency,
            Role.SUSPECTS: min(SUSPECTS_TOGETHER_MAX, self.setup.concurrency),
            Role.ALONE: 1,
            Role.CALLER: 1000,  # one row for all calls of a process, given up or not
        }
        self.clients: list[Client] = []
        self._healed_us = 0
        self.hosts: list[Host] = []

    def begin(self) -> None:
        """Lay out the pipelines and start everybody."""
        world, setup = self.world, self.setup
        lane_nos = lay(self.store, catalogue_of(setup, _never, {}))
        plain = catalogue_of(setup, _never, lane_nos)
        self.checker = Checker(world, plain, self.concurrency, self.kernel.troubled)
        self.checker.overrun_s = setup.overrun_s
        self.checker.call_policy = CALL_POLICY
        self.wire = Wire(world, setup, self.kernel, self.checker)
        self.kernel.on_trouble = self._excuse
        self.checker.gates.outside = setup.outside
        script = Script(world, setup, self.kernel, self.checker.began, self.checker.gates)
        upstreams = tuple(
            replace(one, health=script.health_of(one.name))
            if one.name in setup.outside.health else one
            for one in setup.outside.upstreams
        )  # fmt: skip
        self.machine = machine = Machine(
            world, setup, self.kernel, self.wire, self.store,
            lambda process, narrow: catalogue_of(
                setup, script.stage_in(process), lane_nos, narrow=narrow
            ),
            Observers([self.checker.told]), self.concurrency, upstreams,
        )  # fmt: skip
        for number, ttl_s in enumerate(setup.leases_s):
            narrow = setup.narrow and number == len(setup.leases_s) - 1
            self.hosts.append(Host(machine, f"host{number}", ttl_s, narrow=narrow))
        self.clients += people(world, setup, plain, self.checker, self.kernel, self._connect)
        self.nemesis = Nemesis(world, setup, self.kernel, self.wire, self.hosts)

    def _excuse(self, process: Process) -> None:
        for one in (process, *process.children):
            if one.worker is not None:
                worker = self.checker.ledger.workers[one.worker]
                worker.excused = True
                if one.dead and worker.gone_us is None:
                    worker.gone_us = self.world.now_us

    def _connect(self, strand: Strand, process: Process | None = None) -> Connected:
        store, control, reader = (
            Remote(self.wire, side, strand, process=process)
            for side in (self.store, self.control, self.reader)
        )
        return Connected(store, control, reader)

    # -- phases --------------------------------------------------------------------------

    def chaos(self) -> None:
        """Faults strike."""
        for look in range(1, _LOOKS + 1):
            self.world.run(round(self.setup.chaos_s * look / _LOOKS * 1e6))
            check_tables(self.checker, self.connection, self.reader)

    def settle(self) -> None:
        """Faults end, and everything has to come to its end in time."""
        self.nemesis.heal()
        self._healed_us = self.world.now_us
        self._resume_all()
        roster, ttl_s = self.checker.roster, self.setup.ttl_s
        roster.quiet_us = self._healed_us + round((1.5 * ttl_s + 5.0) * 1e6)  # hosts may be down
        roster.rescue_s_max = 2 * ttl_s + ttl_s / 3 + 10.0
        self._see_ticks()
        self._see_jobs_end()
        self._see_gates_flow()
        if not self.world.run(self._stuck_us(), self._all_idle):
            busy = [process.name for process in self.kernel.alive() if not process.idle()]
            self.checker.broken("E4", f"{busy} have something in their hands, and no job is open")
        check_tables(self.checker, self.connection, self.reader)

    def _see_jobs_end(self) -> None:
        while not self._all_over():
            self._drop_schedules()
            self._release_gates()
            until_us = min(self._stuck_us(), self.world.now_us + _PEOPLE_LOOK_US)
            self.world.run(until_us, self._all_over_or_moved())
            if self.world.now_us >= self._stuck_us():
                left = [
                    f"#{one.no} {one.state.value}@{one.stage}" for one in self.checker.ledger.open
                ]
                self.checker.broken(
                    "L1", f"nothing has moved for {self.patience_s:g} s: {left[:5]}"
                )

    def _see_gates_flow(self) -> None:
        """The upstreams are well: where work comes, every gate flows again."""
        for _ in range(_WORK_ROUNDS):
            if not self._held():
                return
            for client in self.clients[:1]:
                client.send_more(self.store, len(self.setup.outside.behind) + 1)
            self._see_jobs_end()
        self.checker.broken("L9", f"after {_WORK_ROUNDS} rounds of work: {self._held()}")

    def _held(self) -> list[Gate]:
        gates = self.checker.ledger.gates
        return [
            gates[one].row
            for one in sorted(self.setup.outside.used & gates.keys())
            if not gates[one].flowing
        ]

    def _release_gates(self) -> None:
        """Somebody releases what waits for a person."""
        for _, gate in sorted(self.checker.ledger.gates.items()):
            if not gate.flowing and gate.row.until_person:
                step = release(gate.row, reason="the chaos is over", now=self.world.clock.now())
                change = change_of(step, gate.parent, self.world.clock.now())
                self._told("change_gate", change, Deed("the end", "the chaos is over"))

    def _told(self, method: str, *args: Any) -> None:
        """A deed of ours, at the store itself."""
        answer = getattr(self.control, method)(*args)
        self.world.history.note(self.world.now_us, "the end", method, args[0], answered(answer))
        self.checker.committed(method, args, {}, answer)

    def _resume_all(self) -> None:
        for scope, name in sorted(self.checker.ledger.paused):
            self._told("resume", scope, name, Deed("the end", "the chaos is over"))

    def _see_ticks(self) -> None:
        """Every schedule ticks again, once somebody is there to do it; then the app ends them."""
        names, rows = self.setup.periods_s, self.checker.ledger.schedules
        for name, period_s in names.items():
            until_us = self._healed_us + round((self.patience_s + period_s) * 1e6)
            until_us = max(until_us, self.world.now_us)
            ticked = partial(self._ticked_since_healed, f"of {name}")
            if not self.world.run(until_us, ticked):
                self.checker.broken("L1", f"the schedule of {name} stands still: {rows}")
        self.machine.ticking = False
        self._drop_schedules()

    def _ticked_since_healed(self, name: str) -> bool:
        row = self.checker.ledger.schedules.get(name)
        return row is not None and row.ticked_us > self._healed_us

    def _drop_schedules(self) -> None:
        for name in sorted(self.checker.ledger.schedules):
            self._told("drop_schedule", name)

    def _all_idle(self) -> bool:
        return all(process.idle() for process in self.kernel.alive())

    @property
    def patience_s(self) -> float:
        """The longest that nothing may move once the faults are over.

        A host may still be down for a lease and a half; its successor has to be steady for a lease
        before it may judge, and what it judges must have been silent for one. A stage may be
        stubborn until its timeout, and the supervisor may wait before it starts a child again. What a
        caller has left behind is found when its own limit has passed. What the dead had of an
        upstream's limits is free after a lease of its own, and calls start slowly.
        """
        own_s = 4 * self.setup.ttl_s + self.setup.timeout_s + 5 * self.setup.work_s + 20.0
        own_s += _SLICES_S if self.setup.outside.upstreams else 0.0
        return own_s + (CALL_WAIT_S_MAX + HARD_MORE_S + self.setup.ttl_s if self.setup.calls else 0)

    def _stuck_us(self) -> int:
        """When to give up, unless something moves before."""
        due_us = [job.due_us for job in self.checker.ledger.open if job.holder is None]
        latest_us = max([self._healed_us, self.checker.moved_us, *due_us, *self._holds_us()])
        return latest_us + round(self.patience_s * 1e6)

    def _holds_us(self) -> list[int]:
        """When gates may next be probed, or flow by themselves."""
        ends = [
            end
            for row in self._held()
            for end in (row.held_until, row.lease_until)
            if end is not None
        ]
        return [to_us(end) - self.checker.start_us for end in ends]

    def _all_over_or_moved(self) -> Callable[[], bool]:
        moved_us = self.checker.moved_us
        return lambda: self.checker.moved_us != moved_us or self._all_over()

    def _all_over(self) -> bool:
        return all(client.over for client in self.clients) and not self.checker.ledger.open

    def stop(self) -> None:
        """Everybody is told to go, and goes in time, holding nothing."""
        for process in self.kernel.alive():
            if process.name.startswith("caller"):
                self.kernel.die(process, 9)
        for host in self.hosts:
            host.stays_down = True
            if not host.process.dead:
                self.kernel.kill(host.process.pid, 15)
        grace_s = self.setup.grace_s + 10
        if not self.world.run(self.world.now_us + round(grace_s * 1e6), self._all_gone):
            left = [process.name for process in self.kernel.alive()]
            self.checker.broken("L6", f"{left} are still there {grace_s:g} s after the order")
        check_tables(self.checker, self.connection, self.reader)

    def _all_gone(self) -> bool:
        return not self.kernel.alive()


def run_seed(seed: int, setting: Setting = as_drawn) -> Outcome:
    """Live through one seed."""
    simulation = Simulation(seed, setting)
    world, outcome = simulation.world, Outcome(seed)
    with installed(simulation):
        try:
            simulation.begin()
            simulation.chaos()
            simulation.settle()
            simulation.stop()
        except Violation as violation:
            outcome.violation = violation
            outcome.tail = world.history.tail(40)
            outcome.about = world.history.about(violation.text)
        finally:
            world.close()
            simulation.connection.close()
    outcome.digest, outcome.entries = world.history.digest, world.history.entries
    outcome.simulated_s, outcome.jobs = world.clock.monotonic(), len(simulation.checker.ledger.jobs)
    outcome.struck, outcome.seen = world.struck, world.seen
    return outcome


@contextmanager
def installed(simulation: Simulation) -> Iterator[None]:
    """The simulated kernel and the seed's batch sizes, where the engine looks for them."""
    batches = simulation.setup.batches
    places: list[tuple[Any, str, Any]] = [
        (supervisor_module, "os", simulation.kernel),
        (loop_module, "Bell", object),  # replaced by one of the strand before it is used
        (loop_module, "monotonic", simulation.world.clock.monotonic),
        (upstreams_module, "PROBE_MORE_S", simulation.setup.outside.probe_more_s),
        (claim_module, "CLAIM_BATCH_MAX", batches["claim"]),
        (store_module, "PROMOTE_BATCH_MAX", batches["promote"]),
        (lost_module, "LOST_BATCH_MAX", batches["lost"]),
        (expired_module, "EXPIRED_BATCH_MAX", batches["expired"]),
        (prune_module, "STEP_ROWS", batches["prune"]),
        (prune_module, "REST_S", simulation.setup.rests_s),
        (enqueue_module, "ENQUEUE_BATCH_MAX", batches["enqueue"]),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    log = logging.getLogger("perdure")
    listener, kept = _Listener(simulation.world), (log.level, log.propagate)
    for module, name, value in places:
        setattr(module, name, value)
    log.addHandler(listener)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.level, log.propagate = kept
        for module, name, value in before:
            setattr(module, name, value)


class _Listener(logging.Handler):
    """A logged error is a turn that failed for a reason nobody foresaw."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._world.broken("E1", f"{record.getMessage()}: {error!r}")


async def _never(item: Any, context: Any) -> None:
    raise AssertionError("the plain catalogue runs nothing")
