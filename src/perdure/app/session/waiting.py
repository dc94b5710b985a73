"""Waiting for what others do in the store: it is looked at again and again, ever less often while nothing moves."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from perdure.engine.pauses import Pauses
from perdure.model.errors import CallerError

T = TypeVar("T")


def looks(
    look: Callable[[], T], *, wait_s: float | None = None, every_s: float | None = None
) -> Iterator[T]:
    """What is seen at each look, until whoever loops over it has seen enough or the time is over.

    Without ``every_s`` it is looked at ever less often.
    """
    pauses = Pauses() if every_s is None else Pauses(every_s, every_s)
    give_up_at = _give_up_at(wait_s)
    yield look()
    while (left_s := give_up_at - time.monotonic()) > 0:
        time.sleep(pauses.next_s(left_s))
        yield look()


def wait_until(is_over: Callable[[T], bool], look: Callable[[], T], wait_s: float | None) -> T:
    """Look until it is over or the time is; what was seen last."""
    for seen in looks(look, wait_s=wait_s):
        if is_over(seen):
            break
    return seen


async def wait_until_async(
    is_over: Callable[[T], bool], look: Callable[[], T], wait_s: float | None
) -> T:
    """As `wait_until`, without blocking the event loop; it can be cancelled."""
    pauses, give_up_at = Pauses(), _give_up_at(wait_s)
    while not is_over(seen := await asyncio.to_thread(look)):
        if (left_s := give_up_at - time.monotonic()) <= 0:
            break
        await asyncio.sleep(pauses.next_s(left_s))
    return seen


def check_wait(wait_s: object) -> None:
    """Refuse what is no length of a wait."""
    number = isinstance(wait_s, int | float | None) and not isinstance(wait_s, bool)
    if not number or (isinstance(wait_s, float) and math.isnan(wait_s)):
        raise CallerError(
            f"wait_s is {wait_s!r:.80}; give a number of seconds, or None for a wait without end"
        )


def _give_up_at(wait_s: float | None) -> float:
    check_wait(wait_s)
    return math.inf if wait_s is None else time.monotonic() + wait_s
