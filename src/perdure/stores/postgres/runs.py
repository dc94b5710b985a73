"""Runs: their status, their seal and the pause of their lanes.

Always true: a run is given a status of `FINISHED` only while it is sealed and none of its jobs is open. Who
is authoritative: the rows; the status that was seen is compared.

What may happen at once: anything, in READ COMMITTED. The run's row is locked by one statement and its counts are
summed by a later one, which sees all that was committed before the lock was had. Who gives one of its jobs a new
life locks the row as well before it counts: so a run is not finished past a job that lives again. What is enqueued
takes no lock: that all items are in is what the seal says, and who sealed it answers for that.

If we die in the middle nothing has happened; if the answer is lost, the same call again is told that the run
has moved on, which it has.
"""

from perdure.model.changes import ChangeKind
from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import CLOSED, FINISHED, NewRun, RunChange, RunStatus, RunView
from perdure.stores import deeds
from perdure.stores.changes import run_entry
from perdure.stores.columns import RUN
from perdure.stores.moments import seconds_us
from perdure.stores.postgres.changing import tell
from perdure.stores.postgres.connection import Connection
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.noting import note
from perdure.stores.postgres.statements import SQL


class PostgresRuns:
    """The part of the `Control` port that is about runs."""

    _connection: Connection

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""

        def work(cx: Cx, now: int) -> RunView:
            where = {
                "id": run.id, "owner": run.owner, "pipeline": run.pipeline, "name": run.name,
                "parent": run.parent, "settings": run.settings_json, "now": now,
            }  # fmt: skip
            made = cx.execute(SQL.run_add, where).rowcount == 1
            row = cx.execute(SQL.run_found, where).fetchone()
            assert row is not None
            view = _run(cx, row[0])
            assert view is not None
            if made:
                _tell(cx, view, now)
            return view

        return self._connection.written(work)

    def change_run(self, change: RunChange, deed: Deed) -> RunView | None:
        """Give a run another status, if it still has the one that was seen and may have that one now.

        A pause that a running run takes away goes, whoever made it. One that ends keeps its lanes as they are.
        """
        return self._connection.written(lambda cx, now: _change(cx, change, deed, now))

    def seal_run(self, no: int) -> RunView | None:
        """Say that all items of a run are in; None when there is no such run."""

        def work(cx: Cx, now: int) -> RunView | None:
            cx.execute(SQL.run_seal, {"no": no, "now": now})
            return _run(cx, no)

        return self._connection.written(work)

    def note_check(self, no: int, checked: int) -> None:
        """Write down at how many processed jobs a run's budget was looked at; never fewer than before."""
        with self._connection.lent() as cx:
            cx.execute(SQL.run_check, {"no": no, "checked": checked})

    def note_feeding(self, no: int, by: str, *, ended: bool = False) -> None:
        """Write down that somebody feeds a run now, or has just ended doing so."""

        def work(cx: Cx, now: int) -> None:
            where = {"no": no, "by": by, "now": now}
            if ended:
                cx.execute(SQL.run_left, where)
            else:
                cx.execute(SQL.run_fed, where | {"silent_at": now - seconds_us(FEEDER_SILENT_S)})

        self._connection.written(work)


def pause(cx: Cx, scope: LaneScope, name: str, deed: Deed, now: int) -> bool:
    """Close lanes; False when they were paused already."""
    where = {
        "scope": scope.value, "name": name, "reason": deed.reason, "by_whom": deed.by_whom,
        "now": now,
    }  # fmt: skip
    return cx.execute(SQL.pause_add, where).rowcount == 1


def unpause(cx: Cx, scope: LaneScope, name: str) -> bool:
    """Take a pause back; False when there was none."""
    done = cx.execute(SQL.pause_drop, {"scope": scope.value, "name": name}).rowcount == 1
    if done:
        cx.execute(SQL.notify)
    return done


def _change(cx: Cx, change: RunChange, deed: Deed, now: int) -> RunView | None:
    cx.execute(SQL.run_hold, {"no": change.no})
    run = _run(cx, change.no)
    if run is None or not deeds.may_change(run, change):
        return None
    over = change.status in FINISHED or (
        change.status is RunStatus.CANCELLED and run.counts.open == 0
    )
    where = {
        "no": change.no, "seen": change.seen.value, "status": change.status.value,
        "why": change.why, "settings": change.settings_json, "sealed": change.sealed,
        "ended_at": now if over else None, "now": now,
    }  # fmt: skip
    cx.execute(SQL.run_change, where)
    if change.status in CLOSED:
        pause(cx, LaneScope.RUN, str(change.no), deed, now)
    elif change.status is RunStatus.RUNNING:
        unpause(cx, LaneScope.RUN, str(change.no))
    note(cx, deeds.RUN[change.status], [str(change.no)], deed, now)
    changed = _run(cx, change.no)
    if changed is not None:
        _tell(cx, changed, now)
    return changed


def _tell(cx: Cx, run: RunView, now: int) -> None:
    told = run_entry(run.no, run.id, run.owner, run.pipeline, run.status)
    tell(cx, ChangeKind.RUN_CHANGED, [told], now)


def _run(cx: Cx, no: int) -> RunView | None:
    row = cx.execute(SQL.run_by_no, {"no": no}).fetchone()
    return None if row is None else RUN.read(row)
