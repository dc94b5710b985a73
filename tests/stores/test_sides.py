"""Stores that differ are told apart, whatever they number how, and it is said where."""

import pytest

from perdure.model.jobs import NewJob
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.workers import NewWorker, Role
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place, uuid_of
from tests.stores.acting import LANES
from tests.stores.reference import Model, open_model
from tests.stores.sides import Differ, Side, Sides, dump


@pytest.fixture
def models() -> list[Model]:
    """Two models, one of which has given numbers to other things before."""
    clock = VirtualClock()
    models = [open_model(clock), open_model(clock)]
    Place(models[1], clock).put()
    tables = models[1].tables
    for table in (tables.lanes, tables.jobs, tables.accepted, tables.flows):
        table.clear()
    return models


@pytest.fixture
def sides(models) -> Sides:
    sides = Sides([Side(name, model) for name, model in zip(("one", "two"), models, strict=True)])
    sides.each("enter", enter)
    return sides


def enter(side: Side) -> object:
    """A lane, a worker and a job, by the same names on each side."""
    lane = LANES["one"]
    side.learn("lane", "one", side.store.lanes([lane])[lane])
    side.learn("worker", "w", side.store.add_worker(NewWorker("b", "h", Role.MAIN, 15.0)))
    new = NewJob(uuid_of(1), "p", side.no("lane", "one"), "one", "1")
    (made,) = side.store.enqueue([new])
    side.learn("job", made.id, made.no)
    return made


def test_other_numbers_for_the_same_things_are_no_difference(sides):
    one, two = sides.all
    for kind, name in (("lane", "one"), ("job", uuid_of(1))):
        assert one.no(kind, name) != two.no(kind, name)
    seen = sides.each("a look", dump)
    assert seen["one"] != seen["two"]


def test_a_difference_is_told_with_its_place(sides, models):
    jobs = models[1].tables.jobs
    for no, job in list(jobs.items()):
        jobs[no] = replace(job, owner="somebody else")
    with pytest.raises(Differ) as caught:
        sides.each("a look", dump)
    assert str(caught.value) == "a look, jobs, [0], owner:\n  one: ''\n  two: 'somebody else'"


def test_a_thing_too_many_is_a_difference(sides, models):
    models[1].tables.checkpoints.clear()
    sides.each("a look", dump)
    models[1].tables.workers.clear()
    with pytest.raises(Differ, match="a look, workers:"):
        sides.each("a look", dump)


def test_an_error_on_one_side_only_is_a_difference(sides):
    two = sides.all[1]
    two.store.end_worker(two.no("worker", "w"), Death("silent"))
    with pytest.raises(Differ, match="raised WorkerDead"):
        sides.each("turn", lambda side: side.store.turn([], None, by=side.no("worker", "w")))
