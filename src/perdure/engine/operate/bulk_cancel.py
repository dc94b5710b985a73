"""One page of a bulk cancel: open jobs, which others may claim, settle or complete at the same moment.

What has moved on since it was seen, or is held by another transaction at this moment, is looked at again: the cursor
goes back above it. A claim or a record is over in milliseconds; what is still held after many looks is being completed in
a transaction of its stage's own, and left with a line about it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from perdure.engine.observe import Observers
from perdure.engine.operate.bulk_settings import filter_of
from perdure.engine.operate.single_jobs import can_cancel, cancel_records
from perdure.engine.stages import Catalogue
from perdure.model.jobs import Busy, Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.operations import BulkStep, BulkView, Deed, Refusal
from perdure.model.states import TERMINAL
from perdure.model.views import JobView
from perdure.ports import Control, Reader

_BUSY_MAX = 20
_BEING_COMPLETED = "was being completed in a transaction of its stage's own"


@dataclass(slots=True)
class BulkCancel:
    """Cancels pages, and remembers how often it met a job that somebody else held."""

    control: Control
    reader: Reader
    catalogue: Catalogue
    observers: Observers
    _busy: Counter[tuple[int, int]] = field(default_factory=Counter, init=False)

    def page(self, bulk: BulkView, found: Sequence[JobView]) -> BulkStep | None:
        """Cancel the first of these jobs; the step to take then. None: they run stages that are not known here."""
        page = list(takewhile(lambda job: can_cancel(job, self.catalogue), found))
        if not page:
            return None
        records = cancel_records(page, self.catalogue, bulk.reason, self.reader.now())
        step = BulkStep(bulk.no, bulk.cursor, page[-1].no, phase=bulk.phase)
        deed, owner = Deed(bulk.begun_by, bulk.reason), filter_of(bulk).owner
        stand = replace(step, cursor=bulk.cursor, again=True)
        answers = self.control.cancel(records, deed, owner=owner, step=stand)
        again: list[JobView | None] = []
        refusals: list[Refusal] = []
        for record, answer in zip(records, answers, strict=True):
            if isinstance(answer, Receipt):
                self.observers.tell_settled(record, answer)
            elif isinstance(answer, Busy) and self._has_waited(bulk, record.no):
                refusals.append(Refusal(record.no, _BEING_COMPLETED))
            elif isinstance(answer, Stale | Busy):
                again.append(self.reader.job(record.id))
        left = [job.no for job in again if job is not None and job.state not in TERMINAL]
        step = replace(step, refusals=tuple(refusals))
        return replace(step, cursor=left[0] + 1) if left else step

    def _has_waited(self, bulk: BulkView, no: int) -> bool:
        self._busy[bulk.no, no] += 1
        return self._busy[bulk.no, no] >= _BUSY_MAX
