"""Histories in short words, for the tests of the checker: a scene, and lives that are right."""

from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.upkeep.left_callers import record_of_left_caller
from perdure.model.errors import StageError, WorkerDead
from perdure.model.events import Event, EventName
from perdure.model.jobs import (
    ZERO,
    Claim,
    ClaimOrder,
    Enqueued,
    NewJob,
    OnLost,
    Overrun,
    Receipt,
    Record,
    Settled,
    Stale,
    Turn,
)
from perdure.model.nouns import replace
from perdure.model.operations import (
    Deed,
    LaneScope,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    Target,
    Tick,
)
from perdure.model.outcomes import Death, Lost, Outcome, Raised, Returned
from perdure.model.states import State
from perdure.model.workers import NewWorker, Role
from perdure.rules.evidence import evidence_of
from perdure.rules.policy import Policy, Rule
from tests.sim.checker import Checker
from tests.sim.world import World

POLICY = Policy("p", attempts_max=2, crashes_max=3, otherwise=Rule("retry"))
DONE = Returned('{"ok":true}')
FAILED = Raised(evidence_of(StageError("network", "gone", wait_s=9.0)))
DEED = Deed("ann", "because")
ROLES = (Role.MAIN, Role.MAIN, Role.SUSPECTS, Role.ALONE, Role.CALLER)
DIED = Death("exited", signal="SIGKILL")


async def call(item: object) -> object:
    return item


STAGES = (Stage("one", call, POLICY, 10.0), Stage("two", call, POLICY, 10.0))
LINE = LaidPipeline("p", "q", "c", STAGES, {"one": 1, "two": 2})


class Scene:
    """A checker, and short words for what it is shown."""

    def __init__(self) -> None:
        self.world = World(0)
        roles = {Role.MAIN: 2, Role.SUSPECTS: 2, Role.ALONE: 1, Role.CALLER: 9}
        self.checker = Checker(self.world, Catalogue([LINE]), roles, lambda worker: False)
        for no, role in enumerate(ROLES, 1):
            self.show("add_worker", no, NewWorker(f"b{no}", "w", role, 15.0))

    def show(self, method: str, answer: Any, *args: Any, **kwargs: Any) -> None:
        self.checker.committed(method, args, kwargs, answer)

    def enqueue(
        self, id: str = "a", *, key: str | None = None, answer: Enqueued | None = None
    ) -> None:
        job = NewJob(id, "p", 1, "one", "{}", key=key)
        no = len(self.checker.ledger.jobs) + 1
        self.show("enqueue", [answer or Enqueued(id, no, True)], [job])

    def claim(self, worker: int = 1, no: int = 1, **changes: Any) -> Claim:
        job = self.checker.ledger.jobs[no]
        now = self.world.clock.now()
        claim = replace(
            Claim(
                no=no,
                id=job.id,
                token=job.token + 1,
                lane=1,
                pipeline="p",
                stage=job.stage,
                owner="",
                payload_json="{}",
                input_json=job.input_json,
                counters=ZERO,
                past=ZERO,
                life=1,
                isolation=job.isolation,
                claimed_at=now,
                due_at=now,
                deadline_at=None,
                key=None,
            ),
            **changes,
        )
        self.show("turn", Turn((), (claim,)), [], ClaimOrder(worker, 1, (1, 2)), by=worker)
        return claim

    def settled(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        by: int | None = 1,
        worker: int | None = 1,
        answer: Settled | None = None,
        **changes: Any,
    ) -> Record:
        stage = LINE.stage(claim.stage)
        assert stage is not None
        record = settle(Ending(claim, outcome, 1.0, worker), LINE, stage, chance=0.5)
        return self.send(replace(record, **changes), by=by, answer=answer)

    def revive(self, token: int) -> None:
        receipt = Receipt(1, "a", token, State.QUEUED, None)
        self.show("revive", [receipt], [revival(token)], DEED)

    def begin(self, wish: OnLost = OnLost.HAND_OVER) -> Claim:
        now = self.world.clock.now()
        claim = Claim(
            no=1,
            id="a",
            token=1,
            lane=1,
            pipeline="p",
            stage="one",
            owner="",
            payload_json="{}",
            input_json="{}",
            counters=ZERO,
            past=ZERO,
            life=1,
            isolation=0,
            claimed_at=now,
            due_at=now,
            deadline_at=None,
            key=None,
        )
        job = NewJob("a", "p", 1, "one", "{}")
        self.show("begin", claim, job, worker=5, hard_s=30.0, on_lost=wish)
        return claim

    def at(self, seconds: int) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    def schedule(self) -> None:
        self.show("put_schedule", None, NewSchedule("s", "p", "every 1m", "{}", self.at(60)))

    def tick(
        self,
        due_s: int,
        *,
        next_s: int | None = None,
        id: str = "a",
        key: str | None = None,
        refused: bool = False,
    ) -> None:
        next_at = self.at(due_s + 60 if next_s is None else next_s)
        moment = next_at - timedelta(seconds=60)
        job = NewJob(id, "p", 1, "one", "{}", key=key or f"s at {moment.isoformat()}")
        no = len(self.checker.ledger.jobs) + 1
        answer = None if refused else Enqueued(id, no, True)
        self.show("tick", answer, Tick("s", self.at(due_s), next_at, job))

    def send(self, record: Record, *, by: int | None, answer: Settled | None = None) -> Record:
        receipt = Receipt(record.no, record.id, record.token, record.state, None)
        self.show("turn", Turn((answer or receipt,), ()), [record], None, by=by)
        return record


