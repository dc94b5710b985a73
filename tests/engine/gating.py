"""Workers with gates on a real store, whose runner and upstream a test plays itself."""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from perdure.engine.gates.changes import gate_of
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.gates.upstreams import DeclaredUpstream, Upstreams
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.worker.pump import Finished, Pump, WorkerIdentity
from perdure.model.events import EventName
from perdure.model.jobs import Claim, Counters
from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence, Outcome, Raised, Returned, Usage
from perdure.model.views import JobView
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.gate.gate import Gate, GateSettings
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.window import WindowSettings
from perdure.rules.policy import Policy, Rule
from perdure.rules.presets import preset
from perdure.testing.store_contract.fresh_store import Place
from tests.engine.kit import Notes, Played, Unreliable, echo

VENDOR = "vendor"
FINE = Returned('"fine"')

# All kinds are tried again after a second, three times in all; a rate limit is a wait.
AGAIN = Policy(
    "again",
    attempts_max=3,
    backoff=Backoff("fixed", base_s=1.0),
    jitter=Jitter("none"),
    rules={Kind.RATE_LIMITED: Rule("wait")},
    otherwise=Rule("retry"),
)
STANDARD = preset("standard")

# Four calls are enough to judge by, and eight may go out at once: tests are about the rest.
QUICK = GateSettings(
    WindowSettings(calls=8, calls_min=4),
    jitter=Jitter("none"),
    lease_s=60.0,
    pace=PaceSettings(start_calls=8),
)


def failed(kind: Kind = Kind.UPSTREAM_UNAVAILABLE, *, wait_s: float | None = None) -> Raised:
    """A call that its stage says failed so, and what pause it was asked for."""
    return Raised(Evidence(("tests.Broken",), "as the test says", kind=kind, wait_s=wait_s))


DOWN = failed()


def stage(name: str = "one", upstream: str | None = VENDOR, policy: Policy = AGAIN) -> Stage:
    return Stage(name, echo, policy, 20.0, upstream=upstream)


def upstream(name: str = VENDOR, gate: GateSettings = QUICK, **more: Any) -> DeclaredUpstream:
    return DeclaredUpstream(name, gate=gate, **more)


def line_of(place: Place, *stages: Stage, pipeline: str = "g") -> LaidPipeline:
    """The pipeline on its lanes; the place's own jobs begin in it from now on."""
    line = LaidPipeline(pipeline, "q", "c", stages)
    numbers = place.store.lanes(line.lanes())
    place.pipeline = pipeline
    place.lanes = {lane.stage: no for lane, no in numbers.items()}
    return LaidPipeline(pipeline, "q", "c", stages, dict(place.lanes))


class Post(Played):
    """A pump and a gatekeeper; what they start, the test ends."""

    def __init__(
        self,
        place: Place,
        *stages: Stage,
        upstreams: Iterable[DeclaredUpstream] = (upstream(),),
        concurrency: int = 8,
        lines: Iterable[LaidPipeline] = (),
    ) -> None:
        super().__init__()
        self.place = place
        self.clock = place.clock
        self.line = line_of(place, *(stages or (stage(),)))
        self.catalogue = Catalogue([self.line, *lines])
        self.worker = place.hire(ttl_s=86_400.0)
        self.store = Unreliable(place.store)
        self.control = Unreliable(place.control)
        self.notes = Notes()
        known = Upstreams({one.name: one for one in upstreams})
        observers = Observers([self.notes])
        self.gates = Gatekeeper(
            self.store,
            self.control,
            known.all(self.catalogue.stages()),
            self.worker,
            catalogue=self.catalogue,
            clock=self.clock,
            chance=Random(7),
            observers=observers,
        )
        self.pump = Pump(
            self.store,
            self.catalogue,
            WorkerIdentity(self.worker, 0, concurrency),
            self,
            chance=Random(7),
            observers=observers,
            gates=self.gates,
        )
        self.running: dict[int, Claim] = {}
        self.started = 0

    def start(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.running[claim.no] = claim
            self.started += 1

    def turn(self, *, passing_s: float = 0.0) -> list[Claim]:
        """Let so much time pass, take one turn, and say what is running now."""
        self.clock.push(passing_s)
        self.pump.once(told=True)
        return list(self.running.values())

    def end(
        self,
        claim: Claim,
        outcome: Outcome = FINE,
        *,
        elapsed_s: float = 0.1,
        tokens: int | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        """A call ends, as the runner would say it; a turn carries it on."""
        if self.running.get(claim.no) == claim:
            del self.running[claim.no]
        usage = None if tokens is None else Usage(tokens)
        self.finished.append(Finished(claim, outcome, elapsed_s, usage, told))

    def end_all(self, outcome: Outcome = FINE, **more: Any) -> int:
        """All that run end so; how many they were."""
        ending = list(self.running.values())
        for claim in ending:
            self.end(claim, outcome, **more)
        return len(ending)

    def trip(self) -> Gate:
        """An outage: calls fail until the gate is held."""
        for _ in range(20):
            self.turn(passing_s=0.1)
            self.end_all(DOWN)
            self.turn()
            if gate(self.place).state != "flowing":
                return gate(self.place)
        raise AssertionError("the gate did not trip")

    def moves(self, name: EventName = EventName.GATE_CHANGED) -> list[object]:
        """The moves of gates that observers were told of."""
        return [fields["move"] for fields in self.notes.of(name)]


def gate(place: Place, name: str = VENDOR) -> Gate:
    """The gate as the store has it."""
    row = place.reader.gate(name)
    return Gate(name) if row is None else gate_of(row)


def counters(place: Place, id: str) -> Counters:
    return place.see(id).counters


def jobs_of(place: Place, ids: Iterable[str]) -> list[JobView]:
    return [place.see(id) for id in ids]


def put(place: Place, count: int, **changes: Any) -> list[str]:
    return [one.id for one in place.put_many(count, **changes)]
