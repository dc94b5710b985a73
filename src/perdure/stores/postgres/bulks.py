"""Deeds on jobs, one by one and in bulk.

Always true: what is done to the jobs of a step, what is written down about those that were left as they
were, and the step itself are one transaction; a bulk operation has done what its row says, no more and no less.

Who is authoritative: the rows. A job is guarded by its token, a bulk operation by its cursor while it runs:
whoever saw it elsewhere does nothing.

What may happen at once: anything, in READ COMMITTED. The row of the bulk operation is locked before anything
else, and compared: of two hands that take the same step the second waits, and then finds the cursor elsewhere. After
it jobs are locked, then runs, each in the order of numbers.

If we die in the middle nothing has happened; if the answer is lost, the same step again is told that the
operation has moved on, and its row says how far.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from perdure.model.jobs import Busy, Conflict, Receipt, Record, Revived, Settled, Stale
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
from perdure.stores.columns import BULK
from perdure.stores.moments import from_us
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.noting import note
from perdure.stores.postgres.reviving import revive_apart
from perdure.stores.postgres.settling import busy_among, record_whole
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encoded


class PostgresBulks:
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

        def work(cx: Cx, now: int) -> list[Revived]:
            if step is not None and not _stands(cx, step):
                return [_stale(one) for one in chosen]
            answers = _revive(cx, chosen, deed, owner, now)
            if step is not None:
                _move(cx, step, answers, now)
            return answers

        return self._connection.written(work)

    def discard(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Mark dead letters as dealt with; one that is not failed, or discarded already, is stale."""

        def discard(cx: Cx, now: int) -> list[Settled | Busy]:
            where = {"targets": _seen(chosen), "owner": owner, "now": now}
            done = set(cx.execute(SQL.discard, where).fetchall())
            return _answers(chosen, done, State.FAILED, None)

        return self._done(chosen, discard, deeds.DISCARD, deed, step)

    def cancel(
        self,
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Write these ends of open jobs; one that cannot be written does not spoil its neighbours."""

        def cancel(cx: Cx, now: int) -> list[Settled | Busy]:
            busy = {one.no: one for one in busy_among(cx, records, owner=owner)}
            free = [one for one in records if one.no not in busy]
            where = {"targets": _seen(free), "owner": owner}
            open_now = set(cx.execute(SQL.cancellable, where).fetchall())
            wanted = [one for one in free if (one.no, one.token) in open_now]
            told = iter(record_whole(cx, wanted, None, now))
            return [
                next(told) if (one.no, one.token) in open_now else busy.get(one.no) or _stale(one)
                for one in records
            ]

        return self._done(records, cancel, deeds.CANCEL, deed, step)

    def run_now(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Let jobs that wait for their time be due now; idle workers are woken."""

        def run_now(cx: Cx, now: int) -> list[Settled | Busy]:
            where = {"targets": _seen(chosen), "owner": owner, "now": now}
            done = set(cx.execute(SQL.run_now, where).fetchall())
            if done:
                cx.execute(SQL.notify)
            return _answers(chosen, done, State.QUEUED, from_us(now))

        return self._done(chosen, run_now, deeds.RUN_NOW, deed, step)

    def _done(
        self,
        chosen: Sequence[Target | Record],
        act: Callable[[Cx, int], list[Settled | Busy]],
        verb: str,
        deed: Deed,
        step: BulkStep | None,
    ) -> list[Settled | Busy]:
        """A deed on some jobs, each with its line in the audit log, and the step of a bulk operation."""

        def work(cx: Cx, now: int) -> list[Settled | Busy]:
            if step is not None and not _stands(cx, step):
                return [_stale(one) for one in chosen]
            answers = act(cx, now) if chosen else []
            _log_done(cx, verb, answers, deed, now)
            if step is not None:
                _move(cx, step, answers, now)
            return answers

        return self._connection.written(work)

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""

        def work(cx: Cx, now: int) -> BulkView:
            where = {
                "id": bulk.id, "verb": bulk.verb.value, "filter": bulk.filter_json,
                "by_whom": bulk.deed.by_whom, "reason": bulk.deed.reason, "now": now,
                "settings": bulk.settings_json, "run": bulk.run, "phase": bulk.phase.value,
            }  # fmt: skip
            made = cx.execute(SQL.bulk_add, where).rowcount == 1
            if made:
                note(cx, deeds.BULK[bulk.verb], [bulk.id], bulk.deed, now)
            row = cx.execute(SQL.bulk_by_id, {"id": bulk.id}).fetchone()
            assert row is not None
            if made and bulk.payloads:
                payloads = [{"key": key, "payload": payload} for key, payload in bulk.payloads]
                brought = {"bulk": row[0], "payloads": encoded(payloads)}
                cx.execute(SQL.bulk_payloads_add, brought)
            return BULK.read(row)

        return self._connection.written(work)

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""

        def work(cx: Cx, now: int) -> BulkView | None:
            return _move(cx, step, (), now) if _stands(cx, step) else None

        return self._connection.written(work)

    def change_bulk(self, change: BulkChange, deed: Deed) -> BulkView | None:
        """Stop a bulk operation, or set it going again, if it still has the status that was seen."""

        def work(cx: Cx, now: int) -> BulkView | None:
            where = {
                "no": change.no, "seen": change.seen.value, "status": change.status.value,
                "why": change.why, "now": now,
            }  # fmt: skip
            row = cx.execute(SQL.bulk_change, where).fetchone()
            if row is None:
                return None
            bulk = BULK.read(row)
            note(cx, deeds.BULK_CHANGE[change.status], [bulk.id], deed, now)
            return bulk

        return self._connection.written(work)


def _revive(
    cx: Cx, chosen: Sequence[Revival], deed: Deed, owner: str | None, now: int
) -> list[Revived]:
    done, conflicts = revive_apart(cx, chosen, now, owner) if chosen else (set(), {})
    if done:
        cx.execute(SQL.notify)
    answers: list[Revived] = []
    for one in chosen:
        place = (one.no, one.token)
        if place in done:
            done.remove(place)  # one that is named twice lives once
            answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, from_us(now)))
        elif place in conflicts:
            answers.append(Conflict(one.no, one.id, one.token, *conflicts[place]))
        else:
            answers.append(_stale(one))
    _log_done(cx, deeds.REVIVE, sorted(answers, key=lambda one: one.no), deed, now)
    return answers


