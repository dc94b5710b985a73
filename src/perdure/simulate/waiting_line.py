"""The line of waiting jobs: ready ones by rank, delayed ones by due time, fair between owners if asked.

In a fair line a job's rank is a virtual time of its owner: one step after the owner's last job, but not
before the rank that was claimed last. It is computed once, at arrival, and kept through retries.
Otherwise the rank is the order of arrival.
"""

from heapq import heapify, heappop, heappush, nsmallest

from perdure.model.jobs import ZERO, Counters


class Job:
    """One job and what has happened to it."""

    __slots__ = (
        "arrived_s",
        "counters",
        "failing_since_s",
        "no",
        "owner",
        "rank",
        "started_s",
        "told_s",
    )

    def __init__(self, no: int, owner: str, rank: float, arrived_s: float) -> None:
        self.no, self.owner, self.rank, self.arrived_s = no, owner, rank, arrived_s
        self.counters: Counters = ZERO
        self.started_s: float | None = None
        self.failing_since_s: float | None = None
        self.told_s = 0.0

    @property
    def tries(self) -> int:
        """How often it was started and came back, whatever that counted as."""
        seen = self.counters
        return seen.failures + seen.waits + seen.snoozes + seen.probes


class WaitingLine:
    """Jobs that wait."""

    def __init__(self, *, fair: bool) -> None:
        self._fair = fair
        self._ready: list[tuple[float, int, Job]] = []
        self._due: list[tuple[float, int, Job]] = []
        self._virtual = 0.0
        self._last: dict[str, float] = {}
        self._jobs = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self._due)

    def arrive(self, owner: str, now_s: float) -> None:
        """A new job."""
        rank = float(self._jobs)
        if self._fair:
            rank = max(self._virtual, self._last.get(owner, -1.0) + 1.0)
            self._last[owner] = rank
        job = Job(self._jobs, owner, rank, now_s)
        self._jobs += 1
        heappush(self._ready, (rank, job.no, job))

    def put(self, job: Job, due_s: float) -> None:
        """A job comes back, due then."""
        heappush(self._due, (due_s, job.no, job))

    def count_ready(self, now_s: float) -> int:
        """How many can be claimed now."""
        due = self._due
        while due and due[0][0] <= now_s:
            job = heappop(due)[2]
            heappush(self._ready, (job.rank, job.no, job))
        return len(self._ready)

    def take_expired(self, arrived_s: float) -> list[Job]:
        """Take out the jobs that arrived by then."""
        gone = [entry[2] for entry in (*self._ready, *self._due) if entry[2].arrived_s <= arrived_s]
        if gone:
            for entries in (self._ready, self._due):
                entries[:] = [entry for entry in entries if entry[2].arrived_s > arrived_s]
                heapify(entries)
        return gone

    def next_due_s(self) -> float | None:
        """When the next delayed job is ready."""
        return self._due[0][0] if self._due else None

    def claim(self) -> Job:
        """The first in order."""
        rank, _, job = heappop(self._ready)
        self._virtual = max(self._virtual, rank)
        return job

    def claim_probe(self) -> Job:
        """The least tried of the first 100: after a probe that said nothing another job goes."""
        first = nsmallest(100, self._ready)
        entry = min(first, key=lambda one: (one[2].tries, one[0], one[1]))
        self._ready.remove(entry)
        self._ready.sort()
        return entry[2]
