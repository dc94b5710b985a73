"""Taking our slices of upstreams' stated limits, renewing them, and giving them back. See `rules/gate/limit_slices.py`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import inf

import msgspec

from perdure.engine.gates.traffic import Traffic
from perdure.model.gates import Slices
from perdure.model.jobs import ClaimOrder
from perdure.model.nouns import replace
from perdure.ports import Clock, Store
from perdure.rules.gate.gate import latest
from perdure.rules.gate.limit_slices import LEASE_S, RENEW_S, Slice, take_slice

NOBODY = 0  # no worker has this number
MEMORY = timedelta(days=400)  # how long the latest call is remembered
_SOON_S = 1.0  # between two takings while our slices are what keeps calls from starting
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(dict[int, Slice])


class LimitShares:
    """The slices of one worker."""

    def __init__(self, store: Store, worker: int, clock: Clock) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._taken_s = -inf

    def once(
        self,
        traffic_by_upstream: Mapping[str, Traffic],
        behind: Mapping[str, tuple[int, ...]],
        now: datetime,
        *,
        isolation: int = 0,
        free: int = 0,
    ) -> bool:
        """Renew what is to be renewed; False when somebody was quicker, and all must be read anew."""
        bound = any(traffic.bound for traffic in traffic_by_upstream.values())
        if self._clock.monotonic() - self._taken_s < (_SOON_S if bound else RENEW_S):
            return True
        self._taken_s = self._clock.monotonic()
        answers = []
        for name, traffic in traffic_by_upstream.items():
            if traffic.upstream.limits.any:
                order = ClaimOrder(self._worker, 1, behind.get(name, ()), isolation)
                answers.append(self._take(name, traffic, order, now, free))
        if not all(answers):
            self._taken_s = -inf
        return all(answers)

    def leave(self, traffic_by_upstream: Mapping[str, Traffic]) -> None:
        """Give back what we have, where nothing of ours is in flight."""
        for name, traffic in traffic_by_upstream.items():
            if self._worker in traffic.slices and not traffic.out:
                self._put(name, traffic, _without(traffic.slices, self._worker))

    def _take(
        self, name: str, traffic: Traffic, order: ClaimOrder, now: datetime, free: int
    ) -> bool:
        ready = bool(order.lanes) and self._store.waiting(order) == 0.0
        wish = traffic.wish(ready=ready, free=free)
        before = traffic.slices.get(self._worker)
        parts = take_slice(
            traffic.slices,
            self._worker,
            wish,
            concurrency=traffic.upstream.limits.concurrency,
            now=now,
            in_flight=traffic.out + traffic.promised,
        )
        if _is_no_news(before, parts[self._worker], now):
            return True
        began_at = latest(_began_at(traffic), traffic.began_at)
        parts[NOBODY] = Slice(now + MEMORY, began_at=began_at)
        if not self._put(name, traffic, parts):
            return False
        if before is None or before.share == 0:
            traffic.credit(now, began_at)
        return True

    def _put(self, name: str, traffic: Traffic, parts: dict[int, Slice]) -> bool:
        value = Slices(name, traffic.slices_generation, _encode(parts).decode())
        before, traffic.slices = traffic.slices, _without(traffic.slices, self._worker)
        if not self._store.change_slices(value):  # if that fails, we have none until we have looked
            traffic.slices = before
            return False
        traffic.slices, traffic.slices_generation = parts, value.generation + 1
        return True


def _is_no_news(before: Slice | None, after: Slice, now: datetime) -> bool:
    """Whether nothing would change but the end of the lease, and that is far off."""
    if before is None:
        return after.share == 0 and after.calls == 0 and after.wanted == 0
    same = replace(before, until=after.until) == after
    return same and (before.until - now).total_seconds() > LEASE_S - RENEW_S


def _began_at(traffic: Traffic) -> datetime | None:
    known = traffic.slices.get(NOBODY)
    return None if known is None else known.began_at


def _without(slices: Mapping[int, Slice], worker: int) -> dict[int, Slice]:
    return {no: one for no, one in slices.items() if no != worker}


def slices_of(parted: Slices, alive: frozenset[int]) -> dict[int, Slice]:
    """The slices of living workers, and the slice of `NOBODY`, which remembers when the latest call began."""
    found = slices_in(parted.slices_json)
    return {no: one for no, one in found.items() if no == NOBODY or no in alive}


def slices_in(slices_json: str) -> dict[int, Slice]:
    """The slices as they were written; none if another version wrote them: the next renewal writes them anew."""
    try:
        return _decoder.decode(slices_json)
    except msgspec.DecodeError:
        return {}
