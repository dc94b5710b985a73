"""What operators and the upkeep do to the reference model: guarded, and logged with who and why."""

import re
from collections.abc import Sequence
from datetime import datetime

from perdure.model.errors import CallerError, StoreError
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued, Receipt, Settled, Stale
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.operations import (
    BulkStatus,
    BulkStep,
    BulkView,
    Deed,
    LanePause,
    LaneScope,
    NewBulk,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    ScheduleView,
    Target,
    Tick,
)
from perdure.model.runs import NewRun, RunCounts, RunStatus, RunView
from perdure.model.states import State
from perdure.testing.model.accepting import accept, revive
from perdure.testing.model.fairness import Lines
from perdure.testing.model.gating import change_gate
from perdure.testing.model.rows import JobRow
from perdure.testing.model.tables import Tables, length
from perdure.testing.nouns import replace

_ENDED = {
    RunStatus.COMPLETED, RunStatus.PARTIAL_SUCCESS, RunStatus.FAILED, RunStatus.CANCELLED,
}  # fmt: skip
_RUN_VERBS = {
    RunStatus.RUNNING: "resume run", RunStatus.PAUSED: "pause run",
    RunStatus.ABORTED: "abort run", RunStatus.CANCELLED: "cancel run",
}  # fmt: skip


