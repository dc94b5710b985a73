"""What a batch of records changes in the counts of runs."""

from collections.abc import Iterable, Sequence

from perdure.model.decisions import Counted
from perdure.model.jobs import Record
from perdure.model.states import State

# total, succeeded, failed, cancelled, attempts, retries, tokens_in, tokens_out, cost_nusd, calls
_COUNTS = 10
_PLACE = {State.SUCCEEDED: 1, State.FAILED: 2, State.CANCELLED: 3}


class Tally:
    """Changes of counts by run, and of failures by run and kind, to be added to the rows of one writer."""

    def __init__(self) -> None:
        self._by_run: dict[int, list[int]] = {}
        self._by_kind: dict[tuple[int, str], int] = {}

    def settled(self, record: Record, runs: Iterable[int | None]) -> None:
        """An attempt ended, or a wait was cancelled."""
        for run in runs:
            if run is None:
                continue
            counts = self._of(run)
            place = _PLACE.get(record.state)
            if place is not None:
                counts[place] += 1
            if record.state is State.FAILED:
                self._failed(run, record.error_kind, 1)
            attempt = record.attempt
            if attempt is not None:
                counts[4] += 1
                counts[5] += attempt.counted == Counted.FAILURES and place is None
                counts[6] += attempt.tokens_in
                counts[7] += attempt.tokens_out
                counts[8] += attempt.cost_nusd
                counts[9] += attempt.called

    def came_in(self, run: int | None, count: int = 1) -> None:
        """Jobs were enqueued into a run, or driven again in one."""
        if run is not None:
            self._of(run)[0] += count

    def came_back(self, run: int | None, kind: str | None) -> None:
        """A job of a run that had failed with that kind has a new life."""
        if run is not None:
            self._of(run)[2] -= 1
            self._failed(run, kind, -1)

    def rows(self, writer: int) -> Sequence[tuple[int, ...]]:
        """As the table of counts takes them."""
        return [(run, writer, *counts) for run, counts in sorted(self._by_run.items())]

    def kind_rows(self, writer: int) -> Sequence[tuple[int, int, str, int]]:
        """As the table of kinds takes them."""
        return [(run, writer, kind, n) for (run, kind), n in sorted(self._by_kind.items()) if n]

    def _failed(self, run: int, kind: str | None, count: int) -> None:
        place = (run, kind or "")
        self._by_kind[place] = self._by_kind.get(place, 0) + count

    def _of(self, run: int) -> list[int]:
        return self._by_run.setdefault(run, [0] * _COUNTS)
