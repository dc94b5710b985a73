"""One seed from beginning to end: chaos, healing, liveness, a clean stop, the last audit."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perdure.engine.call import HARD_MORE_S
from perdure.engine.gates.changes import change_of
from perdure.engine.observe import Observers
from perdure.engine.upkeep.run_watch import LEFT_S
from perdure.model.limits import SUSPECTS_TOGETHER_MAX
from perdure.model.nouns import replace
from perdure.model.operations import BulkStatus, Deed, LaneScope
from perdure.model.runs import RunChange, RunStatus
from perdure.model.workers import Role
from perdure.rules.gate.gate import Gate
from perdure.rules.gate.hold import release
from perdure.stores.moments import to_us
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.store import SqliteStore
from tests.sim.callers import CALL_POLICY, CALL_WAIT_S_MAX
from tests.sim.checker import Checker
from tests.sim.completing import Completing
from tests.sim.connected import Connected
from tests.sim.feeders import Feeding
from tests.sim.feeds import WITHOUT_LIMITS
from tests.sim.following import Follower
from tests.sim.history import answered
from tests.sim.hosts import Host, Machine
from tests.sim.installing import installed
from tests.sim.invariants import Violation
from tests.sim.ledger import RunAccount
from tests.sim.nemesis import Nemesis
from tests.sim.people import Client, people
from tests.sim.process import Kernel, Process
from tests.sim.remote import Remote, Wire
from tests.sim.runs import names
from tests.sim.stages import Script, catalogue_of, lay
from tests.sim.strand import Strand
from tests.sim.swarm import Setting, as_drawn, setup_of
from tests.sim.tables import check_tables
from tests.sim.world import World
from tests.stores.kit import MEMORY, connected

_LOOKS = 8  # comparisons of the tables with the history during the chaos
_PEOPLE_LOOK_US = 10_000_000  # between two looks for gates that wait for a person
_WORK_ROUNDS = 12  # after which every gate must flow: probes in a row, and lost ones
_SLICES_S = 30.0
_THE_END = Deed("the end", "the chaos is over")


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
        self.connection = connected(MEMORY, self.world.clock)
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
        self.feedings: list[Feeding] = []
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
        self.completing = Completing(self.wire, self.store, setup, self.checker)
        self.script = script = Script(world, setup, self.kernel, self.checker, self.completing)
        upstreams = tuple(
            replace(one, health=script.health_of(one.name))
            if one.name in setup.outside.health
            else one
            for one in setup.outside.upstreams
        )
        self.machine = machine = Machine(
            world,
            setup,
            self.kernel,
            self.wire,
            self.store,
            lambda process, narrow: catalogue_of(
                setup, script.stage_in(process), lane_nos, narrow=narrow
            ),
            Observers([self.checker.told]),
            self.concurrency,
            upstreams,
        )
        for number, ttl_s in enumerate(setup.leases_s):
            narrow = setup.narrow and number == len(setup.leases_s) - 1
            processes = 2 if number == 0 and world.seed % 4 == 0 else 1
            self.hosts.append(
                Host(machine, f"host{number}", ttl_s, narrow=narrow, processes=processes)
            )
        self.follower = Follower(world, self.checker.feed, self.reader.changes().cursor)
        self.clients, self.feedings = people(
            world, setup, plain, self.checker, self.kernel, self._connect, self.follower
        )
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

    def _check_tables(self) -> None:
        self.completing.check()
        check_tables(self.checker, self.connection, self.reader)

    # -- phases --------------------------------------------------------------------------

    def chaos(self) -> None:
        """Faults strike."""
        for look in range(1, _LOOKS + 1):
            self.world.run(round(self.setup.chaos_s * look / _LOOKS * 1e6))
            self._check_tables()

    def settle(self) -> None:
        """Faults end, and everything has to come to its end in time."""
        self.nemesis.heal()
        self.script.defects = True
        self._healed_us = self.world.now_us
        self._resume_all()
        self.checker.runs.quiet = True
        roster, ttl_s = self.checker.roster, self.setup.ttl_s
        roster.quiet_us = self._healed_us + round((1.5 * ttl_s + 5.0) * 1e6)  # hosts may be down
        roster.rescue_s_max = 2 * ttl_s + ttl_s / 3 + 10.0
        self._see_ticks()
        self._see_jobs_end()
        self._see_gates_flow()
        self._see_runs_end()
        if not self.world.run(self._stuck_us(), self._all_idle):
            busy = [process.name for process in self.kernel.alive() if not process.idle()]
            self.checker.broken("E4", f"{busy} have something in their hands, and no job is open")
        self._check_tables()

    def _see_jobs_end(self) -> None:
        while not self._all_over():
            self._drop_schedules()
            self._release_gates()
            self._resume_runs()
            until_us = min(self._stuck_us(), self.world.now_us + _PEOPLE_LOOK_US)
            self.world.run(until_us, self._all_over_or_moved())
            if self.world.now_us >= self._stuck_us():
                left = [
                    f"#{one.no} {one.state.value}@{one.stage}" for one in self.checker.ledger.open
                ]
                stuck = f"nothing has moved for {self.patience_s:g} s"
                if not left:
                    feedings = [one.name for one in self.feedings if not one.over]
                    self.checker.broken("L10", f"{stuck}: {feedings} {self._running_bulks()}")
                self.checker.broken("L1", f"{stuck}: {left[:5]}")

    def _see_runs_end(self) -> None:
        """All items are in and over, and so is every run."""
        while self._live_runs() and self.world.now_us < self._stuck_us():
            self._resume_runs()
            until_us = min(self._stuck_us(), self.world.now_us + _PEOPLE_LOOK_US)
            self.world.run(until_us, lambda: not self._live_runs())
        if self._live_runs():
            self.checker.broken("L10", f"these runs do not end: {names(self._live_runs())}")

    def _live_runs(self) -> list[RunAccount]:
        return [run for run in self.checker.ledger.runs.values() if not run.ended]

    def _see_gates_flow(self) -> None:
        """The upstreams answer: where work comes, gates flow again, though every probe meets a defect of its own.

        Without the defects so do those that need a proof.
        """
        if not self._flow(self._held_for_nothing):
            self.checker.broken(
                "L11", f"after {_WORK_ROUNDS} rounds of work: {self._held_for_nothing()}"
            )
        self.script.defects = False
        if not self._flow(self._held):
            self.checker.broken("L9", f"after {_WORK_ROUNDS} rounds of work: {self._held()}")

    def _flow(self, held: Callable[[], list[Gate]]) -> bool:
        for _ in range(_WORK_ROUNDS):
            if not held():
                return True
            for client in self.clients[:1]:
                client.send_more(self.store, len(self.setup.outside.behind) + 1)
            self._see_jobs_end()
        return not held()

    def _held_for_nothing(self) -> list[Gate]:
        """The gates that no credential holds, of their own or above them, and no person."""
        gates, held = self.checker.ledger.gates, {one.name for one in self._held()}
        return [
            gates[name].row
            for name in sorted(held - {one.credential for one in self.setup.outside.upstreams})
            if not gates[name].keyed
            and gates[name].parent not in held
            and not gates[name].row.until_person
        ]

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
                self._told("change_gate", change, _THE_END)

    def _told(self, method: str, *args: Any) -> None:
        """A deed of ours, at the store itself."""
        answer = getattr(self.control, method)(*args)
        self.world.history.note(self.world.now_us, "the end", method, args[0], answered(answer))
        self.checker.committed(method, args, {}, answer)

    def _resume_all(self) -> None:
        for scope, name in sorted(self.checker.ledger.paused):
            if scope is not LaneScope.RUN:
                self._told("resume", scope, name, _THE_END)

    def _resume_runs(self) -> None:
        """Somebody lets every run that stands still go on, whatever it costs."""
        for run in self.checker.ledger.runs.values():
            if run.status in (RunStatus.PAUSED, RunStatus.ABORTED):
                terms = json.loads(run.settings_json) | WITHOUT_LIMITS
                change = RunChange(
                    run.no, run.status, RunStatus.RUNNING, settings_json=json.dumps(terms)
                )
                self._told("change_run", change, _THE_END)

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
        own_s += LEFT_S if self.checker.ledger.runs else 0.0
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
        idle = not self.checker.ledger.open and not self._running_bulks()
        fed = all(client.over for client in self.clients) and all(one.over for one in self.feedings)
        return idle and fed

    def _running_bulks(self) -> list[int]:
        bulks = self.checker.ledger.bulks.values()
        return [one.no for one in bulks if one.status is BulkStatus.RUNNING]

    def stop(self) -> None:
        """Everybody is told to go, and goes in time, holding nothing."""
        for process in self.kernel.alive():
            if process.name.startswith(("caller", "feeder")):
                self.kernel.die(process, 9)
        for host in self.hosts:
            host.stays_down = True
            if not host.process.dead:
                self.kernel.kill(host.process.pid, 15)
        grace_s = self.setup.grace_s + 10
        if not self.world.run(self.world.now_us + round(grace_s * 1e6), self._all_gone):
            left = [process.name for process in self.kernel.alive()]
            self.checker.broken("L6", f"{left} are still there {grace_s:g} s after the order")
        self._check_tables()
        self.checker.feed.heard_all(self.reader, self.follower.cursor)

    def _all_gone(self) -> bool:
        return not self.kernel.alive()


def run_seed(seed: int, setting: Setting = as_drawn) -> Outcome:
    """Live through one seed."""
    simulation = Simulation(seed, setting)
    world, outcome = simulation.world, Outcome(seed)
    with installed(world, simulation.setup, simulation.kernel):
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


async def _never(item: Any, context: Any) -> None:
    raise AssertionError("the plain catalogue runs nothing")
