"""Limits: what stands in one line ends in order, on one timer, and what has ended is left alone."""

import asyncio

import pytest

from perdure.engine.attempt.timeout import Limit, Limits


async def sleeps(time_s: float, limits: Limits | None, *, for_s: float) -> str:
    limit = Limit()
    limit.set(time_s, None if limits is None else limits.line_of(time_s))
    try:
        await asyncio.sleep(for_s)
    except asyncio.CancelledError:
        return "passed" if limit.passed else "cancelled"
    finally:
        limit.clear()
    return "done"


@pytest.mark.parametrize("shared", [True, False])
def test_what_takes_longer_than_its_limit_is_cancelled_and_its_neighbours_are_not(shared):
    async def all_of_them() -> list[str]:
        limits = Limits() if shared else None
        quick = [sleeps(0.05, limits, for_s=0.0) for _ in range(3)]
        slow = [sleeps(0.05, limits, for_s=60) for _ in range(3)]
        long = sleeps(60, limits, for_s=0.15)
        return await asyncio.gather(*quick, *slow, long)

    assert asyncio.run(all_of_them()) == ["done"] * 3 + ["passed"] * 3 + ["done"]


def test_a_line_goes_on_after_it_was_empty():
    async def one_after_another() -> list[str]:
        limits = Limits()
        first = await sleeps(0.02, limits, for_s=60)
        await asyncio.sleep(0.05)
        return [first, await sleeps(0.02, limits, for_s=60)]

    assert asyncio.run(one_after_another()) == ["passed", "passed"]


def test_a_limit_that_begins_later_ends_later_on_the_same_timer():
    async def two() -> list[float]:
        limits, events = Limits(), asyncio.get_running_loop()
        ended: list[float] = []

        async def one(after_s: float) -> None:
            await asyncio.sleep(after_s)
            began = events.time()
            assert await sleeps(0.1, limits, for_s=60) == "passed"
            ended.append(events.time() - began)

        await asyncio.gather(one(0.0), one(0.05))
        return ended

    assert all(took_s >= 0.1 for took_s in asyncio.run(two()))


def test_what_was_cancelled_by_others_has_not_passed():
    async def stopped() -> str:
        task = asyncio.create_task(sleeps(60, Limits(), for_s=60))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(stopped()) == "cancelled"


def test_there_are_not_more_lines_than_stages():
    limits = Limits()
    lines = [limits.line_of(float(n)) for n in range(200)]
    assert sum(line is not None for line in lines) == 64
    assert limits.line_of(0.0) is lines[0]
