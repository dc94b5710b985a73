"""A store at the other end of a wire: requests travel, are applied at one instant, answers travel.

Between the caller and the instant of the commit, and between the commit and the answer, other
actors act: that is where races live. A request or an answer may be lost, the store may be away, and
the calling process may die or be frozen at either side of the commit. What the real store says at
that instant goes to the history and to the checker, whether or not the caller ever hears of it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.model.errors import StoreFull, StoreUnavailable, WorkerDead
from perdure.model.jobs import Busy, Record, Settled
from perdure.model.states import State
from tests.sim.checker import Checker
from tests.sim.history import answered, asked
from tests.sim.process import Kernel, Process
from tests.sim.strand import Strand
from tests.sim.swarm import Setup
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.completing import OwnTransaction

# Every method of the ports is in one of these; `test_remote.py` compares them with `ports`.
WRITES = frozenset({
    "add_worker", "beat", "begin", "end_worker", "enqueue", "lanes", "mark_dead", "settle", "turn",
    "add_bulk", "cancel", "discard", "drop_schedule", "run_now", "pause", "prune", "put_schedule", "resume", "revive",
    "prune_captures", "prune_changes", "prune_workers", "step_bulk", "take_duty", "tick",
    "change_gate", "change_slices", "look_at_gates", "probe",
    "add_run", "change_bulk", "change_run", "note_check", "note_feeding", "seal_run",
})  # fmt: skip
SETTLING = ("turn", "settle")
_GIVING_WORK = ("enqueue", "tick", "revive", "run_now", "resume", "change_run")
READS = frozenset({
    "claims_held", "ends_of", "expired_jobs", "lost_claims", "overrun", "run_lanes", "tokens_held", "suspects", "waiting",
    "attempts", "bulk_payloads", "bulks", "changes", "gate", "job", "jobs", "now", "preview", "rivals", "run", "runs", "schedules",
    "workers",
})  # fmt: skip
LEFT_OUT = {
    "wake_fd": "as has_changed",
    "complete": "on a stage's own connection (`completing.py`), which is not this wire",
    "has_changed": "a hint, which has its own way here, without a transaction",
    "close": "the real connection is shared by all, and closed by the simulation",
    "add_access_token": "as depths: nobody works by it",
    "revoke_access_token": "as add_access_token",
    "access_token": "as add_access_token",
    "access_tokens": "as add_access_token",
    "take_request": "as add_access_token",
    "depths": "for screens, and nothing is decided by it",
    "deaths": "as depths",
    "figures": "as depths",
    "first_due": "as depths",
    "condition": "as depths",
    "held_lanes": "as depths",
    "flows": "as depths",
    "open_jobs": "as depths",
    "jobs_changed": "as depths",
    "failures": "as depths",
    "gates": "as depths",
    "look": "as depths",
    "deeds": "as depths",
    "dead_groups": "as depths",
    "jobs_ended": "as jobs_changed: callers who wait ask it, and none of them is simulated",
    "run_figures": "as depths",
    "payloads": "as refusals",
    "captures": "as depths",
    "capture": "as depths",
    "items": "as depths: results are compared job by job, in the tables",
    "items_ended": "as items",
    "refusals": "read by the comparison of the tables, at the store and not over the wire",
    "pauses": "as refusals",
    "books": "as refusals",
    "audit": "as refusals",
}


class Wire:
    """What can happen to a call: drawn per call, by the chances of this seed."""

    def __init__(self, world: World, setup: Setup, kernel: Kernel, checker: Checker) -> None:
        self.world = world
        self.kernel = kernel
        self.checker = checker
        self.away_until_us = 0
        self.full_until_us = 0  # reads are answered, writes are refused
        self.writes = 0
        self.lent: list[OwnTransaction] = []
        self.ears: list[Callable[[], None]] = []  # of those who listen, as at PostgreSQL
        self._setup = setup

    def strikes(self, kind: str) -> bool:
        """Whether a fault of this kind hits this call."""
        chance = self._setup.chances.get(kind, 0.0)
        if not self.world.chaos or not chance or self.world.rng.random() >= chance:
            return False
        self.world.struck[kind] += 1
        return True

    def hint_lost(self) -> bool:
        """Whether this hint says nothing; where nobody hears any, not even after the chaos."""
        if self._setup.deaf:
            self.world.struck["hint_lost"] += 1
            return True
        return self.strikes("hint_lost")

    def written(self, method: str, args: Any) -> None:
        """Somebody has written; where that means work, hints go out, and some of them are lost."""
        self.writes += 1
        queued = method in SETTLING and any(one.state is State.QUEUED for one in args[0])
        for ear in self.ears if queued or method in _GIVING_WORK else ():
            if not self.hint_lost():
                self.world.after(self.world.rng.uniform(0.0, 0.01), ear)

    def latency_s(self, slow_s_max: float) -> float:
        """How long one way takes."""
        if self.strikes("slow_store"):
            return self.world.rng.uniform(0.0, slow_s_max)
        return self.world.rng.uniform(0.0, 0.004)

    def freeze(self, process: Process | None) -> None:
        """Stop a process on its way into a call, for some leases."""
        assert process is not None
        self.kernel.freeze(process)
        leases = self.world.rng.choice((0.5, 1.5, 3.0))
        thaw = partial(self.kernel.thaw, process)
        self.world.after(self._setup.ttl_s * leases, thaw)

    @property
    def held(self) -> frozenset[tuple[int, int]]:
        """The jobs whose rows open transactions of stages hold, with their tokens: another token matches no row."""
        self.lent = [one for one in self.lent if one.holds is not None]
        return frozenset(one.holds for one in self.lent if one.holds is not None)

    @property
    def away(self) -> bool:
        """Whether nobody can reach the store now."""
        return self.world.now_us < self.away_until_us


class Remote:
    """The `Store` or `Reader` port as one actor sees it."""

    def __init__(
        self,
        wire: Wire,
        target: Any,
        strand: Strand,
        *,
        slow_s_max: float = 3.0,
        process: Process | None = None,
        freezes: bool = False,
        excuse: Callable[[], None] = lambda: None,
    ) -> None:
        self._wire = wire
        self._target = target
        self._strand = strand
        self._slow_s_max = slow_s_max
        self._process = process
        self._freezes = freezes
        self._excuse = excuse  # an answerable reason why a beat may be late
        self._seen_writes = 0
        self._heard = False
        self._speak: Callable[[], None] | None = None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method not in WRITES and method not in READS:
            raise AttributeError(f"{method} is not simulated: {LEFT_OUT.get(method, 'unknown')}")
        return partial(self._call, method)

    def has_changed(self) -> bool:
        """A hint, so it may be missed."""
        if self._wire.away:  # only busy, perhaps: then it is told
            if self._wire.world.rng.random() < 0.5:
                raise StoreUnavailable("the store is away")
            return True
        if self._speak is not None:
            heard, self._heard = self._heard, False
            return heard
        seen, self._seen_writes = self._seen_writes, self._wire.writes
        if seen == self._wire.writes:
            return False
        return not self._wire.hint_lost()

    def wake_fd(self) -> int | None:
        """A number that stands for a descriptor, where there is somebody who speaks."""
        return None if self._speak is None else 0

    def listen(self, speak: Callable[[], None]) -> None:
        """Hear of writes, as a listening connection does, instead of asking for them."""
        self._speak = speak
        self._wire.ears.append(self._hear)

    def _hear(self) -> None:
        assert self._process is not None
        assert self._speak is not None
        if self._process.dead:
            self._wire.ears = [one for one in self._wire.ears if one != self._hear]
            return
        self._heard = True
        self._speak()

    def close(self) -> None:
        """The real connection is shared."""

    def complete(self, record: Record, *, by: int, within: "OwnTransaction") -> Settled | Busy:
        """A stage has a connection of its own."""
        return within.complete(record, by)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        wire, world = self._wire, self._wire.world
        if self._freezes and method in SETTLING and wire.strikes("freeze_at_call"):
            wire.freeze(self._process)
        self._travel()
        if wire.away:
            world.seen["calls while the store was away"] += 1
            raise StoreUnavailable("the store is away")
        if wire.strikes("lost_request"):
            self._excuse()
            raise StoreUnavailable("the request was lost")
        if method in WRITES and world.now_us < wire.full_until_us:
            world.seen["writes refused by a full store"] += 1
            raise StoreFull("no space is left")
        answer = self._commit(method, args, kwargs)
        if self._process is not None and method in WRITES and wire.strikes("kill_at_commit"):
            wire.kernel.die(self._process, 9)
        if wire.strikes("lost_reply"):
            self._excuse()
            self._travel()
            raise StoreUnavailable("the answer was lost")
        if world.rng.random() < 0.5:
            self._travel()
        if isinstance(answer, WorkerDead):
            raise answer
        wire.checker.gates.heard(method, answer, args, kwargs)
        return answer

    def _travel(self) -> None:
        delay_s = self._wire.latency_s(self._slow_s_max)
        if delay_s > 0.01:
            self._excuse()
        self._strand.sleep(delay_s)

    def _commit(self, method: str, args: Any, kwargs: Any) -> Any:
        wire, world = self._wire, self._wire.world
        wanted, (args, busy) = args, self._without_held(method, args, kwargs)
        try:
            answer = getattr(self._target, method)(*args, **kwargs)
        except WorkerDead as dead:
            answer = dead
        if method in WRITES:
            wire.written(method, args)
        said = asked(args, kwargs)
        world.history.note(world.now_us, self._strand.name, method, said, answered(answer))
        wire.checker.speaker = self._strand.name
        wire.checker.committed(method, args, kwargs, answer)
        if not busy or isinstance(answer, WorkerDead):
            return answer
        said = {one.no: one for one in answer} | busy
        return [said[one.no] for one in wanted[0]]

    def _without_held(self, method: str, args: Any, kwargs: Any) -> tuple[Any, dict[int, Busy]]:
        """Those of the records whose jobs nobody holds, and what is said of the others."""
        held = self._wire.held if method in ("turn", "settle", "cancel") else frozenset()
        busy = {
            one.no: Busy(one.no, one.id, one.token)
            for one in (args[0] if held else ())
            if (one.no, one.token) in held
        }
        if not busy:
            return args, busy
        if method == "turn":
            self._wire.checker.broken("E18", f"a turn waits for {sorted(busy)}")
        self._wire.checker.busy([one for one in args[0] if one.no in busy], kwargs)
        return ([one for one in args[0] if one.no not in busy], *args[1:]), busy
