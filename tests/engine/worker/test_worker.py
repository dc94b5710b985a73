"""A working process, whole but for the process: real threads, real children, a real file."""

import asyncio
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.enqueue import enqueue, new_job
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.events import EventName
from perdure.model.outcomes import TimedOut
from perdure.model.states import FailedReason, State
from perdure.model.workers import EXIT_RECYCLED, NewWorker, Role
from perdure.stores.opening import open_store
from tests.engine import plays
from tests.engine.kit import PLAIN, Notes, until
from tests.stores.kit import MEMORY, Place


@dataclass
class Work:
    """A store in a file, a pipeline, and a worker on a thread."""

    folder: Path
    stages: tuple[Stage, ...]
    concurrency: int = 4
    grace_s: float = 20.0
    blocked_s_max: float | None = None

    def __post_init__(self) -> None:
        url, clock = f"sqlite:///{self.folder / 'work.db'}", SystemClock()
        self.opened = open_store(url, clock, create=True, wait_s_max=10.0)
        self.line = LaidPipeline("p", "q", "c", self.stages)
        numbers = self.opened.store.lanes(self.line.lanes())
        self.line.lane_nos.update({lane.stage: numbers[lane] for lane in self.line.lanes()})
        self.ids = Ids(clock, Random(1))
        self.notes = Notes()
        boot = NewWorker("boot", "here", Role.MAIN, 600.0)
        own = open_store(url, clock, create=True, wait_s_max=10.0)
        self.own_reader = own.reader
        self.worker = Worker(
            own.store,
            Catalogue([self.line]),
            WorkerIdentity(self.opened.store.add_worker(boot), 0, self.concurrency),
            WorkerSettings(
                self.concurrency,
                self.grace_s,
                poll_s=0.05,
                tick_s=0.005,
                blocked_s_max=self.blocked_s_max,
            ),
            clock=clock,
            chance=Random(1),
            observers=Observers([self.notes]),
            reader=own.reader,
        )
        self.thread = threading.Thread(target=lambda: asyncio.run(self._live()))

    async def _live(self) -> None:
        await self.worker.work(lambda status: None, recycles=True)  # our process stays

    def put(self, item: Any) -> str:
        job = new_job(self.ids, self.line, item)
        return enqueue(self.opened.store, [job])[0].id

    def start(self) -> None:
        self.thread.start()

    def see(self, id: str):
        return self.opened.reader.job(id)

    def attempts(self, id: str):
        return self.opened.reader.attempts(self.see(id).no)

    def ended(self, id: str) -> Any:
        until(lambda: self.see(id).finished_at is not None, f"job {id} has ended")
        return self.see(id)

    def join(self) -> int:
        """Wait for the worker's end; its exit status."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.worker._exit_status

    def close(self) -> None:
        if self.thread.ident is not None:
            self.worker.drain()
            self.join()
        assert self.opened.reader.audit() == []
        self.own_reader.close()
        self.opened.close()


@pytest.fixture
def work(tmp_path):
    made = []

    def make(*stages: Stage, **options: Any) -> Work:
        made.append(Work(tmp_path, stages, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def sync_(item, context):
    context.progress(1, 2, "half")
    context.usage(tokens_in=7, cost_usd=0.5)
    return {"file": item["file"], "total": 1, "lines": []}


async def async_(item: dict[str, Any], context):
    context.usage(tokens_out=3)
    return {"total": item["total"], "lines": [Path(item["file"]).name]}


def test_an_item_walks_through_a_thread_the_loop_and_a_child(work, tmp_path):
    shop = work(
        Stage("sync", sync_, PLAIN, 20.0),
        Stage("async", async_, PLAIN, 20.0),
        Stage("process", plays.typed, PLAIN, 20.0, None, True),
        Stage("says", plays.says, PLAIN, 20.0, None, True),
    )
    id = shop.put({"file": "a.txt"})
    shop.start()
    assert shop.ended(id).state is State.SUCCEEDED
    whys = [json.loads(one.why_json) for one in shop.attempts(id)]
    assert [why.get("usage") for why in whys] == [
        {"tokens_in": 7, "tokens_out": 0, "cost_usd": 0.5},
        {"tokens_in": 0, "tokens_out": 3, "cost_usd": 0.0},
        None,
        {"tokens_in": 15, "tokens_out": 2, "cost_usd": 0.5},
    ]
    assert [why["text"] for why in whys] == ["done"] * 4


def slow(item, context):
    context.progress(1, 2, "half")
    until(lambda: Path(item["until"]).exists(), "the gate is open")


def test_progress_is_told_while_a_stage_runs(work, tmp_path):
    shop = work(Stage("slow", slow, PLAIN, 20.0))
    id = shop.put({"until": str(tmp_path / "go")})
    shop.start()
    until(lambda: shop.notes.of(EventName.JOB_PROGRESSED), "progress is told")
    (told,) = shop.notes.of(EventName.JOB_PROGRESSED)
    assert (told["job_id"], told["done"], told["total"], told["note"]) == (id, 1, 2, "half")
    (tmp_path / "go").touch()
    shop.ended(id)


def test_a_child_that_dies_is_a_crash_of_its_job_and_of_nothing_else(work):
    shop = work(Stage("dies", plays.dies, PLAIN, 20.0, None, True), concurrency=2)
    poison, others = shop.put({"exit": 3}), [shop.put({}) for _ in range(4)]
    shop.start()
    for id in others:
        assert shop.ended(id).state is State.SUCCEEDED
    job = shop.ended(poison)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.CRASHED)
    assert (job.counters.crashes, job.counters.failures, job.isolation) == (3, 0, 0)
    attempt, *_ = shop.attempts(poison)
    assert json.loads(attempt.evidence_json) == {
        "why": "exited",
        "exit_status": 3,
        "signal": None,
        "of": "stage process",
    }
    assert (attempt.status.value, attempt.kind) == ("interrupted", "worker_lost")
    words = "the process in which the stage ran exited with status 3"
    assert words in json.loads(attempt.why_json)["text"]
    assert [shop.see(id).counters.crashes for id in others] == [0] * 4


def test_at_drain_the_children_end(work, tmp_path):
    shop = work(Stage("waits", plays.waits, PLAIN, 20.0, None, True), grace_s=0.0)
    file = tmp_path / "pid"
    id = shop.put({"file": str(file), "until": str(tmp_path / "never")})
    shop.start()
    until(lambda: file.exists() and file.read_text(), "the stage has begun")
    shop.worker.drain()
    assert shop.join() == 0
    job = shop.see(id)
    assert (job.state, job.counters.releases, job.counters.failures) == (State.QUEUED, 1, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def spends(item, context):
    context.usage(tokens_in=9)
    Path(item).touch()
    until(lambda: context.cancelled, "it was given up")


def test_what_a_released_attempt_has_used_up_is_kept(work, tmp_path):
    shop = work(Stage("spends", spends, PLAIN, 20.0), grace_s=0.0)
    id = shop.put(str(tmp_path / "begun"))
    shop.start()
    until((tmp_path / "begun").exists, "the stage has begun")
    shop.worker.drain()
    shop.join()
    (attempt,) = shop.attempts(id)
    assert attempt.status.value == "interrupted"
    assert json.loads(attempt.why_json)["usage"]["tokens_in"] == 9


# -- lost slots --------------------------------------------------------------------------


def deaf(item):
    """Ignores its timeout until the gate opens."""
    until(lambda: Path(item["until"]).exists(), "the gate is open")


def test_a_worker_that_has_lost_all_its_slots_wants_another_in_its_place(work, tmp_path):
    shop = work(Stage("deaf", deaf, PLAIN, 0.05), concurrency=2, grace_s=600.0)
    jobs = [shop.put({"until": str(tmp_path / "go")}) for _ in range(3)]
    shop.start()
    assert shop.join() == EXIT_RECYCLED
    (told,) = shop.notes.of(EventName.WORKER_RECYCLED)
    assert (told["lost"], told["concurrency"]) == (2, 2)
    counted = sorted(
        (job.counters.starts, job.counters.failures, job.counters.crashes)
        for job in map(shop.see, jobs)
    )
    assert counted == [(0, 0, 0), (1, 1, 0), (1, 1, 0)]
    (tmp_path / "go").touch()


def test_a_slot_that_is_lost_for_longer_than_the_grace_makes_it_claim_nothing_more(work, tmp_path):
    shop = work(Stage("deaf", deaf, PLAIN, 0.05), concurrency=3, grace_s=0.3)
    shop.put({"until": str(tmp_path / "go")})
    shop.start()
    until(lambda: shop.notes.of(EventName.WORKER_RECYCLED), "it recycles")
    (told,) = shop.notes.of(EventName.WORKER_RECYCLED)
    assert told["lost"] == 1
    late = shop.put({"until": str(tmp_path / "go")})
    assert shop.join() == EXIT_RECYCLED
    assert shop.see(late).counters.starts == 0
    (tmp_path / "go").touch()


def test_what_runs_beside_a_lost_slot_may_finish(work, tmp_path):
    shop = work(Stage("deaf", deaf, PLAIN, 20.0), concurrency=3, grace_s=1.0)
    good = shop.put({"until": str(tmp_path / "good")})
    shop.start()
    until(lambda: shop.see(good).state is State.PROCESSING, "it runs")
    let_go = threading.Event()
    lose_one(shop, let_go)
    until(lambda: shop.notes.of(EventName.WORKER_RECYCLED), "it recycles")
    (tmp_path / "good").touch()
    assert shop.join() == EXIT_RECYCLED
    assert shop.see(good).state is State.SUCCEEDED
    let_go.set()


def lose_one(shop: Work, let_go: threading.Event) -> None:
    """Give up a call on a thread of the worker, as a timeout would."""
    begun = threading.Event()

    def stuck() -> None:
        begun.set()
        let_go.wait(20)

    async def given_up() -> None:
        calling = asyncio.create_task(shop.worker._runner._threads.call(stuck))
        await asyncio.to_thread(begun.wait, 20)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(given_up(), shop.worker._runner._events).result(20)


def test_a_thread_that_comes_back_within_the_grace_is_forgiven(work, tmp_path):
    shop = work(Stage("deaf", deaf, PLAIN, 0.05), concurrency=2, grace_s=600.0)
    shop.put({"until": str(tmp_path / "go")})
    shop.start()
    until(lambda: shop.worker._runner._threads.lost_count == 1, "a slot is lost")
    (tmp_path / "go").touch()
    until(lambda: shop.worker._runner._threads.lost_count == 0, "it is back")
    shop.worker.drain()
    assert shop.join() == 0
    assert shop.notes.of(EventName.WORKER_RECYCLED) == []


def test_an_order_to_drain_while_it_recycles_does_not_cut_the_grace_short(work, tmp_path):
    shop = work(Stage("deaf", deaf, PLAIN, 20.0), concurrency=3, grace_s=5.0)
    good = shop.put({"until": str(tmp_path / "good")})
    shop.start()
    until(lambda: shop.see(good).state is State.PROCESSING, "it runs")
    shop.worker._shutdown._recycling = True
    shop.worker.drain()
    until(lambda: shop.worker._pump.draining, "it drains")
    (tmp_path / "good").touch()
    shop.join()
    assert shop.see(good).state is State.SUCCEEDED


# -- a blocked event loop ----------------------------------------------------------------


async def blocks(item):
    """Works without awaiting until the gate opens, or does nothing."""
    if item:
        hold(item)
    return "done"


def hold(item):
    Path(item["begun"]).touch()
    until(lambda: Path(item["until"]).exists(), "the gate is open", within_s=60)


def blocked(shop: Work, folder: Path) -> str:
    """A job that blocks the event loop, and has begun to."""
    id = shop.put({"begun": str(folder / "begun"), "until": str(folder / "go")})
    shop.start()
    until((folder / "begun").exists, "the loop is blocked")
    return id


def test_what_has_not_begun_on_a_blocked_loop_is_given_back_and_counts_as_nothing(work, tmp_path):
    shop = work(Stage("blocks", blocks, PLAIN, 60.0), blocked_s_max=0.3)
    culprit = blocked(shop, tmp_path)
    others = [shop.put(None) for _ in range(8)]
    until(lambda: shop.notes.of(EventName.LOOP_BLOCKED), "it is told")
    until(lambda: len(shop.notes.of(EventName.JOB_RELEASED)) == 3, "all three are given back")
    (told,) = shop.notes.of(EventName.LOOP_BLOCKED)
    assert (told["given_back"], told["silent_s"] >= 0.3) == (3, True)
    seen_at = time.monotonic()
    until(lambda: time.monotonic() - seen_at > 0.3, "time enough to claim them again")
    jobs = [shop.see(id) for id in others]
    assert {job.state for job in jobs} == {State.QUEUED}
    assert sorted(job.counters.releases for job in jobs) == [0] * 5 + [1] * 3
    assert {job.counters.failures for job in jobs} == {0}
    (tmp_path / "go").touch()
    assert {shop.ended(id).state for id in [culprit, *others]} == {State.SUCCEEDED}
    assert all(len(shop.attempts(id)) == 1 + shop.see(id).counters.releases for id in others)


def test_a_loop_that_is_blocked_for_a_moment_is_nobodys_concern(work, tmp_path):
    shop = work(Stage("blocks", blocks, PLAIN, 60.0), blocked_s_max=20.0)
    culprit, other = blocked(shop, tmp_path), shop.put(None)
    until(lambda: shop.see(other).state is State.PROCESSING, "it is claimed")
    seen_at = time.monotonic()
    until(lambda: time.monotonic() - seen_at > 0.3, "a few looks")
    (tmp_path / "go").touch()
    assert shop.ended(culprit).state is shop.ended(other).state is State.SUCCEEDED
    assert shop.notes.of(EventName.LOOP_BLOCKED) == shop.notes.of(EventName.JOB_RELEASED) == []


def taken_away(shop: Work, id: str) -> None:
    """Settle the attempt for its worker, as the upkeep does with what is overrun."""
    job = shop.see(id)
    (claim,) = [one for one in shop.opened.store.claims_held(job.worker) if one.no == job.no]
    stage = shop.line.stage(claim.stage)
    ending = Ending(claim, TimedOut(stage.timeout_s), 1.0, job.worker)
    record = settle(ending, shop.line, stage, chance=0.5)
    shop.opened.store.turn([record], None, by=None)


def test_a_loop_that_stays_blocked_when_its_culprit_is_overrun_makes_it_begin_anew(work, tmp_path):
    shop = work(
        Stage("blocks", blocks, PLAIN, 60.0), concurrency=1, blocked_s_max=0.3, grace_s=600.0
    )
    culprit = blocked(shop, tmp_path)
    until(lambda: shop.notes.of(EventName.LOOP_BLOCKED), "it is told")
    taken_away(shop, culprit)
    until(lambda: shop.notes.of(EventName.WORKER_RECYCLED), "it recycles")
    until(lambda: shop.worker._pump.empty, "it has nothing left to do")
    (tmp_path / "go").touch()
    assert shop.join() == EXIT_RECYCLED
    job = shop.see(culprit)
    assert (job.counters.failures, job.counters.crashes, job.counters.releases) == (1, 0, 0)


def deaf_to_cancellation(gate: threading.Event):
    async def call(item):
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)

    return call


def test_an_async_stage_that_swallows_its_cancellation_is_a_lost_slot(work):
    gate = threading.Event()
    shop = work(
        Stage("deaf", deaf_to_cancellation(gate), PLAIN, 60.0),
        concurrency=1,
        grace_s=0.2,
        blocked_s_max=0.2,
    )
    id = shop.put(1)
    shop.start()
    until(lambda: any(one.has_begun for _, one in [*shop.worker._runner._runs.values()]), "it runs")
    assert shop.notes.of(EventName.WORKER_RECYCLED) == []
    taken_away(shop, id)
    until(lambda: shop.notes.of(EventName.WORKER_RECYCLED), "it recycles")
    until(lambda: shop.worker._pump.empty, "what it cannot stop is given up")
    gate.set()
    assert shop.join() == EXIT_RECYCLED
    assert shop.see(id).counters.failures == 1


def test_one_that_ends_when_its_job_is_taken_away_is_none(work):
    async def obeys(item):
        await asyncio.Event().wait()

    shop = work(Stage("obeys", obeys, PLAIN, 60.0), concurrency=1, grace_s=0.0)
    id = shop.put(1)
    shop.start()
    until(lambda: shop.see(id).state is State.PROCESSING, "it runs")
    taken_away(shop, id)
    until(lambda: shop.worker._pump.empty, "it has ended")
    shop.worker.drain()
    assert shop.join() == 0
    assert shop.notes.of(EventName.WORKER_RECYCLED) == []


# -- strangers ---------------------------------------------------------------------------


def test_jobs_that_nobody_here_knows_are_told_of_at_the_start(work):
    shop = work(Stage("one", plays.echo, PLAIN, 20.0))
    other = LaidPipeline("gone", "q", "c", (Stage("old", plays.echo, PLAIN, 20.0),))
    numbers = shop.opened.store.lanes(other.lanes())
    other.lane_nos["old"] = numbers[other.lanes()[0]]
    job = enqueue(shop.opened.store, [new_job(shop.ids, other, 1)])[0]
    shop.start()
    until(lambda: shop.notes.of(EventName.STAGE_UNKNOWN), "it is told")
    known = shop.put(1)
    assert shop.ended(known).state is State.SUCCEEDED
    assert shop.see(job.id).state is State.QUEUED
    (told,) = shop.notes.of(EventName.STAGE_UNKNOWN)
    assert (told["pipeline"], told["stage"]) == ("gone", "old")


def test_they_are_looked_for_again_every_minute():
    place, notes = Place(MEMORY), Notes()
    worker = Worker(
        place.store,
        Catalogue([]),
        WorkerIdentity(place.hire(), 0, 1),
        WorkerSettings(1, 1.0, 1.0, 0.01),
        clock=place.clock,
        chance=Random(1),
        observers=Observers([notes]),
        reader=place.reader,
    )
    worker._step()
    place.put()
    for _ in range(59):
        place.clock.push(1)
        worker._step()
    assert notes.events == []
    place.clock.push(1)
    worker._step()
    assert notes.names() == [EventName.STAGE_UNKNOWN]
    place.close()
