"""Health checks: what a function of somebody else says about an upstream, and what a gate makes of it."""

import asyncio
import functools
import threading

import pytest

from perdure.engine.attempt.threads import Threads
from perdure.engine.gates.health import word_of_health
from perdure.engine.gates.traffic import Checked
from perdure.engine.operate.single_jobs import cancel
from perdure.model.errors import StageError
from perdure.model.events import EventName
from perdure.model.gates import GateState
from perdure.model.kinds import Kind, Sign
from perdure.rules.gate.signs import WELL, Word
from perdure.testing import VirtualClock
from tests.engine.gating import Post, gate, put, upstream
from tests.stores.kit import DEED

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING


def asked(health, *, timeout_s: float = 20.0) -> Word:
    one = upstream(health=health, health_timeout_s=timeout_s)
    return asyncio.run(word_of_health(one, Threads(1), VirtualClock()))


async def well():
    await asyncio.sleep(0)


async def unwell():
    await asyncio.sleep(0)
    return False


def loosely(health):
    """A plain function that hands back what is still to be awaited."""

    def call():
        return health()

    return call


@pytest.mark.parametrize("health", [lambda: None, lambda: True, lambda: 0, well, loosely(well)])
def test_a_check_that_returns_says_that_the_upstream_is_well(health):
    assert asked(health) == WELL


@pytest.mark.parametrize(
    "health", [lambda: False, unwell, loosely(unwell), functools.partial(unwell)]
)
def test_a_check_that_returns_false_says_that_it_is_not_there(health):
    assert asked(health) == Word(Sign.BAD, Kind.UPSTREAM_UNAVAILABLE)


def test_a_check_that_raises_is_judged_as_a_stage_would_be():
    def refused():
        raise ConnectionRefusedError("nobody there")

    def ours():
        raise StageError(Kind.AUTH, "no key")

    def answered():
        raise StageError(Kind.INVALID_OUTPUT, "no JSON")

    assert asked(refused).sign is Sign.BAD
    assert asked(ours) == Word(Sign.NEITHER, Kind.AUTH)
    assert asked(answered) == Word(Sign.GOOD, Kind.INVALID_OUTPUT)


def test_a_check_that_is_broken_itself_says_nothing_about_the_upstream():
    def broken():
        raise TypeError("takes no arguments")

    def unforeseen():
        raise LookupError("nobody has named this")

    for health in (broken, unforeseen):
        assert asked(health).sign is Sign.NEITHER


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_check_that_does_not_end_is_a_timeout(way):
    let_go = threading.Event()

    async def waiting():
        await asyncio.Event().wait()

    health = waiting if way == "loop" else (lambda: let_go.wait(20))
    try:
        assert asked(health, timeout_s=0.05) == Word(Sign.BAD, Kind.TIMEOUT)
    finally:
        let_go.set()


# -- instead of a job --------------------------------------------------------------------


def checking(place) -> tuple[Post, list[int]]:
    """A worker whose upstream has a check, which the test answers."""
    post = Post(place, upstreams=[upstream(health=lambda: None)])
    return post, post.checks


def until_asked(post: Post, asked_at: list[int], times: int) -> int:
    for _ in range(100):
        if len(asked_at) >= times:
            return asked_at[-1]
        post.turn(passing_s=0.2)
    raise AssertionError("the upstream was not asked")


def test_the_check_is_asked_instead_of_a_job(either):
    post, asked_at = checking(either)
    put(either, 12)
    post.trip()
    post.running.clear()
    generation = until_asked(post, asked_at, 1)
    assert (gate(either).state, gate(either).generation) == (PROBING, generation)
    assert post.running == {}
    post.finished.append(Checked("vendor", generation, Word(Sign.BAD, Kind.UPSTREAM_UNAVAILABLE)))
    post.turn()
    assert (gate(either).state, gate(either).gap) == (HELD, 2)
    generation = until_asked(post, asked_at, 2)
    post.finished.append(Checked("vendor", generation, WELL))
    post.turn()
    assert gate(either).state is FLOWING
    assert post.moves(EventName.GATE_PROBED) == ["lease", "miss", "lease"]
    assert sum(job.counters.probes for job in either.every_job()) == 0


def test_a_late_answer_of_a_check_changes_nothing(either):
    post, asked_at = checking(either)
    put(either, 12)
    post.trip()
    first = until_asked(post, asked_at, 1)
    post.turn(passing_s=61.0)  # its lease is over
    assert gate(either).state is HELD
    second = until_asked(post, asked_at, 2)
    post.finished.append(Checked("vendor", first, WELL))
    post.turn()
    assert (gate(either).state, gate(either).generation) == (PROBING, second)


def test_a_check_needs_no_job_that_waits(either):
    """A queue that ran empty is no reason to stay held."""
    post, asked_at = checking(either)
    put(either, 4)
    post.trip()
    for job in list(either.every_job()):
        cancel(either.control, either.reader, post.catalogue, job.id, deed=DEED)
    assert either.reader.books().queued == 0
    assert until_asked(post, asked_at, 1)
