"""The rank of a job in a fair queue, in the reference model."""

from collections.abc import Hashable
from datetime import datetime, timedelta

from perdure.model.states import State
from tests.stores.reference.tables import Tables


class Lines:
    """What waited in fair queues when some jobs came, and the ranks given to these."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self._tables = tables
        self._now = now
        self._waiting = [
            job for job in tables.jobs.values() if job.fair and job.state is State.QUEUED
        ]
        self._given: dict[Hashable, datetime] = {}
        self._ends: dict[tuple[str, str], datetime] = {}

    def rank(self, job: Hashable, owner: str, lane: int) -> datetime:
        """One behind the later of where the queue starts and where the owner's own line ends."""
        if job in self._given:
            return self._given[job]
        queue = self._queue(lane)
        start = self._start(queue)
        last = self._ends.get((owner, queue)) or self._end(owner, queue) or start
        rank_at = max(start, last) + timedelta(microseconds=1)
        self._given[job] = self._ends[owner, queue] = rank_at
        return rank_at

    def _start(self, queue: str) -> datetime:
        can_run = [
            job.rank_at
            for job in self._waiting
            if job.ready and self._queue(job.lane) == queue and self._tables.is_open(job.lane)
        ]
        return min(can_run, default=self._now)

    def _end(self, owner: str, queue: str) -> datetime | None:
        own = [
            job.rank_at
            for job in self._waiting
            if job.owner == owner and self._queue(job.lane) == queue
        ]
        return max(own, default=None)

    def _queue(self, lane: int) -> str:
        found = self._tables.lanes.get(lane)
        return "" if found is None else found.queue
