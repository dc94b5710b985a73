"""What operators and the upkeep do: guarded writes that say who did it and why.

Always true: a deed and its line in the audit log are one transaction; a deed that changed nothing (the
job has moved on, the queue was paused already, the gate's generation is another) leaves no line.
Whatever changes a job raises its token, so that every earlier sight of it is stale.

Who is authoritative: the rows. A gate is changed by comparing its generation, a run by comparing
its status, a schedule by its moment, a bulk operation by its cursor, a job by its token: of two
hands that saw the same thing, one acts and the other is told that it came too late. A duty is a lease by the
store's clock and ends at once with its worker's life.

What may happen at once: anything, in READ COMMITTED. Every guard stands in the statement that writes: whoever
comes second waits for the row, and the server then compares again with what the first has committed.
Where a row may not be there yet, ON CONFLICT waits for whoever is making it, and a second statement, whose
snapshot is newer, reads what was made. Jobs are locked in the order of their numbers. Pruning waits
for nobody: what another hand holds stays for the next time.

If we die in the middle of a method, nothing of it has happened; if the answer is lost, the same call again
finds its own run, bulk operation or duty, and is otherwise told that the thing has moved on, which it has.
After what opens a lane, makes a job ready or changes a gate, idle workers are woken; that is only a hint.
"""

from collections.abc import Sequence
from functools import partial

from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued
from perdure.model.limits import FINGERPRINT_KEPT_S, PRUNE_BATCH_MAX
from perdure.model.operations import Deed, LaneScope, NewSchedule, Pruned, Retention, Tick
from perdure.stores import deeds
from perdure.stores.duties import standing
from perdure.stores.lanes import KnownLanes
from perdure.stores.moments import seconds_us, to_us
from perdure.stores.postgres import changing
from perdure.stores.postgres.accepting import accept, lanes_among
from perdure.stores.postgres.bulks import PostgresBulks
from perdure.stores.postgres.claiming import array
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.gating import change_gate
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.noting import note
from perdure.stores.postgres.runs import PostgresRuns, pause, unpause
from perdure.stores.postgres.statements import SQL
from perdure.stores.pruning import Ends
from perdure.stores.rows import Row, encoded

FOLD_ROWS = 10_000  # as the statements have it
FOLDS_MAX = 100  # a million rows in a round


