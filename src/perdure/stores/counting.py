"""What a batch of records changes in the counts of runs."""

from collections.abc import Iterable, Sequence

from perdure.model.decisions import Counted
from perdure.model.jobs import Record
from perdure.model.states import State

# total, succeeded, failed, cancelled, attempts, retries
_PLACE = {State.SUCCEEDED: 1, State.FAILED: 2, State.CANCELLED: 3}


class Tally:
    """Changes of counts by run, to be added to the row of one writer."""

    def __init__(self) -> None:
        self._by_run: dict[int, list[int]] = {}

    def settled(self, record: Record, runs: Iterable[int | None]) -> None:
        """An attempt ended, or a wait was cancelled."""
        for run in runs:
            if run is None:
                continue
            counts = self._of(run)
            place = _PLACE.get(record.state)
            if place is not None:
                counts[place] += 1
            if record.attempt is not None:
                counts[4] += 1
                counts[5] += record.attempt.counted == Counted.FAILURES and place is None

    def came_in(self, run: int | None, count: int = 1) -> None:
        """Jobs were enqueued into a run, or driven again in one."""
        if run is not None:
            self._of(run)[0] += count

    def came_back(self, run: int | None) -> None:
        """A failed job of a run has a new life."""
        if run is not None:
            self._of(run)[2] -= 1

    def rows(self, writer: int) -> Sequence[tuple[int, ...]]:
        """As the table of counts takes them."""
        return [(run, writer, *counts) for run, counts in sorted(self._by_run.items())]

    def _of(self, run: int) -> list[int]:
        return self._by_run.setdefault(run, [0] * 6)
