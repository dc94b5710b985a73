"""Runs: their status, their seal and the pause of their lanes.

Always true: a run is given a status of `FINISHED` only while it is sealed and none of its jobs is open, by
counts that are read in the same transaction. Who is authoritative: the rows; the status that was
seen is compared. What may happen at once: anything, one after the other under the turnstile: a job that comes
back to life finds its run finished and opens it again, or is seen by who would finish it. If we die in
the middle nothing has happened; the same call again is told that the run has moved on, which it has.
"""

import sqlite3

from perdure.model.changes import ChangeKind
from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import CLOSED, FINISHED, NewRun, RunChange, RunStatus, RunView
from perdure.stores import deeds
from perdure.stores.changes import run_entry
from perdure.stores.columns import RUN
from perdure.stores.moments import seconds_us, to_us
from perdure.stores.sqlite.changing import tell
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.noting import note
from perdure.stores.sqlite.statements import SQL


class SqliteRuns:
    """The part of the `Control` port that is about runs."""

    _connection: Connection

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""
        with self._connection.written() as (cx, now):
            where = {
                "id": run.id, "owner": run.owner, "pipeline": run.pipeline, "name": run.name,
                "parent": run.parent, "settings": run.settings_json, "now": now,
            }  # fmt: skip
            made = cx.execute(SQL.run_add, where).rowcount == 1
            (no,) = cx.execute(SQL.run_found, where).fetchone()
            view = RUN.read(cx.execute(SQL.run_by_no, {"no": no}).fetchone())
            if made:
                _tell(cx, view, now)
            return view

    def change_run(self, change: RunChange, deed: Deed) -> RunView | None:
        """Give a run another status, if it still has the one that was seen and may have that one now.

        A pause that a running run takes away goes, whoever made it. One that ends keeps its lanes as they are.
        """
        with self._connection.written() as (cx, now):
            run = _run(cx, change.no)
            if run is None or not deeds.may_change(run, change):
                return None
            cx.execute(
                SQL.run_change,
                {
                    "no": change.no, "seen": change.seen.value, "status": change.status.value,
                    "why": change.why, "settings": change.settings_json, "now": now,
                    "ended_at": now if _is_over(run, change.status) else None,
                    "sealed_at": _sealed_at(run, change.sealed, now),
                },
            )  # fmt: skip
            if change.status in CLOSED:
                pause(cx, LaneScope.RUN, str(change.no), deed, now)
            elif change.status is RunStatus.RUNNING:
                unpause(cx, LaneScope.RUN, str(change.no))
            note(cx, deeds.RUN[change.status], str(change.no), deed, now)
            changed = _run(cx, change.no)
            if changed is not None:
                _tell(cx, changed, now)
            return changed

    def seal_run(self, no: int) -> RunView | None:
        """Say that all items of a run are in; None when there is no such run."""
        with self._connection.written() as (cx, now):
            cx.execute(SQL.run_seal, {"no": no, "now": now})
            return _run(cx, no)

    def note_check(self, no: int, checked: int) -> None:
        """Write down at how many processed jobs a run's budget was looked at; never fewer than before."""
        with self._connection.written() as (cx, _):
            cx.execute(SQL.run_check, {"no": no, "checked": checked})

    def note_feeding(self, no: int, by: str, *, ended: bool = False) -> None:
        """Write down that somebody feeds a run now, or has just ended doing so."""
        with self._connection.written() as (cx, now):
            where = {"no": no, "by": by, "now": now}
            if ended:
                cx.execute(SQL.run_left, where)
            else:
                cx.execute(SQL.run_fed, where | {"silent_at": now - seconds_us(FEEDER_SILENT_S)})


def pause(cx: sqlite3.Connection, scope: LaneScope, name: str, deed: Deed, now: int) -> bool:
    """Close lanes; False when they were paused already."""
    where = {
        "scope": scope.value, "name": name, "reason": deed.reason, "by_whom": deed.by_whom,
        "now": now,
    }  # fmt: skip
    return cx.execute(SQL.pause_add, where).rowcount == 1


def unpause(cx: sqlite3.Connection, scope: LaneScope, name: str) -> bool:
    """Take a pause back; False when there was none."""
    return cx.execute(SQL.pause_drop, {"scope": scope.value, "name": name}).rowcount == 1


def _run(cx: sqlite3.Connection, no: int) -> RunView | None:
    row = cx.execute(SQL.run_by_no, {"no": no}).fetchone()
    return None if row is None else RUN.read(row)


def _tell(cx: sqlite3.Connection, run: RunView, now: int) -> None:
    told = run_entry(run.no, run.id, run.owner, run.pipeline, run.status)
    tell(cx, ChangeKind.RUN_CHANGED, [told], now)


def _is_over(run: RunView, status: RunStatus) -> bool:
    return status in FINISHED or (status is RunStatus.CANCELLED and run.counts.open == 0)


def _sealed_at(run: RunView, sealed: bool | None, now: int) -> int | None:
    if sealed is False:
        return None
    if run.sealed_at is not None:
        return to_us(run.sealed_at)
    return now if sealed else None
