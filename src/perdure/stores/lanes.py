"""The lanes that are known to exist: what a foreign key would look up for every row, looked up once."""

from collections.abc import Callable, Iterable, Sequence

from perdure.model.errors import StoreError
from perdure.model.jobs import NewJob


class KnownLanes:
    """Numbers of lanes; they are never taken back, so a number once seen stays good."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def learn(self, numbers: Iterable[int]) -> None:
        """These exist."""
        self._numbers.update(numbers)

    def check(self, jobs: Sequence[NewJob], look: Callable[[], Iterable[int]]) -> None:
        """Refuse jobs for a lane that does not exist: nobody would ever claim them."""
        wanted = {job.lane for job in jobs}
        if not wanted <= self._numbers:
            self._numbers.update(look())
        for lane in wanted - self._numbers:
            raise StoreError(
                f"lane {lane} does not exist in this store; was the store replaced since the app "
                "was started? start it again"
            )
