"""A process that starts runs, and works them off, keeps nothing of those that are over."""

import threading
from collections import deque
from random import Random
from types import FunctionType, MethodType, ModuleType
from typing import Any

from perdure.engine.batch.feeding import Feeder, feed_whole
from perdure.engine.batch.item_jobs import FeedTerms
from perdure.engine.batch.runs import Runs
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.run_watch import RunWatch
from perdure.engine.worker.lanes import RunLanes
from perdure.model.jobs import ClaimOrder
from perdure.model.runs import FINISHED
from perdure.stores.known_lanes import KnownLanes
from tests.engine.kit import line_on
from tests.stores.kit import DEED, success

_LEAVES = (str, bytes, int, float, type(None), type, FunctionType, ModuleType, threading.Thread)


def kept(*roots: Any) -> int:
    """How many things the containers hold that can be reached from here."""
    count, seen, todo = 0, set[int](), deque(roots)
    while todo:
        one = todo.popleft()
        if id(one) in seen or isinstance(one, _LEAVES):
            continue
        seen.add(id(one))
        parts: list[Any] = []
        if isinstance(one, dict):
            parts = [*one, *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            parts = list(one)
        elif isinstance(one, MethodType):
            parts = [one.__self__]
        elif type(one).__module__.startswith(("perdure", "tests")):
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            parts = [getattr(one, name) for name in slots if hasattr(one, name)]
            parts += list(getattr(one, "__dict__", {}).values())
            count -= len(parts)
        count += len(parts)
        todo.extend(parts)
    return count


class Office:
    """Starts runs in one hand, and works them off in another, in one process."""

    def __init__(self, place: Any) -> None:
        self.place = place
        self.line = line_on(place)
        self.catalogue = Catalogue([self.line])
        self.narrow = Catalogue([self.line]).only(queues=["other"])
        self.runs = Runs(place.store, place.control, place.reader, Observers())
        self.lanes = [
            RunLanes(place.store, one, None) for one in (self.catalogue, self.narrow)
        ]  # one that serves the lanes, one that does not
        self.watches = [
            RunWatch(
                place.store, place.control, place.reader, self.catalogue, observers=Observers()
            )
            for _ in range(2)
        ]
        self.ids = Ids(place.clock, Random(5))
        self.worker = place.hire()
        self.count = 0

    def run(self, *, cancelled: bool = False) -> None:
        """One run from its first item to its end; or cancelled by two workers at once."""
        self.count += 1
        opened = self.runs.open(
            self.line, self.ids, name=f"batch-{self.count}", owner="", options={}, deed=DEED
        )
        feeder = Feeder(
            self.runs,
            self.line,
            opened,
            range(3),
            ids=self.ids,
            terms=FeedTerms(),
            by="me",
            monotonic=self.place.clock.monotonic,
        )
        feed_whole(feeder)
        self.learn()
        if cancelled:
            self.runs.cancel(feeder.run, DEED)
        else:
            self.work()
        for watch in self.watches * 2:
            watch.once()
        self.learn()
        over = self.place.reader.run(opened.run.id)
        assert over.ended_at is not None
        assert cancelled or over.status in FINISHED

    def learn(self) -> None:
        self.place.clock.push(1.0)
        for one in self.lanes:
            one.learn(self.place.clock.monotonic(), told=False)

    def work(self) -> None:
        order = ClaimOrder(self.worker, 10, self.catalogue.lane_nos())
        for claim in self.place.store.turn([], order, by=self.worker).claims:
            self.place.settle(success(claim, self.worker), by=self.worker)


def test_nothing_of_runs_that_are_over_is_kept_by_a_process_that_starts_and_works_them_off(either):
    office = Office(either)
    sizes = []
    for _ in range(3):
        for _ in range(4):
            office.run()
        office.run(cancelled=True)
        sizes.append(kept(office))
    assert sizes[1:] == sizes[:1] * 2, sizes


def test_a_store_that_remembers_the_lanes_of_all_runs_is_noticed(place, monkeypatch):
    """The broken twin: what is above sees one number of a lane too many."""
    monkeypatch.setattr(
        KnownLanes, "learn", lambda known, found: known._numbers.update(found.values())
    )
    office = Office(place)
    office.run()
    before = kept(office)
    office.run()
    assert kept(office) == before + 2
