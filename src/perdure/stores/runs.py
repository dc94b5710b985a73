"""Runs: their status, their seal and the pause of their lanes; the same on every store.

Always true: a run is given a status of `FINISHED` only while it is sealed and none of its jobs is open. Who
is authoritative: the rows; the status that was seen is compared.

What may happen at once: on SQLite anything, one after the other under the turnstile. On PostgreSQL anything, in READ COMMITTED:
the run's row is locked by one statement and its counts are summed by a later one, which sees all that was committed
before the lock was had. Who gives one of its jobs a new life locks the row as well before it counts: so a run is not
finished past a job that lives again. What is enqueued takes no lock: that all items are in is what the seal says, and who
sealed it answers for that.

If we die in the middle nothing has happened; if the answer is lost, the same call again is told that the run
has moved on, which it has.
"""

from abc import abstractmethod

from perdure.model.changes import ChangeKind
from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import CLOSED, FINISHED, NewRun, RunChange, RunStatus, RunView
from perdure.stores import deeds
from perdure.stores.change_lines import run_entry
from perdure.stores.columns import RUN
from perdure.stores.deed_writer import OpenTransaction, SharedWriting
from perdure.stores.moments import seconds_us, to_us


class SharedRuns(SharedWriting):
    """The part of the `Control` port that is about runs, and about pauses of lanes."""

    @abstractmethod
    def _lock_run(self, cx: OpenTransaction, no: int) -> None:
        """See to it that nobody else changes a run until we have committed."""

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""

        def work(cx: OpenTransaction, now: int) -> RunView:
            where = {
                "id": run.id,
                "owner": run.owner,
                "pipeline": run.pipeline,
                "name": run.name,
                "parent": run.parent,
                "settings": run.settings_json,
                "now": now,
            }
            found, made = cx.execute(self._sql.run_found, where).fetchone(), False
            if found is None:  # asked first: an insert that comes to nothing would use a number up
                made = cx.execute(self._sql.run_add, where).rowcount == 1
                found = cx.execute(self._sql.run_found, where).fetchone()
            (no,) = found
            view = self._run(cx, no)
            assert view is not None
            if made:
                self._tell_run(cx, view, now)
            return view

        return self._write(work)

    def change_run(self, change: RunChange, deed: Deed) -> RunView | None:
        """Change a run's status if it is still the one seen and the change is allowed.

        A run that runs again loses the pause of its lanes, whoever made it. One that ends keeps its lanes as they are.
        """

        def work(cx: OpenTransaction, now: int) -> RunView | None:
            self._lock_run(cx, change.no)
            run = self._run(cx, change.no)
            if run is None or not deeds.may_change(run, change):
                return None
            where = {
                "no": change.no,
                "seen": change.seen.value,
                "status": change.status.value,
                "why": change.why,
                "settings": change.settings_json,
                "now": now,
                "ended_at": now if _is_over(run, change.status) else None,
                "sealed_at": _sealed_at(run, change.sealed, now),
            }
            cx.execute(self._sql.run_change, where)
            if change.status in CLOSED:
                self._pause(cx, LaneScope.RUN, str(change.no), deed, now)
            elif change.status is RunStatus.RUNNING:
                self._unpause(cx, LaneScope.RUN, str(change.no))
            self._note(cx, deeds.RUN[change.status], [str(change.no)], deed, now)
            changed = self._run(cx, change.no)
            if changed is not None:
                self._tell_run(cx, changed, now)
            return changed

        return self._write(work)

    def seal_run(self, no: int) -> RunView | None:
        """Say that all items of a run are in; None when there is no such run."""

        def work(cx: OpenTransaction, now: int) -> RunView | None:
            cx.execute(self._sql.run_seal, {"no": no, "now": now})
            return self._run(cx, no)

        return self._write(work)

    def note_check(self, no: int, checked: int) -> None:
        """Write down at how many processed jobs a run's budget was looked at; never fewer than before."""
        self._execute(self._sql.run_note_check, {"no": no, "checked": checked})

    def note_feeding(self, no: int, by: str, *, ended: bool = False) -> None:
        """Write down that somebody feeds a run now, or has just ended doing so."""

        def work(cx: OpenTransaction, now: int) -> None:
            where = {"no": no, "by": by, "now": now, "silent_at": now - seconds_us(FEEDER_SILENT_S)}
            cx.execute(self._sql.run_left if ended else self._sql.run_fed, where)

        self._write(work)

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        deeds.check_pause(scope, name)

        def work(cx: OpenTransaction, now: int) -> bool:
            done = self._pause(cx, scope, name, deed, now)
            if done:
                self._note(cx, deeds.PAUSE[scope], [name], deed, now)
            return done

        return self._write(work)

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        deeds.check_pause(scope, name)

        def work(cx: OpenTransaction, now: int) -> bool:
            done = self._unpause(cx, scope, name)
            if done:
                self._note(cx, deeds.RESUME[scope], [name], deed, now)
            return done

        return self._write(work)

    def _pause(
        self, cx: OpenTransaction, scope: LaneScope, name: str, deed: Deed, now: int
    ) -> bool:
        where = {
            "scope": scope.value,
            "name": name,
            "reason": deed.reason,
            "by_whom": deed.by_whom,
            "now": now,
        }
        return bool(cx.execute(self._sql.pause_add, where).rowcount == 1)

    def _unpause(self, cx: OpenTransaction, scope: LaneScope, name: str) -> bool:
        where = {"scope": scope.value, "name": name}
        if cx.execute(self._sql.pause_drop, where).rowcount != 1:
            return False
        self._wake(cx)
        return True

    def _run(self, cx: OpenTransaction, no: int) -> RunView | None:
        row = cx.execute(self._sql.run_by_no, {"no": no}).fetchone()
        return None if row is None else RUN.read(row)

    def _tell_run(self, cx: OpenTransaction, run: RunView, now: int) -> None:
        told = run_entry(run.no, run.id, run.owner, run.pipeline, run.status)
        self._tell(cx, ChangeKind.RUN_CHANGED, [told], now)


def _is_over(run: RunView, status: RunStatus) -> bool:
    return status in FINISHED or (status is RunStatus.CANCELLED and run.counts.open == 0)


def _sealed_at(run: RunView, sealed: bool | None, now: int) -> int | None:
    if sealed is False:
        return None
    if run.sealed_at is not None:
        return to_us(run.sealed_at)
    return now if sealed else None
