"""What operators and the upkeep do, on one PostgreSQL database.

What may happen at once: anything, in READ COMMITTED. Every guard stands in the statement that writes: whoever
comes second waits for the row, and the server then compares again with what the first has committed.
Where a row may not be there yet, ON CONFLICT waits for whoever is making it, and a second statement, whose
snapshot is newer, reads what was made. Jobs are locked in the order of their numbers. Pruning waits
for nobody: what another hand holds stays for the next time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Busy, Conflict, Enqueued, NewJob, Receipt, Record, Revived, Settled
from perdure.model.limits import FINGERPRINT_KEPT_S, PRUNE_BATCH_MAX
from perdure.model.operations import Deed, Refusal, Revival, Target
from perdure.model.states import State
from perdure.stores.bulks import stale
from perdure.stores.change_lines import Entry
from perdure.stores.control import SharedControl
from perdure.stores.known_lanes import KnownLanes
from perdure.stores.moments import from_us, seconds_us
from perdure.stores.postgres import change_feed
from perdure.stores.postgres.audit_log import note
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.enqueue import accept, lanes_among
from perdure.stores.postgres.gates import change_gate
from perdure.stores.postgres.record import busy_among, record_whole
from perdure.stores.postgres.revive import revive_apart
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import Row, encode

FOLD_ROWS = 10_000  # as the statements have it
FOLDS_MAX = 100  # a million rows in a round
T = TypeVar("T")


class PostgresControl(SharedControl):
    """The `Control` port on one PostgreSQL database."""

    _sql = SQL

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        return self._connection.write(lambda cx, now: change_gate(cx, change, deed, now))

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled; and add the tallies up."""
        self._fold()

        def work(cx: Cx, now: int) -> int:
            cx.execute(SQL.owner_rates_forget, {"now": now, "limit": PRUNE_BATCH_MAX})
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

        return self._connection.write(work)

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget lines of the change feed that everybody could read for long enough."""
        most = max(0, min(limit, PRUNE_BATCH_MAX))
        return self._connection.write(lambda cx, now: change_feed.prune(cx, kept_s, most, now))

    def _fold(self) -> None:
        """Add up what writers have counted, each in rows of its own; a little at a time, for turns wait for that."""
        for sql in (
            SQL.depths_fold,
            SQL.depths_home,
            SQL.flows_fold,
            SQL.deaths_fold,
            SQL.owners_ended_fold,
            SQL.owners_fold,
            SQL.run_counts_fold,
            SQL.run_kinds_fold,
        ):

            def some(cx: Cx, now: int, sql: str = sql) -> int:
                where = {"now": now, "old": now - seconds_us(FINGERPRINT_KEPT_S)}
                row = cx.execute(sql, where).fetchone()
                return 0 if row is None else int(row[0])

            for _ in range(FOLDS_MAX):
                if self._connection.write(some) < FOLD_ROWS:
                    break

    def _write(self, work: Callable[[Cx, int], T]) -> T:
        return self._connection.write(work)

    def _execute(self, sql: str, values: Mapping[str, object]) -> int:
        with self._connection.autocommit() as cx:
            return cx.execute(sql, values).rowcount

    def _note(self, cx: Cx, verb: str, subjects: Sequence[str], deed: Deed, now: int) -> None:
        note(cx, verb, subjects, deed, now)

    def _tell(self, cx: Cx, kind: ChangeKind, entries: Sequence[Entry], now: int) -> None:
        change_feed.tell(cx, kind, entries, now)

    def _wake(self, cx: Cx) -> None:
        cx.execute(SQL.notify)

    def _lock_run(self, cx: Cx, no: int) -> None:
        cx.execute(SQL.run_lock, {"no": no})

    def _accept(self, cx: Cx, job: NewJob, now: int) -> Enqueued:
        self._lanes.check([job], partial(lanes_among, cx))
        return accept(cx, [job], now)[0]

    def _duty_seen(self, name: str) -> Row | None:
        with self._connection.autocommit() as cx:
            where = {"name": name, "now": self._connection.now()}
            return cx.execute(SQL.duty_seen, where).fetchone()

    def _let_go(self, cx: Cx, rows: Sequence[Row]) -> tuple[int, int]:
        seen = [{"no": row[0], "token": row[1]} for row in rows]
        gone = cx.execute(SQL.prune_jobs, {"seen": encode(seen)}).fetchall()
        where = {"nos": array(row[0] for row in gone)}
        jobs = [{"no": row[0], "pipeline": row[1]} for row in gone]
        in_runs = [
            {"no": no, "run": run, "life": life, "state": state}
            for no, _, run, redriven, life, state in gone
            if run is not None or redriven is not None
        ]
        if in_runs:
            cx.execute(SQL.prune_runs, {"gone": encode(in_runs)})
            cx.execute(SQL.prune_redrives, where)
        ((attempts,),) = cx.execute(SQL.prune_attempts, {"jobs": encode(jobs)}).fetchall()
        cx.execute(SQL.prune_checkpoints, where)
        cx.execute(SQL.prune_artifacts, where)
        cx.execute(SQL.prune_payloads, where)
        return len(gone), attempts

    def _revive(
        self, cx: Cx, chosen: Sequence[Revival], owner: str | None, now: int
    ) -> list[Revived]:
        done, conflicts = revive_apart(cx, chosen, now, owner)
        if done:
            self._wake(cx)
        answers: list[Revived] = []
        for one in chosen:
            place = (one.no, one.token)
            if place in done:
                done.remove(place)  # one that is named twice lives once
                answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now)))
            elif place in conflicts:
                answers.append(Conflict(one.no, one.id, one.token, *conflicts[place]))
            else:
                answers.append(stale(one))
        return answers

    def _discard(
        self, cx: Cx, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        where = {"targets": _seen_json(chosen), "owner": owner, "now": now}
        done = set(cx.execute(SQL.discard, where).fetchall())
        return _answers(chosen, done, State.FAILED, None)

    def _cancel(
        self, cx: Cx, records: Sequence[Record], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        busy = {one.no: one for one in busy_among(cx, records, owner=owner)}
        free = [one for one in records if one.no not in busy]
        where = {"targets": _seen_json(free), "owner": owner}
        open_now = set(cx.execute(SQL.cancellable, where).fetchall())
        wanted = [one for one in free if (one.no, one.token) in open_now]
        told = iter(record_whole(cx, wanted, None, now))
        return [
            next(told) if (one.no, one.token) in open_now else busy.get(one.no) or stale(one)
            for one in records
        ]

    def _run_now(
        self, cx: Cx, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        where = {"targets": _seen_json(chosen), "owner": owner, "now": now}
        done = set(cx.execute(SQL.run_now, where).fetchall())
        if done:
            self._wake(cx)
        return _answers(chosen, done, State.QUEUED, from_us(now))

    def _refuse(self, cx: Cx, bulk: int, refusals: Sequence[Refusal]) -> int:
        rows = [{"no": one.no, "why": one.why} for one in refusals]
        return cx.execute(SQL.bulk_refuse, {"no": bulk, "refusals": encode(rows)}).rowcount

    def _keep_payloads(self, cx: Cx, bulk: int, payloads: Sequence[tuple[str, str]]) -> None:
        if payloads:
            rows = [{"key": key, "payload": payload} for key, payload in payloads]
            cx.execute(SQL.bulk_payloads_add, {"bulk": bulk, "payloads": encode(rows)})


def _seen_json(chosen: Iterable[Target | Record]) -> str:
    return encode([{"no": one.no, "token": one.token} for one in chosen])


def _answers(
    chosen: Iterable[Target], done: set[tuple[int, int]], state: State, due_at: datetime | None
) -> list[Settled | Busy]:
    """To each its own; of one that is named twice the first is done."""
    answers: list[Settled | Busy] = []
    for one in chosen:
        if (one.no, one.token) in done:
            done.remove((one.no, one.token))
            answers.append(Receipt(one.no, one.id, one.token, state, due_at))
        else:
            answers.append(stale(one))
    return answers
