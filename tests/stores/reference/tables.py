"""What the reference model keeps: plain dicts, one lock, one clock, and how lanes are closed."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from perdure.model.access import AccessToken
from perdure.model.changes import Change, ChangeKind
from perdure.model.gates import GateRow, GateState, Samples, Slices
from perdure.model.jobs import Attempt, Claim, Lane
from perdure.model.limits import AGEING_S
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkView,
    Deed,
    LanePause,
    LaneScope,
    LoggedDeed,
    ScheduleView,
)
from perdure.model.runs import FINISHED, RunStatus, RunView
from perdure.model.states import State
from perdure.ports import Clock
from tests.stores.reference.rows import AttemptRow, CaptureRow, JobRow, Letter, WorkerRow

_TABLES = (
    "lanes", "workers", "jobs", "attempts", "checkpoints", "accepted", "pruned", "runs", "gates",
    "samples", "slices", "pauses", "schedules", "access_tokens", "owner_rates", "duties", "deeds", "bulks",
    "artifacts", "refusals", "redrives", "flows", "died", "changes", "payloads", "bulk_payloads",
)  # fmt: skip


class Tables:
    """Everything, in memory. Every operation holds the lock from its first read to its last write."""

    def __init__(self, clock: Clock) -> None:
        self.lanes: dict[int, Lane] = {}
        self.workers: dict[int, WorkerRow] = {}
        self.jobs: dict[int, JobRow] = {}
        self.attempts: dict[tuple[int, int], AttemptRow] = {}
        self.checkpoints: dict[tuple[int, str], str] = {}
        self.accepted: dict[str, int] = {}
        self.pruned: dict[str, int] = {}
        self.runs: dict[int, RunView] = {}
        self.gates: dict[str, GateRow] = {}
        self.samples: dict[tuple[str, int], Samples] = {}
        self.slices: dict[str, Slices] = {}
        self.pauses: dict[tuple[LaneScope, str], LanePause] = {}
        self.schedules: dict[str, ScheduleView] = {}
        self.access_tokens: dict[str, AccessToken] = {}
        self.owner_rates: dict[str, datetime] = {}
        self.duties: dict[str, tuple[int, datetime]] = {}
        self.deeds: dict[int, LoggedDeed] = {}
        self.bulks: dict[int, BulkView] = {}
        self.artifacts: dict[int, CaptureRow] = {}
        self.refusals: dict[tuple[int, int], str] = {}
        self.redrives: dict[tuple[int, int, int], None] = {}  # run, job, life
        self.flows: dict[tuple[str, str, datetime], dict[str, int]] = {}  # pipeline, stage, minute
        self.died: dict[Letter, tuple[int, datetime, datetime]] = {}  # how often, first and last
        self.changes: dict[int, Change] = {}  # by number, without gaps: a cursor is a number
        self.changes_gone = 0
        self.payloads: dict[tuple[int, int], str] = {}  # job, life
        self.bulk_payloads: dict[tuple[int, str], str] = {}  # bulk, key
        self.writers: Counter[object] = Counter()
        self.lent: dict[int, object] = {}  # jobs that stand in transactions of others
        self._numbers: Counter[str] = Counter()
        self._clock = clock
        self._lock = threading.Lock()

    @contextmanager
    def written(self, who: object) -> Iterator[datetime]:
        """A transaction, and the moment at which it takes place: all of it happens, or nothing."""
        with self._lock:
            with self.undone_if_it_fails():
                yield self._clock.now()
            self.writers[who] += 1

    @contextmanager
    def read(self) -> Iterator[datetime]:
        """One consistent look, and the moment at which it is taken."""
        with self._lock:
            yield self._clock.now()

    @contextmanager
    def undone_if_it_fails(self) -> Iterator[None]:
        """A part of a transaction that may fail alone."""
        with self.undone() as keep:
            yield
            keep()

    @contextmanager
    def undone(self) -> Iterator[Callable[[], None]]:
        """A part of a transaction that is taken back, unless what is given is called."""
        before = {name: dict(getattr(self, name)) for name in _TABLES}
        try:
            yield before.clear
        finally:
            for name, rows in before.items():
                setattr(self, name, rows)

    def next_no(self, table: str) -> int:
        """A number that was never given before."""
        self._numbers[table] += 1
        return self._numbers[table]

    def put_job(self, row: JobRow) -> None:
        """Write a job's row, if it may be written."""
        row.check()
        self.jobs[row.no] = row

    def input_of(self, job: JobRow) -> str | None:
        """What its stage is given: the payload, or the result of the stage before."""
        if job.input_from is None:
            return job.payload_json
        return self.checkpoints.get((job.no, job.input_from))

    def claims(self, jobs: Iterable[JobRow]) -> list[Claim]:
        """The claims of these jobs, whole, in the order of claiming."""
        return [job.claim(self.input_of(job)) for job in sorted(jobs, key=in_line)]

    def is_alive(self, worker: int) -> bool:
        """Whether there is such a worker, and nobody has declared it dead."""
        row = self.workers.get(worker)
        return row is not None and row.dead_at is None

    def log(self, deed: Deed, verb: str, subject: str, now: datetime) -> None:
        """Write down who did what, and why."""
        no = self.next_no("deeds")
        self.deeds[no] = LoggedDeed(no, now, deed.by_whom, verb, subject, deed.reason)

    def tell(self, kind: ChangeKind, now: datetime, no: int, id: str, **parts: Any) -> None:
        """One more entry of the change feed."""
        blank = Change(kind, now, no, id, "", "", "", "", None, 0, None)
        self.changes[len(self.changes) + self.changes_gone + 1] = replace(blank, **parts)

    def tell_job(
        self, kind: ChangeKind, job: JobRow, now: datetime, attempt: Attempt | None = None
    ) -> None:
        """What a job has become, and how an attempt of it has ended, if one has."""
        self.tell(
            kind,
            now,
            job.no,
            job.id,
            owner=job.owner,
            pipeline=job.pipeline,
            stage=job.stage if attempt is None else attempt.stage,
            state=job.state.value,
            status=None if attempt is None else attempt.status.value,
            token=job.token,
            run=job.run,
        )

    def tell_run(self, run: RunView, now: datetime) -> None:
        """What a run has become."""
        self.tell(
            ChangeKind.RUN_CHANGED,
            now,
            run.no,
            run.id,
            owner=run.owner,
            pipeline=run.pipeline,
            state=run.status.value,
            run=run.no,
        )

    def pause(self, scope: LaneScope, name: str, deed: Deed, now: datetime) -> bool:
        """Close lanes; the first pause stands."""
        new = LanePause(scope, name, deed.reason, deed.by_whom, now)
        return self.pauses.setdefault((scope, name), new) is new

    def count(self, run: int | None, **changes: int) -> None:
        """Change the counts of a run, where there is one."""
        if run is not None and run in self.runs:
            row = self.runs[run]
            counts = {name: getattr(row.counts, name) + by for name, by in changes.items()}
            self.runs[run] = replace(row, counts=replace(row.counts, **counts))

    def flow(self, pipeline: str, stage: str, now: datetime, **changes: int) -> None:
        """Write down what has happened in a stage in this minute."""
        place = (pipeline, stage, now.replace(second=0, microsecond=0))
        counts = Counter(self.flows.get(place, {}))
        counts.update(changes)
        self.flows[place] = dict(counts)

    def die(self, job: JobRow, now: datetime) -> None:
        """Write down what a job has died of."""
        ever, first_at, _ = self.died.get(job.letter, (0, now, now))
        self.died[job.letter] = (ever + 1, first_at, now)

    def count_failed(self, run: int | None, kind: str | None, by: int) -> None:
        """Change the count of a run's failed jobs, and of those of that kind."""
        self.count(run, failed=by)
        if run is not None and run in self.runs:
            row = self.runs[run]
            kinds = Counter(row.kinds)
            kinds[kind or ""] += by
            kept = {name: failed for name, failed in sorted(kinds.items()) if failed}
            self.runs[run] = replace(row, kinds=kept)

    def reopen(self, runs: Iterable[int | None], now: datetime) -> None:
        """Those of these runs that had finished are running again."""
        for no in runs:
            row = None if no is None else self.runs.get(no)
            if row is not None and row.status in FINISHED:
                self.runs[row.no] = replace(
                    row, status=RunStatus.RUNNING, why="", changed_at=now, ended_at=None
                )
                self.tell_run(self.runs[row.no], now)

    def take_in(self, run: int | None, now: datetime) -> None:
        """A run with a new item is not over; a cancelled one stays cancelled."""
        row = None if run is None else self.runs.get(run)
        if row is not None and row.ended_at is not None:
            self.runs[row.no] = replace(row, changed_at=now, ended_at=None)
            if row.status in FINISHED:
                self.reopen([row.no], now)
            else:
                self.tell_run(self.runs[row.no], now)

    def rival(self, job: JobRow) -> JobRow | None:
        """Another job of the same owner, pipeline and key that is queued or processing; the oldest."""
        if job.key is None:
            return None
        wanted = (job.owner, job.pipeline, job.key)
        return next(
            (
                one
                for _, one in sorted(self.jobs.items())
                if (one.owner, one.pipeline, one.key) == wanted
                and one.no != job.no
                and one.state in (State.QUEUED, State.PROCESSING)
            ),
            None,
        )

    def driven(self, job: JobRow, run: int | None) -> JobRow | None:
        """Another job of the same owner, pipeline and key that is, or was last, driven again in this run."""
        if job.key is None or run is None:
            return None
        wanted = (job.owner, job.pipeline, job.key, run)
        return next(
            (
                one
                for _, one in sorted(self.jobs.items())
                if (one.owner, one.pipeline, one.key, one.redrive_run) == wanted
                and one.no != job.no
            ),
            None,
        )

    def paused_by(self, lane: Lane) -> list[str]:
        """The pauses that close a lane, in words."""
        found = []
        if (LaneScope.QUEUE, lane.queue) in self.pauses:
            found.append(f"queue {lane.queue} is paused")
        if (LaneScope.PIPELINE, lane.pipeline) in self.pauses:
            found.append(f"pipeline {lane.pipeline} is paused")
        if lane.run is not None and (LaneScope.RUN, str(lane.run)) in self.pauses:
            found.append(f"run {lane.run} is paused")
        return found

    def closed_by(self, lane: Lane) -> list[str]:
        """All that closes a lane, in words; nothing when it is open."""
        found = self.paused_by(lane)
        gate = None if lane.upstream is None else self.gates.get(lane.upstream)
        if gate is not None and gate.state is not GateState.FLOWING:
            found.append(f"upstream {gate.name} is {gate.state.value}")
        parent = None if gate is None or gate.parent is None else self.gates.get(gate.parent)
        if parent is not None and parent.state is not GateState.FLOWING:
            found.append(f"credential {parent.name} is {parent.state.value}")
        return found

    def is_held(self, lane: int) -> bool:
        """Whether a gate closes the lane of this number."""
        closed = self.closed_by(self.lanes[lane]) if lane in self.lanes else []
        return any(one.startswith(("upstream ", "credential ")) for one in closed)

    def is_open(self, lane: int) -> bool:
        """Whether nothing closes the lane of this number."""
        return lane not in self.lanes or not self.closed_by(self.lanes[lane])


def in_line(job: JobRow) -> tuple[datetime, int]:
    """The order of claiming: by rank, and of equals the older number."""
    return job.rank_at, job.no


def rank(order_at: datetime, priority: int) -> datetime:
    """One step of priority is worth so much waiting."""
    return order_at - priority * timedelta(seconds=AGEING_S)


def length(seconds: float) -> timedelta:
    """A length of time in whole microseconds, never shortened."""
    return timedelta(microseconds=math.ceil(seconds * 1_000_000))
