"""Waiting for what others do in the store: it is looked at again and again, ever less often while nothing moves."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

from perdure.model.errors import CallerError

SHORTEST_S, _LONGEST_S = 0.005, 0.25

T = TypeVar("T")


class Pauses:
    """Pauses between looks, each longer than the last, until something has moved."""

    def __init__(self) -> None:
        self._next_s = SHORTEST_S

    def begin(self) -> None:
        """Begin with short ones again: something has moved."""
        self._next_s = SHORTEST_S

    def next_s(self, left_s: float = math.inf) -> float:
        """The length of the next pause, for somebody who has so much time left."""
        pause_s, self._next_s = self._next_s, min(1.5 * self._next_s, _LONGEST_S)
        return min(pause_s, left_s)


def wait_until(is_over: Callable[[T], bool], look: Callable[[], T], wait_s: float | None) -> T:
    """Look until it is over or the time is; what was seen last."""
    pauses, give_up_at = Pauses(), _give_up_at(wait_s)
    while not is_over(seen := look()) and (left_s := give_up_at - time.monotonic()) > 0:
        time.sleep(pauses.next_s(left_s))
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
