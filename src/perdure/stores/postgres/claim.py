"""What a claim asks, and how far down a lane's heads it has to look.

Under an old snapshot (a long report, a forgotten transaction) the entries of claimed jobs stay in the index
of ready ones, dead, at the very place where each claim begins to read. When claims have become slow, we
remember for each lane the rank that we last took, and begin there: the *floor*. A floor is only a guess
about what others do, so it is dropped whenever a claim comes back short, and after a while that grows with
what a claim without it costs. Until then a job that somebody else made ready below the floor waits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.model.jobs import Claim, ClaimOrder, Part
from perdure.model.limits import PROMOTE_BATCH_MAX
from perdure.stores.columns import CLAIM
from perdure.stores.lane_slots import lanes_of, parts_of, slots_of
from perdure.stores.rows import Row, claim_out, encode

BOTTOM = -(2**63)
_NO, _LANE = CLAIM.places["no"], CLAIM.places["lane"]
_RANK = CLAIM.width + 1  # behind the columns of a claim and its input
_KEEP_S = 0.25  # how long a floor may hide a job that became ready below it
_SHARE = 10  # a claim without floors may take a tenth of the time
_SLOW_S = 0.010  # a turn is slow when it takes longer than this
_SLOW_JOB_S = 0.0001  # and longer than this for each of its jobs; two to four times the usual


@dataclass(slots=True)
class ClaimQuestion:
    """One claim of a turn: some lanes, from which ranks on, and what came of it."""

    part: Part
    floors: list[int]
    rows: list[Row] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many jobs fewer came than were asked for."""
        return self.part.slots - len(self.rows)

    @property
    def short(self) -> bool:
        """Whether fewer came."""
        return self.missing > 0

    @property
    def is_dry(self) -> bool:
        """Whether nothing more is to be had from these lanes now."""
        return self.short and not any(floor > BOTTOM for floor in self.floors)


@dataclass(slots=True)
class Floors:
    """The ranks from which claims begin to read, by lane and isolation."""

    monotonic: Callable[[], float]
    _ranks: dict[tuple[int, int], int] = field(default_factory=dict)
    _forget_at: float = 0.0
    _asked_at: float = 0.0

    def of(self, part: Part, isolation: int) -> list[int]:
        """The floors of these lanes; dropped when their time is over."""
        self._asked_at = self.monotonic()
        if self._ranks and self._asked_at >= self._forget_at:
            self._ranks.clear()
        return [self._ranks.get((lane, isolation), BOTTOM) for lane in part.lanes]

    def learn(self, asked: Sequence[ClaimQuestion], isolation: int) -> None:
        """Remember how far a slow claim has come; nothing, of lanes that fell short."""
        if self._ranks:
            for one in asked:
                for lane in one.part.lanes if one.short else ():
                    self._ranks.pop((lane, isolation), None)
        taken = [row for one in asked if not one.short for row in one.rows]
        if not taken:
            return
        if not self._ranks:  # this claim had no floors: what it cost says whether to have any
            now = self.monotonic()
            took_s = now - self._asked_at
            if took_s < max(_SLOW_S, _SLOW_JOB_S * len(taken)):
                return
            self._forget_at = now + max(_KEEP_S, _SHARE * took_s)
        for row in taken:
            place = (row[_LANE], isolation)
            self._ranks[place] = max(self._ranks.get(place, BOTTOM), row[_RANK])

    def lower(self, rank_at: int | None) -> None:
        """Jobs have become ready again from this rank on."""
        if rank_at is not None:
            for place, floor in self._ranks.items():
                self._ranks[place] = min(floor, rank_at)


def parts_asked(order: ClaimOrder) -> list[Part]:
    """What to claim, one after the other: the parts, then the other lanes with what parts cannot take."""
    parts = parts_of(order) if order.parts else []
    left = slots_of(order) - sum(part.slots for part in parts)
    if order.lanes and left > 0:
        parts.append(Part(order.lanes, left))
    return parts


def order_again(order: ClaimOrder, asked: Sequence[ClaimQuestion]) -> ClaimOrder | None:
    """What to ask for again: jobs that may be below a floor, and jobs of other lanes for slots that parts have left."""
    count = len(parts_of(order))
    parts = tuple(
        Part(one.part.lanes, one.missing) for one in asked[:count] if one.short and not one.is_dry
    )
    lanes = () if any(one.is_dry for one in asked[count:]) else order.lanes
    missing = slots_of(order) - sum(len(one.rows) for one in asked)
    if missing <= 0 or not (parts or lanes):
        return None
    return ClaimOrder(order.worker, missing, lanes, order.isolation, parts)


def promote_parameters(order: ClaimOrder, now: int | None) -> dict[str, object]:
    """What `promote.sql` binds."""
    return {
        "lanes": array(lanes_of(order) if order.parts else order.lanes),
        "isolation": order.isolation,
        "limit": PROMOTE_BATCH_MAX,
        "worker": order.worker,
        "now": now,
    }


def claim_parameters(order: ClaimOrder, asked: ClaimQuestion, now: int | None) -> dict[str, object]:
    """What `claim.sql` binds."""
    return {
        "lanes": array(asked.part.lanes),
        "floors": array(asked.floors),
        "isolation": order.isolation,
        "slots": asked.part.slots,
        "worker": order.worker,
        "now": now,
    }


def array(numbers: Iterable[float]) -> str:
    """An array of numbers as the server reads it; a thousand of them bound as a list cost a millisecond.

    What is no number is null, as in JSON.
    """
    return f"{{{encode(list(numbers))[1:-1]}}}"


def claims_in(rows: Iterable[Row]) -> list[Claim]:
    """The claims of an answer, in the order of claiming."""
    return [claim_out(row) for row in sorted(rows, key=_rank)]


def _rank(row: Row) -> tuple[int, int]:
    return row[_RANK], row[_NO]
