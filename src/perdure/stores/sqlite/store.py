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

import heapq
import sqlite3
from collections.abc import Callable, Sequence

from perdure.model.errors import WorkerDead
from perdure.model.jobs import (
    Claim,
    ClaimOrder,
    Enqueued,
    Lane,
    LostClaim,
    NewJob,
    Receipt,
    Record,
    Refused,
    Settled,
    Stale,
    Turn,
)
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.model.workers import NewWorker
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.moments import from_us, maybe_us, seconds_us
from perdure.stores.sqlite.rows import AGEING_US, claim_out, death_of, encoded, job_in, record_in
from perdure.stores.sqlite.statements import SQL

SILENT = encoded(Death("silent"))
UNWRITABLE = (sqlite3.IntegrityError, sqlite3.DataError, ValueError, OverflowError, TypeError)

_Recorder = Callable[[sqlite3.Connection, Sequence[Record], int | None, int], tuple[Settled, ...]]


class _RowRefused(Exception):
    """One row of a batch cannot be written."""


class SqliteStore:
    """The `Store` port on one SQLite file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._data_version = -1

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        with self._connection.read() as (cx, _):
            found = {lane: _lane_no(cx, lane) for lane in wanted}
        missing = [lane for lane, no in found.items() if no is None]
        if missing:
            with self._connection.written() as (cx, _):
                for lane in missing:
                    cx.execute(SQL.lane_add, (lane.queue, lane.category, lane.pipeline, lane.stage))
                    found[lane] = _lane_no(cx, lane)
        return {lane: no for lane, no in found.items() if no is not None}

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job."""
        if not jobs:
            return []
        apart = _apart(jobs)
        with self._connection.written() as (cx, now):
            rows = cx.execute(
                SQL.enqueue,
                {
                    "jobs": encoded([job_in(job, now) for job in apart]),
                    "now": now,
                    "ageing_us": AGEING_US,
                },
            ).fetchall()
            made = {id: no for no, id in rows}
            accepted: dict[str, int] = {}
            for job in apart:
                if job.id in made:
                    accepted[job.pipeline] = accepted.get(job.pipeline, 0) + 1
            for pipeline, count in accepted.items():
                cx.execute(SQL.accept, (pipeline, count))
            return [
                Enqueued(job.id, made[job.id], True) if job.id in made else _found(cx, job)
                for job in jobs
            ]

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim; one transaction."""
        try:
            return self._turn(records, order, by, _record_all)
        except _RowRefused:
            return self._turn(records, order, by, _record_each)

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits."""
        with self._connection.read() as (cx, now):
            for lane in order.lanes:
                where = {"lane": lane, "isolation": order.isolation, "limit": 1}
                if cx.execute(SQL.heads, where).fetchone():
                    return 0.0
            return _next_due_s(cx, order, now)

    def changed(self) -> bool:
        """Whether another connection has written since the last call."""
        version = self._connection.write_mark()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def add_worker(self, worker: NewWorker) -> int:
        """Register a working process that is about to start."""
        with self._connection.written() as (cx, now):
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
            return int(no)

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """Renew leases; the answer names the workers that are still alive."""
        with self._connection.written() as (cx, now):
            rows = cx.execute(SQL.beat, {"workers": encoded(list(workers)), "now": now})
            return frozenset(no for (no,) in rows.fetchall())

    def end_worker(self, worker: int, death: Death) -> bool:
        """Its own supervisor says that this worker has ended."""
        with self._connection.written() as (cx, now):
            done = cx.execute(
                SQL.worker_end, {"worker": worker, "death": encoded(death), "now": now}
            )
            return done.rowcount == 1

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """Declare dead every worker whose lease has run out, if ``by`` may say so."""
        with self._connection.read() as (cx, now):
            (due,) = cx.execute(SQL.overdue, {"now": now}).fetchone()
        if not due:
            return ()
        with self._connection.written() as (cx, now):
            rows = cx.execute(SQL.mark_dead, {"by": by, "now": now, "death": SILENT}).fetchall()
            cx.execute(SQL.settle_workers, {"now": now})
            return tuple(no for (no,) in rows)

    def lost(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        with self._connection.read() as (cx, now):
            known = None if lanes is None else encoded(list(lanes))
            rows = cx.execute(SQL.lost, {"lanes": known, "limit": limit}).fetchall()
            found = {no: (worker, death_of(death)) for no, worker, death in rows}
            claims = _claims(cx, list(found))
            return [LostClaim(claim, *found[claim.no], from_us(now)) for claim in claims]

    def held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that this worker holds."""
        with self._connection.read() as (cx, _):
            return dict(cx.execute(SQL.held, (worker,)).fetchall())

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that this worker holds, whole."""
        with self._connection.read() as (cx, _):
            return _claims(cx, [no for no, _ in cx.execute(SQL.held, (worker,)).fetchall()])

    def suspects(self) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait."""
        with self._connection.read() as (cx, now):
            rows = cx.execute(SQL.suspects, {"now": now}).fetchall()
            return frozenset(level for (level,) in rows)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _turn(
        self,
        records: Sequence[Record],
        order: ClaimOrder | None,
        by: int | None,
        record: _Recorder,
    ) -> Turn:
        with self._connection.written() as (cx, now):
            if by is not None and not cx.execute(SQL.worker_alive, (by,)).fetchone():
                raise WorkerDead(
                    f"worker {by} was declared dead, so nothing it says counts; it must stop"
                )
            settled = record(cx, records, by, now) if records else ()
            claims: list[Claim] = []
            next_due_s = None
            if order is not None and order.slots > 0:
                claims = _claim(cx, order, now)
                if len(claims) < order.slots:
                    next_due_s = _next_due_s(cx, order, now)
            return Turn(settled, tuple(claims), next_due_s)


def _record_all(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    try:
        return _write(cx, sorted(records, key=lambda one: one.no), by, now)
    except UNWRITABLE as error:
        raise _RowRefused from error


def _record_each(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    """One bad row does not spoil its neighbours."""
    settled: list[Settled] = []
    for one in records:
        cx.execute("SAVEPOINT one")
        try:
            settled.extend(_write(cx, [one], by, now))
        except UNWRITABLE as error:
            cx.execute("ROLLBACK TO one")
            settled.append(Refused(one.no, one.id, one.token, str(error)))
        cx.execute("RELEASE one")
    return tuple(settled)


def _write(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    rows = [record_in(one) for one in records]
    text = encoded(rows)
    done = cx.execute(SQL.record, {"records": text, "by": by, "now": now}).fetchall()
    accepted = {no for (no,) in done}
    if len(accepted) < len(rows):
        text = encoded([row for row in rows if row["no"] in accepted])
    cx.execute(SQL.attempts_add, {"records": text, "by": by, "now": now})
    cx.execute(SQL.checkpoints_add, {"records": text, "now": now})
    again = {one.no: one for one in _claims(cx, [r.no for r in records if r.reclaim])}
    return tuple(
        _receipt(one, now, again.get(one.no))
        if one.no in accepted
        else _settled_before(cx, one, by)
        for one in records
    )


def _receipt(record: Record, now: int, claim: Claim | None) -> Receipt:
    due_at = None if record.delay_s is None else from_us(now + seconds_us(record.delay_s))
    kept = claim if record.reclaim else None
    return Receipt(record.no, record.id, record.token, record.state, due_at, kept)


def _settled_before(cx: sqlite3.Connection, record: Record, by: int | None) -> Receipt | Stale:
    where = {"job": record.no, "token": record.token, "by": by}
    row = cx.execute(SQL.settled_before, where).fetchone()
    if row is None or record.attempt is None:
        return Stale(record.no, record.id, record.token)
    state, due_at, token, worker = row
    ours = record.reclaim and worker == by and token == record.token + 2
    claim = _claims(cx, [record.no])[0] if ours else None
    receipt = Receipt(record.no, record.id, record.token, State(state), maybe_us(due_at), claim)
    return _repeated(receipt)


def _repeated(receipt: Receipt) -> Receipt:
    return Receipt(
        receipt.no, receipt.id, receipt.token, receipt.state, receipt.due_at, receipt.claim,
        repeated=True,
    )  # fmt: skip


def _claim(cx: sqlite3.Connection, order: ClaimOrder, now: int) -> list[Claim]:
    slots = min(order.slots, CLAIM_BATCH_MAX)
    heads = []
    for lane in order.lanes:
        where = {"lane": lane, "isolation": order.isolation, "now": now}
        cx.execute(SQL.promote, where | {"limit": PROMOTE_BATCH_MAX})
        heads.append(cx.execute(SQL.heads, where | {"limit": slots}).fetchall())
    nos = [no for _, no in heapq.merge(*heads)][:slots]
    if not nos:
        return []
    cx.execute(SQL.claim, {"nos": encoded(nos), "worker": order.worker, "now": now})
    return _claims(cx, nos)


def _claims(cx: sqlite3.Connection, nos: list[int]) -> list[Claim]:
    if not nos:
        return []
    return [claim_out(row) for row in cx.execute(SQL.claims, {"nos": encoded(nos)}).fetchall()]


def _next_due_s(cx: sqlite3.Connection, order: ClaimOrder, now: int) -> float | None:
    soonest = None
    for lane in order.lanes:
        where = {"lane": lane, "isolation": order.isolation}
        (due_at,) = cx.execute(SQL.next_due, where).fetchone()
        if due_at is not None and (soonest is None or due_at < soonest):
            soonest = due_at
    return None if soonest is None else max(0.0, (soonest - now) / 1_000_000)


def _lane_no(cx: sqlite3.Connection, lane: Lane) -> int | None:
    row = cx.execute(SQL.lane_no, (lane.queue, lane.category, lane.pipeline, lane.stage)).fetchone()
    return None if row is None else int(row[0])


def _apart(jobs: Sequence[NewJob]) -> list[NewJob]:
    """The jobs, without those that repeat the id or the key of an earlier one."""
    seen: set[tuple[str, ...]] = set()
    apart = []
    for job in jobs:
        names: set[tuple[str, ...]] = {(job.id,)}
        if job.key is not None:
            names.add((job.owner, job.pipeline, job.key))
        if seen.isdisjoint(names):
            apart.append(job)
        seen |= names
    return apart


def _found(cx: sqlite3.Connection, job: NewJob) -> Enqueued:
    row = cx.execute(SQL.enqueued_by_id, (job.id,)).fetchone()
    if row is not None:  # this very call, sent again after its answer was lost
        return Enqueued(job.id, int(row[0]), True)
    no, id = cx.execute(SQL.enqueued_before, (job.owner, job.pipeline, job.key)).fetchone()
    return Enqueued(id, int(no), False)
