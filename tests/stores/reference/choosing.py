"""Which jobs a filter means, in the reference model."""

from datetime import datetime

from perdure.model.filters import JobFilter
from perdure.model.jobs import Lane
from perdure.model.states import State
from tests.stores.reference.rows import JobRow
from tests.stores.reference.tables import Tables


def lane_of(tables: Tables, job: JobRow) -> Lane:
    """Where it stands."""
    return tables.lanes.get(job.lane, Lane("", "", job.pipeline, job.stage))


def is_meant(tables: Tables, job: JobRow, chosen: JobFilter) -> bool:
    """Whether all that the filter says holds for a job."""
    lane = lane_of(tables, job)
    return (
        (not chosen.states or job.state in chosen.states)
        and chosen.pipeline in (None, job.pipeline)
        and chosen.stage in (None, job.stage)
        and chosen.queue in (None, lane.queue)
        and chosen.category in (None, lane.category)
        and chosen.owner in (None, job.owner)
        and chosen.key in (None, job.key)
        and chosen.run in (None, job.run, job.redrive_run)
        and _failed_so(job, chosen)
        and _within(job.enqueued_at, chosen.enqueued_from, chosen.enqueued_until)
        and _within(job.finished_at, chosen.finished_from, chosen.finished_until)
        and chosen.discarded in (None, job.discarded_at is not None)
        and chosen.waiting in (None, job.ready is False)
        and chosen.retrying in (None, job.state is State.QUEUED and job.error_kind is not None)
        and chosen.held in (None, job.state is State.QUEUED and tables.is_held(job.lane))
        and chosen.label in (None, job.label)
    )


def _failed_so(job: JobRow, chosen: JobFilter) -> bool:
    """A fingerprint is only a dead letter's; the rest may be said of a failure that is tried again, too."""
    return (
        chosen.reason in (None, job.failed_reason)
        and chosen.kind in (None, job.error_kind)
        and chosen.code in (None, job.error_code)
        and chosen.fingerprint in (None, job.fingerprint)
        and (chosen.fingerprint is None or job.state is State.FAILED)
        and (
            chosen.text is None
            or _says(job.error_message, chosen.text)
            or _says(job.error_detail, chosen.text)
        )
    )


def _says(message: str | None, text: str) -> bool:
    return message is not None and text.casefold() in message.casefold()


def _within(moment: datetime | None, first: datetime | None, end: datetime | None) -> bool:
    """From the first moment on, up to the end and without it; what has no moment is within no bounds."""
    if moment is None:
        return first is None and end is None
    return (first is None or first <= moment) and (end is None or moment < end)
