"""The rank of a job in a fair queue: a virtual time of its owner; the same on every store.

The line of a queue *starts* at the lowest rank of what can run now in its open lanes, or at this moment when
nothing can; the line of an owner *ends* at the highest rank of what waits of that owner in the queue. A new
job stands one place behind the later of both. So each owner's jobs are as far apart as everybody else's,
however many there are: they take turns. Who was idle begins where the others are, with no credit for it.

No row is locked. What two reckon at once may give equal ranks, and then the older job goes first.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lines:
    """The lines as they were before some jobs came, and the ranks given to these."""

    now: int
    queues: Mapping[int, str]
    starts: Mapping[str, int]
    ends: dict[tuple[str, str], int]
    _given: dict[Hashable, int] = field(default_factory=dict)

    def rank(self, job: Hashable, owner: str, lane: int) -> int:
        """A job's place: behind those of its owner that were given one before."""
        if job not in self._given:
            queue = self.queues.get(lane, "")
            start = self.starts.get(queue, self.now)
            rank_at = max(start, self.ends.get((owner, queue), start)) + 1
            self._given[job] = self.ends[owner, queue] = rank_at
        return self._given[job]
