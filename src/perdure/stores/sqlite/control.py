"""What operators and the upkeep do: guarded writes that say who did it and why.

Always true: a deed and its line in the audit log are one transaction; a deed that changed nothing (the
job has moved on, the queue was paused already, the gate's generation is another) leaves no line.
Whatever changes a job raises its token, so that every earlier sight of it is stale.

Who is authoritative: the rows. A gate is changed by comparing its generation, a run by comparing
its status, a schedule by its moment, a bulk operation by its cursor, a job by its token: of two
hands that saw the same thing, one acts and the other is told that it came too late. A duty is a lease by the
store's clock and ends at once with its worker's life.

What may happen at once: anything. Each method is one transaction under the turnstile, so they take
place one after the other. If we die in the middle, nothing of it has happened; if the answer is lost, the
same call again finds its own run, bulk operation or duty, and is otherwise told that the thing has moved
on, which it has.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence

from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued, Receipt, Settled, Stale
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.operations import (
    BulkStep,
    BulkView,
    Deed,
    LaneScope,
    NewBulk,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    Target,
    Tick,
)
from perdure.model.runs import NewRun, RunStatus, RunView
from perdure.model.states import State
from perdure.stores import deeds
from perdure.stores.counting import Tally
from perdure.stores.duties import standing
from perdure.stores.lanes import KnownLanes
from perdure.stores.moments import from_us, seconds_us, to_us
from perdure.stores.pruning import Ends
from perdure.stores.rows import Row, bulk_out, encoded, run_out
from perdure.stores.sqlite.accepting import accept, all_lanes
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.gating import change_gate
from perdure.stores.sqlite.noting import note
from perdure.stores.sqlite.ranking import ranks_anew
from perdure.stores.sqlite.reviving import revive_one
from perdure.stores.sqlite.settling import add_tally
from perdure.stores.sqlite.statements import SQL


class SqliteControl:
    """The `Control` port on one SQLite file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def revive(self, chosen: Sequence[Revival], deed: Deed) -> list[Settled]:
        """Give failed jobs a new life; one that is not failed, or has moved on, is stale."""
        answers: list[Settled] = []
        with self._connection.written() as (cx, now):
            tally, ranks = Tally(), ranks_anew(cx, chosen, now)
            for one in chosen:
                if revive_one(cx, one, now, tally, ranks.get(one.no)):
                    note(cx, deeds.REVIVE, one.id, deed, now)
                    due_at = from_us(now)
                    answers.append(Receipt(one.no, one.id, one.token, State.QUEUED, due_at))
                else:
                    answers.append(Stale(one.no, one.id, one.token))
            add_tally(cx, tally, 0)
        return answers

    def discard(self, chosen: Sequence[Target], deed: Deed) -> list[Settled]:
        """Mark dead letters as dealt with; one that is not failed, or discarded already, is stale."""
        answers: list[Settled] = []
        with self._connection.written() as (cx, now):
            for one in chosen:
                where = {"no": one.no, "token": one.token, "now": now}
                if cx.execute(SQL.discard, where).rowcount == 1:
                    note(cx, deeds.DISCARD, one.id, deed, now)
                    answers.append(Receipt(one.no, one.id, one.token, State.FAILED, None))
                else:
                    answers.append(Stale(one.no, one.id, one.token))
        return answers

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        deeds.check_pause(scope, name)
        with self._connection.written() as (cx, now):
            done = _pause(cx, scope, name, deed, now)
            if done:
                note(cx, deeds.PAUSE[scope], name, deed, now)
            return done

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        deeds.check_pause(scope, name)
        with self._connection.written() as (cx, now):
            done = _unpause(cx, scope, name)
            if done:
                note(cx, deeds.RESUME[scope], name, deed, now)
            return done

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        with self._connection.written() as (cx, now):
            return change_gate(cx, change, deed, now)

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""
        with self._connection.written() as (cx, now):
            where = {
                "id": run.id, "owner": run.owner, "pipeline": run.pipeline, "name": run.name,
                "parent": run.parent, "settings": run.settings_json, "now": now,
            }  # fmt: skip
            cx.execute(SQL.run_add, where)
            (id,) = cx.execute(SQL.run_found, where).fetchone()
            return _run(cx, id)

    def change_run(
        self, no: int, *, seen: RunStatus, status: RunStatus, deed: Deed
    ) -> RunView | None:
        """Give a run another status, if it still has the one that was seen.

        One that is paused or aborted has its lanes closed by a pause of its own, written here; one
        that is running again has that pause taken away, whoever made it. One that ends keeps its
        lanes as they are.
        """
        with self._connection.written() as (cx, now):
            where = {
                "no": no, "seen": seen.value, "status": status.value, "now": now,
                "ended": status in deeds.ENDED,
            }  # fmt: skip
            row = cx.execute(SQL.run_change, where).fetchone()
            if row is None:
                return None
            if status in deeds.CLOSING:
                _pause(cx, LaneScope.RUN, str(no), deed, now)
            elif status is RunStatus.RUNNING:
                _unpause(cx, LaneScope.RUN, str(no))
            note(cx, deeds.RUN[status], str(no), deed, now)
            return _run(cx, row[0])

    def put_schedule(self, schedule: NewSchedule) -> None:
        """Make a schedule; one of that name and rule keeps its next moment."""
        with self._connection.written() as (cx, _):
            cx.execute(
                SQL.schedule_put,
                {
                    "name": schedule.name, "pipeline": schedule.pipeline, "spec": schedule.spec,
                    "payload": schedule.payload_json, "next_at": to_us(schedule.next_at),
                },
            )  # fmt: skip

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there was none."""
        with self._connection.written() as (cx, _):
            return cx.execute(SQL.schedule_drop, (name,)).rowcount == 1

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""
        with self._connection.written() as (cx, now):
            where = {
                "name": tick.schedule, "due_at": to_us(tick.due_at),
                "next_at": to_us(tick.next_at), "now": now,
            }  # fmt: skip
            if cx.execute(SQL.schedule_tick, where).rowcount != 1:
                return None
            self._lanes.check([tick.job], lambda: all_lanes(cx))
            return accept(cx, [tick.job], now)[0]

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """Take or keep a duty that one living worker at a time has, until its time runs out."""
        ttl_us = seconds_us(ttl_s)
        with self._connection.read() as (cx, now):
            seen = cx.execute(SQL.duty_seen, {"name": name, "now": now}).fetchone()
        known = standing(seen, worker=worker, ttl_us=ttl_us)
        if known is not None:
            return known
        with self._connection.written() as (cx, now):
            where = {"name": name, "worker": worker, "until_at": now + ttl_us, "now": now}
            return cx.execute(SQL.duty_take, where).rowcount == 1

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """Look at up to ``limit`` jobs above a number and let go what may go; the books keep count."""
        limit = min(limit, PRUNE_BATCH_MAX)
        with self._connection.written() as (cx, now):
            rows = cx.execute(SQL.prune_look, {"after": after, "limit": limit}).fetchall()
            aged = Ends.of(retention, now).aged(rows, limit)
            attempts = _let_go(cx, aged.rows) if aged.rows else 0
            return Pruned(len(aged.rows), attempts, aged.go_on_after)

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled."""
        with self._connection.written() as (cx, now):
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""
        with self._connection.written() as (cx, now):
            where = {
                "id": bulk.id, "verb": bulk.verb.value, "filter": bulk.filter_json,
                "by_whom": bulk.deed.by_whom, "reason": bulk.deed.reason, "now": now,
            }  # fmt: skip
            if cx.execute(SQL.bulk_add, where).rowcount == 1:
                note(cx, deeds.BULK[bulk.verb], bulk.id, bulk.deed, now)
            return bulk_out(cx.execute(SQL.bulk_by_id, (bulk.id,)).fetchone())

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""
        with self._connection.written() as (cx, now):
            where = {
                "no": step.no, "seen_cursor": step.seen_cursor, "cursor": step.cursor,
                "done": step.done, "refused": step.refused, "status": step.status.value,
                "now": now,
            }  # fmt: skip
            row = cx.execute(SQL.bulk_step, where).fetchone()
            return None if row is None else bulk_out(row)


def _pause(cx: sqlite3.Connection, scope: LaneScope, name: str, deed: Deed, now: int) -> bool:
    where = {
        "scope": scope.value, "name": name, "reason": deed.reason, "by_whom": deed.by_whom,
        "now": now,
    }  # fmt: skip
    return cx.execute(SQL.pause_add, where).rowcount == 1


def _unpause(cx: sqlite3.Connection, scope: LaneScope, name: str) -> bool:
    return cx.execute(SQL.pause_drop, {"scope": scope.value, "name": name}).rowcount == 1


def _run(cx: sqlite3.Connection, id: str) -> RunView:
    return run_out(cx.execute(SQL.run_by_id, (id,)).fetchone())


def _let_go(cx: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Delete these jobs with all that is theirs; how many attempts went with them."""
    where = {"nos": encoded([row[0] for row in rows])}
    attempts = cx.execute(SQL.prune_attempts, where).rowcount
    cx.execute(SQL.prune_checkpoints, where)
    cx.execute(SQL.prune_artifacts, where)
    cx.execute(SQL.prune_jobs, where)
    for pipeline, pruned in Counter(row[2] for row in rows).items():
        cx.execute(SQL.prune_book, {"pipeline": pipeline, "pruned": pruned})
    return attempts
