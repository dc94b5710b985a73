"""Deeds on jobs, one by one and in bulk.

Always true: what is done to the jobs of a step, what is written down about those that were left as they
were, and the step itself are one transaction; a bulk operation has done what its row says, no more and no less.

Who is authoritative: the rows. A job is guarded by its token, a bulk operation by its cursor while it runs:
whoever saw it elsewhere does nothing. What may happen at once: anything; each method is one
transaction under the turnstile. If we die in the middle nothing has happened; if the answer is lost, the same
step again is told that the operation has moved on, and its row says how far.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.jobs import Busy, Receipt, Record, Revived, Settled, Stale
from perdure.model.operations import (
    BulkChange,
    BulkStatus,
    BulkStep,
    BulkView,
    Deed,
    NewBulk,
    Revival,
    Target,
)
from perdure.model.states import State
from perdure.stores import deeds
from perdure.stores.changes import Entry
from perdure.stores.columns import BULK
from perdure.stores.counting import Letter, Tally, place_of
from perdure.stores.moments import from_us
from perdure.stores.sqlite.changing import tell
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.noting import note
from perdure.stores.sqlite.ranking import ranks_anew
from perdure.stores.sqlite.reviving import Revivals, check_runs, conflict
from perdure.stores.sqlite.settling import add_tally, record_each
from perdure.stores.sqlite.statements import SQL

Seen = TypeVar("Seen", Target, Record)


class SqliteBulks:
    """The part of the `Control` port that is about single jobs and bulk operations."""

    _connection: Connection

    def revive(
        self,
        chosen: Sequence[Revival],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Revived]:
        """Give failed jobs a new life; of those with one key, the lowest number."""
        with self._connection.written() as (cx, now):
            check_runs(cx, chosen)
            if step is not None and not _stepped(cx, step, now):
                return [_stale(one) for one in chosen]
            answers = _revive(cx, chosen, deed, owner, now)
            if step is not None:
                _count(cx, step, answers)
        return answers

    def discard(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Mark dead letters as dealt with; one that is not failed, or discarded already, is stale."""

        def discard(cx: sqlite3.Connection, one: Target, now: int, tally: Tally) -> Settled:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.discard, where).fetchone()
            if row is None:
                return _stale(one)
            tally.discarded(Letter(*row[9:]))
            cx.execute(SQL.owned_put, (one.no, now))
            tell(cx, ChangeKind.JOB_DISCARDED, [Entry(*row[:9])], now)
            return Receipt(one.no, one.id, one.token, State.FAILED, None)

        return self._each(chosen, discard, deeds.DISCARD, deed, step)

    def cancel(
        self,
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Write these ends of open jobs; one that cannot be written does not spoil its neighbours."""

        def cancel(cx: sqlite3.Connection, one: Record, now: int, _: Tally) -> Settled:
            where = {"no": one.no, "token": one.token, "owner": owner}
            if cx.execute(SQL.cancellable, where).fetchone() is None:
                return _stale(one)
            return record_each(cx, [one], None, now)[0]

        return self._each(records, cancel, deeds.CANCEL, deed, step)

    def run_now(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Let jobs that wait for their time be due now."""

        def run_now(cx: sqlite3.Connection, one: Target, now: int, tally: Tally) -> Settled:
            where = {"no": one.no, "token": one.token, "owner": owner, "now": now}
            row = cx.execute(SQL.run_now, where).fetchone()
            if row is None:
                return _stale(one)
            lane, error_kind = row
            tally.moved(lane, place_of(State.QUEUED, False, error_kind), "ready")
            cx.execute(SQL.owned_put, (one.no, now))
            return Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now))

        return self._each(chosen, run_now, deeds.RUN_NOW, deed, step)

    def _each(
        self,
        chosen: Sequence[Seen],
        act: Callable[[sqlite3.Connection, Seen, int, Tally], Settled | Busy],
        verb: str,
        deed: Deed,
        step: BulkStep | None,
    ) -> list[Settled | Busy]:
        """One after the other, each with its line in the audit log, and the step of a bulk operation."""
        with self._connection.written() as (cx, now):
            if step is not None and not _stepped(cx, step, now):
                return [_stale(one) for one in chosen]
            tally = Tally()
            answers = [act(cx, one, now, tally) for one in chosen]
            add_tally(cx, tally, 0, now)
            for answer in answers:
                if isinstance(answer, Receipt):
                    note(cx, verb, answer.id, deed, now)
            if step is not None:
                _count(cx, step, answers)
        return answers

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""
        with self._connection.written() as (cx, now):
            where = {
                "id": bulk.id, "verb": bulk.verb.value, "filter": bulk.filter_json,
                "by_whom": bulk.deed.by_whom, "reason": bulk.deed.reason, "now": now,
                "settings": bulk.settings_json, "run": bulk.run, "phase": bulk.phase.value,
            }  # fmt: skip
            if cx.execute(SQL.bulk_add, where).rowcount == 1:
                note(cx, deeds.BULK[bulk.verb], bulk.id, bulk.deed, now)
                (no, *_) = cx.execute(SQL.bulk_by_id, {"id": bulk.id}).fetchone()
                cx.executemany(SQL.bulk_payload_add, [(no, *one) for one in bulk.payloads])
            return BULK.read(cx.execute(SQL.bulk_by_id, {"id": bulk.id}).fetchone())

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""
        with self._connection.written() as (cx, now):
            if not _stepped(cx, step, now):
                return None
            _count(cx, step, ())
            return BULK.read(cx.execute(SQL.bulk_by_no, (step.no,)).fetchone())

    def change_bulk(self, change: BulkChange, deed: Deed) -> BulkView | None:
        """Stop a bulk operation, or set it going again, if it still has the status that was seen."""
        with self._connection.written() as (cx, now):
            where = {
                "no": change.no, "seen": change.seen.value, "status": change.status.value,
                "why": change.why, "now": now,
            }  # fmt: skip
            row = cx.execute(SQL.bulk_change, where).fetchone()
            if row is None:
                return None
            bulk = BULK.read(row)
            note(cx, deeds.BULK_CHANGE[change.status], bulk.id, deed, now)
            return bulk


