"""How workers part the limits of an upstream: each has a slice of them, on a lease.

Always true: the slices whose lease runs never come to more than the whole. A worker changes only its own
slice, by compare-and-set on all of them, and takes at most what the others have left over. So one that
comes gets little at first; those who have more than their fair part give the rest back when they renew, and
the next look gives it to the newcomer. Calls that are in flight are not given back before they have ended; but
who has more of them than its part starts none until they are fewer, or it would never have anything to give.

What a worker has is free when its lease is over, and at once when the store has declared it dead, however
it died: it can start and record nothing more, and the workers that get its jobs need its part for them. Calls that it
may still have in flight are covered by no lease. A slice that a dead worker writes for itself counts for nothing.

The fair part is max-min: nobody gets more than it wants, and what one does not want the others share evenly.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

LEASE_S = 15.0
RENEW_S = 5.0  # three chances in a lease


class Slice(Struct, frozen=True):
    """What one worker has until ``until``: a share of the rates, and so many calls at once.

    ``wanted`` and ``wanted_calls`` are what it could use. The slice of worker 0, which does not exist, is of
    nothing: it only remembers when the latest call of anybody began.
    """

    until: datetime
    wanted: float = 0.0
    wanted_calls: int = 0
    share: float = 0.0
    calls: int = 0
    began_at: datetime | None = None


class Wish(Struct, frozen=True):
    """What a worker could use of an upstream's limits."""

    share: float
    calls: int


def take_slice(
    slices: Mapping[int, Slice],
    me: int,
    wish: Wish,
    *,
    concurrency: int | None,
    now: datetime,
    in_flight: int = 0,
) -> dict[int, Slice]:
    """All slices that run, after ``me`` has taken its fair part or what there is of it.

    ``in_flight`` are the calls that it has out.
    """
    others = {worker: one for worker, one in slices.items() if worker != me and one.until > now}
    shares = fair_shares({worker: one.wanted for worker, one in others.items()} | {me: wish.share})
    free = max(0.0, 1.0 - sum(one.share for one in others.values()))
    calls = 0
    if concurrency is not None:
        wanted = {worker: one.wanted_calls for worker, one in others.items()}
        fair_calls = fair_units(concurrency, wanted | {me: wish.calls})
        free_calls = max(0, concurrency - sum(one.calls for one in others.values()))
        calls = min(max(fair_calls[me], in_flight), free_calls)
    mine = Slice(
        now + timedelta(seconds=LEASE_S), wish.share, wish.calls, min(shares[me], free), calls
    )
    return {**others, me: mine}


def usable(slices: Mapping[int, Slice], me: int, *, concurrency: int | None, now: datetime) -> int:
    """How many calls ``me`` may have out when it starts another: what it has, and not more than its part."""
    running = {worker: one for worker, one in slices.items() if one.until > now}
    if concurrency is None or me not in running:
        return 0
    wanted = {worker: max(one.wanted_calls, one.calls) for worker, one in running.items()}
    return min(running[me].calls, fair_units(concurrency, wanted)[me])


def fair_shares(wanted: Mapping[int, float]) -> dict[int, float]:
    """The max-min fair parts of 1.0."""
    parts: dict[int, float] = {}
    left, waiting = 1.0, sorted(wanted.items(), key=lambda one: (one[1], one[0]))
    while waiting:
        worker, wish = waiting.pop(0)
        parts[worker] = min(max(wish, 0.0), left / (len(waiting) + 1))
        left -= parts[worker]
    return parts


def fair_units(total: int, wanted: Mapping[int, int]) -> dict[int, int]:
    """The same of ``total`` things that cannot be cut; of equals the one with the lower number gets more."""
    parts: dict[int, int] = {}
    left, waiting = total, sorted(wanted.items(), key=lambda one: (one[1], -one[0]))
    while waiting:
        worker, wish = waiting.pop(0)
        parts[worker] = min(max(wish, 0), left // (len(waiting) + 1))
        left -= parts[worker]
    return parts
