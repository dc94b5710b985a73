"""The lanes that are known to exist: what a foreign key would look up for every row, looked up once."""

from collections.abc import Callable, Mapping, Sequence

from perdure.model.errors import StoreError
from perdure.model.jobs import Lane, NewJob


class KnownLanes:
    """Numbers of lanes; they are never taken back, so a number once seen stays good.

    Runs come and go, in a process that starts them by the thousand: of their lanes only those that were looked up last
    are remembered.
    """

    def __init__(self) -> None:
        self._numbers: set[int] = set()  # outside of runs
        self._of_runs: set[int] = set()

    def learn(self, found: Mapping[Lane, int]) -> None:
        """These exist."""
        self._numbers.update(no for lane, no in found.items() if lane.run is None)

    def check(self, jobs: Sequence[NewJob], look: Callable[[set[int]], set[int]]) -> None:
        """Refuse jobs for a lane that does not exist: nobody would ever claim them."""
        plain = {job.lane for job in jobs if job.run is None}
        if not plain <= self._numbers:
            self._numbers |= look(plain)
        of_runs = {job.lane for job in jobs if job.run is not None}
        known_of_runs = self._of_runs  # another thread may put others in its place meanwhile
        if not of_runs <= known_of_runs:
            self._of_runs = known_of_runs = look(of_runs)
        for lane in (plain - self._numbers) | (of_runs - known_of_runs):
            raise StoreError(
                f"lane {lane} does not exist in this store; was the store replaced since the app "
                "was started? start it again"
            )
