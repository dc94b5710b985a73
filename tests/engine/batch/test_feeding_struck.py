"""A run is aborted, paused or cancelled before every single step of its feeding, and comes to its end all the same."""

from itertools import count
from random import Random
from typing import Any

import pytest

from perdure.engine.batch import feeding
from perdure.engine.batch.feeding import Feeder
from perdure.engine.batch.item_jobs import FeedTerms, NothingNow
from perdure.engine.batch.runs import Runs, unfed_at
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.run_watch import RunWatch
from perdure.model.jobs import ClaimOrder
from perdure.model.runs import FINISHED, RunStatus, RunView
from tests.engine.kit import line_on
from tests.stores.kit import DEED, success


class Struck:
    """The sides of a store, with one blow before the call of a given number, over all of them."""

    def __init__(self, runs: Runs, at: int, blow: Any) -> None:
        self._left = at
        self._blow = blow
        self.runs = Runs(
            *(_Side(self, one) for one in (runs.store, runs.control, runs.reader)), Observers()
        )

    def before_a_call(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._blow()

    @property
    def landed(self) -> bool:
        return self._left <= 0


class _Side:
    def __init__(self, struck: Struck, target: Any) -> None:
        self._struck = struck
        self._target = target

    def __getattr__(self, name: str) -> Any:
        self._struck.before_a_call()
        return getattr(self._target, name)


class Bench:
    """One pipeline, somebody who works, and a run after the other."""

    def __init__(self, place: Any) -> None:
        self.place = place
        self.line = line_on(place)
        self.runs = Runs(place.store, place.control, place.reader, Observers())
        self.ids = Ids(place.clock, Random(1))
        self.worker = place.hire()
        catalogue = Catalogue([self.line])
        self.watch = RunWatch(
            place.store, place.control, place.reader, catalogue, observers=Observers()
        )

    def struck(
        self, kind: str, step: int, items: Any, backlog_max: int | None
    ) -> tuple[Feeder, bool]:
        """A run that was fed with one blow before the call of that number, and whether it came so far."""
        name = f"{kind}-{step}"
        opened = self.runs.open(self.line, self.ids, name=name, owner="", options={}, deed=DEED)
        struck = Struck(self.runs, step, lambda: BLOWS[kind](self, opened.run))
        feeder = self.feeder(name, items, backlog_max, struck.runs)
        self.fed(feeder)
        return feeder, struck.landed

    def feeder(
        self, name: str, items: Any, backlog_max: int | None, runs: Runs | None = None
    ) -> Feeder:
        opened = self.runs.open(self.line, self.ids, name=name, owner="", options={}, deed=DEED)
        return Feeder(
            runs or self.runs,
            self.line,
            opened,
            items,
            ids=self.ids,
            terms=FeedTerms(backlog_max=backlog_max),
            by="me",
            monotonic=self.place.clock.monotonic,
        )

    def now(self, run: RunView) -> RunView:
        return self.place.reader.run(run.id)

    def fed(self, feeder: Feeder) -> RunView:
        """Feed; where there is no room, one works, and a paused run is resumed by somebody."""
        for _ in range(200):
            if feeder.over:
                feeder.leave()
                return self.now(feeder.run)
            self.before_last_step = feeder.fed.items
            if not feeder.once():
                if self.now(feeder.run).status is RunStatus.PAUSED:
                    self.runs.resume(self.now(feeder.run), DEED)
                self.work()
        raise AssertionError("the feeding does not end")

    def work(self) -> None:
        order = ClaimOrder(self.worker, 50, tuple(self.place.store.run_lanes()))
        for claim in self.place.store.turn([], order, by=self.worker).claims:
            self.place.settle(success(claim, self.worker), by=self.worker)

    def ended(self, run: RunView) -> RunView:
        """The run when everybody has done what is theirs."""
        self.work()
        for _ in range(2):
            self.watch.once()
        return self.now(run)


class Source:
    """Items, and what has become of them: how many were given, and whether the end was said."""

    def __init__(self, items: Any) -> None:
        self._items = iter(items)
        self.given = 0
        self.ended = False

    def __iter__(self) -> "Source":
        return self

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self.ended = True
            raise
        self.given += not isinstance(item, NothingNow)
        return item


def silent(items: int) -> Any:
    """A source that has nothing before its last item, and after it."""
    yield from range(items - 1)
    yield NothingNow()
    yield items - 1
    yield NothingNow()


BLOWS = {
    "abort": lambda bench, run: bench.runs.abort(bench.now(run), "aborted: enough"),
    "pause": lambda bench, run: bench.runs.pause(bench.now(run), DEED),
    "cancel": lambda bench, run: bench.runs.cancel(bench.now(run), DEED),
}
SHAPES = {
    "no item": (lambda: range(0), 0, None),
    "a chunk and the end": (lambda: range(4), 4, None),
    "a chunk and one item": (lambda: range(5), 5, None),
    "one at a time as they are worked off": (lambda: range(3), 3, 1),
    "a source that is silent now and then": (lambda: silent(3), 3, None),
}


def struck_everywhere(place: Any, kind: str, shape: str) -> None:
    """Run after run, each with one blow before one call more of its feeding than the one before."""
    source, items, backlog_max = SHAPES[shape]
    bench = Bench(place)
    for step in count(1):
        given = Source(source())
        feeder, landed = bench.struck(kind, step, given, backlog_max)
        run = bench.now(feeder.run)
        if not landed:
            assert step > 2
            break
        if kind != "cancel":
            assert (run.sealed_at is not None) == given.ended == feeder.fed.whole, (step, run)
            asked = given.ended or given.given > bench.before_last_step
            assert (asked, run.counts.total) == (True, given.given), (step, run)
        unfed = run.sealed_at is None and run.status is not RunStatus.CANCELLED
        assert (unfed_at(run, place.clock.now()) is not None) == unfed, (step, run)
        if run.status in (RunStatus.ABORTED, RunStatus.PAUSED):
            run = bench.runs.resume(run, DEED)
        if unfed:
            assert bench.ended(run).ended_at is None
            rest = given if step % 2 else range(items)  # goes on with the same source, or anew
            run = bench.fed(bench.feeder(run.name, rest, None))
        over = bench.ended(run)
        assert over.ended_at is not None, (step, over)
        if kind != "cancel":
            assert (over.status in FINISHED, over.counts.succeeded) == (True, items)
    place.clean()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(feeding, "_CHUNK", 4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", BLOWS)
def test_a_run_that_is_struck_at_any_step_of_its_feeding_is_sealed_or_says_that_nobody_feeds_it(
    place, kind, shape
):
    struck_everywhere(place, kind, shape)


@pytest.mark.parametrize("shape", ["a chunk and the end", "one at a time as they are worked off"])
def test_a_feeder_that_does_not_ask_for_one_more_item_leaves_a_run_unsealed(
    place, shape, monkeypatch
):
    """The broken twin."""
    monkeypatch.setattr(Feeder, "_stop_if_more", Feeder._stop)
    with pytest.raises(AssertionError):
        struck_everywhere(place, "abort", shape)
