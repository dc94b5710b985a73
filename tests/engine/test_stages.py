"""Stages that need a process of their own, and catalogues that serve only some of what they know."""

import functools
import sys

import pytest

from perdure.engine.claim import order_for
from perdure.engine.stages import Catalogue, LaidPipeline, Stage
from perdure.model.errors import ConfigError
from perdure.model.jobs import Lane
from perdure.model.limits import TIMEOUT_S_MAX
from tests.engine import plays
from tests.engine.kit import PLAIN, Shop, stage


def apart(call) -> Stage:
    return Stage("one", call, PLAIN, 60.0, None, True)


# -- processes ---------------------------------------------------------------------------


def inner():
    def local(item):
        return item

    return local


class Calling:
    def __call__(self, item):
        return item

    def method(self, item):
        return item

    @staticmethod
    def static(item):
        return item


def as_main(call):
    @functools.wraps(call)
    def copy(item):
        return call(item)

    copy.__module__ = "__main__"
    return copy


REFUSED = [
    (lambda item: item, "a lambda has no name"),
    (inner(), "inner.<locals>.local is defined inside a function"),
    (as_main(plays.echo), "__main__, which nobody can import"),
    (functools.partial(plays.echo), "partial is no plain function"),
    (Calling(), "Calling is no plain function"),
    (Calling().method, "method is no plain function"),
    (functools.lru_cache(plays.echo), "is no plain function"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[row[1] for row in REFUSED])
def test_what_another_process_cannot_import_is_refused_where_it_is_declared(call, words):
    with pytest.raises(ConfigError) as caught:
        apart(call)
    text = str(caught.value)
    assert words in text
    assert "stage 'one' has process=True" in text
    assert "at the top of a module" in text


@pytest.mark.parametrize("call", [plays.echo, plays.pid_async, Calling.static])
def test_a_function_at_the_top_of_a_module_may_have_a_process(call):
    assert apart(call).process
    assert sys.modules[call.__module__] is not None


def test_a_stage_is_another_when_it_has_a_process():
    plain = Stage("one", plays.echo, PLAIN, 60.0)
    assert plain.config_hash != apart(plays.echo).config_hash


def test_a_timeout_goes_to_its_limit_and_not_past_it():
    assert stage(timeout_s=TIMEOUT_S_MAX).timeout_s == TIMEOUT_S_MAX
    with pytest.raises(ConfigError, match="timeout_s of stage 'one'"):
        stage(timeout_s=TIMEOUT_S_MAX * 1.001)


# -- what is served ----------------------------------------------------------------------


def line(name: str, queue: str, category: str, first: int) -> LaidPipeline:
    stages = (stage("one"), stage("two"))
    return LaidPipeline(name, queue, category, stages, {"one": first, "two": first + 1})


LINES = [line("a", "fast", "x", 1), line("b", "fast", "y", 3), line("c", "slow", "x", 5)]


@pytest.mark.parametrize(
    ("queues", "categories", "lanes"),
    [
        ((), (), (1, 2, 3, 4, 5, 6)),
        (("fast",), (), (1, 2, 3, 4)),
        (("slow",), (), (5, 6)),
        (("fast", "slow"), (), (1, 2, 3, 4, 5, 6)),
        ((), ("x",), (1, 2, 5, 6)),
        (("fast",), ("x",), (1, 2)),
        (("slow",), ("y",), ()),
    ],
)
def test_only_lanes_of_the_named_queues_and_categories_are_served(queues, categories, lanes):
    catalogue = Catalogue(LINES).only(queues=queues, categories=categories)
    assert catalogue.lane_nos() == lanes
    assert len(catalogue.lanes()) == 6
    assert catalogue.stage("c", "one") is LINES[2].stages[0]
    order = order_for(catalogue, worker=1, isolation=0, slots=5, draining=False)
    assert (order.lanes if order else ()) == lanes


def test_a_run_of_a_pipeline_that_has_moved_goes_on_in_its_own_lanes():
    catalogue = Catalogue([line("a", "fast", "x", 1)]).only(queues=["fast", "old"])
    moved = catalogue.pipeline("a")
    begun = {11: Lane("old", "x", "a", "one", run=7), 12: Lane("old", "x", "a", "two", run=7)}
    assert catalogue.learn(begun) == []
    assert moved.lane_beside(11, "two") == 12
    laid = {9: Lane("fast", "x", "a", "one", run=7), 10: Lane("fast", "x", "a", "two", run=7)}
    assert catalogue.learn({**laid, **begun}) == []
    assert {moved.lane_beside(no, "two") for no in (9, 10, 11, 12)} == {10}
    assert moved.lane_beside(1, "two") == 2
    assert set(catalogue.lane_nos()) == {1, 2, 9, 10, 11, 12}


@pytest.mark.parametrize("queue", ["fast", "slow"], ids=["served", "not served"])
def test_lanes_of_a_run_that_is_over_are_forgotten(queue):
    catalogue = Catalogue([line("a", "fast", "x", 1)]).only(queues=[queue])
    known = catalogue.pipeline("a")
    catalogue.learn(
        {
            9: Lane("fast", "x", "a", "one", run=7),
            10: Lane("fast", "x", "a", "two", run=7),
            11: Lane("fast", "x", "a", "gone", run=7),
            12: Lane("old", "x", "a", "one", run=7),
        }
    )
    assert {known.lane_beside(no, "two") for no in (9, 10, 11, 12)} == {10}
    catalogue.learn({})
    assert {known.lane_beside(no, "two") for no in (9, 10, 11, 12)} == {2}


def test_what_one_worker_knows_of_runs_is_not_left_to_the_next_one():
    shared = line("a", "fast", "x", 1)
    first = Catalogue([shared])
    first.learn({9: Lane("fast", "x", "a", "one", run=7), 10: Lane("fast", "x", "a", "two", run=7)})
    assert Catalogue([shared]).pipeline("a").lane_beside(9, "two") == 2
    assert first.pipeline("a").lane_beside(9, "two") == 10


def test_a_lane_without_a_number_is_not_served_yet():
    unlaid = LaidPipeline("d", "fast", "x", (stage("one"),))
    assert Catalogue([unlaid]).only(queues=["fast"]).lane_nos() == ()


def only_stage_one(lane: Lane) -> bool:
    return lane.stage == "one"


def test_a_job_is_carried_on_only_into_a_lane_that_is_served():
    narrow = Catalogue(LINES, serves=only_stage_one)
    assert not narrow.carries_on("a", "one")
    assert narrow.carries_on("a", "two")  # nothing follows
    assert Catalogue(LINES).carries_on("a", "one")
    assert Catalogue(LINES).only(queues=["fast"]).carries_on("a", "one")


def test_what_is_not_served_here_is_queued_for_another_worker():
    shop = Shop()
    shop.pump._catalogue = Catalogue([shop.line], serves=only_stage_one)
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all()
    shop.pump.once()
    job = shop.place.see(id)
    assert (job.stage, job.state.value, shop.running) == ("two", "queued", {})
    assert shop.pump.once() is None
    assert shop.pump.empty
    shop.place.clean()
    shop.close()
