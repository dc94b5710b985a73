"""Results of a run: in order, as they end, each once, whatever happens while they are read."""

from random import Random

import pytest

from perdure.engine.batch import results
from perdure.engine.batch.results import Seen, as_ended, in_order
from perdure.engine.batch.runs import Runs
from perdure.engine.observe import Observers
from perdure.model.jobs import ClaimOrder
from perdure.model.runs import ItemView, NewRun, RunChange, RunStatus
from perdure.model.states import State
from tests.stores.kit import DEED, failure, retry, success

ID = "00000000-0000-7000-8000-0000000000a1"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(results, "ITEM_PAGE_ROWS", 4)


class Batch:
    """A run of so many items, which are worked off while its results are read."""

    def __init__(self, place, count, seed=1):
        self.place = place
        self.worker = place.hire()
        self.run = place.control.add_run(NewRun(ID, "", "p", "batch"))
        lanes = place.lanes_of("p", run=self.run.no)
        place.put_many(count, run=self.run.no, lane=lanes["one"])
        place.control.seal_run(self.run.no)
        self.rng = Random(seed)
        self.rests = 0
        self.held = []

    def work(self, count=3):
        """End a few, in any order; put one back."""
        order = ClaimOrder(self.worker, count, tuple(self.place.store.run_lanes()))
        self.held += self.place.store.turn([], order, by=self.worker).claims
        self.rng.shuffle(self.held)
        for claim in self.held[:count]:
            how = self.rng.choice((success, success, failure))
            self.place.settle(how(claim, self.worker), by=self.worker)
        del self.held[:count]
        self.place.clock.push(self.rng.choice((0.0, 0.5, 30.0)))

    def rest(self):
        self.rests += 1
        assert self.rests < 1_000, "it waits for nothing"
        self.work()
        run = self.place.reader.run(ID)
        Runs(self.place.store, self.place.control, self.place.reader, Observers()).settle(run)

    def read(self, way):
        return list(way(self.place.reader, self.run, redriven=False, rest=self.rest))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [0, 1, 4, 5, 23])
def test_in_order_every_item_comes_once_in_its_order(place, count, seed):
    batch = Batch(place, count, seed)
    if count == 0:
        batch.rest()
    found = batch.read(in_order)
    nos = [one.no for one in found]
    assert nos == sorted(nos)
    assert len(set(nos)) == count
    assert {one.state for one in found} <= {State.SUCCEEDED, State.FAILED}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 4, 5, 23])
def test_as_they_end_every_item_comes_once(place, count, seed):
    found = Batch(place, count, seed).read(as_ended)
    assert len(found) == len({one.no for one in found}) == count


def test_in_order_an_open_item_holds_back_those_behind_it(place):
    batch = Batch(place, 3)
    first, *others = place.store.turn(
        [], ClaimOrder(batch.worker, 3, tuple(place.store.run_lanes())), by=batch.worker
    ).claims
    for claim in others:
        place.settle(success(claim, batch.worker), by=batch.worker)

    def rest():
        raise TimeoutError

    reading = in_order(place.reader, batch.run, redriven=False, rest=rest)
    with pytest.raises(TimeoutError):
        next(reading)
    ended = as_ended(place.reader, batch.run, redriven=False, rest=rest)
    assert {next(ended).no, next(ended).no} == {claim.no for claim in others}
    place.settle(success(first, batch.worker), by=batch.worker)


@pytest.mark.parametrize("way", [in_order, as_ended])
@pytest.mark.parametrize("status", [RunStatus.ABORTED, RunStatus.CANCELLED])
def test_of_a_run_that_is_stopped_the_open_items_are_left_out(place, way, status):
    batch = Batch(place, 10)
    batch.work(5)
    place.control.change_run(RunChange(batch.run.no, RunStatus.RUNNING, status), DEED)
    found = list(way(place.reader, batch.run, redriven=False, rest=pytest.fail))
    assert len(found) == 5


def test_a_commit_that_comes_later_than_its_moment_says_is_found_at_the_end(place):
    batch = Batch(place, 9)
    batch.work(4)
    reader, hidden = place.reader, place.reader.items(batch.run.no)[-1].no

    class Late:
        """One item is seen only when the run is over."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def items_ended(self, run, **options):
            return [one for one in reader.items_ended(run, **options) if one.no != hidden]

    found = list(as_ended(Late(), batch.run, redriven=False, rest=batch.rest))
    assert len(found) == 9
    assert found[-1].no == hidden


def test_a_retry_is_not_a_result(place):
    batch = Batch(place, 1)
    (claim,) = place.store.turn(
        [], ClaimOrder(batch.worker, 1, tuple(place.store.run_lanes())), by=batch.worker
    ).claims
    place.settle(retry(claim, batch.worker), by=batch.worker)
    place.control.change_run(RunChange(batch.run.no, RunStatus.RUNNING, RunStatus.ABORTED), DEED)
    assert list(in_order(place.reader, batch.run, redriven=False, rest=pytest.fail)) == []


def test_numbers_are_remembered_one_by_one_in_little_space():
    seen = Seen()
    rng = Random(5)
    numbers = [rng.randrange(10**7) for _ in range(2_000)]
    known = set()
    for no in numbers:
        assert seen.add(no) is (no not in known)
        known.add(no)
    dense = Seen()
    for no in range(100_000):
        dense.add(no)
    assert sum(len(chunk) for chunk in dense._chunks.values()) <= 100_000 // 8 + 1_024


def test_pages_grow_where_results_are_small_and_shrink_where_they_are_large(monkeypatch):
    monkeypatch.setattr(results, "ITEM_PAGE_ROWS", 500)
    pages = results._Pages()
    small, large = (
        [ItemView(1, "i", None, State.SUCCEEDED, "x" * size, None, None, None, None, None, None)]
        for size in (10, 1_000_000)
    )
    limits = [pages.limit]
    for _ in range(6):
        pages.resize_after(small * pages.limit)
        limits.append(pages.limit)
    assert limits == [16, 32, 64, 128, 256, 500, 500]
    pages.resize_after(large * 500)
    assert pages.limit <= 8
