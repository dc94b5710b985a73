"""The writes of the reference model.

Always true, and to be read off this file: a record writes only if it shows the token that the job
has; the token is raised by every claim and every settlement, so no record matches twice; a writer
that was declared dead writes nothing; a record that comes again, from the same writer, finds its own
attempt and gets its first receipt.

Who is authoritative: the tables, in the order in which operations take the lock. Nothing may happen
at once. If an operation raises, nothing of it has happened.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from perdure.model.changes import ChangeKind
from perdure.model.errors import CallerError, StoreBusy, StoreError, WorkerDead
from perdure.model.jobs import (
    Busy,
    Capture,
    Claim,
    ClaimOrder,
    Enqueued,
    Lane,
    NewJob,
    OnLost,
    Part,
    Receipt,
    Record,
    RecordRefused,
    Settled,
    Stale,
    Turn,
)
from perdure.model.limits import CLAIM_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.states import TERMINAL, State
from perdure.model.views import CaptureView
from tests.stores.reference.accepting import accept, begin
from tests.stores.reference.claiming import promote, take
from tests.stores.reference.completing import Notary
from tests.stores.reference.gating import Gatehouse
from tests.stores.reference.rows import AttemptRow, CaptureRow, JobRow, Unwritable, check_texts
from tests.stores.reference.tables import Tables, in_line, length
from tests.stores.reference.workforce import Workforce


class ModelStore(Notary, Gatehouse, Workforce):
    """The `Store` port on plain dicts: what a store must do, said as simply as it can be."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._writes_seen = -1

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """A lane is known by all of its parts but its upstream, which may change."""
        with self._tables.written(self):
            return {lane: self._lane(lane) for lane in wanted}

    def _lane(self, wanted: Lane) -> int:
        known = self._tables.lanes
        for no, lane in known.items():
            if replace(lane, upstream=None) == replace(wanted, upstream=None):
                known[no] = wanted
                return no
        no = self._tables.next_no("lanes")
        known[no] = wanted
        return no

    def enqueue(self, jobs: Sequence[NewJob], *, within: object = None) -> list[Enqueued]:
        """All or none."""
        if within is not None:
            raise CallerError("the reference model has no database to be connected to")
        with self._tables.written(self) as now:
            self._check_lanes(jobs)
            return accept(self._tables, jobs, now)

    def _check_lanes(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            if job.lane not in self._tables.lanes:
                raise StoreError(f"lane {job.lane} does not exist: nobody would claim its jobs")

    def begin(
        self, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> Claim | Enqueued:
        """As enqueue and claim at once, by the caller itself."""
        with self._tables.written(self) as now:
            if not self._tables.is_alive(worker):
                raise WorkerDead(f"worker {worker} was declared dead, so it may begin nothing")
            self._check_lanes([job])
            done = begin(self._tables, job, worker=worker, hard_s=hard_s, on_lost=on_lost, now=now)
            return done if isinstance(done, Enqueued) else self._tables.claims([done])[0]

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """First the records, then the claims."""
        with self._tables.written(self) as now:
            if by is not None and not self._tables.is_alive(by):
                raise WorkerDead(f"worker {by} was declared dead, so nothing it says counts")
            if any(record.no in self._tables.lent for record in records):
                raise StoreBusy(
                    "another's open transaction holds a job, and a turn would wait for it"
                )
            settled = self._settle_all(records, by, now)
            if order is None or order.slots <= 0:
                return Turn(settled, ())
            claims, short = self._claim(order, now)
            if len(claims) == order.slots:
                return Turn(settled, tuple(claims))
            asked = short if order.parts else order.lanes
            return Turn(settled, tuple(claims), self._next_due_s(asked, order.isolation, now))

    # -- settling ----------------------------------------------------------------------------

    def settle(self, records: Sequence[Record], *, by: int | None) -> tuple[Settled | Busy, ...]:
        """What another's transaction holds is left out."""
        busy = [one for one in records if one.no in self._tables.lent]
        free = [one for one in records if one not in busy]
        settled = self.turn(free, None, by=by).settled
        return (*settled, *(Busy(one.no, one.id, one.token) for one in busy))

    def _settle_all(
        self, records: Sequence[Record], by: int | None, now: datetime
    ) -> tuple[Settled, ...]:
        """First what is new is written; what was written before is answered from what is then true."""
        tokens = {no: job.token for no, job in self._tables.jobs.items()}
        written = {
            place: self.settle_one(record, by, now)
            for place, record in enumerate(records)
            if tokens.get(record.no) == record.token
        }
        return tuple(
            written[place] if place in written else self._settled_before(record, by)
            for place, record in enumerate(records)
        )

    def settle_one(self, record: Record, by: int | None, now: datetime) -> Settled:
        """Write one record, in a transaction that has begun."""
        job = self._tables.jobs[record.no]
        if job.token != record.token:  # the same record twice in one batch
            return self._settled_before(record, by)
        if record.reclaim and not self._tables.is_open(record.lane):
            record = replace(record, reclaim=False, state=State.QUEUED)
        try:
            with self._tables.undone_if_it_fails():
                return self._write(record, job, by, now)
        except (ValueError, OverflowError, TypeError) as error:
            return RecordRefused(record.no, record.id, record.token, str(error))

    def _write(self, record: Record, job: JobRow, by: int | None, now: datetime) -> Receipt:
        due_at = None if record.delay_s is None else now + length(record.delay_s)
        starts = record.counters.starts + (1 if record.reclaim else 0)
        self._tables.put_job(
            replace(
                job,
                state=record.state,
                ready=due_at == now if record.state is State.QUEUED else None,
                worker=by if record.reclaim else None,
                token=job.token + (2 if record.reclaim else 1),  # settled, and claimed again
                lane=record.lane,
                stage=record.stage,
                isolation=record.isolation,
                counters=replace(record.counters, starts=starts),
                past=record.past,
                input_from=record.checkpoint_stage or job.input_from,
                due_at=due_at or job.due_at,
                claimed_at=now if record.reclaim else job.claimed_at,
                finished_at=now if record.state in TERMINAL else None,
                updated_at=now,
                changed_at=now,
                failed_reason=record.failed_reason,
                error_kind=record.error_kind,
                error_message=record.error_message,
                error_code=record.error_code,
                error_detail=record.error_detail,
                fingerprint=record.fingerprint,
                label=record.label,
                result_json=record.result_json,
                hard_at=job.hard_at if record.reclaim else None,
                on_lost=job.on_lost if record.reclaim else None,
            )
        )
        self._keep(record, by, now, due_at)
        kind = ChangeKind.JOB_ENDED if record.state in TERMINAL else ChangeKind.ATTEMPT_ENDED
        self._tables.tell_job(kind, self._tables.jobs[job.no], now, record.attempt)
        self._count(record, job, now)
        claim = None
        if record.reclaim:
            (claim,) = self._tables.claims([self._tables.jobs[job.no]])
        return Receipt(record.no, record.id, record.token, record.state, due_at, claim)

    def _keep(self, record: Record, by: int | None, now: datetime, due_at: datetime | None) -> None:
        """The attempt and the checkpoint, each written once and never changed."""
        told = record.attempt
        if told is not None:
            check_texts(told.message, told.policy, told.why_json, told.config_hash, told.stage)
            row = AttemptRow(
                record.no, record.token, told, record.state, now, by, record.delay_s, due_at
            )
            self._tables.attempts[record.no, record.token] = row
        if record.checkpoint_stage is not None:
            place = (record.no, record.checkpoint_stage)
            if place in self._tables.checkpoints:
                raise Unwritable(f"stage {record.checkpoint_stage} has its result already")
            check_texts(record.checkpoint_json)
            self._tables.checkpoints[place] = record.checkpoint_json or ""
        for capture in record.captures:
            self._put_aside(capture, record, now)

    def _put_aside(self, capture: Capture, record: Record, now: datetime) -> None:
        """A capture stands beside the attempt in which it was made."""
        if any(row.view.id == capture.id for row in self._tables.artifacts.values()):
            raise Unwritable(f"capture {capture.id} is there already")
        check_texts(capture.kind, capture.media_type)
        no = self._tables.next_no("artifacts")
        view = CaptureView(
            no=no,
            id=capture.id,
            job_no=record.no,
            token=record.token,
            stage=record.stage if record.attempt is None else record.attempt.stage,
            kind=capture.kind,
            media_type=capture.media_type,
            bytes_kept=len(capture.content),
            bytes_whole=capture.bytes_whole,
            saved_at=now,
            expires_at=None if capture.kept_s is None else now + length(capture.kept_s),
        )
        self._tables.artifacts[no] = CaptureRow(view, capture.content)

    def _count(self, record: Record, job: JobRow, now: datetime) -> None:
        """What this record changes in the counts of the job's stage and runs."""
        ended = record.state in TERMINAL
        told = record.attempt
        changes = {
            "succeeded": record.state is State.SUCCEEDED,
            "cancelled": record.state is State.CANCELLED,
            "attempts": told is not None,
            "retries": told is not None and told.counted == "failures" and not ended,
            "tokens_in": 0 if told is None else told.tokens_in,
            "tokens_out": 0 if told is None else told.tokens_out,
            "cost_nusd": 0 if told is None else told.cost_nusd,
            "calls": told is not None and told.called,
        }
        flow = {name: int(by) for name, by in changes.items() if name != "calls"} | {
            "failed": int(record.state is State.FAILED),
            "waits": int(told is not None and told.counted == "waits" and not ended),
        }
        stage = record.stage if told is None else told.stage
        self._tables.flow(job.pipeline, stage, now, **flow)
        if record.state is State.FAILED:
            self._tables.die(self._tables.jobs[job.no], now)
        for run in (job.run, job.redrive_run):
            self._tables.count(run, **{name: int(by) for name, by in changes.items()})
            if record.state is State.FAILED:
                self._tables.count_failed(run, record.error_kind, 1)

    def _settled_before(self, record: Record, by: int | None) -> Receipt | Stale:
        """The receipt of the same record by the same writer; nobody else is told of it."""
        row = self._tables.attempts.get((record.no, record.token))
        if record.attempt is None or row is None or by is None or row.settled_by != by:
            return Stale(record.no, record.id, record.token)
        job = self._tables.jobs[record.no]
        claim = None
        if row.state is State.PROCESSING and job.worker == by and job.token == record.token + 2:
            (claim,) = self._tables.claims([job])
        return Receipt(
            record.no, record.id, record.token, row.state, row.due_at, claim, repeated=True
        )

    # -- claiming ----------------------------------------------------------------------------

    def _open_to(self, lanes: Iterable[int], isolation: int) -> list[JobRow]:
        """The queued jobs of those of these lanes that are open, ready or not."""
        wanted = {lane for lane in lanes if self._tables.is_open(lane)}
        return [
            job
            for job in self._tables.jobs.values()
            if job.state is State.QUEUED and job.lane in wanted and job.isolation == isolation
        ]

    def _claim(self, order: ClaimOrder, now: datetime) -> tuple[list[Claim], list[int]]:
        """The claims, and the lanes that had fewer than they were asked for."""
        promote(self._tables, self._open_to(_lanes(order), order.isolation), now)
        most = min(order.slots, CLAIM_BATCH_MAX)
        claims: list[Claim] = []
        short: list[int] = []
        allotted = 0
        for part in order.parts:
            slots = min(part.slots, most - allotted)
            allotted += slots
            self._serve(order, Part(part.lanes, slots), now, claims, short)
        self._serve(order, Part(order.lanes, most - len(claims)), now, claims, short)
        return claims, short

    def _serve(
        self, order: ClaimOrder, part: Part, now: datetime, claims: list[Claim], short: list[int]
    ) -> None:
        waiting = self._open_to(part.lanes, order.isolation)
        ready = sorted((job for job in waiting if job.ready), key=in_line)[: part.slots]
        claims += self._tables.claims([take(self._tables, job, order.worker, now) for job in ready])
        if len(ready) < part.slots:
            short += part.lanes

    def _next_due_s(self, lanes: Iterable[int], isolation: int, now: datetime) -> float | None:
        due = [job.due_at for job in self._open_to(lanes, isolation) if not job.ready]
        return max(0.0, (min(due) - now).total_seconds()) if due else None

    def waiting(self, order: ClaimOrder) -> float | None:
        """0 when a job is ready, else the time until one falls due."""
        lanes = _lanes(order)
        with self._tables.read() as now:
            if any(job.ready for job in self._open_to(lanes, order.isolation)):
                return 0.0
            return self._next_due_s(lanes, order.isolation, now)

    def run_lanes(self) -> dict[int, Lane]:
        """A run is over when it has an end."""
        with self._tables.read():
            live = {no for no, run in self._tables.runs.items() if run.ended_at is None}
            return {no: lane for no, lane in sorted(self._tables.lanes.items()) if lane.run in live}

    def has_changed(self) -> bool:
        """Whether others have written since the last call; at the first call they may have."""
        with self._tables.read():
            writers = self._tables.writers
            writes = sum(writers.values()) - writers[self]
            changed, self._writes_seen = writes != self._writes_seen, writes
            return changed

    def wake_fd(self) -> None:
        """Nothing is heard here; ask `has_changed`."""

    def close(self) -> None:
        """There is nothing to disconnect from."""


def _lanes(order: ClaimOrder) -> list[int]:
    """Where this order may be served."""
    return [*(lane for part in order.parts if part.slots > 0 for lane in part.lanes), *order.lanes]
