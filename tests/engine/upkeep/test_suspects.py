"""Suspects that an embedded worker leaves alone: said once, after a while, and again for the next ones."""

import pytest

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.suspects import LOOK_S, PATIENCE_S, SuspectsLeft
from perdure.model.events import EventName
from tests.engine.kit import Notes, line_on
from tests.stores.kit import crash, success


@pytest.fixture
def worker(place):
    return place.hire()


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def chore(place, notes):
    known = Catalogue([line_on(place)])
    return SuspectsLeft(place.store, known, clock=place.clock, observers=Observers([notes]))


def suspected(place, worker) -> None:
    place.put()
    (claim,) = place.take(worker)
    place.settle(crash(claim, worker), by=worker)


def pass_time(place, chore, seconds: float) -> None:
    for _ in range(round(seconds)):
        place.clock.push(1)
        chore.once()


def test_a_suspect_that_nobody_comes_for_is_told_once(place, worker, chore, notes):
    suspected(place, worker)
    pass_time(place, chore, PATIENCE_S - 1)
    assert notes.names() == []
    pass_time(place, chore, 100)
    assert notes.names() == [EventName.SUSPECTS_LEFT]


def test_one_that_a_supervised_worker_takes_is_not_told(place, worker, chore, notes):
    suspected(place, worker)
    pass_time(place, chore, PATIENCE_S - LOOK_S)
    (claim,) = place.take(worker, isolation=1)
    pass_time(place, chore, 100)
    assert notes.names() == []
    place.settle(success(claim, worker), by=worker)


def test_the_next_ones_are_told_again(place, worker, chore, notes):
    for times in (1, 2):
        suspected(place, worker)
        pass_time(place, chore, 60)
        assert notes.names() == [EventName.SUSPECTS_LEFT] * times
        place.take(worker, isolation=1)
        pass_time(place, chore, 60)
