"""Taking our slices of upstreams' stated limits, renewing them, and giving them back. See `rules/slices.py`."""

from collections.abc import Mapping
from datetime import datetime
from math import inf

import msgspec

from perdure.engine.passage import Passage
from perdure.model.gates import Slices
from perdure.model.jobs import ClaimOrder
from perdure.ports import Clock, Store
from perdure.rules.slices import RENEW_S, Slice, taken

_SOON_S = 1.0  # between two takings while our slices are what keeps calls from starting
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(dict[int, Slice])


class Slicing:
    """The slices of one worker."""

    def __init__(self, store: Store, worker: int, clock: Clock) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._taken_s = -inf

    def once(
        self,
        passages: Mapping[str, Passage],
        behind: Mapping[str, tuple[int, ...]],
        now: datetime,
        *,
        isolation: int = 0,
    ) -> bool:
        """Renew what is to be renewed; False when somebody was quicker, and all must be read anew."""
        bound = any(passage.bound for passage in passages.values())
        if self._clock.monotonic() - self._taken_s < (_SOON_S if bound else RENEW_S):
            return True
        self._taken_s = self._clock.monotonic()
        answers = [
            self._take(
                name, passage, ClaimOrder(self._worker, 1, behind.get(name, ()), isolation), now
            )
            for name, passage in passages.items()
            if passage.upstream.limits.any
        ]
        if not all(answers):
            self._taken_s = -inf
        return all(answers)

    def leave(self, passages: Mapping[str, Passage]) -> None:
        """Give back what we have, where nothing of ours is in flight."""
        for name, passage in passages.items():
            if self._worker in passage.slices and not passage.out:
                self._put(name, passage, _without(passage.slices, self._worker))

    def _take(self, name: str, passage: Passage, order: ClaimOrder, now: datetime) -> bool:
        wish = passage.wish(ready=bool(order.lanes) and self._store.waiting(order) == 0.0)
        concurrency = passage.upstream.limits.concurrency
        parts = taken(
            passage.slices, self._worker, wish,
            concurrency=concurrency, now=now, in_flight=passage.out + passage.promised,
        )  # fmt: skip
        return self._put(name, passage, parts)

    def _put(self, name: str, passage: Passage, parts: dict[int, Slice]) -> bool:
        value = Slices(name, passage.slices_generation, _encode(parts).decode())
        before, passage.slices = passage.slices, _without(passage.slices, self._worker)
        if not self._store.change_slices(value):  # if that fails, we have none until we have looked
            passage.slices = before
            return False
        passage.slices, passage.slices_generation = parts, value.generation + 1
        return True


def _without(slices: Mapping[int, Slice], worker: int) -> dict[int, Slice]:
    return {no: one for no, one in slices.items() if no != worker}


def slices_in(slices_json: str) -> dict[int, Slice]:
    """The slices as they were written; none where they are of another version: who renews writes them anew."""
    try:
        return _decoder.decode(slices_json)
    except msgspec.DecodeError:
        return {}
