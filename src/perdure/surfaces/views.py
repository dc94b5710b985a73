"""Jobs and the rest as JSON, runs apart (`run_views.py`), for the HTTP API and for `--json` of the command line alike; gates and queues show themselves (`app/surface`).

Names are in snake_case, moments RFC 3339 in UTC, money a decimal text. What is shown here is fit for the owner of a thing: no
internal detail. Operators at the command line see the same, and beside it all that is kept (`all_of`).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from perdure.app.session.session import Session
from perdure.app.surface.job_terms import JobTerms, job_terms
from perdure.app.surface.moments import Moment
from perdure.model.aliases import under_aliases
from perdure.model.operations import BulkView, LoggedDeed, ScheduleView
from perdure.model.runs import usd_text
from perdure.model.states import State
from perdure.model.views import AttemptView, CaptureView, DeadGroup, Flow, JobView
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
    started_at: Moment
    ended_at: Moment
    duration_s: float
    error: ErrorShown | None
    decision: str
    next_run_at: Moment | None
    tokens_in: int
    tokens_out: int
    cost_usd: str
    detail: str | UnsetType = UNSET


class JobShown(Struct, frozen=True):
    """A job. ``state`` is what is stored, ``view`` what people say: *retrying*, *scheduled* and *held* are views of queued.

    ``attempts`` are those of this life, whatever each came to; ``failures`` those at this stage that count. At ``attempts_max``
    of them the job fails; it is null where that is not known, because the app is not there that has the stage. ``retry_after_ms`` is how
    long the job had to wait for ``next_run_at`` when it was queued.
    """

    id: str
    pipeline: str
    stage: str
    state: State
    view: str
    owner: str
    key: str | None
    request_id: str
    priority: int
    attempts: int
    failures: int
    attempts_max: int | None
    retries_manual: int
    last_attempt_at: Moment | None
    next_run_at: Moment | None
    retry_after_ms: int | None
    deadline_at: Moment | None
    created_at: Moment
    updated_at: Moment
    finished_at: Moment | None
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
    saved_at: Moment
    expires_at: Moment | None


class LetterGroup(Struct, frozen=True):
    """Dead letters that failed alike: how many, when first and last, and one of them."""

    fingerprint: str
    pipeline: str
    stage: str
    kind: str
    code: str
    count: int
    first_at: Moment
    last_at: Moment
    example_id: str


class BulkShown(Struct, frozen=True):
    """A bulk operation: how far it is, and how many jobs it has left as they were."""

    id: str
    verb: str
    status: str
    done: int
    refused: int
    begun_by: str
    begun_at: Moment
    reason: str
    why: str


class WorkerShown(Struct, frozen=True):
    """A worker, and since when it is dead."""

    id: int
    name: str
    started_at: Moment
    seen_at: Moment
    dead_at: Moment | None


class ScheduleShown(Struct, frozen=True):
    """A periodic job."""

    name: str
    pipeline: str
    rule: str
    next_at: Moment
    last_at: Moment | None
    times: int


class FlowShown(Struct, frozen=True):
    """What has happened in a stage since the store was made; these numbers never fall."""

    pipeline: str
    stage: str
    created: int
    succeeded: int
    failed: int
    cancelled: int
    revived: int
    attempts: int
    retries: int
    waits: int
    tokens_in: int
    tokens_out: int
    cost_usd: str


class DeedShown(Struct, frozen=True):
    """A line of the audit log."""

    at: Moment
    by: str
    verb: str
    subject: str
    reason: str


def job_shown(job: JobView, terms: JobTerms, *, held: bool = False) -> JobShown:
    """A job as everybody sees it; one that could run is ``held`` where its gate lets nothing pass."""
    whole = job.counters.plus(job.past)
    waits = job.state is State.QUEUED and not job.ready and job.claimed_at is not None
    return JobShown(
        **same_fields(JobShown, job),
        view="held" if held and job.shown_state == "queued" else job.shown_state,
        attempts=whole.starts,
        failures=whole.failures if terms.in_all else job.counters.failures,
        attempts_max=terms.attempts_max,
        last_attempt_at=job.claimed_at,
        next_run_at=job.due_at if job.state is State.QUEUED else None,
        retry_after_ms=_ms(job.due_at - job.updated_at) if waits else None,
        created_at=job.enqueued_at,
        error=_error(job.error_code, job.error_kind, job.error_message),
    )


def job_answer(session: Session, job: JobView) -> Any:
    """A job as everybody sees it, its fields under their second names, too."""
    return job_answers(session, [job])[0]


def job_answers(session: Session, jobs: Sequence[JobView]) -> list[Any]:
    """Jobs as everybody sees them, their fields under their second names, too."""
    return [under_names(shown, terms.aliases) for _, shown, terms in _shown(session, jobs)]


def _shown(
    session: Session, jobs: Sequence[JobView]
) -> Iterator[tuple[JobView, JobShown, JobTerms]]:
    """Jobs with what the app and the gates say of them; the gates are asked once for all."""
    lanes = {one.lane for one in jobs if one.state is State.QUEUED and one.ready}
    held = session.opened.reader.held_lanes(lanes) if lanes else ()
    for job in jobs:
        terms = job_terms(session, job)
        yield job, job_shown(job, terms, held=job.lane in held), terms


def under_names(shown: Struct, aliases: Mapping[str, str]) -> Any:
    """What is shown, its fields under their second names, too, where there are such."""
    if not aliases:
        return shown
    fields = msgspec.structs.asdict(shown)
    return under_aliases({k: v for k, v in fields.items() if v is not UNSET}, aliases)


def attempt_shown(attempt: AttemptView, *, with_detail: bool = False) -> AttemptShown:
    """An attempt as everybody sees it; with its detail it is for operators alone."""
    return AttemptShown(
        **same_fields(AttemptShown, attempt),
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
    return CaptureShown(**same_fields(CaptureShown, capture))


def group_shown(group: DeadGroup) -> LetterGroup:
    """Dead letters that failed alike."""
    return LetterGroup(**same_fields(LetterGroup, group))


def bulk_shown(bulk: BulkView) -> BulkShown:
    """A bulk operation as everybody sees it."""
    return BulkShown(**same_fields(BulkShown, bulk))


def worker_shown(worker: WorkerView) -> WorkerShown:
    """A worker, as operators alone see it."""
    return WorkerShown(worker.no, worker.name, worker.started_at, worker.beat_at, worker.dead_at)


def schedule_shown(one: ScheduleView) -> ScheduleShown:
    """A schedule, as operators alone see it."""
    return ScheduleShown(one.name, one.pipeline, one.spec, one.next_at, one.ticked_at, one.ticks)


def flow_shown(flow: Flow) -> FlowShown:
    """What has happened in a stage."""
    return FlowShown(**same_fields(FlowShown, flow), cost_usd=usd_text(flow.cost_nusd))


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


def all_of_job(session: Session, job: JobView) -> dict[str, Any]:
    """A job for operators."""
    return all_of_jobs(session, [job])[0]


def all_of_jobs(session: Session, jobs: Sequence[JobView]) -> list[dict[str, Any]]:
    """Jobs for operators."""
    return [
        under_aliases({**all_of(shown, job), "shown_state": shown.view}, terms.aliases)
        for job, shown, terms in _shown(session, jobs)
    ]


def all_of_attempts(
    session: Session, job: JobView, attempts: Sequence[AttemptView]
) -> list[dict[str, Any]]:
    """The attempts of a job for operators."""
    aliases = session.aliases_of(job.pipeline)
    return [
        under_aliases(all_of(attempt_shown(one, with_detail=True), one), aliases)
        for one in attempts
    ]


def all_of_bulk(bulk: BulkView) -> dict[str, Any]:
    """A bulk operation for operators."""
    return all_of(bulk_shown(bulk), bulk)


def same_fields(kind: type[Struct], kept: Struct) -> Mapping[str, Any]:
    """What a view has under the same name as what is kept."""
    names = set(kept.__struct_fields__)
    return {name: getattr(kept, name) for name in kind.__struct_fields__ if name in names}


def _ms(time: timedelta) -> int:
    return max(0, round(time / timedelta(milliseconds=1)))


def _error(code: str | None, kind: str | None, message: str | None) -> ErrorShown | None:
    return None if kind is None else ErrorShown(code or kind, kind, message or "")
