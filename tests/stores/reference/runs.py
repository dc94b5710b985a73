"""Runs in the reference model: made once, sealed, and given another status by who has seen the one they have."""

from datetime import datetime, timedelta

from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.runs import CLOSED, FINISHED, NewRun, RunChange, RunCounts, RunStatus, RunView
from tests.stores.reference.tables import Tables

_VERBS = {
    RunStatus.RUNNING: "resume run", RunStatus.PAUSED: "pause run",
    RunStatus.ABORTED: "abort run", RunStatus.CANCELLED: "cancel run",
}  # fmt: skip


class Runs:
    """The part of the `Control` port that is about runs."""

    _tables: Tables

    def add_run(self, run: NewRun) -> RunView:
        """One run for each owner, pipeline and name."""
        with self._tables.written(self) as now:
            for known in self._tables.runs.values():
                if (known.owner, known.pipeline, known.name) == (run.owner, run.pipeline, run.name):
                    return known
            no = self._tables.next_no("runs")
            made = RunView(
                no,
                run.id,
                run.owner,
                run.pipeline,
                run.name,
                RunStatus.RUNNING,
                run.parent,
                run.settings_json,
                now,
                now,
                None,
                RunCounts(),
            )
            self._tables.runs[no] = made
            self._tables.tell_run(made, now)
            return made

    def change_run(self, change: RunChange, deed: Deed) -> RunView | None:
        """Compare and set on the status; a run finishes only while its books say that it has."""
        with self._tables.written(self) as now:
            run = self._tables.runs.get(change.no)
            if run is None or run.status is not change.seen or not _may(run, change):
                return None
            changed = replace(
                run,
                status=change.status,
                why=change.why,
                changed_at=now,
                sealed_at=_sealed_at(run, change, now),
                ended_at=_ended_at(run, change, now),
                settings_json=change.settings_json or run.settings_json,
            )
            self._tables.runs[run.no] = changed
            if change.status in CLOSED:
                self._tables.pause(LaneScope.RUN, str(run.no), deed, now)
            elif change.status is RunStatus.RUNNING:
                self._tables.pauses.pop((LaneScope.RUN, str(run.no)), None)
            self._tables.log(deed, _VERBS.get(change.status, "end run"), str(run.no), now)
            self._tables.tell_run(changed, now)
            return changed

    def seal_run(self, no: int) -> RunView | None:
        """Once; the first moment stands."""
        with self._tables.written(self) as now:
            run = self._tables.runs.get(no)
            if run is not None:
                sealed_at = run.sealed_at or now
                run = self._tables.runs[no] = replace(run, sealed_at=sealed_at, feeding_at=None)
            return run

    def note_check(self, no: int, checked: int) -> None:
        """It never goes back."""
        with self._tables.written(self):
            run = self._tables.runs.get(no)
            if run is not None:
                self._tables.runs[no] = replace(run, checked=max(run.checked, checked))

    def note_feeding(self, no: int, by: str, *, ended: bool = False) -> None:
        """The last sign counts; the feeding is as old as the first sign since the last break."""
        with self._tables.written(self) as now:
            run = self._tables.runs.get(no)
            if run is None:
                return
            if not ended:
                silent_at = now - timedelta(seconds=FEEDER_SILENT_S)
                since = (
                    run.feeding_at if run.fed_at is not None and run.fed_at > silent_at else None
                )
                feeding_at = None if run.sealed_at is not None else since or now
                run = replace(run, fed_by=by, fed_at=now, feeding_at=feeding_at)
            elif run.fed_by == by and run.feeding_at is not None:
                run = replace(run, fed_at=now, feeding_at=None)
            self._tables.runs[no] = run


def _may(run: RunView, change: RunChange) -> bool:
    """Whether the books allow the status."""
    if change.seen_sealed is not None and change.seen_sealed != (run.sealed_at is not None):
        return False
    if change.status is change.seen is RunStatus.CANCELLED:
        return run.ended_at is None
    if change.status not in FINISHED:
        return True
    sealed = run.sealed_at is not None if change.sealed is None else change.sealed
    return sealed and run.counts.open == 0 and change.counts in (None, run.counts)


def _sealed_at(run: RunView, change: RunChange, now: datetime) -> datetime | None:
    if change.sealed is None:
        return run.sealed_at
    return run.sealed_at or now if change.sealed else None


def _ended_at(run: RunView, change: RunChange, now: datetime) -> datetime | None:
    over = change.status is RunStatus.CANCELLED and run.counts.open == 0
    return now if over or change.status in FINISHED else None
