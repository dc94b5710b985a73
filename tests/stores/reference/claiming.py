"""What a claim does to rows, in the reference model: due ones become ready, ready ones get a worker."""

from collections.abc import Iterable
from datetime import datetime

from perdure.model.limits import PROMOTE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.states import State
from tests.stores.reference.rows import JobRow
from tests.stores.reference.tables import Tables


def promote(tables: Tables, jobs: Iterable[JobRow], now: datetime) -> None:
    """Make ready what has fallen due, the longest due first: so many, in equal parts by lane."""
    due = [job for job in jobs if job.ready is False and job.due_at <= now]
    lanes = {job.lane for job in due}
    for lane in lanes:
        waiting = sorted(
            (job for job in due if job.lane == lane), key=lambda job: (job.due_at, job.no)
        )
        for job in waiting[: max(1, PROMOTE_BATCH_MAX // len(lanes))]:
            tables.put_job(replace(job, ready=True))


def take(tables: Tables, job: JobRow, worker: int, now: datetime) -> JobRow:
    """Put a job into the hands of a worker."""
    taken = replace(
        job,
        state=State.PROCESSING,
        ready=None,
        worker=worker,
        token=job.token + 1,
        counters=replace(job.counters, starts=job.counters.starts + 1),
        claimed_at=now,
        updated_at=now,
    )
    tables.put_job(taken)
    return taken
