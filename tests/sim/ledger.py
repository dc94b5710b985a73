"""What the history says of each job and worker: a plain account, kept beside the real tables.

Nothing here reads the store. Counts are made from what happened (whose worker was dead, which kind
a failure had), not from what the engine says it counted.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.model.gates import GateState
from perdure.model.jobs import Lane, OnLost, Record
from perdure.model.operations import BulkPhase, BulkStatus, BulkVerb, LaneScope
from perdure.model.outcomes import Death
from perdure.model.runs import RunCounts, RunStatus
from perdure.model.states import TERMINAL, State
from perdure.model.workers import NewWorker
from perdure.rules.gate.gate import Gate
from perdure.rules.gate.limit_slices import Slice


@dataclass(slots=True)
class JobAccount:
    """One job, as its accepted writes have left it."""

    no: int
    id: str
    pipeline: str
    stage: str
    payload_json: str
    due_us: int
    order_us: int = 0  # from when on it stands in line
    told_us: int = 0  # until when its upstream has asked it to wait
    owner: str = ""
    key: str | None = None
    run: int | None = None
    redrive_run: int | None = None
    lane: int = 0
    error_kind: str | None = None
    enqueued_us: int = 0
    life: int = 1
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
    deadline_s: float | None = None
    claimed_us: int = 0
    finished_us: int | None = None
    discarded_us: int | None = None
    discards: int = 0
    pruned: bool = False
    payloads: dict[int, str] = field(default_factory=dict)  # those that were replaced, by life
    again: bool = False  # whether its id belonged to a job that is pruned
    hard_us: int | None = None  # while a caller holds it
    on_lost: OnLost | None = None

    @property
    def terminal(self) -> bool:
        """Whether its life is over."""
        return self.state in TERMINAL

    def count(self, what: str, stage: str) -> None:
        """One more of these in that stage."""
        self.counts.setdefault(stage, Counter())[what] += 1

    def revive(self, stage: str, input_json: str, now_us: int) -> None:
        """A new life: counters from zero, as long until its deadline as at first."""
        self.state, self.life, self.token = State.QUEUED, self.life + 1, self.token + 1
        self.stage, self.input_json, self.isolation = stage, input_json, 0
        self.due_us, self.finished_us, self.discarded_us = now_us, None, None
        self.order_us, self.told_us = now_us, 0
        self.error_kind = None
        self.counts.clear()
        if self.deadline_s is not None:
            self.deadline_us = now_us + round(self.deadline_s * 1e6)

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
    gone_us: int | None = None  # when its process really ended
    known_us: int | None = None  # when the store was told, or found out

    def die(self, death: Death, now_us: int) -> None:
        """It is known to be dead from now on."""
        self.death, self.known_us = death, now_us
        self.died_holding = len(self.held)

    @property
    def ttl_us(self) -> int:
        """Its lease."""
        return round(self.registered.ttl_s * 1_000_000)


@dataclass(slots=True)
class ScheduleAccount:
    """One schedule's row."""

    name: str
    pipeline: str
    spec: str
    payload_json: str
    next_at: datetime
    ticked_us: int = 0


@dataclass(slots=True)
class Duty:
    """Who has a duty, and until when."""

    worker: int
    until_us: int


@dataclass(slots=True)
class GateAccount:
    """One gate, as its accepted changes have left it; times by the store's clock."""

    row: Gate
    parent: str | None = None
    told_us: int = 0  # until when the upstream wants no call; a person may forget it
    heard_us: int = 0  # the latest such moment that was ever written
    spoken_us: int = -1  # when a person has last released or hurried it
    closed_us: int = 0  # since when it has not been flowing
    leased_us: int = 0
    probe: tuple[str, int] | None = None  # the job and the token that are out as its probe
    passes: int = 0  # probes that were really answered, in a row
    undecided: int = 0  # probes that really said nothing, in a row
    not_bad: int = 0  # probes that did not really fail, in a row, and did not let it flow
    keyed: bool = False  # whether a credential is what it is held for

    @property
    def flowing(self) -> bool:
        """Whether calls pass."""
        return self.row.state is GateState.FLOWING


