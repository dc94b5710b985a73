"""Jobs over HTTP: made, listed, shown, waited for, cancelled, run now and given a new life."""

import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from perdure.app.job_filters import jobs_listed
from perdure.app.job_refs import JobRef
from perdure.app.pipelines import Pipeline
from perdure.app.surface.moments import Moment
from perdure.app.surface.serving import Item, begin_call, is_item_of, pipeline_named
from perdure.model.access import AccessScope
from perdure.model.errors import JobUnfinished, UnknownName
from perdure.model.limits import KEY_CHARS_MAX, PAGE_ROWS_MAX
from perdure.model.states import TERMINAL
from perdure.model.views import JobView
from perdure.surfaces.http.endpoints import AnswerLater, Endpoint, HttpAnswer, HttpCall, number_at
from perdure.surfaces.http.problems import Refused
from perdure.surfaces.views import (
    AttemptShown,
    JobShown,
    attempt_shown,
    job_answer,
    job_answers,
    under_names,
)

WAIT_S_MAX = 60.0
BATCH_MAX = 1_000

# In a query a number would pass for a moment: there msgspec takes whatever a text may mean.
MomentText = Annotated[str, Meta(max_length=40, extra_json_schema={"format": "date-time"})]
_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,4})(?:$|[,;\s])")
Shown = Literal[
    "queued", "processing", "succeeded", "failed", "cancelled", "retrying", "scheduled", "held"
]


class JobAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to be made. Whose it is comes from the token."""

    pipeline: Annotated[str, Meta(min_length=1, max_length=100)]
    item: Any
    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARS_MAX)] | None = None
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0
    run_at: Moment | None = None
    deadline_s: Annotated[float, Meta(gt=0)] | None = None


class ItemAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """One of several jobs to be made."""

    item: Any
    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARS_MAX)] | None = None
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0
    run_at: Moment | None = None
    deadline_s: Annotated[float, Meta(gt=0)] | None = None


class JobsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Several jobs of one pipeline to be made, in their order: all of them, or none."""

    pipeline: Annotated[str, Meta(min_length=1, max_length=100)]
    jobs: Annotated[list[ItemAsked], Meta(min_length=1, max_length=BATCH_MAX)]


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


class MadeJob(Struct, frozen=True):
    """A job that is there now; ``created`` is false where its key belonged to one before, ``same_item`` where that has another item."""

    id: str
    created: bool
    same_item: bool = True


class MadeJobs(Struct, frozen=True):
    """The jobs of a batch, in its order."""

    jobs: list[MadeJob]


class JobQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs. ``cursor`` is ``next`` of the page before; ``owner`` is for those who see everybody's.

    ``state`` may be a view of queued: ``retrying``, ``scheduled``, or ``held`` behind a gate that lets nothing pass. ``label`` is
    what a stage gave with its success.

    With ``since`` those that have changed from that moment on, the oldest change first. What commits late bears the moment of its
    writing, so who polls asks again from some seconds before the last change that it saw.
    """

    pipeline: str | None = None
    state: Shown | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY_CHARS_MAX)] | None = None
    owner: str | None = None
    label: str | None = None
    since: MomentText | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_ROWS_MAX)] = 50
    cursor: Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}(@[0-9TZ:.-]{20,32})?$")] | None = None


class RetryAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """How a failed job is given a new life; a corrected ``item`` takes the place of the one that it has."""

    item: Any | UnsetType = UNSET
    from_start: bool = False
    dry_run: bool = False
    reason: Annotated[str, Meta(max_length=500)] = ""


class Retried(Struct, frozen=True):
    """A job and the stage at which its new life begins, or, after a dry run, would begin."""

    job: JobShown
    stage: str
    dry_run: bool


class DeedAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody does it, for the audit log."""

    dry_run: bool = False
    reason: Annotated[str, Meta(max_length=500)] = ""