class ModelControl:
    """The `Control` port on plain dicts."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # -- jobs --------------------------------------------------------------------------------

    def revive(self, chosen: Sequence[Revival], deed: Deed) -> list[Settled]:
        """Each on its own: one that has moved on is stale and does not hinder the others."""
        with self._tables.written(self) as now:
            lines = Lines(self._tables, now)
            return [self._revive(one, deed, now, lines) for one in chosen]

    def _revive(self, one: Revival, deed: Deed, now: datetime, lines: Lines) -> Settled:
        if not revive(self._tables, one, now, lines):
            return Stale(one.no, one.id, one.token)
        self._tables.log(deed, "revive job", one.id, now)
        return Receipt(one.no, one.id, one.token, State.QUEUED, now)

    def discard(self, chosen: Sequence[Target], deed: Deed) -> list[Settled]:
        """Only what failed and was not yet discarded."""
        with self._tables.written(self) as now:
            return [self._discard(one, deed, now) for one in chosen]

    def _discard(self, one: Target, deed: Deed, now: datetime) -> Settled:
        job = self._tables.jobs.get(one.no)
        if (
            job is None
            or job.token != one.token
            or job.state is not State.FAILED
            or job.discarded_at is not None
        ):
            return Stale(one.no, one.id, one.token)
        self._tables.put_job(replace(job, discarded_at=now, token=job.token + 1))
        self._tables.log(deed, "discard job", one.id, now)
        return Receipt(one.no, one.id, one.token, State.FAILED, None)

    # -- lanes -------------------------------------------------------------------------------

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """The first pause stands until it is taken back."""
        _check_pause(scope, name)
        with self._tables.written(self) as now:
            if not self._pause(scope, name, deed, now):
                return False
            self._tables.log(deed, f"pause {scope.value}", name, now)
            return True

    def _pause(self, scope: LaneScope, name: str, deed: Deed, now: datetime) -> bool:
        new = LanePause(scope, name, deed.reason, deed.by_whom, now)
        return self._tables.pauses.setdefault((scope, name), new) is new

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Lanes open again, unless something else closes them."""
        _check_pause(scope, name)
        with self._tables.written(self) as now:
            if self._tables.pauses.pop((scope, name), None) is None:
                return False
            self._tables.log(deed, f"resume {scope.value}", name, now)
            return True

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Compare and set on the generation; a gate without a row is at generation 0."""
        with self._tables.written(self) as now:
            return change_gate(self._tables, change, deed, now)

    # -- runs --------------------------------------------------------------------------------

    def add_run(self, run: NewRun) -> RunView:
        """One run for each owner, pipeline and name."""
        with self._tables.written(self) as now:
            for known in self._tables.runs.values():
                if (known.owner, known.pipeline, known.name) == (run.owner, run.pipeline, run.name):
                    return known
            no = self._tables.next_no("runs")
            made = RunView(
                no, run.id, run.owner, run.pipeline, run.name, RunStatus.RUNNING, run.parent,
                run.settings_json, now, now, None, RunCounts(),
            )  # fmt: skip
            self._tables.runs[no] = made
            return made

    def change_run(
        self, no: int, *, seen: RunStatus, status: RunStatus, deed: Deed
    ) -> RunView | None:
        """A paused or aborted run has a pause on its lanes until it is running again."""
        with self._tables.written(self) as now:
            run = self._tables.runs.get(no)
            if run is None or run.status is not seen:
                return None
            ended_at = now if status in _ENDED else None
            changed = replace(run, status=status, changed_at=now, ended_at=ended_at)
            self._tables.runs[no] = changed
            if status in (RunStatus.PAUSED, RunStatus.ABORTED):
                self._pause(LaneScope.RUN, str(no), deed, now)
            elif status is RunStatus.RUNNING:
                self._tables.pauses.pop((LaneScope.RUN, str(no)), None)
            self._tables.log(deed, _RUN_VERBS.get(status, "end run"), str(no), now)
            return changed

    # -- schedules and duties ----------------------------------------------------------------

    def put_schedule(self, schedule: NewSchedule) -> None:
        """The same rule keeps its next moment, another one takes the new one."""
        with self._tables.written(self):
            known = self._tables.schedules.get(schedule.name)
            kept = known is not None and known.spec == schedule.spec
            self._tables.schedules[schedule.name] = ScheduleView(
                name=schedule.name, pipeline=schedule.pipeline, spec=schedule.spec,
                payload_json=schedule.payload_json,
                next_at=known.next_at if known is not None and kept else schedule.next_at,
                ticked_at=None if known is None else known.ticked_at,
                ticks=0 if known is None else known.ticks,
            )  # fmt: skip

    def drop_schedule(self, name: str) -> bool:
        """Forget it."""
        with self._tables.written(self):
            return self._tables.schedules.pop(name, None) is not None

    def tick(self, tick: Tick) -> Enqueued | None:
        """The schedule moves on and the job comes in, both or neither."""
        with self._tables.written(self) as now:
            known = self._tables.schedules.get(tick.schedule)
            if known is None or known.next_at != tick.due_at:
                return None
            if tick.job.lane not in self._tables.lanes:
                raise StoreError(f"lane {tick.job.lane} does not exist")
            self._tables.schedules[tick.schedule] = replace(
                known, next_at=tick.next_at, ticked_at=now, ticks=known.ticks + 1
            )
            (enqueued,) = accept(self._tables, [tick.job], now)
            return enqueued

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """A duty is free when nobody has it, its time is over, or its worker is dead.

        Who has it renews it when less than half of its time is left.
        """
        with self._tables.written(self) as now:
            holder, until_at = self._tables.duties.get(name, (worker, now))
            mine = holder == worker or until_at <= now or not self._tables.is_alive(holder)
            if not mine or not self._tables.is_alive(worker):
                return False
            if holder != worker or (until_at - now) * 2 < length(ttl_s):
                self._tables.duties[name] = (worker, now + length(ttl_s))
            return True

    # -- pruning -----------------------------------------------------------------------------

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """In the order of numbers, so many at a time; over when the last one came in too late to go."""
        with self._tables.written(self) as now:
            limit = min(limit, PRUNE_BATCH_MAX)
            ends = [now - length(one) for one in _lengths(retention) if one is not None]
            above = [job for no, job in sorted(self._tables.jobs.items()) if no > after][:limit]
            if not ends or not above:
                return Pruned(0, 0, None)
            gone = [
                self._let_go(job)
                for job in above
                if job.enqueued_at < max(ends) and _may_go(job, retention, now)
            ]
            is_last = len(above) < limit or above[-1].enqueued_at >= max(ends)
            return Pruned(len(gone), sum(gone), None if is_last else above[-1].no)

    def _let_go(self, job: JobRow) -> int:
        tables = self._tables
        attempts = [key for key in tables.attempts if key[0] == job.no]
        for key in attempts:
            del tables.attempts[key]
        for place in [place for place in tables.checkpoints if place[0] == job.no]:
            del tables.checkpoints[place]
        del tables.jobs[job.no]
        tables.pruned[job.pipeline] = tables.pruned.get(job.pipeline, 0) + 1
        return len(attempts)

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """The dead that are settled; the lowest numbers first."""
        with self._tables.written(self) as now:
            kept = {job.worker for job in self._tables.jobs.values()}
            kept |= {worker for worker, _ in self._tables.duties.values()}
            gone = [
                no
                for no, row in sorted(self._tables.workers.items())
                if row.settled_at is not None and row.dead_at is not None
                and row.dead_at < now - length(kept_s) and no not in kept
            ]  # fmt: skip
            for no in gone[: min(limit, PRUNE_BATCH_MAX)]:
                del self._tables.workers[no]
            return min(len(gone), limit, PRUNE_BATCH_MAX)

    # -- bulk operations ---------------------------------------------------------------------

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """The same id is the same operation."""
        with self._tables.written(self) as now:
            for known in self._tables.bulks.values():
                if known.id == bulk.id:
                    return known
            no = self._tables.next_no("bulks")
            made = BulkView(
                no=no, id=bulk.id, verb=bulk.verb, status=BulkStatus.RUNNING,
                filter_json=bulk.filter_json, begun_by=bulk.deed.by_whom, reason=bulk.deed.reason,
                cursor=None, done=0, refused=0, begun_at=now, changed_at=now,
            )  # fmt: skip
            self._tables.bulks[no] = made
            self._tables.log(bulk.deed, f"begin bulk {bulk.verb.value}", bulk.id, now)
            return made

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Only a running one that stands where it was seen."""
        with self._tables.written(self) as now:
            bulk = self._tables.bulks.get(step.no)
            if (
                bulk is None
                or bulk.status is not BulkStatus.RUNNING
                or bulk.cursor != step.seen_cursor
            ):
                return None
            moved = replace(
                bulk, cursor=step.cursor, done=bulk.done + step.done,
                refused=bulk.refused + step.refused, status=step.status, changed_at=now,
            )  # fmt: skip
            self._tables.bulks[step.no] = moved
            return moved


def _check_pause(scope: LaneScope, name: str) -> None:
    """A run is paused by its number."""
    if scope is LaneScope.RUN and not re.fullmatch(r"0|[1-9][0-9]{0,17}", name):
        raise CallerError(f"run {name!r} is not the number of a run")


def _lengths(retention: Retention) -> tuple[float | None, ...]:
    return (
        retention.succeeded_s, retention.cancelled_s, retention.discarded_s, retention.failed_s,
    )  # fmt: skip


def _may_go(job: JobRow, retention: Retention, now: datetime) -> bool:
    """Whether a job ended longer ago than its retention; a dead letter's starts when it is discarded."""
    if job.state is State.SUCCEEDED:
        kept_s, since = retention.succeeded_s, job.finished_at
    elif job.state is State.CANCELLED:
        kept_s, since = retention.cancelled_s, job.finished_at
    elif job.discarded_at is not None:
        kept_s, since = retention.discarded_s, job.discarded_at
    else:
        kept_s, since = retention.failed_s, job.finished_at
    return kept_s is not None and since is not None and since < now - length(kept_s)
