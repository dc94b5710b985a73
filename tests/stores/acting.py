"""What the acts on several stores in step have in common: what they know, and words for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from perdure.model.jobs import ClaimOrder, IfFailed, Lane, NewJob, Part, Receipt, Record, Settled
from perdure.model.nouns import replace
from perdure.model.runs import FINISHED
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import uuid_of
from tests.stores.promises import Promises
from tests.stores.sides import Side, Sides

LANES: dict[str, Lane] = {
    "one": Lane("q", "c", "p", "one"),
    "two": Lane("q", "c", "p", "two"),
    "upstream": Lane("q2", "c", "p", "one", upstream="vendor"),
    "elsewhere": Lane("q2", "c2", "p2", "one"),
}
BEGINNINGS = ["one", "one", "one", "upstream", "elsewhere", "of a run"]
KEYS = [None, "k1", "k1", "k2"]
COMING_S = [None, None, None, None, -5, 0, 5, 60]


@dataclass
class Held:
    """A claim as each side has given it, and the worker to whom."""

    worker: str
    claims: dict[str, Any]

    @property
    def lease(self) -> tuple[str, int]:
        """Two claims of one job differ in their tokens."""
        claim = next(iter(self.claims.values()))
        return (claim.id, claim.token)


@dataclass
class Job:
    """A job as the test knows it."""

    lane: str
    run: str | None
    run_at: datetime | None
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.parts["id"])

    def on(self, side: Side) -> NewJob:
        return NewJob(
            lane=side.no("lane", self.lane),
            run=side.maybe_no("run", self.run),
            run_at=self.run_at,
            **self.parts,
        )


class Acting:
    """The stores, and what the acts so far have made of them."""

    def __init__(self, make_sides: Callable[[VirtualClock], Sides]) -> None:
        self.clock = VirtualClock()
        self.sides = make_sides(self.clock)
        self.promises = Promises(self.clock)
        self.lanes: dict[str, Lane] = {}
        self.workers: list[str] = []
        self.jobs: list[Job] = []
        self.held: list[Held] = []
        self.sent: list[tuple[dict[str, Record], str | None]] = []
        self.runs: list[str] = []
        self.bulks: list[str] = []
        self._named = 0

    def new_name(self) -> str:
        self._named += 1
        return uuid_of(self._named)

    def a_worker(self, chance: Random) -> str:
        """Mostly one of the living, so that something gets done."""
        living = [name for name in self.workers if name not in self.promises.dead]
        some = living if living and chance.randint(0, 5) else self.workers
        return str(chance.choice(some))

    def first(self, answers: dict[str, Any]) -> Any:
        """The answer of the side that is the measure of the others."""
        return answers[self.sides.first.name]

    def add_lane(self, name: str, lane: Lane, run: str | None = None) -> None:
        def make(side: Side) -> None:
            own = replace(lane, run=side.maybe_no("run", run))
            side.learn("lane", name, side.store.lanes([own])[own])

        self.sides.each(f"lane {name}", make)
        self.lanes[name] = lane

    def a_job(self, chance: Random, *, plain: bool = False) -> Job:
        run = chance.choice([None, None, *self.live_runs()])
        lane = "one" if plain else chance.choice(BEGINNINGS)
        if lane == "of a run":
            lane = "one" if run is None else f"one of {run}"
        if self.lanes[lane].pipeline != "p":
            run = None  # a run is of one pipeline
        in_s = None if plain else chance.choice(COMING_S)
        parts = {
            "id": self.new_name(),
            "pipeline": self.lanes[lane].pipeline,
            "stage": "one",
            "payload_json": f'{{"n":{self._named}}}',
            "owner": chance.choice(["", "", "", "ann"]),
            "key": chance.choice(KEYS),
            "priority": chance.randint(-1, 2),
            "deadline_s": chance.choice([None, 90.5]),
            "if_failed": chance.choice(list(IfFailed)),
            "tokens": chance.choice([None, None, 1000]),
            "fair": chance.random() < 0.4,
            "policies_s": chance.choice([None, 70.25]),
            "request_id": chance.choice([None, None, "req-7"]),
            "ordered_at": chance.choice(
                [None, *(self.clock.now() - timedelta(seconds=s) for s in (90, 0, -9))]
            ),
        }
        run_at = None if in_s is None else self.clock.now() + timedelta(seconds=in_s)
        return Job(lane, run, run_at, parts)

    def live_runs(self) -> list[str]:
        """Those that have not finished: nobody puts an item into one that has."""
        side = self.sides.first
        done = {run.no for run in side.reader.runs() if run.status in FINISHED}
        return [name for name in self.runs if side.no("run", name) not in done]

    def enqueue(self, jobs: list[Job]) -> None:
        def call(side: Side) -> Any:
            made = side.store.enqueue([job.on(side) for job in jobs])
            for one in made:
                side.learn("job", one.id, one.no)
            return made

        made = self.first(self.sides.each("enqueue", call))
        self.promises.accepted(one.id for one in made if one.created)

    def order(
        self,
        side: Side,
        worker: str,
        slots: int,
        *,
        isolation: int = 0,
        few: bool = False,
        parts: tuple[int, ...] = (),
    ) -> ClaimOrder:
        """Of all lanes or every other one; the first of them in parts of one lane, with so many slots each."""
        lanes = sorted(self.lanes)[:: 2 if few else 1]
        numbers = tuple(side.no("lane", lane) for lane in lanes)
        apart = tuple(Part((no,), own) for no, own in zip(numbers, parts, strict=False))
        rest = numbers[len(apart) :]
        return ClaimOrder(side.no("worker", worker), slots, rest, isolation, apart)

    def hold(self, worker: str, claims: dict[str, Any]) -> None:
        self.promises.claimed(self.first(claims))
        self.held.append(Held(worker, claims))

    def hold_all(self, worker: str, turns: dict[str, Any]) -> None:
        names = [side.name for side in self.sides.all]
        for several in zip(*(turns[name].claims for name in names), strict=True):
            self.hold(worker, dict(zip(names, several, strict=True)))

    def turn(self, said: dict[str, list[Record]], writer: str | None, slots: int = 0) -> None:
        """Say how claims ended and take new ones; a dead writer is told so, and nothing is written."""
        before = self.promises.tokens(self.sides.first)

        def call(side: Side) -> Any:
            order = None
            if slots and writer is not None:
                order = self.order(side, writer, slots)
            turn = side.store.turn(said[side.name], order, by=side.maybe_no("worker", writer))
            return replace(turn, settled=tuple(sorted(turn.settled, key=_lease)))

        turns = self.sides.each("turn", call)
        answer = self.first(turns)
        assert (answer == "raised WorkerDead") == (writer in self.promises.dead)
        if isinstance(answer, str):
            return
        self.promises.settled(answer.settled, before)
        for place, one in enumerate(answer.settled):
            if isinstance(one, Receipt) and one.claim is not None and writer is not None:
                again = {name: turn.settled[place].claim for name, turn in turns.items()}
                self.hold(writer, again)
        if writer is not None:
            self.hold_all(writer, turns)


def _lease(answer: Settled) -> tuple[str, int]:
    return (answer.id, answer.token)
