"""What a claim asks, and how far down a lane's heads it has to look.

Under an old snapshot (a long report, a forgotten transaction) the entries of claimed jobs stay in the index
of ready ones, dead, at the very place where each claim begins to read. When claims have become slow, we
remember for each lane the rank that we last took, and begin there: the *floor*. A floor is only a guess
about what others do, so it is dropped whenever a claim comes back short, and after a while that grows with
what a claim without it costs. Until then a job that somebody else made ready below the floor waits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.stores.rows import Row, claim_out

BOTTOM = -(2**63)
_KEEP_S = 0.25  # how long a floor may hide a job that became ready below it
_SHARE = 10  # a claim without floors may take a tenth of the time
_SLOW_S = 0.010  # a turn is slow when it takes longer than this
_SLOW_JOB_S = 0.0001  # and longer than this for each of its jobs; two to four times the usual


@dataclass(slots=True)
class Floors:
    """The ranks from which claims begin to read, by lane and isolation."""

    monotonic: Callable[[], float]
    _ranks: dict[tuple[int, int], int] = field(default_factory=dict)
    _forget_at: float = 0.0
    _asked_at: float = 0.0

    def of(self, order: ClaimOrder) -> list[int]:
        """The floors of an order's lanes; dropped when their time is over."""
        self._asked_at = self.monotonic()
        if self._ranks and self._asked_at >= self._forget_at:
            self._ranks.clear()
        return [self._ranks.get((lane, order.isolation), BOTTOM) for lane in order.lanes]

    @property
    def any(self) -> bool:
        """Whether the last order was asked with floors."""
        return bool(self._ranks)

    def learn(self, order: ClaimOrder, taken: Sequence[Row], *, short: bool) -> None:
        """Remember how far a slow claim has come; nothing, when it came back short."""
        if short:
            self._ranks.clear()
            return
        if not self._ranks:  # this claim had no floors: what it cost says whether to have any
            now = self.monotonic()
            took_s = now - self._asked_at
            if took_s < max(_SLOW_S, _SLOW_JOB_S * len(taken)):
                return
            self._forget_at = now + max(_KEEP_S, _SHARE * took_s)
        for row in taken:
            place = (row[3], order.isolation)
            self._ranks[place] = max(self._ranks.get(place, BOTTOM), row[25])

    def lower(self, rank_at: int | None) -> None:
        """Jobs have become ready again from this rank on."""
        if rank_at is not None:
            for place, floor in self._ranks.items():
                self._ranks[place] = min(floor, rank_at)


def promote_parameters(order: ClaimOrder, now: int | None) -> dict[str, object]:
    """What `promote.sql` binds."""
    return {
        "lanes": array(order.lanes), "isolation": order.isolation, "limit": PROMOTE_BATCH_MAX,
        "worker": order.worker, "now": now,
    }  # fmt: skip


def claim_parameters(
    order: ClaimOrder, floors: Iterable[int], now: int | None
) -> dict[str, object]:
    """What `claim.sql` binds."""
    return {
        "lanes": array(order.lanes), "floors": array(floors), "isolation": order.isolation,
        "slots": min(order.slots, CLAIM_BATCH_MAX), "worker": order.worker, "now": now,
    }  # fmt: skip


def array(numbers: Iterable[int]) -> str:
    """An array of numbers as the server reads it; a thousand of them bound as a list cost a millisecond."""
    return f"{{{','.join(map(str, numbers))}}}"


def claims_in(rows: Iterable[Row]) -> list[Claim]:
    """The claims of an answer, in the order of claiming."""
    return [claim_out(row) for row in sorted(rows, key=_rank)]


def _rank(row: Row) -> tuple[int, int]:
    return row[25], row[0]