@dataclass(slots=True)
class RunAccount:
    """One run: which jobs are in it, and what their attempts have used up while they were."""

    no: int
    id: str
    owner: str
    pipeline: str
    name: str
    settings_json: str
    parent: int | None = None
    status: RunStatus = RunStatus.RUNNING
    sealed: bool = False
    ended: bool = False
    checked: int = 0
    # Its jobs; one that another run has taken over stays as it was then: state and kind.
    members: dict[int, tuple[State, str] | None] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    fed: set[str] = field(default_factory=set)  # the payloads that ever came in
    overspent_looks: int = 0  # since the faults are over
    fed_by: str | None = None
    is_fed: bool = False

    def ends(self, jobs: dict[int, JobAccount]) -> list[tuple[State, str]]:
        """What its jobs are, and of what kind their failures were."""
        return [
            (jobs[no].state, jobs[no].error_kind or "") if kept is None else kept
            for no, kept in self.members.items()
        ]

    def counts(self, jobs: dict[int, JobAccount]) -> RunCounts:
        """Counted anew over all of its jobs."""
        states = Counter(state for state, _ in self.ends(jobs))
        return RunCounts(
            len(self.members),
            states[State.SUCCEEDED],
            states[State.FAILED],
            states[State.CANCELLED],
            **{what: self.spent[what] for what in SPENT},
        )

    def kinds(self, jobs: dict[int, JobAccount]) -> Counter[str]:
        """Its failed jobs by kind."""
        return Counter(kind for state, kind in self.ends(jobs) if state is State.FAILED)


SPENT = ("attempts", "retries", "tokens_in", "tokens_out", "cost_nusd", "calls")


@dataclass(slots=True)
class BulkAccount:
    """One bulk operation: the jobs that were there when it began, and what it did to each."""

    no: int
    id: str
    verb: BulkVerb
    run: int | None
    phase: BulkPhase
    meant: dict[int, int]  # job numbers, and the tokens that they had
    open: dict[int, int]  # those of them that had not ended, and the lives that they were in
    settings: dict[str, Any]
    resumed_us: int = 0
    resumed_done: int = 0
    status: BulkStatus = BulkStatus.RUNNING
    cursor: int | None = None
    done: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Ledger:
    """All accounts."""

    jobs: dict[int, JobAccount] = field(default_factory=dict)
    by_id: dict[str, JobAccount] = field(default_factory=dict)
    by_key: dict[tuple[str, str, int | None, str], str] = field(default_factory=dict)
    workers: dict[int, WorkerAccount] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)  # jobs and tokens that were run
    used: dict[tuple[str, int], list[Counter[str]]] = field(default_factory=dict)  # what they said
    runs: dict[int, RunAccount] = field(default_factory=dict)
    bulks: dict[int, BulkAccount] = field(default_factory=dict)
    lanes: dict[int, Lane] = field(default_factory=dict)
    schedules: dict[str, ScheduleAccount] = field(default_factory=dict)
    moments: dict[tuple[str, datetime], str] = field(default_factory=dict)  # and their jobs
    duties: dict[str, Duty] = field(default_factory=dict)
    paused: set[tuple[LaneScope, str]] = field(default_factory=set)
    gates: dict[str, GateAccount] = field(default_factory=dict)
    slices: dict[str, tuple[int, dict[int, Slice]]] = field(default_factory=dict)

    def gate(self, name: str) -> GateAccount:
        """A gate; one that has no row is flowing."""
        return self.gates.setdefault(name, GateAccount(Gate(name)))

    def add(self, job: JobAccount) -> None:
        """A job was accepted."""
        self.jobs[job.no] = job
        self.by_id[job.id] = job
        if job.key is not None:
            self.by_key[job.owner, job.pipeline, job.run, job.key] = job.id

    def forget(self, job: JobAccount) -> None:
        """A job was let go: its key is free again."""
        job.pruned = True
        if job.key is not None:
            del self.by_key[job.owner, job.pipeline, job.run, job.key]

    def rivals(self, job: JobAccount) -> list[JobAccount]:
        """Others of the same owner, pipeline and key that live, in whatever run."""
        if job.key is None:
            return []
        place = (job.owner, job.pipeline, job.key)
        return [
            one
            for one in self.open
            if one is not job and (one.owner, one.pipeline, one.key) == place
        ]

    def driven(self, job: JobAccount, run: int | None) -> list[JobAccount]:
        """Others of the same owner, pipeline and key that this run has driven again, and no other since."""
        if job.key is None or run is None:
            return []
        place = (job.owner, job.pipeline, job.key, run)
        return [
            one
            for one in self.jobs.values()
            if one is not job
            and not one.pruned
            and (one.owner, one.pipeline, one.key, one.redrive_run) == place
        ]

    def runs_of(self, job: JobAccount) -> list[RunAccount]:
        """The runs in which a job counts."""
        return [self.runs[no] for no in (job.run, job.redrive_run) if no is not None]

    @property
    def open(self) -> list[JobAccount]:
        """Jobs whose life is not over."""
        return [job for job in self.jobs.values() if not job.terminal]
