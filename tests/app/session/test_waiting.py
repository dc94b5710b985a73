"""Waiting looks again and again: ever less often, never past its time, and at least once."""

import asyncio
import functools
import itertools

import pytest

from perdure.app.session import waiting
from perdure.app.session.waiting import wait_until, wait_until_async


@pytest.fixture
def slept(monkeypatch):
    """The pauses that were made, in time that is only counted."""
    made: list[float] = []
    monkeypatch.setattr(waiting.time, "sleep", made.append)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: sum(made))
    return made


def test_it_is_looked_at_until_it_is_over(slept):
    looks = itertools.count(1)
    assert wait_until(lambda seen: seen == 4, lambda: next(looks), None) == 4
    assert len(slept) == 3


def test_the_last_pause_ends_with_the_time_and_one_more_look(slept):
    looks = itertools.count(1)
    seen = wait_until(lambda _: False, lambda: next(looks), 1.0)
    assert sum(slept) == pytest.approx(1.0)
    assert seen == len(slept) + 1


def test_without_time_it_is_looked_at_once(slept):
    assert wait_until(lambda _: False, lambda: "seen", 0.0) == "seen"
    assert slept == []


def test_without_blocking_the_event_loop_it_can_be_cancelled():
    async def cancelled() -> None:
        looked, loop = asyncio.Event(), asyncio.get_running_loop()
        look = functools.partial(loop.call_soon_threadsafe, looked.set)
        task = asyncio.create_task(wait_until_async(lambda _: False, look, None))
        await looked.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_without_blocking_it_ends_as_the_other_does():
    looks = itertools.count(1)
    found = asyncio.run(wait_until_async(lambda seen: seen == 3, lambda: next(looks), 60.0))
    assert found == 3
    assert asyncio.run(wait_until_async(lambda _: False, lambda: "seen", 0.0)) == "seen"


def test_looks_are_as_far_apart_as_is_said_and_end_with_whoever_has_seen_enough(slept):
    seen = list(itertools.islice(waiting.looks(lambda: len(slept), every_s=0.2), 4))
    assert seen == [0, 1, 2, 3]
    assert slept == [0.2, 0.2, 0.2]
