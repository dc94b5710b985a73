"""Looking after runs: abort those over their budget, end those that are done, cancel the jobs of cancelled ones.

Any worker may look, and several do at once: each change compares the run's status, so of two that find the
same thing one acts. A look reads the counts of all runs that are not over, never their jobs.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from perdure.engine.batch.runs import Runs, over_budget, settings_of, tally_of
from perdure.engine.observe import Observers
from perdure.engine.operate.single_jobs import cancel_records
from perdure.engine.record import dead_again_record
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.chore import NOTHING, Swept, write
from perdure.model.filters import JobFilter
from perdure.model.jobs import Record
from perdure.model.kinds import Kind
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.outcomes import Origin
from perdure.model.runs import RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.ports import Control, Reader, Store
from perdure.rules.run_budget import ALIKE_MIN, check_due, first_look_due, has_sample


class _Raiser(Struct):
    """What is read of the evidence of an attempt."""

    origin: str = Origin.UNKNOWN.value


_read_origin = msgspec.json.Decoder(_Raiser).decode
LEFT_S = 60.0  # between the making of a re-drive's run and its operation there is a moment
_PAGE = 200
_DEFECTS = frozenset({Kind.UNKNOWN, Kind.INTERNAL})  # what a defect of a stage ends as


class RunWatch:
    """One look at all runs that are not over."""

    name = "runs"

    def __init__(
        self,
        store: Store,
        control: Control,
        reader: Reader,
        catalogue: Catalogue,
        *,
        observers: Observers,
    ) -> None:
        self._runs = Runs(store, control, reader, observers)
        self._store = store
        self._control = control
        self._reader = reader
        self._catalogue = catalogue
        self._observers = observers
        self._below: dict[int, int] = {}  # cancelled runs: below which number open jobs may be left

    def once(self) -> Swept:
        """Look at every run that is not over."""
        before: int | None = None
        swept, live = NOTHING, set[int]()
        while page := self._reader.runs(live=True, limit=PAGE_ROWS_MAX, before=before):
            for run in page:
                swept = swept.plus(self._look(run))
                live.add(run.no)
            before = page[-1].no
            if len(page) < PAGE_ROWS_MAX:
                break
        for no in self._below.keys() - live:  # another worker has cancelled the last of its jobs
            del self._below[no]
        return swept

    def _look(self, run: RunView) -> Swept:
        match run.status:
            case RunStatus.RUNNING:
                if self._is_left(run):
                    self._runs.seal(run)
                elif run.sealed_at is not None and not run.counts.open:
                    self._runs.settle(run)  # nothing is left that could be saved by giving up
                else:
                    self._abort_overspent(run)
            case RunStatus.CANCELLED:
                return self._cancel_jobs(run)
            case _:
                pass
        return NOTHING

    def _abort_overspent(self, run: RunView) -> None:
        settings, tally, processed = settings_of(run), tally_of(run), run.counts.processed
        due = check_due(settings, checked=run.checked, processed=processed)
        why = over_budget(run, settings, due=due)
        if why is None and first_look_due(settings, tally, checked=run.checked):
            why = self._why_alike(run)
            self._control.note_check(run.no, processed)  # also if it is aborted: it may be resumed
        if why is not None:
            self._runs.abort(run, why)
        elif due and has_sample(settings, tally):
            self._control.note_check(run.no, processed)

    def _why_alike(self, run: RunView) -> str | None:
        """That all of its first items have failed in the same way, in the code of a stage; None if they have not."""
        chosen = JobFilter(states=(State.FAILED,), run=run.no)
        count, like, before = 0, None, None
        while page := self._reader.jobs(chosen, limit=_PAGE, before=before):
            like, before = like or page[0], page[-1].no
            if not all(
                one.fingerprint == like.fingerprint and self._is_own_fault(one) for one in page
            ):
                return None
            count += len(page)
        if like is None or like.fingerprint is None or count < ALIKE_MIN:
            return None
        return (
            f"aborted: the first {count} items have all failed in the same way, in the code of stage "
            f"{like.stage!r} itself"
        )

    def _is_own_fault(self, job: JobView) -> bool:
        """Whether the stage's own code failed, rather than something that it has named by kind."""
        if job.error_kind not in _DEFECTS:
            return False
        seen = [one.evidence_json for one in self._reader.attempts(job.no) if one.evidence_json]
        return bool(seen) and _read_origin(seen[-1]).origin == Origin.OWN

    def _is_left(self, run: RunView) -> bool:
        """Whether whoever began or resumed a re-drive died before its operation ran: nobody else would end its run."""
        if run.sealed_at is not None or run.counts.open or not settings_of(run).redrive:
            return False
        if (self._reader.now() - run.changed_at).total_seconds() < LEFT_S:
            return False
        running = self._reader.bulks(running=True, limit=PAGE_ROWS_MAX)
        return len(running) < PAGE_ROWS_MAX and all(one.run != run.no for one in running)

    def _cancel_jobs(self, run: RunView) -> Swept:
        """Cancel a page of its open jobs, newest first; from the top again when some were missed."""
        if run.counts.open == 0:
            self._below.pop(run.no, None)
            self._runs.finish_cancel(run)
            return NOTHING
        if self._catalogue.pipeline(run.pipeline) is None:
            return NOTHING  # a worker that knows its stages does it
        chosen = JobFilter(states=(State.QUEUED, State.PROCESSING), run=run.no)
        page = self._reader.jobs(chosen, limit=_PAGE, before=self._below.get(run.no))
        if not page:
            self._below.pop(run.no, None)
            return NOTHING
        self._below[run.no] = page[-1].no
        records = self._records(run, page)
        write(self._store, records, by=None, observers=self._observers)
        return Swept(len(records), more=len(page) == _PAGE)

    def _records(self, run: RunView, page: Sequence[JobView]) -> list[Record]:
        """Jobs are cancelled; dead letters that were driven again are dead again, as they were.

        One that is being run is left until it has ended: then it waits in a closed lane.
        """
        if not settings_of(run).redrive:
            why = run.why or "its run was cancelled"
            return cancel_records(page, self._catalogue, why, self._reader.now())
        waiting = [job for job in page if job.state is State.QUEUED]
        return [dead_again_record(job, self._reader.attempts(job.no)) for job in waiting]
