"""What operators and the upkeep do, on one SQLite file.

What may happen at once: anything. Each method is one transaction under the turnstile, so they take place one after the other.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Busy, Enqueued, NewJob, Receipt, Record, Revived, Settled
from perdure.model.limits import FINGERPRINT_KEPT_S, PRUNE_BATCH_MAX
from perdure.model.operations import Deed, Refusal, Revival, Target
from perdure.model.states import State
from perdure.stores.bulks import stale
from perdure.stores.change_lines import Entry
from perdure.stores.control import SharedControl
from perdure.stores.known_lanes import KnownLanes
from perdure.stores.moments import MINUTE_US, from_us, seconds_us
from perdure.stores.rows import Row, encode
from perdure.stores.sqlite import change_feed
from perdure.stores.sqlite.audit_log import note
from perdure.stores.sqlite.change_feed import tell
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.enqueue import accept, lanes_among
from perdure.stores.sqlite.fair_ranks import ranks_anew
from perdure.stores.sqlite.gates import change_gate
from perdure.stores.sqlite.record import add_tally, record_each
from perdure.stores.sqlite.revive import RevivalWriter, check_runs, conflict
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tally_changes import Letter, TallyChanges, place_of

T = TypeVar("T")


class SqliteControl(SharedControl):
    """The `Control` port on one SQLite file."""

    _sql = SQL

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        with self._connection.write() as (cx, now):
            return change_gate(cx, change, deed, now)

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled; and add the tallies up."""
        with self._connection.write() as (cx, now):
            _fold(cx, now)
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget lines of the change feed that everybody could read for long enough."""
        with self._connection.write() as (cx, now):
            return change_feed.prune(cx, kept_s, max(0, min(limit, PRUNE_BATCH_MAX)), now)

    def _write(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        with self._connection.write() as (cx, now):
            return work(cx, now)

    def _execute(self, sql: str, values: Mapping[str, object]) -> int:
        with self._connection.write() as (cx, _):
            return cx.execute(sql, values).rowcount

    def _note(
        self, cx: sqlite3.Connection, verb: str, subjects: Sequence[str], deed: Deed, now: int
    ) -> None:
        note(cx, verb, subjects, deed, now)

    def _tell(
        self, cx: sqlite3.Connection, kind: ChangeKind, entries: Sequence[Entry], now: int
    ) -> None:
        change_feed.tell(cx, kind, entries, now)

    def _wake(self, cx: sqlite3.Connection) -> None:
        """A file tells nobody that it has changed."""

    def _lock_run(self, cx: sqlite3.Connection, no: int) -> None:
        """Nobody else writes while we do."""

    def _accept(self, cx: sqlite3.Connection, job: NewJob, now: int) -> Enqueued:
        self._lanes.check([job], partial(lanes_among, cx))
        return accept(cx, [job], now)[0]

    def _duty_seen(self, name: str) -> Row | None:
        with self._connection.read() as (cx, now):
            seen: Row | None = cx.execute(SQL.duty_seen, {"name": name, "now": now}).fetchone()
        return seen

    def _let_go(self, cx: sqlite3.Connection, rows: Sequence[Row]) -> tuple[int, int]:
        where = {"nos": encode([row[0] for row in rows])}
        for sql in (SQL.prune_depths, SQL.prune_flows, SQL.prune_deaths, SQL.prune_runs):
            cx.execute(sql, where)
        cx.execute(SQL.prune_redrives, where)
        attempts = cx.execute(SQL.prune_attempts, where).rowcount
        cx.execute(SQL.prune_checkpoints, where)
        cx.execute(SQL.prune_artifacts, where)
        cx.execute(SQL.prune_owned, where)
        cx.execute(SQL.prune_payloads, where)
        cx.execute(SQL.prune_jobs, where)
        return len(rows), attempts

    def _revive(
        self, cx: sqlite3.Connection, chosen: Sequence[Revival], owner: str | None, now: int
    ) -> list[Revived]:
        check_runs(cx, chosen)
        ranks = ranks_anew(cx, chosen, now)
        revivals = RevivalWriter(cx, now, owner)
        answers: dict[int, Revived] = {}
        for place, one in sorted(enumerate(chosen), key=lambda pair: pair[1].no):
            seen = revivals.row_as_seen(one)
            if seen is None:
                answers[place] = stale(one)
            elif found := conflict(cx, one):
                answers[place] = found
            else:
                revivals.begin(one, seen, ranks.get(one.no))
                answers[place] = Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now))
        revivals.close()
        return [answers[place] for place in range(len(chosen))]

    def _discard(
        self, cx: sqlite3.Connection, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        tally = TallyChanges()
        answers: list[Settled | Busy] = []
        for one in chosen:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.discard, where).fetchone()
            if row is None:
                answers.append(stale(one))
                continue
            tally.add_discarded(Letter(*row[9:]))
            cx.execute(SQL.owned_put, (one.no, now))
            tell(cx, ChangeKind.JOB_DISCARDED, [Entry(*row[:9])], now)
            answers.append(Receipt(one.no, one.id, one.token, State.FAILED, None))
        add_tally(cx, tally, 0, now)
        return answers

    def _cancel(
        self, cx: sqlite3.Connection, records: Sequence[Record], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        answers: list[Settled | Busy] = []
        for one in records:
            where = {"no": one.no, "token": one.token, "owner": owner}
            is_open = cx.execute(SQL.cancellable, where).fetchone() is not None
            answers += record_each(cx, [one], None, now) if is_open else [stale(one)]
        return answers

    def _run_now(
        self, cx: sqlite3.Connection, chosen: Sequence[Target], owner: str | None, now: int
    ) -> list[Settled | Busy]:
        tally = TallyChanges()
        answers: list[Settled | Busy] = []
        for one in chosen:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.run_now, where).fetchone()
            if row is None:
                answers.append(stale(one))
                continue
            lane, error_kind = row
            tally.move(lane, place_of(State.QUEUED, False, error_kind), "ready")
            cx.execute(SQL.owned_put, (one.no, now))
            answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now)))
        add_tally(cx, tally, 0, now)
        return answers

    def _refuse(self, cx: sqlite3.Connection, bulk: int, refusals: Sequence[Refusal]) -> int:
        rows = [{"bulk": bulk, "job": one.no, "why": one.why} for one in refusals]
        return cx.executemany(SQL.refusal_add, rows).rowcount

    def _keep_payloads(
        self, cx: sqlite3.Connection, bulk: int, payloads: Sequence[tuple[str, str]]
    ) -> None:
        cx.executemany(SQL.bulk_payload_add, [(bulk, *one) for one in payloads])


def _fold(cx: sqlite3.Connection, now: int) -> None:
    """Add up what ended in runs and the minutes older than an hour, and forget what struck nobody for a month."""
    cx.execute(SQL.depths_home)
    cx.execute(SQL.depths_forget)
    hour = {"old": now // MINUTE_US - 60}
    cx.execute(SQL.flows_fold, hour)
    cx.execute(SQL.flows_forget, hour)
    month = {"old": now - seconds_us(FINGERPRINT_KEPT_S)}
    cx.execute(SQL.deaths_fold, month)
    cx.execute(SQL.deaths_forget, month)
    cx.execute(SQL.owners_forget)
    cx.execute(SQL.owner_rates_forget, {"now": now, "limit": PRUNE_BATCH_MAX})
