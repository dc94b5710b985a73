"""Jobs on the wire: snake_case names, moments in RFC 3339 and UTC, money as a decimal string, and no internal detail."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from perdure.model.states import State
from perdure.model.views import AttemptView, JobView


class ErrorShown(Struct, frozen=True):
    """How it went wrong, in words that are for everybody."""

    code: str
    kind: str
    message: str


class AttemptShown(Struct, frozen=True):
    """An attempt, and the decision that followed it, in one sentence."""

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
    attempts: int
    retries_manual: int
    next_run_at: datetime | None
    deadline_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: ErrorShown | None


class JobPage(Struct, frozen=True):
    """Jobs, newest first; ``next`` is the cursor of the page after this one. ``active`` are queued or in work, in all."""

    jobs: list[JobShown]
    active: int | None
    next: str | None


class JobStory(Struct, frozen=True):
    """A job with its attempts, oldest first."""

    job: JobShown
    item: Any
    attempts: list[AttemptShown]


class JobResult(Struct, frozen=True):
    """What a job has come to; ``result`` where it succeeded."""

    job: JobShown
    result: Any


def job_shown(job: JobView) -> JobShown:
    """A job as it is on the wire."""
    return JobShown(
        id=job.id,
        pipeline=job.pipeline,
        stage=job.stage,
        state=job.state,
        view=job.shown_state,
        owner=job.owner,
        key=job.key,
        request_id=job.request_id,
        priority=job.priority,
        attempts=job.counters.starts + job.past.starts,
        retries_manual=job.retries_manual,
        next_run_at=job.due_at if job.state is State.QUEUED else None,
        deadline_at=job.deadline_at,
        created_at=job.enqueued_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        error=_error(job.error_code, job.error_kind, job.error_message),
    )


def attempt_shown(attempt: AttemptView) -> AttemptShown:
    """An attempt as it is on the wire."""
    return AttemptShown(
        stage=attempt.stage,
        number=attempt.number,
        life=attempt.life,
        status=attempt.status.value,
        started_at=attempt.claimed_at,
        ended_at=attempt.settled_at,
        duration_s=round(attempt.elapsed_s, 6),
        error=_error(attempt.code, attempt.kind, attempt.message),
        decision=str(msgspec.json.decode(attempt.why_json)["text"]),
        next_run_at=attempt.due_at,
        tokens_in=attempt.tokens_in,
        tokens_out=attempt.tokens_out,
        cost_usd=money(attempt.cost_nusd),
    )


def story_of(job: JobView, attempts: Sequence[AttemptView]) -> JobStory:
    """A job with its attempts."""
    item = msgspec.Raw(job.payload_json.encode())
    return JobStory(job_shown(job), item, [attempt_shown(one) for one in attempts])


def result_of(job: JobView) -> JobResult:
    """A job with its result."""
    result = None if job.result_json is None else msgspec.Raw(job.result_json.encode())
    return JobResult(job_shown(job), result)


def money(nusd: int) -> str:
    """Billionths of a dollar as a decimal string, with nothing lost."""
    return f"{nusd // 1_000_000_000}.{nusd % 1_000_000_000:09d}"


def _error(code: str | None, kind: str | None, message: str | None) -> ErrorShown | None:
    return None if kind is None else ErrorShown(code or kind, kind, message or "")