def _seen(chosen: Iterable[Target | Record]) -> str:
    return encoded([{"no": one.no, "token": one.token} for one in chosen])


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
            answers.append(_stale(one))
    return answers


def _stale(one: Revival | Target | Record) -> Stale:
    return Stale(one.no, one.id, one.token)


def _log_done(
    cx: Cx, verb: str, answers: Iterable[Settled | Revived | Busy], deed: Deed, now: int
) -> None:
    note(cx, verb, [one.id for one in answers if isinstance(one, Receipt)], deed, now)


def _stands(cx: Cx, step: BulkStep) -> bool:
    """Whether it runs and is where it was seen; if so, it stays there until we have committed."""
    where = {"no": step.no, "seen_cursor": step.seen_cursor}
    return cx.execute(SQL.bulk_hold, where).fetchone() is not None


def _move(
    cx: Cx, step: BulkStep, answers: Sequence[Settled | Revived | Busy], now: int
) -> BulkView:
    """The step itself, and what was left as it was; of a job it is said once."""
    refused = [{"no": one.no, "why": one.why} for one in deeds.refusals(step, answers)]
    count = 0
    if refused:
        where = {"no": step.no, "refusals": encoded(refused)}
        count = cx.execute(SQL.bulk_refuse, where).rowcount
    where = {
        "no": step.no, "seen_cursor": step.seen_cursor, "cursor": step.cursor,
        "done": step.done + sum(isinstance(one, Receipt) for one in answers), "refused": count,
        "status": step.status.value, "phase": step.phase.value, "why": step.why, "now": now,
    }  # fmt: skip
    row = cx.execute(SQL.bulk_step, where).fetchone()
    assert row is not None
    if step.status is BulkStatus.DONE:
        cx.execute(SQL.bulk_payloads_forget, {"bulk": step.no})
    return BULK.read(row)