def _revive(
    cx: sqlite3.Connection, chosen: Sequence[Revival], deed: Deed, owner: str | None, now: int
) -> list[Revived]:
    ranks = ranks_anew(cx, chosen, now)
    revivals = Revivals(cx, now, owner)
    answers: dict[int, Revived] = {}
    for place, one in sorted(enumerate(chosen), key=lambda pair: pair[1].no):
        seen = revivals.seen(one)
        if seen is None:
            answers[place] = _stale(one)
        elif found := conflict(cx, one):
            answers[place] = found
        else:
            revivals.begin(one, seen, ranks.get(one.no))
            note(cx, deeds.REVIVE, one.id, deed, now)
            answers[place] = Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now))
    revivals.close()
    return [answers[place] for place in range(len(chosen))]


def _stepped(cx: sqlite3.Connection, step: BulkStep, now: int) -> bool:
    """Compare and set; what was done is counted afterwards."""
    where = {
        "no": step.no, "seen_cursor": step.seen_cursor, "cursor": step.cursor,
        "status": step.status.value, "phase": step.phase.value, "why": step.why, "now": now,
    }  # fmt: skip
    stepped = cx.execute(SQL.bulk_step, where).rowcount == 1
    if stepped and step.status is BulkStatus.DONE:
        cx.execute(SQL.bulk_payloads_forget, {"bulk": step.no})
    return stepped


def _stale(one: Revival | Target | Record) -> Stale:
    return Stale(one.no, one.id, one.token)


def _count(
    cx: sqlite3.Connection, step: BulkStep, answers: Sequence[Settled | Revived | Busy]
) -> None:
    done = step.done + sum(isinstance(one, Receipt) for one in answers)
    refused = sum(
        cx.execute(SQL.refusal_add, {"bulk": step.no, "job": one.no, "why": one.why}).rowcount
        for one in deeds.refusals(step, answers)
    )
    cx.execute(SQL.bulk_count, {"no": step.no, "done": done, "refused": refused})