def create_job(call: HttpCall) -> HttpAnswer | AnswerLater:
    """Make a job; with `Prefer: wait=N` its result, if it is there in time."""
    body: JobAsked = call.body
    pipe, wait_s, called = pipeline_asked(call, body.pipeline), _wait_s(call), None
    whose: dict[str, Any] = {
        "owner": call.principal.owner,
        "key": call.headers.get("idempotency-key", body.key),
        "request_id": call.request_id,
    }
    if wait_s and call.may_wait and _is_called(call, body):
        job, called = begin_call(call.session, pipe, body.item, wait_s=wait_s, **whose)
    else:
        own: dict[str, Any] = {
            "priority": body.priority,
            "run_at": body.run_at,
            "deadline_s": body.deadline_s,
        }
        job = pipe.enqueue(body.item, **whose, **own)
    known = whose["key"] is not None and (called is not None or not job.created)
    if known and not is_item_of(call.session, job.view(), body.item):
        raise Refused(
            "key_reused", f"the key belongs to job {job.id}, which was made with another item"
        )
    headers = {"location": f"/api/jobs/{job.id}"}

    def answer(view: JobView) -> HttpAnswer:
        if wait_s and view.state in TERMINAL:
            applied = {"preference-applied": f"wait={wait_s:g}"}
            return HttpAnswer(_result(call, view), 200, headers | applied)
        return HttpAnswer(_result(call, view), 202, headers)

    return AnswerLater(job, wait_s, answer, called) if wait_s else answer(job.view())


def create_jobs(call: HttpCall) -> HttpAnswer:
    """Make several jobs of one pipeline, all of them or none."""
    body: JobsAsked = call.body
    if "idempotency-key" in call.headers:
        raise Refused("bad_request", "Idempotency-Key is for one job; give each of these a key")
    items = [
        Item(
            one.item,
            key=one.key,
            priority=one.priority,
            run_at=one.run_at,
            deadline_s=one.deadline_s,
        )
        for one in body.jobs
    ]
    made = pipeline_asked(call, body.pipeline).enqueue_many(
        items, owner=call.principal.owner, request_id=call.request_id
    )
    told = [
        MadeJob(
            one.id, one.created, one.created or is_item_of(call.session, one.view(), given.item)
        )
        for one, given in zip(made, body.jobs, strict=True)
    ]
    return HttpAnswer(MadeJobs(told), 202)


def list_jobs(call: HttpCall) -> HttpAnswer:
    """List jobs, newest first."""
    query: JobQuery = call.query
    sees, reader = call.principal.sees, call.session.opened.reader
    if sees is not None and query.owner not in (None, sees):
        raise Refused("forbidden", "this token sees the jobs of its own owner only")
    owner = query.owner if sees is None else sees
    chosen = {"pipeline": query.pipeline, "key": query.key, "owner": owner, "label": query.label}
    states = () if query.state is None else (query.state,)
    meant = jobs_listed(reader, states, chosen, strict=False)
    active = None if owner is None else reader.open_jobs(owner)
    id, _, moment = (query.cursor or "").partition("@")
    asked = None if query.since is None else _moment(query.since)
    begun = _moment(moment) if moment else None
    number = number_at(reader.job(id, owner=owner)) if id else None
    if asked is None:
        found = reader.jobs(meant, limit=query.limit, before=number)
        after = found[-1].id if len(found) == query.limit else None
        return HttpAnswer(JobPage(job_answers(call.session, found), active, after))
    if owner is None:
        raise Refused("caller_error", "changes are listed by owner; name one")
    changed = reader.jobs_changed(meant, since=begun or asked, after=number or 0, limit=query.limit)
    after = None
    if len(changed) == query.limit:
        last = changed[-1]
        after = f"{last.job.id}@{last.changed_at.isoformat().replace('+00:00', 'Z')}"
    return HttpAnswer(
        JobPage(job_answers(call.session, [one.job for one in changed]), active, after)
    )


def show_job(call: HttpCall) -> HttpAnswer:
    """Show a job with all its attempts and the decision after each, in words."""
    job = _seen(call)
    aliases, wholly = call.session.aliases_of(job.pipeline), call.principal.sees is None
    attempts = [
        under_names(attempt_shown(one, with_detail=wholly), aliases)
        for one in call.session.opened.reader.attempts(job.no)
    ]
    item = Raw(job.payload_json.encode())
    return HttpAnswer(JobStory(job_answer(call.session, job), item, attempts))


def show_result(call: HttpCall) -> HttpAnswer | AnswerLater:
    """Fetch the result of a job; with `Prefer: wait=N` it is waited for."""
    job, wait_s = _seen(call), _wait_s(call)
    if wait_s and job.state not in TERMINAL:
        waiting = JobRef(job.id, False, call.session, call.principal.sees)
        return AnswerLater(waiting, wait_s, partial(_result_answer, call))
    return _result_answer(call, job)


def cancel_job(call: HttpCall) -> HttpAnswer:
    """Cancel a job; after this no new attempt of it starts."""
    job = _own(call)
    job.cancel(dry_run=call.body.dry_run, reason=call.body.reason, by=call.principal.name)
    return HttpAnswer(job_answer(call.session, job.view()))


