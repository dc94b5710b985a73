"""What operators and the upkeep do to the reference model: guarded, and logged with who and why."""

import re
from datetime import datetime

from perdure.model.access import AccessToken, NewAccessToken
from perdure.model.errors import CallerError, StoreError
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Enqueued
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.operations import (
    Deed,
    LaneScope,
    NewSchedule,
    Pruned,
    Retention,
    ScheduleView,
    Tick,
)
from perdure.model.states import State
from tests.stores.reference.accepting import accept
from tests.stores.reference.gating import change_gate
from tests.stores.reference.letters import DeadLetters
from tests.stores.reference.rows import JobRow
from tests.stores.reference.runs import Runs
from tests.stores.reference.tables import Tables, length


class ModelControl(DeadLetters, Runs):
    """The `Control` port on plain dicts."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # -- lanes -------------------------------------------------------------------------------

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """The first pause stands until it is taken back."""
        _check_pause(scope, name)
        with self._tables.written(self) as now:
            if not self._tables.pause(scope, name, deed, now):
                return False
            self._tables.log(deed, f"pause {scope.value}", name, now)
            return True

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

    # -- schedules and duties ----------------------------------------------------------------

    def put_schedule(self, schedule: NewSchedule) -> None:
        """The same rule keeps its next moment, another one takes the new one."""
        with self._tables.written(self):
            known = self._tables.schedules.get(schedule.name)
            kept = known is not None and known.spec == schedule.spec
            self._tables.schedules[schedule.name] = ScheduleView(
                name=schedule.name,
                pipeline=schedule.pipeline,
                spec=schedule.spec,
                payload_json=schedule.payload_json,
                next_at=known.next_at if known is not None and kept else schedule.next_at,
                ticked_at=None if known is None else known.ticked_at,
                ticks=0 if known is None else known.ticks,
            )

    def add_access_token(self, token: NewAccessToken, deed: Deed) -> AccessToken:
        """The same id is the same token; with a login those go that have expired."""
        with self._tables.written(self) as now:
            for one in [*self._tables.access_tokens.values()] if not token.scopes else []:
                if not one.scopes and one.expires_at is not None and one.expires_at <= now:
                    del self._tables.access_tokens[one.id]
            if token.id not in self._tables.access_tokens:
                self._tables.access_tokens[token.id] = AccessToken(
                    token.id,
                    token.hash,
                    token.name,
                    token.owner,
                    token.scopes,
                    now,
                    token.expires_at,
                    None,
                )
                self._tables.log(deed, "create token", token.id, now)
            return self._tables.access_tokens[token.id]

    def revoke_access_token(self, id: str, deed: Deed) -> bool:
        """Only once."""
        with self._tables.written(self) as now:
            known = self._tables.access_tokens.get(id)
            if known is None or known.revoked_at is not None:
                return False
            self._tables.access_tokens[id] = replace(known, revoked_at=now)
            self._tables.log(deed, "revoke token", id, now)
            return True

    def take_request(self, owner: str, *, burst: int, every_s: float) -> float:
        """A bucket is the moment at which it is full again."""
        with self._tables.written(self) as now:
            every = length(every_s)
            empty = now + burst * every
            full_at = self._tables.owner_rates.get(owner, now)
            full_at = full_at if now <= full_at <= empty else now
            if full_at + every > empty:
                return (full_at + every - empty).total_seconds()
            self._tables.owner_rates[owner] = full_at + every
            return 0.0

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
                if job.enqueued_at < max(ends)
                and _may_go(job, retention, now)
                and not self._is_needed(job)
            ]
            is_last = len(above) < limit or above[-1].enqueued_at >= max(ends)
            return Pruned(len(gone), sum(gone), None if is_last else above[-1].no)

    def _is_needed(self, job: JobRow) -> bool:
        """Whether a run that is not over has this job."""
        runs = [self._tables.runs.get(no) for no in (job.run, job.redrive_run) if no is not None]
        return any(run is not None and run.ended_at is None for run in runs)

    def _let_go(self, job: JobRow) -> int:
        tables = self._tables
        attempts = [key for key in tables.attempts if key[0] == job.no]
        for key in attempts:
            del tables.attempts[key]
        for place in [place for place in tables.checkpoints if place[0] == job.no]:
            del tables.checkpoints[place]
        for no in [no for no, row in tables.artifacts.items() if row.view.job_no == job.no]:
            del tables.artifacts[no]
        for life in [life for life in tables.redrives if life[1] == job.no]:
            del tables.redrives[life]
        for kept in [kept for kept in tables.payloads if kept[0] == job.no]:
            del tables.payloads[kept]
        del tables.jobs[job.no]
        tables.pruned[job.pipeline] = tables.pruned.get(job.pipeline, 0) + 1
        return len(attempts)

    def prune_captures(self, *, limit: int) -> int:
        """Those whose time is over, the longest over first, then by id."""
        with self._tables.written(self) as now:
            over = sorted(
                (row.view.expires_at, row.view.id, no)
                for no, row in self._tables.artifacts.items()
                if row.view.expires_at is not None and row.view.expires_at <= now
            )
            gone = over[: max(0, min(limit, PRUNE_BATCH_MAX))]
            for _, _, no in gone:
                del self._tables.artifacts[no]
            return len(gone)

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """The oldest first; this store needs no marks, since it knows when each was committed."""
        with self._tables.written(self) as now:
            end = now - length(kept_s)
            old = [no for no, one in sorted(self._tables.changes.items()) if one.changed_at < end]
            for no in old[: max(0, min(limit, PRUNE_BATCH_MAX))]:
                del self._tables.changes[no]
                self._tables.changes_gone = no
            return min(len(old), max(0, min(limit, PRUNE_BATCH_MAX)))

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """The dead that are settled; the lowest numbers first."""
        with self._tables.written(self) as now:
            kept = {job.worker for job in self._tables.jobs.values()}
            kept |= {worker for worker, _ in self._tables.duties.values()}
            gone = [
                no
                for no, row in sorted(self._tables.workers.items())
                if row.settled_at is not None
                and row.dead_at is not None
                and row.dead_at < now - length(kept_s)
                and no not in kept
            ]
            for no in gone[: min(limit, PRUNE_BATCH_MAX)]:
                del self._tables.workers[no]
            return min(len(gone), limit, PRUNE_BATCH_MAX)


def _check_pause(scope: LaneScope, name: str) -> None:
    """A run is paused by its number."""
    if scope is LaneScope.RUN and not re.fullmatch(r"0|[1-9][0-9]{0,17}", name):
        raise CallerError(f"run {name!r} is not the number of a run")


def _lengths(retention: Retention) -> tuple[float | None, ...]:
    return (retention.succeeded_s, retention.cancelled_s, retention.discarded_s, retention.failed_s)


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
