"""What the simulation found of runs and dead letters, each in its smallest form."""

from random import Random

import pytest

from perdure.engine.batch.feeding import Feeder
from perdure.engine.batch.item_jobs import FeedTerms
from perdure.engine.batch.runs import OpenRun, Runs
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.bulks import Bulks
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.engine.upkeep.run_watch import LEFT_S, RunWatch
from perdure.model.errors import StageError, StoreUnavailable
from perdure.model.filters import JobFilter
from perdure.model.jobs import ClaimOrder
from perdure.model.nouns import replace
from perdure.model.operations import BulkPhase, BulkStatus, Deed
from perdure.model.outcomes import Outcome, Raised, Returned, Usage
from perdure.model.runs import RunStatus, RunView
from perdure.model.workers import NewWorker, Role
from perdure.rules.evidence import evidence_of
from perdure.rules.policy import Policy
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.control import SqliteControl
from perdure.stores.sqlite.reader import SqliteReader
from perdure.stores.sqlite.schema import SqliteSchema
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import VirtualClock

DEED = Deed("ann", "because")
FATAL = Raised(evidence_of(StageError("invalid_request", "cannot ever work")))
DONE = Returned('{"ok":true}')
NOBODY = Observers()


async def call(item: object) -> object:
    return item


class Place:
    """A fresh store, one pipeline, one worker."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        connection = SqliteConnection(":memory:", self.clock)
        SqliteSchema(connection, "sqlite:///:memory:").upgrade()
        self.connection = connection
        self.store, self.control = SqliteStore(connection), SqliteControl(connection)
        self.reader = SqliteReader(connection)
        self.worker = self.store.add_worker(NewWorker("b", "w", Role.MAIN, 15.0))
        self.line = LaidPipeline(
            "p", "q", "c", (Stage("only", call, Policy("p", attempts_max=1), 60.0),)
        )
        numbers = self.store.lanes(self.line.lanes())
        self.line = replace(self.line, lane_nos={lane.stage: no for lane, no in numbers.items()})
        self.catalogue = Catalogue([self.line])
        self.ids = Ids(self.clock, Random(1))
        self.runs = Runs(self.store, self.control, self.reader, NOBODY)
        self.bulks = Bulks(self.store, self.control, self.reader, self.catalogue, NOBODY)
        self.watch = RunWatch(
            self.store, self.control, self.reader, self.catalogue, observers=NOBODY
        )

    def open(self, **options: object) -> OpenRun:
        return self.runs.open(
            self.line,
            self.ids,
            name="r",
            owner="",
            options={"failure_budget": None} | options,
            deed=DEED,
        )

    def run(self, items: int, **options: object) -> RunView:
        opened = self.open(**options)
        feeder = self.feeder(opened, items)
        while not feeder.over:
            feeder.once()
        return feeder.run

    def feeder(self, opened: OpenRun, items: int) -> Feeder:
        return Feeder(
            self.runs,
            self.line,
            opened,
            range(items),
            ids=self.ids,
            terms=FeedTerms(),
            by="feeder",
            monotonic=self.clock.monotonic,
        )

    def work(self, outcome: Outcome, *, usage: Usage | None = None, jobs: int = 100) -> int:
        self.catalogue.learn(self.store.run_lanes())
        order = ClaimOrder(self.worker, jobs, self.catalogue.lane_nos())
        claims = self.store.turn([], order, by=self.worker).claims
        stage = self.line.stages[0]
        records = [
            settle(
                Ending(one, outcome, 1.0, self.worker, usage=usage), self.line, stage, chance=0.5
            )
            for one in claims
        ]
        self.store.turn(records, None, by=self.worker)
        return len(records)

    def now(self, run: RunView) -> RunView:
        found = self.reader.run(run.id)
        assert found is not None
        return found


@pytest.fixture
def place():
    made = Place()
    yield made
    made.connection.close()


def redrive(place: Place, **settings: object):
    return place.bulks.begin_redrive(
        JobFilter(pipeline="p"),
        BulkSettings(**settings),
        deed=DEED,
        ids=place.ids,
        bulk_id=place.ids.next(),
    )


def test_who_dies_after_the_last_of_a_canary_leaves_an_operation_that_goes_on(place):
    """The page and the next phase are two transactions; the second was never made."""
    place.run(3)
    place.work(FATAL)
    bulk = redrive(place, canary=1)
    (page,) = [place.bulks.once(bulk)]
    assert (page.phase, page.done) == (BulkPhase.CANARY, 1)
    successor = Bulks(place.store, place.control, place.reader, place.catalogue, NOBODY)
    seen = successor.through(page)
    assert seen.phase is BulkPhase.PROVING
    assert place.work(DONE) == 1
    assert successor.through(seen).status is BulkStatus.DONE


def away(*_args: object, **_kwargs: object) -> None:
    raise StoreUnavailable("the store is away")


def test_a_stop_of_which_one_half_is_lost_leaves_no_run_that_never_ends(place, monkeypatch):
    """It was stopped, its run was not sealed, and nobody stops it again."""
    place.run(1)
    place.work(FATAL)
    bulk = redrive(place)
    with monkeypatch.context() as patch:
        patch.setattr(place.control, "seal_run", away)
        with pytest.raises(StoreUnavailable):
            place.bulks.stop(bulk, DEED)
    assert place.reader.bulks()[0].status is BulkStatus.RUNNING
    with monkeypatch.context() as patch:
        patch.setattr(place.control, "change_bulk", away)
        with pytest.raises(StoreUnavailable):
            place.bulks.stop(bulk, DEED)
    assert place.bulks.through(bulk).status is BulkStatus.DONE
    assert place.work(DONE) == 1
    place.watch.once()
    assert place.reader.runs(no=bulk.run)[0].status is RunStatus.COMPLETED


def test_the_run_of_a_redrive_that_was_never_begun_is_ended_after_a_while(place, monkeypatch):
    """Its run was made, and who made it died before it could write down the operation."""
    place.run(1)
    place.work(FATAL)
    place.watch.once()
    with monkeypatch.context() as patch:
        patch.setattr(place.control, "add_bulk", away)
        with pytest.raises(StoreUnavailable):
            redrive(place)
    left = place.reader.runs()[0]
    place.watch.once()
    assert place.now(left).status is RunStatus.RUNNING
    place.clock.push(LEFT_S)
    place.watch.once()
    assert place.now(left).status is RunStatus.COMPLETED


def test_the_run_of_a_redrive_that_goes_slowly_is_not_taken_for_one_that_was_left(place):
    place.run(3)
    place.work(FATAL)
    bulk = place.bulks.through(redrive(place, rate_per_s=0.001))
    place.work(DONE)
    place.clock.push(LEFT_S)
    place.watch.once()
    assert place.reader.runs(no=bulk.run)[0].sealed_at is None


def test_a_failure_budget_waits_for_its_check_though_there_is_a_cost_budget_too(place):
    """With a cost budget, every look held the failures against theirs as well."""
    run = place.run(10, failure_budget=0.1, check_every=10, sample_min=10, cost_max_usd=0.5)
    place.work(FATAL, jobs=3)
    place.watch.once()
    assert place.now(run).status is RunStatus.RUNNING
    place.work(DONE, usage=Usage(cost_usd=0.6), jobs=1)
    place.watch.once()
    assert place.now(run).status is RunStatus.ABORTED
    assert "the cost is $0.6" in place.now(run).why


def test_what_a_second_redrive_takes_over_is_no_difference_to_the_audit(place):
    """A re-drive by pipeline has no parent, and its run goes on counting what a later one has taken over."""
    place.run(2)
    place.work(FATAL)
    for _ in range(2):
        place.clock.push(1.0)
        assert place.bulks.through(redrive(place)).done == 2
        assert place.work(FATAL) == 2
    assert place.reader.audit() == []


def test_an_item_that_comes_late_finds_no_run_that_is_over(place):
    """A second feeder, slower than the first, brought an item back whose job had been let go meanwhile."""
    run = place.run(1)
    slower = place.feeder(place.open(), 2)
    place.runs.seal(run)
    place.work(DONE)
    place.watch.once()
    assert place.now(run).status is RunStatus.COMPLETED
    slower.once()
    assert place.now(run).status is RunStatus.RUNNING
    assert place.work(DONE) == 1
    place.watch.once()
    assert place.now(run).status is RunStatus.COMPLETED


def test_an_item_that_comes_to_a_run_that_was_cancelled_meanwhile_is_cancelled_too(place):
    opened = place.runs.open(place.line, place.ids, name="r", owner="", options={}, deed=DEED)
    feeder, run = place.feeder(opened, 1), opened.run
    right = place.reader.runs
    seen = right(no=run.no)
    place.runs.cancel(run, DEED)
    assert place.now(run).ended_at is not None
    place.reader.runs = lambda **_: seen  # as it was when the feeder looked
    feeder.once()
    place.reader.runs = right
    for _ in range(2):
        place.watch.once()
    over = place.now(run)
    assert (over.status, over.counts.cancelled) == (RunStatus.CANCELLED, 1)
    assert over.ended_at is not None