def run_job_now(call: HttpCall) -> HttpAnswer:
    """Let a job that waits be due now."""
    job = _own(call)
    job.run_now(dry_run=call.body.dry_run, reason=call.body.reason, by=call.principal.name)
    return HttpAnswer(job_answer(call.session, job.view()))


def retry_job(call: HttpCall) -> HttpAnswer:
    """Give a failed job a new life, with the item that it has or a corrected one."""
    body: RetryAsked = call.body
    job = _own(call)
    corrected = {} if body.item is UNSET else {"payload": body.item}
    stage = job.retry(
        from_start=body.from_start,
        dry_run=body.dry_run,
        reason=body.reason,
        by=call.principal.name,
        **corrected,
    )
    return HttpAnswer(Retried(job_answer(call.session, job.view()), stage, body.dry_run))


_SUBMIT, _READ, _OPERATE = AccessScope.SUBMIT, AccessScope.READ, AccessScope.OPERATE
_GONE = ("not_found",)
_MADE = (*_GONE, "payload_refused", "too_many_open_jobs")
_MADE_ONE = (*_MADE, "key_reused")

ENDPOINTS = (
    Endpoint("POST", "/api/jobs", create_job, _SUBMIT, JobResult, JobAsked, statuses=(200, 202), problems=_MADE_ONE, makes=lambda body: 1),
    Endpoint("POST", "/api/jobs/batch", create_jobs, _SUBMIT, MadeJobs, JobsAsked, statuses=(202,), problems=_MADE, makes=lambda body: len(body.jobs)),
    Endpoint("GET", "/api/jobs", list_jobs, _READ, JobPage, query=JobQuery, problems=("cursor_too_old",)),
    Endpoint("GET", "/api/jobs/{id}", show_job, _READ, JobStory, problems=_GONE),
    Endpoint("GET", "/api/jobs/{id}/result", show_result, _READ, JobResult, problems=(*_GONE, "job_unfinished")),
    Endpoint("POST", "/api/jobs/{id}/cancel", cancel_job, _OPERATE, JobShown, DeedAsked, problems=(*_GONE, "not_cancellable")),
    Endpoint("POST", "/api/jobs/{id}/run-now", run_job_now, _OPERATE, JobShown, DeedAsked, problems=(*_GONE, "not_changeable")),
    Endpoint("POST", "/api/jobs/{id}/retry", retry_job, _OPERATE, Retried, RetryAsked, problems=(*_GONE, "not_retriable", "payload_refused")),
)  # fmt: skip


def pipeline_asked(call: HttpCall, name: str) -> Pipeline:
    """The pipeline of that name; what is told where there is none is no secret, for pipelines have no owner."""
    try:
        return pipeline_named(call.session, name)
    except UnknownName as unknown:
        raise Refused("not_found", f"there is {unknown}") from None


def _is_called(call: HttpCall, body: JobAsked) -> bool:
    """Whether a job is done in this process: its pipeline says so, and its maker has asked for nothing that only the queue has."""
    asks_nothing = (body.priority, body.run_at, body.deadline_s) == (0, None, None)
    return asks_nothing and body.pipeline in call.session.sync_policies


def _seen(call: HttpCall) -> JobView:
    """The job of the path, if the principal sees it."""
    job = call.session.opened.reader.job(call.path["id"], owner=call.principal.sees)
    if job is None:
        raise Refused("not_found")
    return job


def _own(call: HttpCall) -> JobRef:
    """The job of the path, if the principal may change it."""
    job = call.session.opened.reader.job(call.path["id"], owner=call.principal.acts_on)
    if job is None:
        raise Refused("not_found")
    return JobRef(job.id, False, call.session, call.principal.acts_on)


def _moment(text: str) -> datetime:
    try:
        return msgspec.convert(text, Moment)
    except msgspec.ValidationError as wrong:
        raise Refused(
            "bad_request", f"{wrong}, as in 2030-01-01T00:00:00Z, in since or cursor"
        ) from None


def _wait_s(call: HttpCall) -> float:
    found = _WAIT.search(call.headers.get("prefer", ""))
    return 0.0 if found is None else min(float(found[1]), WAIT_S_MAX)


def _result_answer(call: HttpCall, job: JobView) -> HttpAnswer:
    if job.state not in TERMINAL:
        raise JobUnfinished("the job has not ended yet; ask again, or with Prefer: wait=30")
    return HttpAnswer(_result(call, job))


def _result(call: HttpCall, job: JobView) -> JobResult:
    result = None if job.result_json is None else Raw(job.result_json.encode())
    return JobResult(job_answer(call.session, job), result)
