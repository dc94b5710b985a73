"""Which jobs may be let go: those that ended longer ago than their kind is kept, and that no run needs any more."""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from perdure.model.operations import Retention
from perdure.model.states import State
from perdure.stores.moments import seconds_us
from perdure.stores.rows import Row


class Aged(Struct, frozen=True):
    """One look at jobs in the order of their numbers: rows of those that may go, and where to go on."""

    rows: list[Row]
    go_on_after: int | None


class Ends(Struct, frozen=True):
    """The moments before which a job must have ended, in microseconds; None keeps its kind for ever.

    A discarded dead letter is kept from the moment of the discard on, so that a mistake can be undone.
    """

    succeeded: int | None
    cancelled: int | None
    discarded: int | None
    failed: int | None

    @classmethod
    def of(cls, retention: Retention, now: int) -> Self:
        """The ends that a retention means at this moment."""
        lengths = (
            retention.succeeded_s,
            retention.cancelled_s,
            retention.discarded_s,
            retention.failed_s,
        )
        return cls(*(None if one is None else now - seconds_us(one) for one in lengths))

    @property
    def youngest(self) -> int | None:
        """A job that came in at this moment or later cannot have ended before any of the ends."""
        given = (self.succeeded, self.cancelled, self.discarded, self.failed)
        return max((one for one in given if one is not None), default=None)

    def choose_aged(self, rows: Sequence[Row], limit: int) -> Aged:
        """Choose from up to ``limit`` rows of `prune_look.sql`."""
        youngest = self.youngest
        if youngest is None or not rows:
            return Aged([], None)
        chosen = [row for row in rows if row[4] < youngest and self._over(row)]
        # The last one, not the first: a single job may have come in while the clock was wrong.
        is_last = len(rows) < limit or rows[-1][4] >= youngest
        return Aged(chosen, None if is_last else rows[-1][0])

    def _over(self, row: Row) -> bool:
        _, _, _, state, _, finished_at, discarded_at, needed = row
        if needed:
            return False
        if state == State.FAILED and discarded_at is not None:
            return self.discarded is not None and discarded_at < self.discarded
        end = {
            State.SUCCEEDED: self.succeeded,
            State.CANCELLED: self.cancelled,
            State.FAILED: self.failed,
        }.get(state)
        return end is not None and finished_at is not None and finished_at < end
