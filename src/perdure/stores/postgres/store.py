"""The writes. Every write of a running job is guarded by (no, token); every writer must be alive.

Who is authoritative: the rows, as transactions change them in the order in which they commit. Nothing
here decides anything: a record says what the job becomes, and it becomes that, or the record is stale.

What may happen at once: anything. Two pumps never hold the same job, since a claim locks the row and
skips what others have locked; a sweeper, a person and a pump may settle the same claim at the same
moment, and the token lets one of them; a turn holds its worker's row against being declared dead until it
has committed, so that no dead worker ever claims. Batches are locked in the order of job numbers.

A turn is one round trip: record, promote and claim travel in one pipeline and are one transaction. If
it fails, nothing of it has happened, or, when the line broke, all of it may have: the same records again
get the same receipts, from the attempt rows.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import asdict

from perdure.model.changes import ChangeKind
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
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.model.workers import NewWorker
from perdure.stores.change_lines import worker_entry
from perdure.stores.known_lanes import KnownLanes
from perdure.stores.lane_slots import lanes_of
from perdure.stores.moments import seconds_us
from perdure.stores.postgres.change_feed import tell
from perdure.stores.postgres.claim import (
    ClaimQuestion,
    Floors,
    array,
    claim_parameters,
    claims_in,
    order_again,
    parts_asked,
    promote_parameters,
)
from perdure.stores.postgres.complete import PostgresCompleting
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cursor, Cx
from perdure.stores.postgres.enqueue import accept, accept_whole, begin, lanes_among
from perdure.stores.postgres.enqueue_within import join
from perdure.stores.postgres.gates import PostgresGates
from perdure.stores.postgres.notify import NotifyListener, NotifySender
from perdure.stores.postgres.record import (
    UNWRITABLE,
    OwnerLines,
    check_alive,
    claims_of,
    done_rows,
    is_bad_row,
    json_answer,
    parameters,
    plain_parameters,
    plain_receipts,
    receipts,
    record_each,
)
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import Row, encode, expired_out, lost_out, overrun_out

SILENT = encode(Death("silent"))


class PostgresStore(PostgresCompleting, PostgresGates):
    """The `Store` port on one PostgreSQL database."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._floors = Floors(connection.monotonic)
        self._notify_sender = NotifySender(connection)
        self._notify_listener = NotifyListener(connection)
        self._short = False  # whether the last claim found less than it asked for
        self._lanes = KnownLanes()
        self._owner_lines = OwnerLines(connection)

    def lanes(self, wanted: Sequence[Lane]) -> dict[Lane, int]:
        """The numbers of these lanes, made where they are missing."""
        with self._connection.autocommit() as cx:
            found = _lane_nos(cx, wanted)
        missing = sorted({lane for lane in wanted if lane not in found}, key=repr)
        if missing:
            found |= self._connection.write(
                lambda cx, _: {one: _add_lane(cx, one) for one in missing}
            )
        self._lanes.learn(found)
        return found

    def enqueue(self, jobs: Sequence[NewJob], *, within: object = None) -> list[Enqueued]:
        """Accept jobs, all or none; the same key gives the same job."""
        if not jobs:
            return []
        if within is not None:
            with join(within, self._connection) as cx:
                self._lanes.check(jobs, self._look_at_lanes)  # their snapshot may be old
                return accept(cx, jobs, self._connection.now(), borrowed=True)
        self._lanes.check(jobs, self._look_at_lanes)
        done = self._connection.resend(lambda cx: accept_whole(cx, jobs, self._connection.now()))
        self._notify_sender.tell()
        return done

    def begin(
        self, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> Claim | Enqueued:
        """Accept a job that its caller, a worker of its own, runs at once."""
        self._lanes.check([job], self._look_at_lanes)
        with self._connection.autocommit() as cx:
            done = begin(
                cx, job, worker=worker, hard_s=hard_s, on_lost=on_lost, now=self._connection.now()
            )
            if isinstance(done, Enqueued) and done.id != job.id:
                return done
            no = done.no if isinstance(done, Enqueued) else done
            held = {one for one, _ in cx.execute(SQL.held, {"worker": worker}).fetchall()}
            claims = claims_of(cx, {no: 1}) if no in held else []  # another may have it by now
            return claims[0] if claims else Enqueued(job.id, no, True)

    def turn(self, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None) -> Turn:
        """Write the records, then promote and claim; one transaction."""
        asked = _order_without_repeats(order)
        done = self._take_turn(records, asked, by)
        if asked is None and any(one.state is State.QUEUED and not one.delay_s for one in records):
            self._notify_sender.tell()  # who claims nothing leaves what is queued to others
        if records:
            self._owner_lines.add()
        return done

    def _take_turn(
        self, records: Sequence[Record], asked: ClaimOrder | None, by: int | None
    ) -> Turn:
        with self._connection.autocommit() as cx:
            if not records and asked is None and by is not None:
                check_alive(cx.execute(SQL.worker_alive, {"worker": by}).fetchone() is not None, by)
            try:
                return self._turn(cx, records, asked, by)
            except UNWRITABLE as error:
                if not records or not is_bad_row(error):
                    raise
            return self._turn_apart(cx, records, asked, by)

    def waiting(self, order: ClaimOrder) -> float | None:
        """Seconds until the order could be served: 0 for now, None when nothing waits."""
        with self._connection.autocommit() as cx:
            where = self._waiting_parameters(order, lanes_of(order))
            return _wait_of(cx.execute(SQL.waiting, where))[0]

    def has_changed(self) -> bool:
        """Whether a hint has come since the last call."""
        return self._notify_listener.has_heard()

    def wake_fd(self) -> int | None:
        """The socket on which hints come, while there is one."""
        return self._notify_listener.fileno()

    def add_worker(self, worker: NewWorker) -> int:
        """Register a working process that is about to start."""
        where = {
            "boot": worker.boot,
            "name": worker.name,
            "role": worker.role,
            "ttl_us": seconds_us(worker.ttl_s),
        }

        def work(cx: Cx, now: int) -> int:
            row = cx.execute(SQL.worker_add, where | {"now": now}).fetchone()
            assert row is not None
            no, fresh = row
            if fresh:
                told = worker_entry(no, worker.boot, "alive")
                tell(cx, ChangeKind.WORKER_CHANGED, [told], now)
            return int(no)

        return self._connection.write(work)

    def beat(self, workers: Sequence[int]) -> frozenset[int]:
        """Renew leases; the answer names the workers that are still alive."""
        where = {"workers": array(workers), "now": self._connection.now()}
        with self._connection.autocommit() as cx:
            return frozenset(no for (no,) in cx.execute(SQL.beat, where).fetchall())

    def end_worker(self, worker: int, death: Death) -> bool:
        """Its own supervisor says that this worker has ended; False when that was known."""
        where = {"worker": worker, "death": encode(death)}

        def work(cx: Cx, now: int) -> bool:
            dead = cx.execute(SQL.worker_end, where | {"now": now}).fetchall()
            _tell_dead(cx, dead, now)
            return bool(dead)

        return self._connection.write(work)

    def mark_dead(self, *, by: int) -> tuple[int, ...]:
        """Declare dead every worker whose lease has run out, if ``by`` may say so."""
        with self._connection.autocommit() as cx:
            due = cx.execute(SQL.overdue, {"now": self._connection.now()}).fetchone()
        if due != (True,):
            return ()
        return self._connection.write(lambda cx, now: _mark_dead(cx, by, now))

    def lost_claims(self, *, limit: int, lanes: Sequence[int] | None = None) -> list[LostClaim]:
        """Claims still held by dead workers; with ``lanes``, only those of these lanes."""
        where = {"lanes": None if lanes is None else array(lanes), "limit": limit}
        with self._connection.transaction() as (cx, now):
            rows = cx.execute(SQL.lost, where).fetchall()
            found = {row[0]: row[2:] for row in rows}
            claims = claims_of(cx, {row[0]: row[1] for row in rows})
        return [lost_out(claim, found[claim.no], now) for claim in claims]

    def expired_jobs(self, *, limit: int) -> list[Expired]:
        """Waiting jobs whose deadline has passed, in closed lanes too."""
        where = {"now": self._connection.now(), "limit": limit}
        with self._connection.autocommit() as cx:
            return [expired_out(row) for row in cx.execute(SQL.expired, where).fetchall()]

    def overrun(self, limits_s: Mapping[int, float], *, limit: int) -> list[Overrun]:
        """Claims that are held for longer than their lane's limit, or than their own."""
        limits = [
            {"lane": lane, "most_us": seconds_us(most_s)} for lane, most_s in limits_s.items()
        ]
        with self._connection.transaction() as (cx, now):
            where = {"limits": encode(limits), "now": now, "limit": limit}
            rows = cx.execute(SQL.overrun, where).fetchall()
            found = {row[0]: row[2:] for row in rows}
            claims = claims_of(cx, {row[0]: row[1] for row in rows})
        return [overrun_out(claim, found[claim.no], now) for claim in claims]

    def tokens_held(self, worker: int) -> dict[int, int]:
        """Job numbers and tokens that this worker holds."""
        with self._connection.autocommit() as cx:
            return dict(cx.execute(SQL.held, {"worker": worker}).fetchall())

    def claims_held(self, worker: int) -> list[Claim]:
        """The claims that this worker holds, whole."""
        with self._connection.autocommit() as cx, cx.transaction():
            cx.execute(SQL.worker_quiet, {"worker": worker})  # a turn under way ends first
            return claims_of(cx, dict(cx.execute(SQL.held, {"worker": worker}).fetchall()))

    def run_lanes(self) -> dict[int, Lane]:
        """The lanes of all runs that are not over, by their numbers."""
        with self._connection.autocommit() as cx:
            return {no: Lane(*rest) for no, *rest in cx.execute(SQL.run_lanes).fetchall()}

    def suspects(self, lanes: Sequence[int] | None = None) -> frozenset[int]:
        """Isolation levels above 0 at which jobs wait in open lanes; of these, if given."""
        known = None if lanes is None else array(lanes)
        with self._connection.autocommit() as cx:
            where = {"lanes": known, "now": self._connection.now()}
            rows = cx.execute(SQL.suspects, where).fetchall()
        return frozenset(level for (level,) in rows)

    def close(self) -> None:
        """Disconnect."""
        self._notify_sender.close()
        self._notify_listener.close()
        self._connection.close()

    def _look_at_lanes(self, nos: set[int]) -> set[int]:
        with self._connection.autocommit() as cx:
            return lanes_among(cx, nos)

    def _turn(
        self,
        cx: Cx,
        records: Sequence[Record],
        order: ClaimOrder | None,
        by: int | None,
        *,
        dry: tuple[int, ...] = (),
    ) -> Turn:
        """The whole turn in one pipeline, which is one transaction. ``dry`` lanes were asked before."""
        now = self._connection.now()
        recorded, promoted, claimed = cx.cursor(), cx.cursor(), []
        waited: Cursor | None = None
        plain = plain_parameters(records, by, now)
        with cx.pipeline():
            if plain is not None and records:
                recorded.execute(SQL.record_done, plain)
            elif records:
                recorded.execute(SQL.record, parameters(records, by, now))
            if order is not None:
                promoted.execute(SQL.promote, promote_parameters(order, now))
                for part in parts_asked(order):
                    asked = ClaimQuestion(part, self._floors.of(part, order.isolation))
                    cursor = cx.cursor(binary=True)
                    cursor.execute(SQL.claim, claim_parameters(order, asked, now))
                    claimed.append((asked, cursor))
                if self._short and not (order.parts or dry):  # it will be asked next: it goes along
                    waited = cx.execute(SQL.waiting, self._waiting_parameters(order, order.lanes))
        settled: tuple[Settled, ...] = ()
        if records:
            answer = json_answer(recorded)
            check_alive(answer["alive"], by)
            if plain is None:
                settled = receipts(cx, records, answer["done"], by)
            elif answer["some"] is not None:
                settled = receipts(cx, records, done_rows(answer["some"]), by)
            else:
                settled = plain_receipts(records)
        if order is None:
            return Turn(settled, ())
        for asked, cursor in claimed:
            asked.rows = list(cursor.fetchall())
        self._floors.learn([asked for asked, _ in claimed], order.isolation)
        self._floors.lower((promoted.fetchone() or (None,))[0])
        return self._claim_missing(
            cx, order, [asked for asked, _ in claimed], settled, by, dry, waited
        )

    def _claim_missing(
        self,
        cx: Cx,
        order: ClaimOrder,
        asked: Sequence[ClaimQuestion],
        settled: tuple[Settled, ...],
        by: int | None,
        dry: tuple[int, ...],
        waited: Cursor | None,
    ) -> Turn:
        """The end of a turn: what is missing is asked for again, if it may be there."""
        claims = tuple(claim for one in asked for claim in claims_in(one.rows))
        self._short = len(claims) < order.slots
        if not self._short:
            return Turn(settled, claims)
        again = order_again(order, asked)
        dry += tuple(lane for one in asked if one.is_dry for lane in one.part.lanes)
        if again is not None:
            return _join_turns(settled, claims, self._turn(cx, (), again, by, dry=dry))
        if waited is None:
            waited = cx.execute(SQL.waiting, self._waiting_parameters(order, dry or order.lanes))
        wait_s, alive = _wait_of(waited)
        if not claims and not settled:  # what was settled is told first; the next turn says it
            check_alive(alive, order.worker)
        return Turn(settled, claims, wait_s)

    def _waiting_parameters(self, order: ClaimOrder, lanes: Iterable[int]) -> dict[str, object]:
        return {
            "lanes": array(lanes),
            "isolation": order.isolation,
            "worker": order.worker,
            "now": self._connection.now(),
        }

    def _turn_apart(
        self, cx: Cx, records: Sequence[Record], order: ClaimOrder | None, by: int | None
    ) -> Turn:
        """One row cannot be written: record one by one, then claim."""
        with cx.transaction():
            settled, alive = record_each(cx, records, by, self._connection.now())
            check_alive(alive, by)
        if order is None:
            return Turn(settled, ())
        return _join_turns(settled, (), self._turn(cx, (), order, by))


def _wait_of(waited: Cursor) -> tuple[float | None, bool]:
    """What `waiting.sql` says: seconds until something can run, and whether the worker that asks is alive."""
    row = waited.fetchone()
    assert row is not None
    ready, due_at, now, alive = row
    if ready:
        return 0.0, alive
    return None if due_at is None else max(0.0, (due_at - now) / 1_000_000), alive


def _order_without_repeats(order: ClaimOrder | None) -> ClaimOrder | None:
    """The order without lanes that it names twice, or None when it asks for nothing."""
    if order is None or order.slots <= 0:
        return None
    lanes = tuple(dict.fromkeys(order.lanes))
    return ClaimOrder(order.worker, order.slots, lanes, order.isolation, order.parts)


def _join_turns(settled: Sequence[Settled], claims: Sequence[Claim], more: Turn) -> Turn:
    return Turn(tuple(settled), (*claims, *more.claims), more.next_due_s)


def _lane_nos(cx: Cx, wanted: Sequence[Lane]) -> dict[Lane, int]:
    rows = [{"place": place, **asdict(lane)} for place, lane in enumerate(wanted)]
    found = cx.execute(SQL.lanes_find, {"lanes": encode(rows)}).fetchall()
    return {wanted[place]: no for no, place in found}


def _add_lane(cx: Cx, lane: Lane) -> int:
    row = cx.execute(SQL.lane_add, asdict(lane)).fetchone()
    assert row is not None
    return int(row[0])


def _mark_dead(cx: Cx, by: int, now: int) -> tuple[int, ...]:
    rows = cx.execute(SQL.mark_dead, {"by": by, "now": now, "death": SILENT}).fetchall()
    _tell_dead(cx, rows, now)
    cx.execute(SQL.settle_workers, {"now": now})
    cx.execute(SQL.samples_forget)
    return tuple(sorted(no for no, _ in rows))


def _tell_dead(cx: Cx, dead: Sequence[Row], now: int) -> None:
    told = [worker_entry(no, boot, "dead") for no, boot in dead]
    tell(cx, ChangeKind.WORKER_CHANGED, told, now)
