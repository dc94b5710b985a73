"""Runs as people see them: jobs of Perdure under the names of the design document, and what may be done to them.

A run is its latest verification, the job of the key ``run`` or, after a reset, ``run#2`` and so on. An error that waits
for its next try and one that is permanent are both ``error``; the first has a ``next_retry_at``. A verdict has no retry fields:
what there was is in the attempts, which stay.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure import CallerError, JobView, State, UnknownName

from . import app as parts
from .app import Run, Verifier

STATUSES = ("discovered", "processing", "passed", "needs_review", "failed", "error")
PAGE = 500


@dataclass(frozen=True)
class RunRow:
    """A row of the document's table ``runs``; ``job_id`` and ``verification`` are what Perdure knows it by."""

    run_id: str
    game: str
    category: str
    submitted_date: datetime
    status: str
    error_class: str | None
    error_message: str | None
    retry_count: int
    next_retry_at: datetime | None
    created_at: datetime
    updated_at: datetime
    job_id: str
    verification: int

    @property
    def age_s(self) -> float:
        """How long ago it made its last move."""
        return (datetime.now(UTC) - self.updated_at).total_seconds()

    @property
    def has_ended(self) -> bool:
        """Whether it has a verdict or a permanent error."""
        open_now = self.status in ("discovered", "processing") or self.next_retry_at is not None
        return not open_now

    def as_json(self) -> dict[str, Any]:
        """The row for programs."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }


def row_of(job: JobView) -> RunRow:
    """A job as a run."""
    run = msgspec.json.decode(job.payload_json, type=Run)
    waits = job.state is State.QUEUED and job.error_kind is not None
    status = {
        State.QUEUED: "error" if waits else "discovered",
        State.PROCESSING: "processing",
        State.SUCCEEDED: job.label or "passed",
        State.FAILED: "error",
        State.CANCELLED: "cancelled",
    }[job.state]
    failures = job.counters.failures + job.past.failures
    retries = failures - 1 if job.state is State.FAILED else failures
    is_open = job.state is not State.SUCCEEDED
    return RunRow(
        **vars(run),
        status=status,
        error_class=job.error_code if status == "error" else None,
        error_message=job.error_message if status == "error" else None,
        retry_count=max(0, retries) if is_open else 0,
        next_retry_at=job.due_at if waits else None,
        created_at=job.enqueued_at,
        updated_at=job.updated_at,
        job_id=job.id,
        verification=int((job.key or "").removeprefix(run.run_id).removeprefix("#") or 1),
    )


def all_runs(verifier: Verifier) -> Iterator[RunRow]:
    """Every run once, as its latest verification; those that were found last come first. Removed ones are left out."""
    seen: set[tuple[str, str, str]] = set()
    before: int | None = None
    while page := verifier.app.jobs.list(queue=parts.RUNS, limit=PAGE, before=before):
        for job in page:
            row = row_of(job)
            if (row.game, row.category, row.run_id) not in seen:
                seen.add((row.game, row.category, row.run_id))
                if row.status != "cancelled" and job.discarded_at is None:
                    yield row
        before = page[-1].no


def find_run(verifier: Verifier, run_id: str) -> RunRow:
    """A run by its id."""
    found = [row for row in all_runs(verifier) if row.run_id == run_id]
    if not found:
        raise UnknownName(f"no run {run_id!r} was found yet; see: query list")
    return found[0]


@dataclass(frozen=True)
class Chosen:
    """Which runs are meant; all that is given must hold."""

    status: tuple[str, ...] = ()
    game: str | None = None
    category: str | None = None
    error_class: str | None = None
    text: str | None = None
    older_than_s: float = 0.0  # since it made its last move

    def means(self, row: RunRow) -> bool:
        """Whether a run is meant."""
        return (
            (not self.status or row.status in self.status)
            and self.game in (None, row.game)
            and self.category in (None, row.category)
            and self.error_class in (None, row.error_class)
            and (self.text or "").lower() in (row.error_message or "").lower()
            and (not self.older_than_s or row.age_s >= self.older_than_s)
        )

    def among(self, rows: Iterator[RunRow]) -> list[RunRow]:
        """Those of the runs that are meant."""
        return [row for row in rows if self.means(row)]


def last_poll(verifier: Verifier) -> str:
    """How the latest poll went, in a line."""
    found = verifier.app.jobs.list(queue=parts.POLLS, limit=1)
    if not found:
        return "none yet"
    job = found[0]
    said = job.error_message or job.result_json or "under way"
    return f"{job.updated_at:%Y-%m-%d %H:%M:%SZ} {job.shown_state}: {said}"


def in_line(verifier: Verifier) -> list[RunRow]:
    """What is to be done, in the order of the queue: what is due by the date of its submission, then what falls due later."""
    rows = Chosen(status=("discovered", "error")).among(all_runs(verifier))
    open_rows = [row for row in rows if row.status == "discovered" or row.next_retry_at]
    now = datetime.now(UTC)

    def place(row: RunRow) -> tuple[bool, datetime]:
        if row.next_retry_at is not None and row.next_retry_at > now:
            return True, row.next_retry_at
        return False, row.submitted_date

    return sorted(open_rows, key=place)


def reset(verifier: Verifier, row: RunRow, *, clear_error: bool, reason: str) -> str:
    """Have a run verified again, and say how. Tries count from zero, but for an error that waits and is not to be cleared."""
    if row.status == "processing":
        raise CallerError(f"run {row.run_id} is being verified; wait for it")
    if row.status == "discovered":
        return "is to be verified already"
    job = verifier.app.job(row.job_id)
    if row.next_retry_at is not None and not clear_error:
        job.run_now(reason=reason)
        return f"is due now, with {row.retry_count} retries behind it"
    if row.status == "error" and row.next_retry_at is None:
        job.retry(from_start=True, reason=reason)
        return "begins anew"
    run = Run(row.run_id, row.game, row.category, row.submitted_date)
    verifier.enqueue(run, verification=row.verification + 1)
    if row.next_retry_at is not None:
        job.cancel(
            reason=reason
        )  # last: whoever is interrupted before has verified once too often, and lost nothing
    return f"is verified anew, verification {row.verification + 1}"


def clean_up(verifier: Verifier, row: RunRow, *, reason: str) -> None:
    """Remove the save of a run that has ended, and take an error off the lists; the books keep it."""
    parts.save_of(parts.saves_in(verifier.app.settings), row.run_id).unlink(missing_ok=True)
    if row.status == "error":
        key = parts.key_of(row.run_id, row.verification)
        verifier.app.dead.discard(pipeline=f"{row.game}/{row.category}", key=key, reason=reason)
