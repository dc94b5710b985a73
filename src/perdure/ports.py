"""What the engine needs of the world.

The store port is synchronous and speaks the domain. Every method is one transaction, every moment
in it is by the store's own clock, and each raises only errors of `model.errors.StoreError`. After
``StoreUnavailable`` the caller does not know whether the write took place: it sends the same call
again, and the store answers as if it had been the first time.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.events import Event
from perdure.model.filters import EVERY_JOB, JobFilter
from perdure.model.gates import GateChange, GateLook, GateRow, Probe, Slices
from perdure.model.jobs import (
    Claim,
    ClaimOrder,
    Enqueued,
    Expired,
    Lane,
    LostClaim,
    NewJob,
    OnLost,
    Overrun,
    Record,
    Settled,
    Turn,
)
from perdure.model.limits import COUNT_MAX
from perdure.model.operations import (
    BulkStep,
    BulkView,
    Deed,
    LanePause,
    LaneScope,
    LoggedDeed,
    NewBulk,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    ScheduleView,
    Target,
    Tick,
)
from perdure.model.outcomes import Death
from perdure.model.runs import NewRun, RunStatus, RunView
from perdure.model.views import (
    AttemptView,
    Books,
    Depths,
    FailureGroup,
    Finding,
    JobView,
    LaneView,
    Preview,
    SchemaStatus,
)
from perdure.model.workers import NewWorker, WorkerView


class Clock(Protocol):
    """Time: wall for people and for stores that have no clock of their own, monotonic for waits."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...


class Observer(Protocol):
    """Somebody to be told what has become durable."""

    def __call__(self, event: Event) -> None:
        """Take note; may not hurt the walk."""
        ...