class PostgresControl(PostgresBulks, PostgresRuns):
    """The `Control` port on one PostgreSQL database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        deeds.check_pause(scope, name)

        def work(cx: Cx, now: int) -> bool:
            done = pause(cx, scope, name, deed, now)
            if done:
                note(cx, deeds.PAUSE[scope], [name], deed, now)
            return done

        return self._connection.written(work)

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        deeds.check_pause(scope, name)

        def work(cx: Cx, now: int) -> bool:
            done = unpause(cx, scope, name)
            if done:
                note(cx, deeds.RESUME[scope], [name], deed, now)
            return done

        return self._connection.written(work)

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        return self._connection.written(lambda cx, now: change_gate(cx, change, deed, now))

    def put_schedule(self, schedule: NewSchedule) -> None:
        """Make a schedule; one of that name and rule keeps its next moment."""
        where = {
            "name": schedule.name, "pipeline": schedule.pipeline, "spec": schedule.spec,
            "payload": schedule.payload_json, "next_at": to_us(schedule.next_at),
        }  # fmt: skip
        with self._connection.lent() as cx:
            cx.execute(SQL.schedule_put, where)

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there was none."""
        with self._connection.lent() as cx:
            return cx.execute(SQL.schedule_drop, {"name": name}).rowcount == 1

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""

        def work(cx: Cx, now: int) -> Enqueued | None:
            where = {
                "name": tick.schedule, "due_at": to_us(tick.due_at),
                "next_at": to_us(tick.next_at), "now": now,
            }  # fmt: skip
            if cx.execute(SQL.schedule_tick, where).rowcount != 1:
                return None
            self._lanes.check([tick.job], partial(lanes_among, cx))
            (done,) = accept(cx, [tick.job], now)
            cx.execute(SQL.notify)
            return done

        return self._connection.written(work)

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """Take or keep a duty that one living worker at a time has, until its time runs out."""
        ttl_us = seconds_us(ttl_s)
        with self._connection.lent() as cx:
            where = {"name": name, "now": self._connection.now()}
            seen = cx.execute(SQL.duty_seen, where).fetchone()
        known = standing(seen, worker=worker, ttl_us=ttl_us)
        if known is not None:
            return known

        def work(cx: Cx, now: int) -> bool:
            where = {"name": name, "worker": worker, "until_at": now + ttl_us, "now": now}
            return cx.execute(SQL.duty_take, where).rowcount == 1

        return self._connection.written(work)

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """Look at up to ``limit`` jobs above a number and let go what may go; the books keep count."""
        limit = min(limit, PRUNE_BATCH_MAX)

        def work(cx: Cx, now: int) -> Pruned:
            rows = cx.execute(SQL.prune_look, {"after": after, "limit": limit}).fetchall()
            aged = Ends.of(retention, now).aged(rows, limit)
            jobs, attempts = _let_go(cx, aged.rows) if aged.rows else (0, 0)
            return Pruned(jobs, attempts, aged.go_on_after)

        return self._connection.written(work)

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled; and add the tallies up."""
        self._fold()

        def work(cx: Cx, now: int) -> int:
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

        return self._connection.written(work)

    def _fold(self) -> None:
        """Add up what writers have counted, each in rows of its own; a little at a time, for turns wait for that."""
        for sql in (
            SQL.depths_fold, SQL.depths_home, SQL.flows_fold, SQL.deaths_fold, SQL.owners_fold,
            SQL.run_counts_fold, SQL.run_kinds_fold,
        ):  # fmt: skip

            def some(cx: Cx, now: int, sql: str = sql) -> int:
                where = {"now": now, "old": now - seconds_us(FINGERPRINT_KEPT_S)}
                row = cx.execute(sql, where).fetchone()
                return 0 if row is None else int(row[0])

            for _ in range(FOLDS_MAX):
                if self._connection.written(some) < FOLD_ROWS:
                    break

    def prune_captures(self, *, limit: int) -> int:
        """Forget captures whose time is over, the longest over first."""

        def work(cx: Cx, now: int) -> int:
            where = {"now": now, "limit": max(0, min(limit, PRUNE_BATCH_MAX))}
            return cx.execute(SQL.prune_captures, where).rowcount

        return self._connection.written(work)

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget lines of the change feed that everybody could read for long enough."""
        most = max(0, min(limit, PRUNE_BATCH_MAX))
        return self._connection.written(lambda cx, now: changing.prune(cx, kept_s, most, now))


def _let_go(cx: Cx, rows: Sequence[Row]) -> tuple[int, int]:
    """Delete these jobs with all that is theirs; how many went, and how many attempts with them."""
    seen = [{"no": row[0], "token": row[1]} for row in rows]
    gone = cx.execute(SQL.prune_jobs, {"seen": encoded(seen)}).fetchall()
    where = {"nos": array(row[0] for row in gone)}
    jobs = [{"no": row[0], "pipeline": row[1]} for row in gone]
    in_runs = [
        {"no": no, "run": run, "life": life, "state": state}
        for no, _, run, redriven, life, state in gone
        if run is not None or redriven is not None
    ]
    if in_runs:
        cx.execute(SQL.prune_runs, {"gone": encoded(in_runs)})
        cx.execute(SQL.prune_redrives, where)
    ((attempts,),) = cx.execute(SQL.prune_attempts, {"jobs": encoded(jobs)}).fetchall()
    cx.execute(SQL.prune_checkpoints, where)
    cx.execute(SQL.prune_artifacts, where)
    cx.execute(SQL.prune_payloads, where)
    return len(gone), attempts
