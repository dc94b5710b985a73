"""Fail waiting jobs whose deadline has passed, wherever they wait.

A deadline is the caller's, and absolute: a job in a paused queue or of a held upstream expires, and so does
one of a stage that nobody here knows, since nothing of the stage is needed to say so. A job that is claimed
between the look and the write shows another token and is left to the worker that has it.
"""

from perdure.engine.observe import Observers
from perdure.engine.record import expiry_record
from perdure.engine.upkeep.chore import Swept, write
from perdure.model.limits import EXPIRED_BATCH_MAX
from perdure.ports import Store


class ExpiredJobs:
    """Ends what has waited too long."""

    name = "expiries"

    def __init__(self, store: Store, worker: int, *, observers: Observers) -> None:
        self._store = store
        self._worker = worker
        self._observers = observers

    def once(self) -> Swept:
        """Fail a batch of jobs, those that have been over for longest first."""
        found = self._store.expired_jobs(limit=EXPIRED_BATCH_MAX)
        records = [expiry_record(job) for job in found]
        moved = write(self._store, records, by=self._worker, observers=self._observers)
        return Swept(moved, more=moved > 0 and len(found) == EXPIRED_BATCH_MAX)
