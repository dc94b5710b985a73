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

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

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
from perdure.stores.duties import standing
from perdure.stores.lanes import KnownLanes
from perdure.stores.moments import from_us, seconds_us, to_us
from perdure.stores.postgres.accepting import accept, all_lanes
from perdure.stores.postgres.claiming import array
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.gating import change_gate
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.noting import note
from perdure.stores.postgres.reviving import revive
from perdure.stores.postgres.statements import SQL
from perdure.stores.pruning import Ends
from perdure.stores.rows import Row, bulk_out, encoded, run_out


class PostgresControl:
    """The `Control` port on one PostgreSQL database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lanes = KnownLanes()

    def revive(self, chosen: Sequence[Revival], deed: Deed) -> list[Settled]:
        """Give failed jobs a new life; one that is not failed, or has moved on, is stale."""

        def work(cx: Cx, now: int) -> list[Settled]:
            apart: dict[tuple[int, int], Revival] = {}
            for one in chosen:
                apart.setdefault((one.no, one.token), one)
            done = revive(cx, list(apart.values()), now) if apart else set()
            answers = _answers(chosen, done, State.QUEUED, now)
            _log_done(cx, deeds.REVIVE, answers, deed, now)
            if done:
                cx.execute(SQL.notify)
            return answers

        return self._connection.written(work)

    def discard(self, chosen: Sequence[Target], deed: Deed) -> list[Settled]:
        """Mark dead letters as dealt with; one that is not failed, or discarded already, is stale."""

        def work(cx: Cx, now: int) -> list[Settled]:
            targets = [{"no": one.no, "token": one.token} for one in chosen]
            rows = cx.execute(SQL.discard, {"targets": encoded(targets), "now": now}).fetchall()
            answers = _answers(chosen, {no for (no,) in rows}, State.FAILED, None)
            _log_done(cx, deeds.DISCARD, answers, deed, now)
            return answers

        return self._connection.written(work)

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        deeds.check_pause(scope, name)

        def work(cx: Cx, now: int) -> bool:
            done = _pause(cx, scope, name, deed, now)
            if done:
                note(cx, deeds.PAUSE[scope], [name], deed, now)
            return done

        return self._connection.written(work)

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        deeds.check_pause(scope, name)

        def work(cx: Cx, now: int) -> bool:
            done = _unpause(cx, scope, name)
            if done:
                note(cx, deeds.RESUME[scope], [name], deed, now)
            return done

        return self._connection.written(work)

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        return self._connection.written(lambda cx, now: change_gate(cx, change, deed, now))

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""

        def work(cx: Cx, now: int) -> RunView:
            where = {
                "id": run.id, "owner": run.owner, "pipeline": run.pipeline, "name": run.name,
                "parent": run.parent, "settings": run.settings_json, "now": now,
            }  # fmt: skip
            cx.execute(SQL.run_add, where)
            return _run(cx, _only(cx, SQL.run_found, where)[0])

        return self._connection.written(work)

    def change_run(
        self, no: int, *, seen: RunStatus, status: RunStatus, deed: Deed
    ) -> RunView | None:
        """Give a run another status, if it still has the one that was seen.

        One that is paused or aborted has its lanes closed by a pause of its own, written here; one
        that is running again has that pause taken away, whoever made it. One that ends keeps its
        lanes as they are.
        """

        def work(cx: Cx, now: int) -> RunView | None:
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
            note(cx, deeds.RUN[status], [str(no)], deed, now)
            return _run(cx, row[0])

        return self._connection.written(work)

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
            self._lanes.check([tick.job], lambda: all_lanes(cx))
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

        done = self._connection.written(work)
        if done.go_on_after is None:
            self._connection.written(_fold)
        return done

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget workers that ended long ago and whose jobs are all settled."""

        def work(cx: Cx, now: int) -> int:
            where = {"end": now - seconds_us(kept_s), "limit": min(limit, PRUNE_BATCH_MAX)}
            return cx.execute(SQL.prune_workers, where).rowcount

        return self._connection.written(work)

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation; the same id finds the same one."""

        def work(cx: Cx, now: int) -> BulkView:
            where = {
                "id": bulk.id, "verb": bulk.verb.value, "filter": bulk.filter_json,
                "by_whom": bulk.deed.by_whom, "reason": bulk.deed.reason, "now": now,
            }  # fmt: skip
            if cx.execute(SQL.bulk_add, where).rowcount == 1:
                note(cx, deeds.BULK[bulk.verb], [bulk.id], bulk.deed, now)
            return bulk_out(_only(cx, SQL.bulk_by_id, where))

        return self._connection.written(work)

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""

        def work(cx: Cx, now: int) -> BulkView | None:
            where = {
                "no": step.no, "seen_cursor": step.seen_cursor, "cursor": step.cursor,
                "done": step.done, "refused": step.refused, "status": step.status.value,
                "now": now,
            }  # fmt: skip
            row = cx.execute(SQL.bulk_step, where).fetchone()
            return None if row is None else bulk_out(row)

        return self._connection.written(work)


def _answers(
    chosen: Iterable[Revival | Target], done: set[int], state: State, due_at: int | None
) -> list[Settled]:
    """An answer to each; one that was named twice was done once."""
    left = set(done)
    answers: list[Settled] = []
    for one in chosen:
        if one.no in left:
            left.remove(one.no)
            moment = None if due_at is None else from_us(due_at)
            answers.append(Receipt(one.no, one.id, one.token, state, moment))
        else:
            answers.append(Stale(one.no, one.id, one.token))
    return answers


def _log_done(cx: Cx, verb: str, answers: Iterable[Settled], deed: Deed, now: int) -> None:
    note(cx, verb, [one.id for one in answers if isinstance(one, Receipt)], deed, now)


def _pause(cx: Cx, scope: LaneScope, name: str, deed: Deed, now: int) -> bool:
    where = {
        "scope": scope.value, "name": name, "reason": deed.reason, "by_whom": deed.by_whom,
        "now": now,
    }  # fmt: skip
    return cx.execute(SQL.pause_add, where).rowcount == 1


def _unpause(cx: Cx, scope: LaneScope, name: str) -> bool:
    done = cx.execute(SQL.pause_drop, {"scope": scope.value, "name": name}).rowcount == 1
    if done:
        cx.execute(SQL.notify)
    return done


def _run(cx: Cx, id: str) -> RunView:
    return run_out(_only(cx, SQL.run_by_id, {"id": id}))


def _only(cx: Cx, sql: str, values: dict[str, Any]) -> Row:
    row = cx.execute(sql, values).fetchone()
    assert row is not None
    return row


def _fold(cx: Cx, _: int) -> None:
    """Add up what callers have written down line by line: the books and the counts of runs."""
    cx.execute(SQL.books_fold)
    cx.execute(SQL.run_counts_fold)


def _let_go(cx: Cx, rows: Sequence[Row]) -> tuple[int, int]:
    """Delete these jobs with all that is theirs; how many went, and how many attempts with them."""
    seen = [{"no": row[0], "token": row[1]} for row in rows]
    gone = cx.execute(SQL.prune_jobs, {"seen": encoded(seen)}).fetchall()
    where = {"nos": array(no for no, _ in gone)}
    attempts = cx.execute(SQL.prune_attempts, where).rowcount
    cx.execute(SQL.prune_checkpoints, where)
    cx.execute(SQL.prune_artifacts, where)
    for pipeline, pruned in sorted(Counter(pipeline for _, pipeline in gone).items()):
        cx.execute(SQL.prune_book, {"pipeline": pipeline, "pruned": pruned})
    return len(gone), attempts
