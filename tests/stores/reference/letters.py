"""What is done to jobs in the reference model, one by one or by the step of a bulk operation."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from perdure.model.changes import ChangeKind
from perdure.model.errors import CallerError
from perdure.model.jobs import (
    Busy,
    Conflict,
    Receipt,
    Record,
    RecordRefused,
    Revived,
    Settled,
    Stale,
)
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkChange,
    BulkStatus,
    BulkStep,
    BulkView,
    Deed,
    NewBulk,
    Refusal,
    Revival,
    Target,
)
from perdure.model.states import TERMINAL, State
from tests.stores.reference.accepting import may_live, revive
from tests.stores.reference.fairness import Lines
from tests.stores.reference.rows import JobRow
from tests.stores.reference.store import ModelStore
from tests.stores.reference.tables import Tables

_VERBS = {
    BulkStatus.RUNNING: "resume bulk", BulkStatus.STOPPED: "stop bulk",
    BulkStatus.DONE: "end bulk",
}  # fmt: skip


Seen = TypeVar("Seen", Target, Record)


class DeadLetters:
    """The part of the `Control` port that is about single jobs and bulk operations."""

    _tables: Tables

    # -- one by one --------------------------------------------------------------------------

    def revive(
        self,
        chosen: Sequence[Revival],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Revived]:
        """In the order of numbers; one that has moved on or conflicts does not hinder the others."""
        with self._tables.written(self) as now:
            self._check_runs(chosen)
            if step is not None and not self._stands_at(step):
                return [_stale(one) for one in chosen]
            lines = self._lines(chosen, now)
            answers: dict[int, Revived] = {}
            for place, one in sorted(enumerate(chosen), key=lambda placed: placed[1].no):
                answers[place] = self._revive(one, deed, owner, now, lines)
            told = [answers[place] for place in range(len(chosen))]
            if step is not None:
                self._move(step, told, now)
            return told

    def _check_runs(self, chosen: Sequence[Revival]) -> None:
        for one in chosen:
            job = self._tables.jobs.get(one.no)
            if job is not None and one.redrive_run is not None and one.redrive_run == job.run:
                raise CallerError(f"job {job.id} cannot be driven again in its own run")

    def _lines(self, chosen: Sequence[Revival], now: datetime) -> Lines:
        """The places in fair lines are given in the order in which the jobs were named."""
        lines = Lines(self._tables, now)
        for one in chosen:
            job = self._tables.jobs.get(one.no)
            if job is not None and job.fair:
                lines.rank(job.no, job.owner, one.lane)
        return lines

    def _revive(
        self, one: Revival, deed: Deed, owner: str | None, now: datetime, lines: Lines
    ) -> Revived:
        job = self._tables.jobs.get(one.no)
        if job is None or owner not in (None, job.owner) or not may_live(self._tables, one):
            return _stale(one)
        rival = self._tables.rival(job)
        if rival is not None:
            return Conflict(one.no, one.id, one.token, rival.id)
        before = self._tables.driven(job, one.redrive_run)
        if before is not None:
            return Conflict(one.no, one.id, one.token, before.id, alive=False)
        revive(self._tables, one, now, lines)
        self._tables.log(deed, "revive job", one.id, now)
        return Receipt(one.no, one.id, one.token, State.QUEUED, now)

    def discard(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Only what failed and was not yet discarded."""

        def discard(one: Target, job: JobRow, now: datetime) -> Settled:
            if job.state is not State.FAILED or job.discarded_at is not None:
                return _stale(one)
            dealt_with = replace(
                job, discarded_at=now, token=job.token + 1, updated_at=now, changed_at=now
            )
            self._tables.put_job(dealt_with)
            self._tables.tell_job(ChangeKind.JOB_DISCARDED, dealt_with, now)
            return Receipt(one.no, one.id, one.token, State.FAILED, None)

        return self._each(chosen, discard, "discard job", deed, owner, step)

    def cancel(
        self,
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Only what has not ended; settled as by a person, who holds no lease."""

        def cancel(one: Record, job: JobRow, now: datetime) -> Settled | Busy:
            if job.state in TERMINAL:
                return _stale(one)
            if one.no in self._tables.lent:
                return Busy(one.no, one.id, one.token)
            return ModelStore(self._tables).settle_one(one, None, now)

        return self._each(records, cancel, "cancel job", deed, owner, step)

    def run_now(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Only what waits for its time; it stands in line from now on, if it was to do so later."""

        def run_now(one: Target, job: JobRow, now: datetime) -> Settled:
            if job.ready is not False:
                return _stale(one)
            sooner = max(job.order_at - now, timedelta())
            total = job.own_total or job.policies_total or timedelta()
            self._tables.put_job(
                replace(
                    job,
                    ready=True,
                    token=job.token + 1,
                    due_at=now,
                    updated_at=now,
                    changed_at=now,
                    order_at=job.order_at - sooner,
                    rank_at=job.rank_at if job.fair else job.rank_at - sooner,
                    deadline_at=None
                    if job.deadline_at is None
                    else min(job.deadline_at, now + total),
                )
            )
            return Receipt(one.no, one.id, one.token, State.QUEUED, now)

        return self._each(chosen, run_now, "run job now", deed, owner, step)

    def _each(
        self,
        chosen: Sequence[Seen],
        act: Callable[[Seen, JobRow, datetime], Settled | Busy],
        verb: str,
        deed: Deed,
        owner: str | None,
        step: BulkStep | None,
    ) -> list[Settled | Busy]:
        """Only to what is as it was seen, and that owner's."""
        with self._tables.written(self) as now:
            if step is not None and not self._stands_at(step):
                return [_stale(one) for one in chosen]
            told: list[Settled | Busy] = []
            for one in chosen:
                job = self._tables.jobs.get(one.no)
                same = job is not None and job.token == one.token and owner in (None, job.owner)
                told.append(act(one, job, now) if job is not None and same else _stale(one))
                if isinstance(told[-1], Receipt):
                    self._tables.log(deed, verb, one.id, now)
            if step is not None:
                self._move(step, told, now)
            return told

    # -- bulk operations ---------------------------------------------------------------------

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """The same id is the same operation."""
        with self._tables.written(self) as now:
            for known in self._tables.bulks.values():
                if known.id == bulk.id:
                    return known
            no = self._tables.next_no("bulks")
            made = BulkView(
                no=no,
                id=bulk.id,
                verb=bulk.verb,
                status=BulkStatus.RUNNING,
                filter_json=bulk.filter_json,
                begun_by=bulk.deed.by_whom,
                reason=bulk.deed.reason,
                cursor=None,
                done=0,
                refused=0,
                begun_at=now,
                changed_at=now,
                settings_json=bulk.settings_json,
                run=bulk.run,
                phase=bulk.phase,
                why="",
                owner=bulk.owner,
            )
            self._tables.bulks[no] = made
            self._tables.bulk_payloads.update(
                {(no, key): payload for key, payload in bulk.payloads}
            )
            self._tables.log(bulk.deed, f"begin bulk {bulk.verb.value}", bulk.id, now)
            return made

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Only a running one that stands where it was seen."""
        with self._tables.written(self) as now:
            return self._move(step, (), now) if self._stands_at(step) else None

    def change_bulk(self, change: BulkChange, deed: Deed) -> BulkView | None:
        """Only one that has the status that was seen."""
        with self._tables.written(self) as now:
            bulk = self._tables.bulks.get(change.no)
            if bulk is None or bulk.status is not change.seen:
                return None
            changed = replace(bulk, status=change.status, why=change.why, changed_at=now)
            self._tables.bulks[change.no] = changed
            self._tables.log(deed, _VERBS[change.status], bulk.id, now)
            return changed

    def _stands_at(self, step: BulkStep) -> bool:
        bulk = self._tables.bulks.get(step.no)
        return (
            bulk is not None
            and bulk.status is BulkStatus.RUNNING
            and bulk.cursor == step.seen_cursor
        )

    def _move(
        self, step: BulkStep, told: Iterable[Revived | Settled | Busy], now: datetime
    ) -> BulkView:
        bulk = self._tables.bulks[step.no]
        done = step.done + sum(isinstance(one, Receipt) for one in told)
        refused = 0
        for refusal in (*step.refusals, *_refusals(told, again=step.again)):
            place = (step.no, refusal.no)
            refused += place not in self._tables.refusals
            self._tables.refusals.setdefault(place, refusal.why)
        moved = replace(
            bulk,
            cursor=step.cursor,
            done=bulk.done + done,
            refused=bulk.refused + refused,
            status=step.status,
            phase=step.phase,
            why=step.why,
            changed_at=now,
        )
        self._tables.bulks[step.no] = moved
        if moved.status is BulkStatus.DONE:
            brought = self._tables.bulk_payloads
            for gone in [one for one in brought if one[0] == step.no]:
                del brought[gone]
        return moved


def _refusals(told: Iterable[Revived | Settled | Busy], *, again: bool) -> list[Refusal]:
    """What was asked for and not done, in words."""
    found = []
    for one in told:
        if isinstance(one, Stale) and not again:
            found.append(Refusal(one.no, "has moved on since"))
        elif isinstance(one, Conflict):
            how = "is alive again" if one.alive else "was driven again"
            found.append(Refusal(one.no, f"its key {how} as job {one.with_id}"))
        elif isinstance(one, RecordRefused):
            found.append(Refusal(one.no, f"could not be written: {one.reason}"))
    return found


def _stale(one: Revival | Target | Record) -> Stale:
    return Stale(one.no, one.id, one.token)