class Store(Protocol):
    """Guarded writes."""

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        ...

    def enqueue(self, jobs: Sequence[NewJob], *, within: object = None) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job.

        ``within`` is a connection of the caller's own to the same database: the jobs are then part
        of its transaction, and come and go with it.
        """
        ...

    def begin(
        self, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> Claim | Enqueued:
        """Accept a job that its caller, a worker of its own, runs at once; after ``hard_s`` it is overrun.

        The answer is the job that had the key before, if there is one; or the job itself, queued,
        where its lane is closed. The limit and the wish for when the caller is lost stay with the
        job for as long as the caller holds it, through its re-claims.
        """
        ...

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim from those of the lanes that are open.

        One transaction. A record that asks for a re-claim in a closed lane is queued instead.
        ``by`` is the writing worker; `WorkerDead` when it has been declared dead, and then nothing
        is written. None is a person or a caller, who holds no lease.
        """
        ...

    def probe(self, order: ClaimOrder, change: GateChange, deed: Deed) -> Probe | None:
        """Change a gate where its generation is as seen, and claim one job from behind it, in one transaction.

        The job is the least-probed of the first hundred that could run now in those of the order's lanes that
        only this gate closes, as their upstream's or as their credential's. None, and nothing is changed, when
        the gate has moved on or no such job waits. `WorkerDead` as in `turn`.
        """
        ...

    def look_at_gates(
        self, names: Sequence[str], *, worker: int, samples: Mapping[str, str]
    ) -> GateLook:
        """Keep this worker's samples, by gate, and read all there is about these gates and their parents.

        A dead worker's samples are not kept. Without samples nothing is written, and no writer waited for.
        """
        ...

    def change_slices(self, slices: Slices) -> bool:
        """Part an upstream's limits anew where the generation is as seen; False when it has moved on."""
        ...

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits. Reads only."""
        ...

    def changed(self) -> bool:
        """Whether somebody else may have written since the last call; cheap, and only a hint."""
        ...

    def ear(self) -> int | None:
        """A descriptor that is readable when `changed` may be true; None where only asking helps."""
        ...

    def add_worker(self, worker: NewWorker) -> int:
        """Register a working process that is about to start."""
        ...

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """Renew the leases of these workers; the answer names those accepted."""
        ...

    def end_worker(self, worker: int, death: Death) -> bool:
        """Its own supervisor says that this worker has ended; False when that was known."""
        ...

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """Declare dead every worker whose lease has run out, if ``by`` is in a position to say so."""
        ...

    def lost(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        ...

    def expired(self, *, limit: int) -> list[Expired]:
        """Waiting jobs whose deadline has passed, in closed lanes too."""
        ...

    def overrun(self, limits_s: Mapping[int, float], *, limit: int) -> list[Overrun]:
        """Claims of these lanes that are held for longer than their lane's limit, or than their own."""
        ...

    def held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that the store says this worker holds."""
        ...

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that the store says this worker holds, whole."""
        ...

    def suspects(self, lanes: Sequence[int] | None = None) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait to be run in open lanes; of these, if given.

        A lane that only a gate closes whose time is over is as good as open: a suspect may have to be its probe.
        """
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Control(Protocol):
    """What operators and the upkeep do: guarded, and written down with who did it and why."""

    def revive(self, chosen: Sequence[Revival], deed: Deed) -> list[Settled]:
        """Give failed jobs a new life; one that is not failed, or has moved on, is stale."""
        ...

    def discard(self, chosen: Sequence[Target], deed: Deed) -> list[Settled]:
        """Mark dead letters as dealt with; they stay failed and in the books."""
        ...

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        ...

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        ...

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        ...

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""
        ...

    def change_run(
        self, no: int, *, seen: RunStatus, status: RunStatus, deed: Deed
    ) -> RunView | None:
        """Give a run another status, if it still has the one that was seen."""
        ...

    def put_schedule(self, schedule: NewSchedule) -> None:
        """Make a schedule; one of that name and rule keeps its next moment."""
        ...

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there was none."""
        ...

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""
        ...

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """Take or keep a duty that one living worker at a time has, until its time runs out.

        It is written only when it is free, or ours and less than half of ``ttl_s`` is left.
        """
        ...

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """Look at up to ``limit`` jobs above a number and let go what may go; the books keep count."""
        ...

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget up to ``limit`` workers that ended longer ago and whose jobs are all settled; how many.

        Attempts keep the numbers of their workers, which are never given again.
        """
        ...

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""
        ...

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""
        ...


class Reader(Protocol):
    """Plain reads for screens and reports."""

    def job(self, id: str) -> JobView | None:
        """One job."""
        ...

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; ``before`` continues below a job number."""
        ...

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        ...

    def depths(self, *, count_max: int = COUNT_MAX) -> Depths:
        """How many jobs stand where, each counted up to a bound."""
        ...

    def lanes(self, *, count_max: int = COUNT_MAX) -> list[LaneView]:
        """All lanes, what closes them, and how many jobs wait in each, counted up to a bound."""
        ...

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        ...

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        ...

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        ...

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        ...

    def pauses(self) -> list[LanePause]:
        """What is paused."""
        ...

    def gates(self) -> list[GateRow]:
        """Every gate that has a row."""
        ...

    def gate(self, name: str) -> GateRow | None:
        """One gate; None when it has no row, and so is flowing."""
        ...

    def run(self, id: str) -> RunView | None:
        """One run, its counters summed."""
        ...

    def runs(
        self, *, pipeline: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[RunView]:
        """Runs, newest first; ``before`` continues below a run number."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        ...

    def bulks(self, *, running: bool = False, limit: int = 50) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        ...

    def deeds(self, *, limit: int = 50, before: int | None = None) -> list[LoggedDeed]:
        """The audit log, newest first; ``before`` continues below a line's number."""
        ...

    def audit(self) -> list[Finding]:
        """Everything in the tables that ought not to be so."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Schema(Protocol):
    """The schema of a store, and how to bring it up to date."""

    def status(self) -> SchemaStatus:
        """Where it stands."""
        ...

    def upgrade(self) -> tuple[str, ...]:
        """Apply what is pending; the names of what was applied."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
