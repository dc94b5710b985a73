"""The writes. Every write of a running job is guarded by (no, token); every writer must be alive.

Who is authoritative: this file's transactions, in the order in which they commit. Nothing here
decides anything: a record says what the job becomes, and it becomes that, or the record is stale.

What may happen at once: any number of processes call any of these methods. Each method is one
transaction under the turnstile, so they take place one after the other; a caller's knowledge is
always old, and the guards are what makes that harmless.

If we die in the middle of a method, nothing of it has happened. If the answer is lost after the
commit, the same call again gives the same answer: a job's own id or key finds the job, and the
attempt row (job, token) holds the receipt of its record.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from perdure.model.changes import ChangeKind
from perdure.model.errors import WorkerDead
from perdure.model.jobs import (
    Busy,
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
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus
from perdure.model.workers import NewWorker
from perdure.stores.borrowed_connection import check_lendable
from perdure.stores.change_lines import worker_entry
from perdure.stores.known_lanes import KnownLanes
from perdure.stores.moments import seconds_us
from perdure.stores.rows import Row, encode, expired_out, lost_out, overrun_out
from perdure.stores.sqlite.change_feed import tell
from perdure.stores.sqlite.claim import claim, claim_parts, has_work, open_lanes, wait_s
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.enqueue import accept, begin, lanes_among
from perdure.stores.sqlite.enqueue_within import join
from perdure.stores.sqlite.gates import SqliteGates
from perdure.stores.sqlite.record import RowRefused, claims_of, record_all, record_each
from perdure.stores.sqlite.statements import SQL

SILENT = encode(Death("silent"))

_Recorder = Callable[[sqlite3.Connection, Sequence[Record], int | None, int], tuple[Settled, ...]]


class SqliteStore(SqliteGates):
    """The `Store` port on one SQLite file."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._data_version = -1
        self._lanes = KnownLanes()

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        with self._connection.read() as (cx, _):
            found = {lane: _lane_no(cx, lane) for lane in wanted}
        missing = [lane for lane, no in found.items() if no is None]
        if missing:
            with self._connection.write() as (cx, _):
                for lane in missing:
                    cx.execute(SQL.lane_add, (*_names(lane), lane.upstream))
                    found[lane] = _lane_no(cx, lane)
        numbers = {lane: no for lane, no in found.items() if no is not None}
        self._lanes.learn(numbers)
        return numbers

    def enqueue(self, jobs: Sequence[NewJob], *, within: object = None) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job."""
        if not jobs:
            return []
        if within is not None:
            with join(within, self._connection) as (cx, now):
                self._lanes.check(jobs, self._look_at_lanes)
                return accept(cx, jobs, now)
        with self._connection.write() as (cx, now):
            self._lanes.check(jobs, partial(lanes_among, cx))
            return accept(cx, jobs, now)

    def begin(
        self, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> Claim | Enqueued:
        """Accept a job that its caller, a worker of its own, runs at once."""
        with self._connection.write() as (cx, now):
            _check_alive(cx, worker)
            self._lanes.check([job], partial(lanes_among, cx))
            return begin(cx, job, worker=worker, hard_s=hard_s, on_lost=on_lost, now=now)

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim; one transaction."""
        try:
            return self._turn(records, order, by, record_all)
        except RowRefused:
            return self._turn(records, order, by, record_each)

    def settle(self, records: Sequence[Record], *, by: int | None) -> tuple[Settled | Busy, ...]:
        """As a turn that claims nothing. No job is ever `Busy`: a writer holds the whole file, not a single job."""
        return self.turn(records, None, by=by).settled

    def complete(self, record: Record, *, by: int, within: object) -> Settled | Busy:
        """Write a record in its stage's own transaction."""
        check_lendable(record)
        with join(within, self._connection) as (cx, now):
            _check_alive(cx, by)
            return record_each(cx, [record], by, now)[0]

    def ends_of(self, claims: Sequence[tuple[int, int]]) -> dict[tuple[int, int], AttemptStatus]:
        """How these attempts, each a job and its token, have ended."""
        with self._connection.read() as (cx, _):
            rows = cx.execute(SQL.attempts_ended, {"claims": encode(list(claims))}).fetchall()
        return {(no, token): AttemptStatus(status) for no, token, status in rows}

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits."""
        with self._connection.read() as (cx, now):
            lanes = open_lanes(cx, order)
            return 0.0 if has_work(cx, order, lanes) else wait_s(cx, order, lanes, now)

    def has_changed(self) -> bool:
        """Whether another connection has written since the last call."""
        version = self._connection.write_mark()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def wake_fd(self) -> None:
        """A file tells nobody that it has changed."""

    def add_worker(self, worker: NewWorker) -> int:
        """Register a working process that is about to start."""
        with self._connection.write() as (cx, now):
            before = cx.execute(SQL.worker_booted, {"boot": worker.boot}).fetchone()
            if before is not None:  # sent again after its answer was lost
                return int(before[0])
            (no,) = cx.execute(
                SQL.worker_add,
                {
                    "boot": worker.boot,
                    "name": worker.name,
                    "role": worker.role,
                    "ttl_us": seconds_us(worker.ttl_s),
                    "now": now,
                },
            ).fetchone()
            told = worker_entry(no, worker.boot, "alive")
            tell(cx, ChangeKind.WORKER_CHANGED, [told], now)
            return int(no)

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """Renew leases; the answer names the workers that are still alive."""
        with self._connection.write() as (cx, now):
            rows = cx.execute(SQL.beat, {"workers": encode(list(workers)), "now": now})
            return frozenset(no for (no,) in rows.fetchall())

    def end_worker(self, worker: int, death: Death) -> bool:
        """Its own supervisor says that this worker has ended."""
        with self._connection.write() as (cx, now):
            where = {"worker": worker, "death": encode(death), "now": now}
            dead = cx.execute(SQL.worker_end, where).fetchall()
            _tell_dead(cx, dead, now)
            return bool(dead)

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """Declare dead every worker whose lease has run out, if ``by`` may say so."""
        with self._connection.read() as (cx, now):
            (due,) = cx.execute(SQL.overdue, {"now": now}).fetchone()
        if not due:
            return ()
        with self._connection.write() as (cx, now):
            rows = cx.execute(SQL.mark_dead, {"by": by, "now": now, "death": SILENT}).fetchall()
            _tell_dead(cx, rows, now)
            cx.execute(SQL.settle_workers, {"now": now})
            cx.execute(SQL.samples_forget)
            return tuple(no for no, _ in rows)

    def lost_claims(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        with self._connection.read() as (cx, now):
            known = None if lanes is None else encode(list(lanes))
            rows = cx.execute(SQL.lost, {"lanes": known, "limit": limit}).fetchall()
            found = {row[0]: row[1:] for row in rows}
            claims = claims_of(cx, list(found))
            return [lost_out(claim, found[claim.no], now) for claim in claims]

    def expired_jobs(self, *, limit: int) -> list[Expired]:
        """Waiting jobs whose deadline has passed, in closed lanes too."""
        with self._connection.read() as (cx, now):
            rows = cx.execute(SQL.expired, {"now": now, "limit": limit}).fetchall()
            return [expired_out(row) for row in rows]

    def overrun(self, limits_s: Mapping[int, float], *, limit: int) -> list[Overrun]:
        """Claims that are held for longer than their lane's limit, or than their own."""
        limits = encode({str(lane): seconds_us(most_s) for lane, most_s in limits_s.items()})
        with self._connection.read() as (cx, now):
            where = {"limits": limits, "now": now, "limit": limit}
            found = {row[0]: row[1:] for row in cx.execute(SQL.overrun, where).fetchall()}
            claims = claims_of(cx, found)
            return [overrun_out(claim, found[claim.no], now) for claim in claims]

    def tokens_held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that this worker holds."""
        with self._connection.read() as (cx, _):
            return dict(cx.execute(SQL.held, {"worker": worker}).fetchall())

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that this worker holds, whole."""
        with self._connection.read() as (cx, _):
            held = cx.execute(SQL.held, {"worker": worker}).fetchall()
            return claims_of(cx, [no for no, _ in held])

    def run_lanes(self) -> dict[int, Lane]:
        """The lanes of all runs that are not over, by their numbers."""
        with self._connection.read() as (cx, _):
            return {no: Lane(*names) for no, *names in cx.execute(SQL.run_lanes).fetchall()}

    def suspects(self, lanes: Sequence[int] | None = None) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait in open lanes; of these, if given."""
        with self._connection.read() as (cx, now):
            known = None if lanes is None else encode(list(lanes))
            rows = cx.execute(SQL.suspects, {"lanes": known, "now": now}).fetchall()
            return frozenset(level for (level,) in rows)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _look_at_lanes(self, nos: set[int]) -> set[int]:
        with self._connection.read() as (cx, _):  # not the caller's, whose snapshot may be old
            return lanes_among(cx, nos)

    def _turn(
        self,
        records: Sequence[Record],
        order: ClaimOrder | None,
        by: int | None,
        record: _Recorder,
    ) -> Turn:
        with self._connection.write() as (cx, now):
            if by is not None:
                _check_alive(cx, by)
            settled = record(cx, records, by, now) if records else ()
            if order is None or order.slots <= 0:
                return Turn(settled, ())
            lanes = open_lanes(cx, order)
            if order.parts:
                claims, lanes = claim_parts(cx, order, lanes, now)
            else:
                claims = claim(cx, order, lanes, now)
            short = len(claims) < order.slots
            return Turn(settled, tuple(claims), wait_s(cx, order, lanes, now) if short else None)


def _check_alive(cx: sqlite3.Connection, worker: int) -> None:
    if not cx.execute(SQL.worker_alive, {"worker": worker}).fetchone():
        raise WorkerDead(
            f"worker {worker} was declared dead, so nothing it says counts; it must stop"
        )


def _tell_dead(cx: sqlite3.Connection, dead: Sequence[Row], now: int) -> None:
    told = [worker_entry(no, boot, "dead") for no, boot in dead]
    tell(cx, ChangeKind.WORKER_CHANGED, told, now)


def _lane_no(cx: sqlite3.Connection, lane: Lane) -> int | None:
    """The lane's number; None when it is missing or serves another upstream than it says."""
    row = cx.execute(SQL.lane_no, _names(lane)).fetchone()
    return int(row[0]) if row is not None and row[1] == lane.upstream else None


def _names(lane: Lane) -> tuple[object, ...]:
    return (lane.queue, lane.category, lane.pipeline, lane.stage, lane.run)
