"""Bulk operations: jobs by filter. Dead letters are driven again, retried or discarded; others cancelled or run now.

A bulk operation is begun, which writes it down with its filter, and then gone through step by step by whichever
worker has the duty; after a crash the next one goes on where it stands. A step takes a page of jobs, newest
first, below a cursor in the operation's row. The deeds of a page and the move of the cursor are one
transaction, guarded by the cursor: nothing is done twice, nothing left out, and the counts are what happened.
Two hands on one operation do no harm; the slower finds the cursor elsewhere.

It means the jobs that were there when it began: a dead letter that fails later, perhaps after this very operation
has revived it, is passed over, and so is a job that is enqueued later. What it leaves as it was is written down with the
reason. A job that moves on while it is to be cancelled is looked at again: it may have been claimed.

A retry in bulk gives dead letters a new life where they stand, in their own runs and lanes. It may bring corrected
payloads by key, which the store keeps until the operation is done; then it means the dead letters with these keys.

A re-drive is a run of its own, the *child*: its jobs stand in the child's lanes, behind the gates that hold them
anyway, and count in the child and in the run that they came from. With a canary the first few are driven
and awaited; unless enough of them succeed, the operation stops there. With a rate, no more than so many a
second are given a new life. The child is sealed before the operation is called done, so it never ends before.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from perdure.engine.batch.runs import RunSettings, changed_settings, settings_in
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.operate.bulk_cancel import BulkCancel
from perdure.engine.operate.bulk_settings import (
    MEANT,
    NO_PAYLOADS,
    PLAIN,
    BulkSettings,
    filter_meant_by,
    filter_of,
)
from perdure.engine.operate.eligible import Check, dead_letters, eligible
from perdure.engine.operate.revival import ChildRun, Revivals
from perdure.engine.operate.single_jobs import clean_deed, not_now, target_of
from perdure.engine.stages import Catalogue
from perdure.model.errors import CallerError, NotChangeable, UnknownName
from perdure.model.events import EventName
from perdure.model.filters import JobFilter
from perdure.model.jobs import Receipt
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkChange,
    BulkPhase,
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    Deed,
    NewBulk,
    Refusal,
    Revival,
)
from perdure.model.runs import FINISHED, NewRun, RunChange, RunStatus, RunView
from perdure.model.views import JobView
from perdure.ports import Control, Reader, Store
from perdure.ports.compare_and_set import compare_and_set

PAGE_ROWS = 200  # payloads travel with the jobs of a page, and may be a megabyte each
# Looks at a job that another transaction holds; then its stage has it in one of its own.
_BUSY_MAX = 20
_BEING_COMPLETED = "was being completed in a transaction of its stage's own"
_BURST_S = 1.0
_KEEP_EVERY = 5  # dead letters whose sources were looked for, after which the duty is renewed


def _always() -> bool:
    return True


@dataclass(slots=True)
class Bulks:
    """Bulk operations on one store, for the pipelines that this process knows."""

    store: Store
    control: Control
    reader: Reader
    catalogue: Catalogue
    observers: Observers
    checks: Mapping[str, Check] = field(default_factory=dict)
    keep: Callable[[], bool] = _always  # whether we are still the one to take its steps
    _cancelling: BulkCancel = field(init=False)

    def __post_init__(self) -> None:
        """Make the part that remembers something."""
        self._cancelling = BulkCancel(self.control, self.reader, self.catalogue, self.observers)

    def begin_discard(self, chosen: JobFilter, *, deed: Deed, bulk_id: str) -> BulkView:
        """Write down that the dead letters of a filter are to be discarded; the same id finds the same one."""
        return self.begin(BulkVerb.DISCARD, chosen, deed=deed, bulk_id=bulk_id)

    def begin(
        self,
        verb: BulkVerb,
        chosen: JobFilter,
        settings: BulkSettings = PLAIN,
        *,
        deed: Deed,
        bulk_id: str,
        payloads: Mapping[str, str] = NO_PAYLOADS,
    ) -> BulkView:
        """Write down that this is to be done to the jobs of a filter; the same id finds the same operation."""
        meant = MEANT[verb](chosen)
        if verb is BulkVerb.RETRY and meant.pipeline is None:
            meant = replace(meant, pipeline=self._only_pipeline(meant, "a retry"))
        given = tuple(payloads.items())
        bulk = NewBulk(
            bulk_id, verb, _json(meant), clean_deed(deed), _json(settings), payloads=given
        )
        return self.control.add_bulk(replace(bulk, owner=meant.owner or ""))

    def begin_redrive(
        self,
        chosen: JobFilter,
        settings: BulkSettings,
        *,
        deed: Deed,
        ids: Ids,
        bulk_id: str,
        failure_budget: float = 0.10,
    ) -> BulkView:
        """Write down that the dead letters of a filter are to be driven again, in a run of their own."""
        meant = dead_letters(chosen)
        parent = None if meant.run is None else self._run(meant.run)
        pipeline = meant.pipeline or (None if parent is None else parent.pipeline)
        if pipeline is None:
            pipeline = self._only_pipeline(meant, "a re-drive")
        meant = replace(meant, pipeline=pipeline)
        budget = settings_in(
            changed_settings(RunSettings(redrive=True), {"failure_budget": failure_budget})
        )
        name, parent_no = f"redrive {bulk_id}", None if parent is None else parent.no
        child = self.control.add_run(
            NewRun(ids.next(), meant.owner or "", pipeline, name, budget, parent_no)
        )
        phase = BulkPhase.CANARY if settings.canary else BulkPhase.ALL
        verb, deed = BulkVerb.REDRIVE, clean_deed(deed)
        bulk = NewBulk(bulk_id, verb, _json(meant), deed, _json(settings), child.no, phase)
        return self.control.add_bulk(replace(bulk, owner=child.owner))

    def stop(self, bulk: BulkView, deed: Deed) -> BulkView:
        """Let a running operation do no more; what it has revived goes on, and its run can end.

        The run is sealed first: should we die in between, it ends all the same, and runs again with what is revived.
        """
        if bulk.run is not None:
            self.control.seal_run(bulk.run)
        return self._change(bulk, BulkStatus.RUNNING, BulkStatus.STOPPED, deed)

    def resume(self, bulk: BulkView, deed: Deed) -> BulkView:
        """Go on with a stopped operation where it stands; a canary that failed is taken as known."""
        if bulk.run is not None and bulk.status is BulkStatus.STOPPED:
            self._reopen(self._run(bulk.run), deed)
        return self._change(bulk, BulkStatus.STOPPED, BulkStatus.RUNNING, deed)

    def knows(self, bulk: BulkView) -> bool:
        """Whether this process can go through an operation: it has to know the stages where new lives begin."""
        if bulk.verb not in (BulkVerb.REDRIVE, BulkVerb.RETRY):
            return True
        return self.catalogue.pipeline(filter_of(bulk).pipeline or "") is not None

    def through(self, bulk: BulkView, *, steps_max: int | None = None) -> BulkView:
        """Go through an operation for as long as there is something to be done at once, or so many steps of it."""
        steps = 0
        while steps != steps_max and (moved := self.once(bulk)) is not None:
            bulk, steps = moved, steps + 1
        return self._now(bulk)

    def once(self, bulk: BulkView) -> BulkView | None:
        """One step; None when there is nothing to be done now, or it is over, or another hand was faster."""
        if bulk.status is not BulkStatus.RUNNING:
            return None
        settings = msgspec.json.decode(bulk.settings_json, type=BulkSettings)
        match bulk.verb:
            case BulkVerb.REDRIVE:
                return self._redrive(bulk, settings)
            case BulkVerb.CANCEL:
                return self._cancel_page(bulk)
            case BulkVerb.DISCARD:
                return self._discard_page(bulk)
        limit = self._limit(bulk, settings)
        if limit <= 0:
            return None
        if bulk.verb is BulkVerb.RUN_NOW:
            return self._run_now_page(bulk, limit)
        return self._revive_page(bulk, None, settings, limit)

    def _redrive(self, bulk: BulkView, settings: BulkSettings) -> BulkView | None:
        run = self._run(bulk.run or 0)
        if run.status in (RunStatus.ABORTED, RunStatus.CANCELLED):
            return self._step(
                bulk, status=BulkStatus.STOPPED, why=f"its run was {run.status.value}: {run.why}"
            )
        if bulk.phase is BulkPhase.PROVING:
            return self._prove(bulk, run, settings)
        if bulk.phase is BulkPhase.CANARY and bulk.done >= settings.canary:
            # Nobody is taken on until they have ended.
            return self._step(bulk, phase=BulkPhase.PROVING)
        limit = self._limit(bulk, settings)
        if limit <= 0:
            return None
        return self._revive_page(bulk, self._child(run), settings, limit)

    def _limit(self, bulk: BulkView, settings: BulkSettings) -> int:
        """How many may be taken on now: as the rate and the canary have it."""
        limit = PAGE_ROWS
        if bulk.phase is BulkPhase.CANARY:
            limit = min(limit, settings.canary - bulk.done)
        if settings.rate_per_s is not None:
            limit = min(limit, self._allowed_count(bulk, settings.rate_per_s))
        return limit

    def _allowed_count(self, bulk: BulkView, rate_per_s: float) -> int:
        """How many the rate allows since the last step; time in which nothing could be done is not made up for."""
        since_s = (self.reader.now() - bulk.changed_at).total_seconds()
        allowed = math.floor(rate_per_s * min(since_s, max(_BURST_S, 1 / rate_per_s)) + 1e-9)
        # So that little is lost by rounding down.
        enough = max(1, math.floor(rate_per_s * _BURST_S / 2))
        return allowed if allowed >= min(enough, PAGE_ROWS) else 0

    def _revive_page(
        self, bulk: BulkView, child: ChildRun | None, settings: BulkSettings, limit: int
    ) -> BulkView | None:
        page = self.reader.jobs(filter_meant_by(bulk), limit=limit, before=bulk.cursor)
        if not page:
            return self._end_if_empty(bulk)
        revivals = Revivals(self.reader, self.catalogue, settings.restart, child)
        payloads = self._payloads(bulk, page) if settings.payloads else None
        wanted: list[Revival] = []
        refusals: list[Refusal] = []
        for place, job in enumerate(page):
            if place % _KEEP_EVERY == 0 and not self.keep():
                return None  # somebody else goes on with it
            if payloads is not None and job.key not in payloads:
                continue  # it is not meant
            payload = None if payloads is None else payloads[job.key or ""]
            found = eligible(job, revivals, self.checks, payload)
            if isinstance(found, Revival):
                wanted.append(found)
            else:
                refusals.append(Refusal(job.no, found))
        step = replace(_step_past(bulk, page), refusals=tuple(refusals))
        deed = Deed(bulk.begun_by, bulk.reason)
        answers = self.control.revive(wanted, deed, owner=filter_of(bulk).owner, step=step)
        for revival, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, Receipt):
                self.observers.tell_revived(revival, deed)
        return self._now(bulk)

    def _payloads(self, bulk: BulkView, page: Sequence[JobView]) -> dict[str, str]:
        keys = [job.key for job in page if job.key is not None]
        return self.reader.bulk_payloads(bulk.no, keys)

    def _cancel_page(self, bulk: BulkView) -> BulkView | None:
        found = self.reader.jobs(filter_meant_by(bulk), limit=PAGE_ROWS, before=bulk.cursor)
        if not found:
            return self._step(bulk, status=BulkStatus.DONE)
        step = self._cancelling.page(bulk, found)
        if step is None:
            return None  # left to a worker that knows the stage
        self.control.step_bulk(step)
        return self._now(bulk)

    def _run_now_page(self, bulk: BulkView, limit: int) -> BulkView | None:
        page = self.reader.jobs(filter_meant_by(bulk), limit=limit, before=bulk.cursor)
        if not page:
            return self._step(bulk, status=BulkStatus.DONE)
        refused = {job.no: why for job in page if (why := not_now(job, self.reader)) is not None}
        targets = [target_of(job) for job in page if job.no not in refused]
        refusals = tuple(Refusal(no, why) for no, why in refused.items())
        deed = Deed(bulk.begun_by, bulk.reason)
        step = replace(_step_past(bulk, page), refusals=refusals)
        answers = self.control.run_now(targets, deed, owner=filter_of(bulk).owner, step=step)
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, Receipt):
                self.observers.tell_brought_forward(target, deed)
        return self._now(bulk)

    def _end_if_empty(self, bulk: BulkView) -> BulkView | None:
        """Nothing is left to take on: the child's items are all in, then the operation is done.

        It is sealed once more at the end: a stop and a resume in between would have taken that back.
        """
        if bulk.run is not None:
            self.control.seal_run(bulk.run)
        done = self._step(bulk, status=BulkStatus.DONE)
        if done is not None and bulk.run is not None:
            self.control.seal_run(bulk.run)
        return done

    def _prove(self, bulk: BulkView, run: RunView, settings: BulkSettings) -> BulkView | None:
        if run.counts.open:
            return None
        ended = run.counts.processed + run.counts.cancelled
        if ended and run.counts.succeeded < settings.canary_share * ended:
            self.control.seal_run(run.no)
            return self._step(
                bulk,
                status=BulkStatus.STOPPED,
                phase=BulkPhase.ALL,
                why=f"of the canary of {ended}, {run.counts.succeeded} succeeded; at least "
                f"{settings.canary_share * 100:g} % must",
            )
        return self._step(bulk, phase=BulkPhase.ALL)

    def _discard_page(self, bulk: BulkView) -> BulkView | None:
        page = self.reader.jobs(filter_meant_by(bulk), limit=PAGE_ROWS, before=bulk.cursor)
        if not page:
            return self._step(bulk, status=BulkStatus.DONE)
        targets = [target_of(job) for job in page]
        deed = Deed(bulk.begun_by, bulk.reason)
        owner = filter_of(bulk).owner
        answers = self.control.discard(targets, deed, owner=owner, step=_step_past(bulk, page))
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, Receipt):
                self.observers.tell_discarded(target, deed)
        return self._now(bulk)

    def _child(self, run: RunView) -> ChildRun:
        laid = self.catalogue.pipeline(run.pipeline)
        if laid is None:
            raise UnknownName(f"pipeline {run.pipeline!r} of run {run.name!r} is not known here")
        numbers = self.store.lanes(laid.lanes(run.no))
        return ChildRun(run.no, run.pipeline, {lane.stage: no for lane, no in numbers.items()})

    def _step(
        self,
        bulk: BulkView,
        *,
        status: BulkStatus = BulkStatus.RUNNING,
        phase: BulkPhase | None = None,
        why: str = "",
    ) -> BulkView | None:
        step = BulkStep(
            bulk.no, bulk.cursor, bulk.cursor, status=status, phase=phase or bulk.phase, why=why
        )
        moved = self.control.step_bulk(step)
        if moved is not None and moved.status is not bulk.status:
            self._tell(moved)
        return moved

    def _change(self, bulk: BulkView, seen: BulkStatus, status: BulkStatus, deed: Deed) -> BulkView:
        def once() -> BulkView | None:
            found = self._now(bulk)
            if found.status is not seen:
                raise NotChangeable(
                    f"bulk operation {bulk.id} is {found.status.value}; only one that is "
                    f"{seen.value} can be {'stopped' if status is BulkStatus.STOPPED else 'resumed'}"
                )
            change = BulkChange(bulk.no, seen, status, why=deed.reason)
            return self.control.change_bulk(change, clean_deed(deed))

        moved = compare_and_set(f"bulk operation {bulk.id}", once)
        self._tell(moved)
        return moved

    def _reopen(self, run: RunView, deed: Deed) -> None:
        """Take back that all items of a child are in; an aborted one is resumed as a run is."""
        if run.status is RunStatus.RUNNING or run.status in FINISHED:
            change = RunChange(run.no, run.status, RunStatus.RUNNING, sealed=False)
            self.control.change_run(change, clean_deed(deed))
            return
        if run.status is RunStatus.CANCELLED:
            raise NotChangeable(
                f"the run of this operation, {run.name!r}, was cancelled and its letters are dead again; "
                "begin another one: perdure dead redrive"
            )
        raise NotChangeable(
            f"the run of this operation, {run.name!r}, is {run.status.value}; "
            f"resume it first: perdure runs resume {run.no}"
        )

    def _only_pipeline(self, meant: JobFilter, what: str) -> str:
        found = sorted({group.pipeline for group in self.reader.preview(meant).groups})
        if len(found) != 1:
            names = ", ".join(found) or "none"
            raise CallerError(
                f"{what} is of one pipeline; name one of those that have dead letters: {names}"
            )
        return found[0]

    def _run(self, no: int) -> RunView:
        found = self.reader.runs(no=no)
        if not found:
            raise UnknownName(f"no run number {no}")
        return found[0]

    def _now(self, bulk: BulkView) -> BulkView:
        found = self.reader.bulks(id=bulk.id)
        return found[0] if found else bulk

    def _tell(self, bulk: BulkView) -> None:
        self.observers.tell(
            EventName.BULK_CHANGED,
            bulk_id=bulk.id,
            verb=bulk.verb.value,
            status=bulk.status.value,
            done=bulk.done,
            refused=bulk.refused,
            reason=bulk.why or None,
        )


def _json(noun: msgspec.Struct) -> str:
    return msgspec.json.encode(noun).decode()


def _step_past(bulk: BulkView, page: Sequence[JobView]) -> BulkStep:
    return BulkStep(bulk.no, bulk.cursor, page[-1].no, phase=bulk.phase)
