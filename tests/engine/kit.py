"""Stages, lines and claims for the tests of the engine, on a real store in memory."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from perdure.engine.gates.traffic import Checked
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.worker.pump import Finished, Pump, WorkerIdentity
from perdure.model.errors import StoreUnavailable
from perdure.model.events import Event, EventName
from perdure.model.jobs import ZERO, Claim, ClaimOrder, Counters, Record, Turn
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Outcome, Returned, Usage
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.policy import Policy, Rule
from perdure.testing import VirtualClock
from tests.stores.kit import MEMORY, Place

PLAIN = Policy(
    "plain",
    attempts_max=3,
    crashes_max=3,
    backoff=Backoff("fixed", base_s=10.0),
    jitter=Jitter("none"),
    rules={Kind.RATE_LIMITED: Rule("wait")},
    otherwise=Rule("retry"),
)
DONE = Returned('"done"')


def echo(item: Any) -> Any:
    """The stage that most tests need."""
    return item


def stage(
    name: str = "one",
    call: Callable[..., Any] = echo,
    *,
    policy: Policy = PLAIN,
    timeout_s: float = 60.0,
) -> Stage:
    return Stage(name, call, policy, timeout_s)


def line_on(place: Place, *stages: Stage) -> LaidPipeline:
    """The pipeline of a place, laid on its lanes."""
    chosen = stages or tuple(stage(name) for name in place.stages)
    return LaidPipeline(place.pipeline, "q", "c", chosen, dict(place.lanes))


def claim_of(
    clock: VirtualClock | None = None,
    *,
    input_json: str = '{"n":1}',
    deadline_s: float | None = None,
    counters: Counters | None = None,
    **changes: Any,
) -> Claim:
    now = (clock or VirtualClock()).now()
    plain = Claim(
        no=1,
        id="job-00001",
        token=1,
        lane=1,
        pipeline="p",
        stage="one",
        owner="ann",
        payload_json='{"n":1}',
        input_json=input_json,
        counters=counters or Counters(starts=1),
        past=ZERO,
        life=1,
        isolation=0,
        claimed_at=now,
        due_at=now,
        deadline_at=None if deadline_s is None else now + timedelta(seconds=deadline_s),
        key="k",
        request_id="req-1",
    )
    return replace(plain, **changes)


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def names(self) -> list[EventName]:
        return [event.name for event in self.events]

    def of(self, name: EventName) -> list[dict[str, object]]:
        return [event.fields for event in self.events if event.name is name]


class Unreliable:
    """A real store behind a line that breaks: before a call has arrived, or after its answer left."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.breaks: list[str] = []  # "before" or "after", for the turns to come; "" lets one pass
        self.away = False
        self.turns: list[tuple[tuple[Record, ...], ClaimOrder | None]] = []

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        self.turns.append((tuple(records), order))
        fault = self.breaks.pop(0) if self.breaks else ""
        if fault == "before":
            raise StoreUnavailable("the line broke on the way there")
        answer: Turn = self._store.turn(records, order, by=by)
        if fault == "after":
            raise StoreUnavailable("the line broke on the way back")
        return answer

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise StoreUnavailable("the store is away")
        return getattr(self._store, name)


class Played:
    """A runner of which all has begun, and nothing ends before the test says so."""

    slots_unusable = 0

    def __init__(self) -> None:
        self.finished: deque[Finished | Checked] = deque()
        self.stopped: list[int] = []
        self.checks: list[int] = []  # the generations of gates whose upstreams were asked

    def start(self, claims: Sequence[Claim]) -> None:
        raise NotImplementedError

    def stop(self, nos: Sequence[int]) -> None:
        self.stopped.extend(nos)

    def check(self, upstream: DeclaredUpstream, generation: int) -> None:
        self.checks.append(generation)

    def has_begun(self, no: int) -> bool:
        return True

    def usage_of(self, claim: Claim) -> Usage | None:
        return None


class Shop(Played):
    """A pump on a real store with a runner that the test plays itself."""

    def __init__(
        self,
        *stages: Stage,
        concurrency: int = 4,
        isolation: int = 0,
        place: Place | None = None,
    ) -> None:
        super().__init__()
        self.place = place or Place(MEMORY)
        self.clock = self.place.clock
        self.line = line_on(self.place, *stages)
        self.catalogue = Catalogue([self.line])
        self.worker = self.place.hire()
        self.store = Unreliable(self.place.store)
        self.notes = Notes()
        self.observers = Observers([self.notes])
        self.running: dict[int, Claim] = {}
        self.started: list[Claim] = []
        self.most = 0
        self.pump = Pump(
            self.store,
            self.catalogue,
            WorkerIdentity(self.worker, isolation, concurrency),
            self,
            chance=Random(7),
            observers=self.observers,
        )

    def start(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.running[claim.no] = claim
            self.started.append(claim)
        self.most = max(self.most, len(self.running))

    def finish(self, claim: Claim, outcome: Outcome = DONE, elapsed_s: float = 0.5) -> None:
        held = self.running.get(claim.no)
        if held is not None and held.token == claim.token:
            del self.running[claim.no]
        self.finished.append(Finished(claim, outcome, elapsed_s))

    def finish_all(self, outcome: Outcome = DONE) -> None:
        for claim in list(self.running.values()):
            self.finish(claim, outcome)

    def close(self) -> None:
        self.place.close()


def until(condition: Callable[[], bool], what: str, *, within_s: float = 60.0) -> None:
    """Wait for a named condition, with a deadline."""
    give_up_at = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(0.002)


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
