"""Runs as people see them: jobs of Perdure under the names of the design document, and what may be done to them.

A run is its latest verification, the job of the key ``run`` or, after a reset, ``run#2`` and so on. An error that waits
for its next try and one that is permanent are both ``error``; the first has a ``next_retry_at``. A verdict has no retry fields:
what there was is in the attempts, which stay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from perdure import App, CallerError, JobView, State, UnknownName

from .app import RUNS, Run, Verifier

STATUSES = ("discovered", "processing", "passed", "needs_review", "failed", "error")
# Of Perdure's states those that have another name here; the verdict of a job that has succeeded is its label.
STATUS_OF = {
    "queued": "discovered",
    "scheduled": "discovered",
    "retrying": "error",
    "failed": "error",
    "succeeded": "passed",
}
RESET = "admin reset"  # why, as a job's history has it
PAGE = 500


@dataclass
class RunRow(Run):
    """A row of the document's table ``runs``; ``ordered_at`` is its place in line, ``job_id`` and ``verification`` what Perdure knows it by."""

    status: str
    error_class: str | None
    error_message: str | None
    retry_count: int
    next_retry_at: datetime | None
    ordered_at: datetime
    created_at: datetime
    updated_at: datetime
    job_id: str
    verification: int

    @property
    def has_ended(self) -> bool:
        """Whether it has a verdict or a permanent error."""
        return self.status not in ("discovered", "processing") and self.next_retry_at is None


def row_of(app: App, job: JobView) -> RunRow:
    run = msgspec.json.decode(job.payload_json, type=Run)
    status = job.label or STATUS_OF.get(job.shown_state, job.shown_state)
    is_error = status == "error"
    seen = job.counters.plus(job.past)
    retries = 0 if job.state is State.SUCCEEDED else seen.failures
    if job.state is State.FAILED:  # there is no retry after the last failure, if that was one
        sure = not seen.waits and not seen.crashes
        retries -= sure or app.job(job.id).attempts()[-1].counted == "failures"
    return RunRow(
        **vars(run),
        status=status,
        error_class=job.error_code if is_error else None,
        error_message=job.error_message if is_error else None,
        retry_count=retries,
        next_retry_at=job.due_at if job.shown_state == "retrying" else None,
        ordered_at=job.ordered_at,
        created_at=job.enqueued_at,
        updated_at=job.updated_at,
        job_id=job.id,
        verification=int((job.key or "").removeprefix(run.run_id).removeprefix("#") or 1),
    )


def all_runs(verifier: Verifier) -> Iterator[RunRow]:
    """Every run once, as its latest verification; those that were found last come first. Removed ones are left out."""
    seen: set[tuple[str, str]] = set()
    before: int | None = None
    while page := verifier.app.jobs.list(queue=RUNS, limit=PAGE, before=before):
        for job in page:
            row = row_of(verifier.app, job)
            if (job.pipeline, row.run_id) not in seen:
                seen.add((job.pipeline, row.run_id))
                if job.state is not State.CANCELLED and job.discarded_at is None:
                    yield row
        before = page[-1].no


def find_run(verifier: Verifier, run_id: str) -> RunRow:
    for row in all_runs(verifier):
        if row.run_id == run_id:
            return row
    raise UnknownName(f"no run {run_id!r} was found yet; see: query list")


def runs_meant(
    verifier: Verifier, *, text: str, older_than: timedelta, **among: Sequence[str]
) -> list[RunRow]:
    """The runs that all of the filters mean; one that is not given means every run. A run is as old as its last move."""
    now = datetime.now(UTC)
    return [
        row
        for row in all_runs(verifier)
        if all(getattr(row, name) in given for name, given in among.items() if given)
        and text.lower() in (row.error_message or "").lower()
        and (not older_than or now - row.updated_at >= older_than)
    ]


def last_polls(verifier: Verifier) -> dict[str, str]:
    """How the latest poll of each category went, in a line."""
    told = {}
    for pair, polls in verifier.polls.items():
        for job in verifier.app.jobs.list(pipeline=polls.name, limit=1):
            said = job.error_message or job.result_json or "under way"
            told["/".join(pair)] = f"{job.updated_at:%Y-%m-%d %H:%M:%SZ} {job.shown_state}: {said}"
    return told


def in_line(verifier: Verifier) -> list[RunRow]:
    """What is to be done, in the order of the queue: what is due, then what falls due later."""
    now = datetime.now(UTC)

    def place(row: RunRow) -> tuple[bool, datetime]:
        is_later = row.next_retry_at is not None and row.next_retry_at > now
        return is_later, row.next_retry_at if is_later else row.ordered_at

    rows = list(all_runs(verifier))[::-1]  # of equals the one that was found first
    to_do = [row for row in rows if row.status == "discovered" or row.next_retry_at]
    return sorted(to_do, key=place)


def reset(verifier: Verifier, row: RunRow, *, clear_error: bool) -> str:
    """Have a run verified again, and say how. Tries count from zero, but for an error that waits and is not to be cleared."""
    if row.status == "processing":
        raise CallerError(f"run {row.run_id} is being verified; wait for it")
    if row.status == "discovered":
        return "is to be verified already"
    job, waits = verifier.app.job(row.job_id), row.next_retry_at is not None
    if waits and not clear_error:
        job.run_now(reason=RESET)
        return f"is due now, with {row.retry_count} retries behind it"
    if row.status == "error" and not waits:
        job.retry(from_start=True, reason=RESET)
        return "begins anew"
    run = Run(row.run_id, row.game, row.category, row.submitted_date)
    again = row.verification + 1
    verifier.enqueue(run, verification=again)
    if waits:  # last: whoever is interrupted before has verified once too often, and lost nothing
        job.cancel(reason=RESET)
    return f"is verified anew, verification {again}"
