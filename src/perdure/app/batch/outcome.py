"""How a run went that was carried out in front of somebody."""

from msgspec import Struct

from perdure.engine.batch.feeding import Fed
from perdure.model.errors import PerdureError
from perdure.model.runs import RunView
from perdure.model.views import DeadGroup


class RunOutcome(Struct, frozen=True):
    """How it went. ``error`` is why we stopped before the end, unless somebody asked us to.

    ``refused`` says that the run was over its budget already, so that nothing was done. ``most`` is the largest group of
    what has failed, and ``most_key`` the key of its example. ``revived`` had failed before and were tried again.
    ``restarts`` is how often a process of the worker has died, and another was started.
    """

    run: RunView
    fed: Fed
    elapsed_s: float
    interrupted: bool = False
    refused: str = ""
    error: PerdureError | None = None
    results: int = 0
    failures: int = 0
    known_before: int = 0
    most: DeadGroup | None = None
    most_key: str | None = None
    revived: int = 0
    restarts: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no item came in before we had to stop: then the files of earlier runs are left as they are."""
        return self.error is not None and self.run.counts.total == 0


class LeftAtOnce(Exception):
    """We were told twice to stop. The run goes on with the next call; its results are not written."""

    def __init__(self, outcome: RunOutcome) -> None:
        self.outcome = outcome
        super().__init__(f"run {outcome.run.name!r} was left as it is")