def a_whole_life(scene: Scene) -> None:
    """Enqueued twice under one key, failed, retried, lost, rescued, done."""
    scene.enqueue(key="k")
    scene.enqueue("b", key="k", answer=Enqueued("a", 1, created=False))
    first = scene.claim()
    scene.checker.began("a", 1, 1)
    record = scene.settled(first, FAILED)
    scene.send(record, by=1, answer=Receipt(1, "a", 1, record.state, None, repeated=True))
    scene.world.clock.push(60.0)
    second = scene.claim()
    scene.show("end_worker", True, 1, DIED)
    scene.show("turn", WorkerDead("dead"), [], None, by=1)
    scene.settled(second, Lost(DIED), by=2, worker=1)
    scene.settled(second, DONE, by=2, worker=2, answer=Stale(1, "a", 3))
    third = scene.claim(worker=3)
    scene.settled(third, DONE, by=3, worker=3)
    last = scene.claim(worker=2)
    scene.settled(last, DONE, by=2, worker=2)
    told = {"job_id": "a", "stage": "two", "attempt": 0}
    scene.checker.told(Event(EventName.JOB_SUCCEEDED, told))


def a_dead_letter(scene: Scene, *, key: str | None = None) -> int:
    """A job that has failed for good; its token."""
    scene.enqueue(key=key)
    scene.settled(scene.claim(), FAILED)
    scene.world.clock.push(60.0)
    claim = replace(scene.claim(), counters=replace(ZERO, failures=1))
    scene.settled(claim, FAILED)
    return scene.checker.ledger.jobs[1].token


def revival(token: int) -> Revival:
    return Revival(1, "a", token, "one", 1, None)


def an_operated_life(scene: Scene) -> None:
    """Failed, discarded, revived, paused, resumed, done, pruned; its key is free then."""
    token = a_dead_letter(scene, key="k")
    receipt = Receipt(1, "a", token, State.FAILED, None)
    scene.show("discard", [receipt], [Target(1, "a", token)], DEED)
    scene.show("revive", [Stale(1, "a", token)], [revival(token)], DEED)
    scene.revive(token + 1)
    scene.show("pause", True, LaneScope.QUEUE, "q", DEED)
    scene.show("pause", False, LaneScope.QUEUE, "q", DEED)
    scene.show("resume", True, LaneScope.QUEUE, "q", DEED)
    scene.settled(scene.claim(), FAILED)
    scene.world.clock.push(60.0)
    for _ in LINE.stages:
        scene.settled(scene.claim(), DONE)
    scene.world.clock.push(60.1)
    scene.show("prune", Pruned(1, 5, None), Retention(succeeded_s=60.0), limit=9)
    scene.enqueue("b", key="k")


def an_id_that_is_sent_again_when_its_job_is_pruned(scene: Scene) -> None:
    """Whoever was told nothing sends his job again; if that takes too long, it is a new one, and runs."""
    for no in (1, 2):
        scene.enqueue("a")
        for _ in LINE.stages:
            claim = scene.claim(no=no)
            scene.checker.began("a", claim.token, 1)
            scene.settled(claim, DONE)
        scene.world.clock.push(60.1)
        scene.show("prune", Pruned(1, 2, None), Retention(succeeded_s=60.0), limit=9)


def a_life_with_a_caller(scene: Scene) -> None:
    """Begun by a caller that is lost, taken from it after its limit, done by a worker."""
    claim = scene.begin()
    scene.world.clock.push(31.0)
    found = [Overrun(claim, 5, scene.world.clock.now(), OnLost.HAND_OVER)]
    scene.show("overrun", found, {1: 1.0}, limit=9)
    ending = Ending(claim, Lost(DIED), 1.0, 5)
    scene.send(record_of_left_caller(ending, OnLost.HAND_OVER, LINE, STAGES[0]), by=2)
    for _ in LINE.stages:
        scene.settled(scene.claim(), DONE)


def a_round_of_upkeep(scene: Scene) -> None:
    """Duties change hands, a moment is ticked once, and three that were missed make one job."""
    scene.show("take_duty", True, "upkeep", worker=1, ttl_s=3.0)
    scene.show("take_duty", False, "upkeep", worker=2, ttl_s=3.0)
    scene.schedule()
    scene.schedule()
    scene.world.clock.push(60.0)
    scene.show("take_duty", True, "upkeep", worker=2, ttl_s=3.0)
    scene.tick(60)
    scene.tick(60, refused=True)
    scene.world.clock.push(190.0)
    scene.tick(120, next_s=300, id="b")
