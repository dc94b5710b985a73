"""What the history says of each job and worker: a plain account, kept beside the real tables.

Nothing here reads the store. Counts are made from what happened (whose worker was dead, which kind
a failure had), not from what the engine says it counted.
"""

from collections import Counter
from dataclasses import dataclass, field

from perdure.model.jobs import Record
from perdure.model.outcomes import Death
from perdure.model.states import TERMINAL, State
from perdure.model.workers import NewWorker


@dataclass(slots=True)
class JobAccount:
    """One job, as its accepted writes have left it."""

    no: int
    id: str
    pipeline: str
    stage: str
    payload_json: str
    due_us: int
    state: State = State.QUEUED
    token: int = 0
    isolation: int = 0
    holder: int | None = None
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # by stage
    done: dict[str, str] = field(default_factory=dict)  # results of committed stages
    settled: dict[int, Record] = field(default_factory=dict)  # by the token they carried
    input_json: str = ""
    result_json: str | None = None
    deadline_us: int | None = None
    claimed_us: int = 0

    @property
    def terminal(self) -> bool:
        """Whether its life is over."""
        return self.state in TERMINAL

    def count(self, what: str, stage: str) -> None:
        """One more of these in that stage."""
        self.counts.setdefault(stage, Counter())[what] += 1

    def counted(self, what: str, stage: str | None = None) -> int:
        """How many in one stage, or in all."""
        if stage is None:
            return sum(counts[what] for counts in self.counts.values())
        return self.counts.get(stage, Counter())[what]


@dataclass(slots=True)
class WorkerAccount:
    """One worker's row."""

    no: int
    registered: NewWorker
    concurrency: int
    beat_us: int
    death: Death | None = None
    excused: bool = True  # whether there is a reason for which its next beat may be late
    held: dict[int, int] = field(default_factory=dict)  # job numbers and tokens
    died_holding: int = 0

    def die(self, death: Death) -> None:
        """It is known to be dead from now on."""
        self.death = death
        self.died_holding = len(self.held)

    @property
    def ttl_us(self) -> int:
        """Its lease."""
        return round(self.registered.ttl_s * 1_000_000)


@dataclass(slots=True)
class Ledger:
    """All accounts."""

    jobs: dict[int, JobAccount] = field(default_factory=dict)
    by_id: dict[str, JobAccount] = field(default_factory=dict)
    by_key: dict[tuple[str, str, str], str] = field(default_factory=dict)
    workers: dict[int, WorkerAccount] = field(default_factory=dict)
    runs: dict[tuple[str, int], int] = field(default_factory=dict)  # (job, token) → worker

    def add(self, job: JobAccount) -> None:
        """A job was accepted."""
        self.jobs[job.no] = job
        self.by_id[job.id] = job

    @property
    def open(self) -> list[JobAccount]:
        """Jobs whose life is not over."""
        return [job for job in self.jobs.values() if not job.terminal]
