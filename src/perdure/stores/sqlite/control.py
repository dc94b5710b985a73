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
from collections.abc import Sequence
from functools import partial

from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued
from perdure.model.limits import FINGERPRINT_KEPT_S, PRUNE_BATCH_MAX
from perdure.model.operations import Deed, LaneScope, NewSchedule, Pruned, Retention, Tick
from perdure.stores import deeds
from perdure.stores.duties import standing
from perdure.stores.lanes import KnownLanes
from perdure.stores.moments import MINUTE_US, seconds_us, to_us
from perdure.stores.pruning import Ends
from perdure.stores.rows import Row, encoded
from perdure.stores.sqlite import changing
from perdure.stores.sqlite.accepting import accept, lanes_among
from perdure.stores.sqlite.bulks import SqliteBulks
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.gating import change_gate
from perdure.stores.sqlite.noting import note
from perdure.stores.sqlite.runs import SqliteRuns, pause, unpause
from perdure.stores.sqlite.statements import SQL


class SqliteControl(SqliteBulks, SqliteRuns):
    """The `Control` port on one SQLite file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        deeds.check_pause(scope, name)
        with self._connection.written() as (cx, now):
            done = pause(cx, scope, name, deed, now)
            if done:
                note(cx, deeds.PAUSE[scope], name, deed, now)
            return done

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        deeds.check_pause(scope, name)
        with self._connection.written() as (cx, now):
            done = unpause(cx, scope, name)
            if done:
                note(cx, deeds.RESUME[scope], name, deed, now)
            return done

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        with self._connection.written() as (cx, now):
            return change_gate(cx, change, deed, now)

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
            return cx.execute(SQL.schedule_drop, {"name": name}).rowcount == 1

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""
        with self._connection.written() as (cx, now):
            where = {
                "name": tick.schedule, "due_at": to_us(tick.due_at),
                "next_at": to_us(tick.next_at), "now": now,
            }  # fmt: skip
            if cx.execute(SQL.schedule_tick, where).rowcount != 1:
                return None
            self._lanes.check([tick.job], partial(lanes_among, cx))
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
        """Forget workers that ended long ago and whose jobs are all settled; and add the tallies up."""
        with self._connection.written() as (cx, now):
            _fold(cx, now)
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

    def prune_captures(self, *, limit: int) -> int:
        """Forget captures whose time is over, the longest over first."""
        with self._connection.written() as (cx, now):
            where = {"now": now, "limit": max(0, min(limit, PRUNE_BATCH_MAX))}
            return cx.execute(SQL.prune_captures, where).rowcount

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget lines of the change feed that everybody could read for long enough."""
        with self._connection.written() as (cx, now):
            return changing.prune(cx, kept_s, max(0, min(limit, PRUNE_BATCH_MAX)), now)


def _let_go(cx: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Delete these jobs with all that is theirs; how many attempts went with them."""
    where = {"nos": encoded([row[0] for row in rows])}
    for sql in (SQL.prune_depths, SQL.prune_flows, SQL.prune_deaths, SQL.prune_runs):
        cx.execute(sql, where)
    cx.execute(SQL.prune_redrives, where)
    attempts = cx.execute(SQL.prune_attempts, where).rowcount
    cx.execute(SQL.prune_checkpoints, where)
    cx.execute(SQL.prune_artifacts, where)
    cx.execute(SQL.prune_owned, where)
    cx.execute(SQL.prune_payloads, where)
    cx.execute(SQL.prune_jobs, where)
    return attempts


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
