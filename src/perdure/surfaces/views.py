"""Jobs, runs and the rest as JSON, for the HTTP API and for `--json` of the command line alike; gates and queues show themselves (`app/surface`).

Names are in snake_case, moments RFC 3339 in UTC, money a decimal text. What is shown here is fit for the owner of a thing: no
internal detail. Operators at the command line see the same, and beside it all that is kept (`all_of`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from perdure.app.surface.store_session import Report
from perdure.model.operations import BulkView, LoggedDeed, ScheduleView
from perdure.model.runs import RunView, usd_text
from perdure.model.states import State
from perdure.model.views import AttemptView, CaptureView, DeadGroup, Errors, JobView
from perdure.model.workers import WorkerView


class ErrorShown(Struct, frozen=True):
    """How it went wrong, in words that are for everybody."""

    code: str
    kind: str
    message: str


class AttemptShown(Struct, frozen=True):
    """An attempt, and the decision that followed it, in one sentence. ``token`` counts the claims of its job.

    ``detail`` is what was raised, where, and what it said: for those who see everybody's jobs, and left out for others.
    """

    token: int
    stage: str
    number: int
    life: int
    status: str
    started_at: datetime
    ended_at: datetime
    duration_s: float
    error: ErrorShown | None
    decision: str
    next_run_at: datetime | None
    tokens_in: int
    tokens_out: int
    cost_usd: str
    detail: str | UnsetType = UNSET


class JobShown(Struct, frozen=True):
    """A job. ``state`` is what is stored, ``view`` what people say: *retrying* and *scheduled* are views of queued."""

    id: str
    pipeline: str
    stage: str
    state: State
    view: str
    owner: str
    key: str | None
    request_id: str
    priority: int
    starts: int
    retries_manual: int
    next_run_at: datetime | None
    deadline_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: ErrorShown | None


class CaptureShown(Struct, frozen=True):
    """Raw output that an attempt has put aside; ``token`` is that of its attempt, ``bytes_whole`` how long it was before it was cut."""

    id: str
    token: int
    stage: str
    kind: str
    media_type: str
    bytes_kept: int
    bytes_whole: int
    saved_at: datetime
    expires_at: datetime | None


class RunCount(Struct, frozen=True):
    """How many items stand where."""

    total: int
    open: int
    succeeded: int
    failed: int
    cancelled: int


class RunShown(Struct, frozen=True):
    """A run. It is sealed when all of its items are in, and over when ``ended_at`` is set."""

    id: str
    pipeline: str
    name: str
    owner: str
    status: str
    why: str
    counts: RunCount
    cost_usd: str
    created_at: datetime
    sealed_at: datetime | None
    ended_at: datetime | None


class ReportedRun(Struct, frozen=True):
    """The run of a report."""

    id: str
    name: str
    pipeline: str
    owner: str
    status: str
    why: str
    created_at: datetime
    ended_at: datetime | None


class ReportedCounts(RunCount, frozen=True):
    """What has become of its items, and what that took."""

    attempts: int
    retries: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost_usd: str
    failed_by_kind: dict[str, int]


class ReportedStage(Struct, frozen=True):
    """A stage of a run; durations are of attempts that succeeded."""

    stage: str
    attempts: int
    succeeded: int
    retried: int
    failed: int
    retry_rate: float
    failure_rate: float
    p50_s: float | None
    p95_s: float | None
    tokens_in: int
    tokens_out: int
    cost_usd: str
    wasted_usd: str


class ReportedWaste(Struct, frozen=True):
    """Attempts that did not succeed, and what they cost."""

    attempts: int
    wasted_attempts: int
    wasted_share: float
    cost_usd: str
    wasted_usd: str


class RunReport(Struct, frozen=True):
    """How a run went. ``retries`` are its ended items by how many they needed; ``final`` errors ended their item."""

    run: ReportedRun
    counts: ReportedCounts
    retries: dict[str, int]
    errors: list[Errors]
    stages: list[ReportedStage]
    waste: ReportedWaste
    shares: dict[str, float]
    time_to_success_s: dict[str, float | None]


class LetterGroup(Struct, frozen=True):
    """Dead letters that failed alike: how many, when first and last, and one of them."""

    fingerprint: str
    pipeline: str
    stage: str
    kind: str
    code: str
    count: int
    first_at: datetime
    last_at: datetime
    example_id: str


class BulkShown(Struct, frozen=True):
    """A bulk operation: how far it is, and how many jobs it has left as they were."""

    id: str
    verb: str
    status: str
    done: int
    refused: int
    begun_by: str
    begun_at: datetime
    reason: str
    why: str


class WorkerShown(Struct, frozen=True):
    """A worker, and since when it is dead."""

    id: int
    name: str
    started_at: datetime
    seen_at: datetime
    dead_at: datetime | None


class ScheduleShown(Struct, frozen=True):
    """A periodic job."""

    name: str
    pipeline: str
    rule: str
    next_at: datetime
    last_at: datetime | None
    times: int


class DeedShown(Struct, frozen=True):
    """A line of the audit log."""

    at: datetime
    by: str
    verb: str
    subject: str
    reason: str


def job_shown(job: JobView) -> JobShown:
    """A job as everybody sees it."""
    return JobShown(
        **_same(JobShown, job),
        view=job.shown_state,
        starts=job.counters.starts + job.past.starts,
        next_run_at=job.due_at if job.state is State.QUEUED else None,
        created_at=job.enqueued_at,
        error=_error(job.error_code, job.error_kind, job.error_message),
    )


def attempt_shown(attempt: AttemptView, *, with_detail: bool = False) -> AttemptShown:
    """An attempt as everybody sees it; with its detail it is for operators alone."""
    return AttemptShown(
        **_same(AttemptShown, attempt),
        started_at=attempt.claimed_at,
        ended_at=attempt.settled_at,
        duration_s=round(attempt.elapsed_s, 6),
        error=_error(attempt.code, attempt.kind, attempt.public_message),
        decision=attempt.public_why,
        next_run_at=attempt.due_at,
        cost_usd=usd_text(attempt.cost_nusd),
        detail=attempt.saw if with_detail else UNSET,
    )


def capture_shown(capture: CaptureView) -> CaptureShown:
    """A capture without what it holds."""
    return CaptureShown(**_same(CaptureShown, capture))


def run_shown(run: RunView) -> RunShown:
    """A run as everybody sees it."""
    counts = run.counts
    count = RunCount(counts.total, counts.open, counts.succeeded, counts.failed, counts.cancelled)
    plain = {**_same(RunShown, run), "counts": count}
    return RunShown(**plain, cost_usd=usd_text(counts.cost_nusd))


def report_shown(report: Report) -> RunReport:
    """The report of a run."""
    return msgspec.convert(report.as_json(), RunReport)


def group_shown(group: DeadGroup) -> LetterGroup:
    """Dead letters that failed alike."""
    return LetterGroup(**_same(LetterGroup, group))


def bulk_shown(bulk: BulkView) -> BulkShown:
    """A bulk operation as everybody sees it."""
    return BulkShown(**_same(BulkShown, bulk))


def worker_shown(worker: WorkerView) -> WorkerShown:
    """A worker, as operators alone see it."""
    return WorkerShown(worker.no, worker.name, worker.started_at, worker.beat_at, worker.dead_at)


def schedule_shown(one: ScheduleView) -> ScheduleShown:
    """A schedule, as operators alone see it."""
    return ScheduleShown(one.name, one.pipeline, one.spec, one.next_at, one.ticked_at, one.ticks)


def deed_shown(deed: LoggedDeed) -> DeedShown:
    """A line of the audit log."""
    return DeedShown(deed.done_at, deed.by_whom, deed.verb, deed.subject, deed.reason)


def all_of(shown: Struct, kept: Struct) -> dict[str, Any]:
    """A thing as everybody sees it, and beside it all that is kept of it, its own JSON as JSON: for operators alone."""
    plain: dict[str, Any] = msgspec.to_builtins(kept)
    for name in [one for one in plain if one.endswith("_json")]:
        text = plain.pop(name)
        plain[name.removesuffix("_json")] = None if text is None else msgspec.Raw(text.encode())
    return {**msgspec.to_builtins(shown), **plain}


def all_of_job(job: JobView) -> dict[str, Any]:
    """A job for operators."""
    return {**all_of(job_shown(job), job), "shown_state": job.shown_state}


def all_of_attempts(attempts: Sequence[AttemptView]) -> list[dict[str, Any]]:
    """Attempts for operators."""
    return [all_of(attempt_shown(one, with_detail=True), one) for one in attempts]


def all_of_run(run: RunView) -> dict[str, Any]:
    """A run for operators."""
    plain = all_of(run_shown(run), run)
    plain["counts"] |= {"open": run.counts.open, "cost_usd": usd_text(run.counts.cost_nusd)}
    return plain


def all_of_bulk(bulk: BulkView) -> dict[str, Any]:
    """A bulk operation for operators."""
    return all_of(bulk_shown(bulk), bulk)


def _same(kind: type[Struct], kept: Struct) -> Mapping[str, Any]:
    """What a view has under the same name as what is kept."""
    names = set(kept.__struct_fields__)
    return {name: getattr(kept, name) for name in kind.__struct_fields__ if name in names}


def _error(code: str | None, kind: str | None, message: str | None) -> ErrorShown | None:
    return None if kind is None else ErrorShown(code or kind, kind, message or "")
