"""Samples and data sets over HTTP, each tenant's own: `uvicorn examples.datasets.api:api --port 4102`

The tenant is the owner of the token (`perdure token create --owner acme --scope submit --scope read --scope operate`). The header
X-Tenant-Id says whom the caller means to be, and must be the same; what is another tenant's is not found. Beside it, under /perdure, is the
API for operators.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from examples.datasets.app import app, samples
from examples.datasets.build import NAME, NoSample, item_of, read_sample, status_of
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from perdure import Item, JobView, NotChangeable, Run, RunUnfinished
from perdure.http import AccessScope, Refused, asgi, authorize, refusal_answers, take_bytes

BODY_BYTES_MAX = 8_000_000
PAGE_MAX = 500
WAIT_S_MAX = 60.0  # for what is mostly done at once
NUMBER_MAX = 2**63 - 1  # what a store can count to
STATES = {  # of the document's statuses, that of the job
    "pending": "queued",
    "processing": "processing",
    "completed": "succeeded",
    "dlq": "failed",
    "skipped": "cancelled",
}
STATUSES = {state: status for status, state in STATES.items()}
Form = TypeVar("Form")
SUBMIT, READ, OPERATE = AccessScope.SUBMIT, AccessScope.READ, AccessScope.OPERATE


class NewDataset(msgspec.Struct, forbid_unknown_fields=True):
    """A data set to be begun, or gone on with: the same tenant and name are the same one."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\Z")]
    failure_budget: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    failure_check_interval: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None


class NewSamples(msgspec.Struct, forbid_unknown_fields=True):
    """Samples for a data set; or corrected ones, in place of its dead letters with their ids."""

    dataset: str
    samples: list[msgspec.Raw]


class Query(msgspec.Struct):
    """What is to be listed: of which data set, which, and from where on."""

    dataset: str = ""
    status: Literal["pending", "processing", "completed", "dlq", "skipped"] | None = None
    topic: str | None = None
    offset: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX - PAGE_MAX)] = 0
    before: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


class Reprocess(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters are to be driven again: all of the data set, or those of a stage."""

    stage: str | None = None
    reason: str = ""


def create_dataset(request: Request) -> Response:
    """POST /v1/datasets"""
    tenant, asked = tenant_of(request, SUBMIT), body_of(request, NewDataset)
    run = samples.run(
        [],
        name=asked.name,
        owner=tenant,
        failure_budget=asked.failure_budget,
        check_every=asked.failure_check_interval,
        seal=False,
    )
    return answer(dataset_shown(run), 201)


def list_datasets(request: Request) -> Response:
    """GET /v1/datasets"""
    found = app.runs(pipeline=samples.name, owner=tenant_of(request, READ), limit=PAGE_MAX)
    return answer({"datasets": [dataset_shown(one) for one in found]})


def show_dataset(request: Request) -> Response:
    """GET /v1/datasets/{id}"""
    return answer(dataset_shown(run_in(request, READ)))


def seal_dataset(request: Request) -> Response:
    """POST /v1/datasets/{id}/seal: all samples are in, so it can end."""
    run = run_in(request, SUBMIT)
    run.seal()
    return answer(dataset_shown(run))


def slice_dataset(request: Request) -> Response:
    """GET /v1/datasets/{id}/slices?topic=food&offset=0&limit=100: rows of what is done, dead samples in none."""
    results = run_in(request, READ).results(failed=False, wait=False)
    asked = query_of(request)
    meant = (one.value for one in results if asked.topic in (None, one.value["topic"]))
    return answer({"rows": list(islice(meant, asked.offset, asked.offset + asked.limit))})


def reprocess_dataset(request: Request) -> Response:
    """POST /v1/datasets/{id}/reprocess: its dead letters in a run of their own, whose id is told."""
    run, asked = run_in(request, OPERATE), body_of(request, Reprocess)
    whose = run.view().owner
    stage = asked.stage or None
    redrive = app.dead.redrive(run=run.no, owner=whose, stage=stage, reason=asked.reason, by=whose)
    return answer({"redrive": redrive.id, "dataset": redrive.run and redrive.run.id}, 202)


def add_samples(request: Request) -> Response:
    """POST /v1/samples: what is in by its id is known, and nothing is done twice."""
    run, items = items_in(request, SUBMIT)
    view = run.view()
    if view.sealed_at is not None:
        raise NotChangeable("the data set is sealed: all of its samples are in")
    fed = samples.run(items, name=run.name, owner=view.owner, backlog_max=None, seal=False).fed
    return answer({"accepted": fed.created, "known": fed.known + fed.repeated}, 202)


def correct_samples(request: Request) -> Response:
    """PUT /v1/samples: dead letters are tried again with what is sent in their place, from the first stage on."""
    run, items = items_in(request, OPERATE)
    view, payloads = run.view(), {str(one.key): one.payload for one in items}
    if len(payloads) < len(items):
        raise Refused("bad_request", "$.samples: an id stands twice")
    meant = {"pipeline": samples.name, "run": run.no, "owner": view.owner, "payloads": payloads}
    seen = app.jobs.preview_retry(count_max=view.counts.failed + 1, **meant)
    left = dict.fromkeys(seen.keys_unknown, "it is no dead letter of this data set")
    redrive = app.jobs.retry(by=view.owner, **meant)
    with suppress(RunUnfinished):  # done here, but where a worker was faster: it goes on
        redrive.wait(wait_s=WAIT_S_MAX)
    left |= {str(app.job(one.job_id).view().key): one.why for one in redrive.refusals()}
    told = {payloads[key]["id"]: why for key, why in left.items()}
    return answer({"redrive": redrive.id, "taken": redrive.view().done, "left": told}, 202)


def list_samples(request: Request) -> Response:
    """GET /v1/samples?dataset=…&status=dlq&limit=50&before=…, newest first."""
    tenant, asked = tenant_of(request, READ), query_of(request)
    run = app.get_run(asked.dataset, owner=tenant)
    some = {"state": STATES.get(asked.status), "limit": asked.limit, "before": asked.before}
    found = app.jobs.list(run=run.no, owner=tenant, **some)
    after = found[-1].no if len(found) == asked.limit else None
    return answer({"samples": [sample_shown(one) for one in found], "next": after})


def show_sample(request: Request) -> Response:
    """GET /v1/samples/{id}: the sample and every try of a stage."""
    job = app.job(request.path_params["id"], owner=tenant_of(request, READ))
    tries = [
        {
            "stage": one.stage,
            "attempt": one.number,
            "status": one.status.value,
            "error": one.public_message if one.kind else None,
            "applied_at": one.settled_at,
        }
        for one in job.attempts()
    ]
    return answer({**sample_shown(job.view()), "stages_applied": tries})


def dataset_shown(run: Run) -> dict[str, Any]:
    view = run.view()
    kept = msgspec.json.decode(view.settings_json)
    return {
        "id": run.id,
        "name": run.name,
        **status_of(view),
        "why": view.why,
        "parent": view.parent,
        "failure_budget": kept["failure_budget"],
        "failure_check_interval": kept["check_every"],
    }


def sample_shown(job: JobView) -> dict[str, Any]:
    reason = {"stage": job.stage, "error": job.error_message, "last_attempt_at": job.claimed_at}
    return {
        "id": job.id,
        "key": job.key,
        "status": STATUSES[job.state.value],
        "dlq_reason": reason if job.state.value == "failed" else None,
        "row": None if job.result_json is None else msgspec.Raw(job.result_json),
    }


# -- what a request says ---------------------------------------------------------------------


def tenant_of(request: Request, scope: AccessScope) -> str:
    """Whose data sets a request is about."""
    who, meant = authorize(app, request, scope), request.headers.get("x-tenant-id")
    if not meant:
        raise Refused("tenant_missing", "say whom you mean to be: X-Tenant-Id: …", status=400)
    if meant != who.owner:
        raise Refused("forbidden", f"this needs a token of {meant!r}")
    return meant


def run_in(request: Request, scope: AccessScope) -> Run:
    """The data set that the path names, by id or name."""
    return app.get_run(request.path_params["id"], owner=tenant_of(request, scope))


def items_in(request: Request, scope: AccessScope) -> tuple[Run, list[Item]]:
    """The samples of a request and their data set: all of them, or it is refused for the first that is none.

    Over HTTP each has an id, since there is no line to know it by.
    """
    tenant, asked = tenant_of(request, scope), body_of(request, NewSamples)
    run = app.get_run(asked.dataset, owner=tenant)
    items = []
    for place, raw in enumerate(asked.samples):
        where = f"$.samples[{place}]"
        try:
            given = read_sample(bytes(raw))
        except NoSample as wrong:
            raise Refused("sample_refused", f"{where}: {wrong}", status=422) from None
        if not isinstance(given.get("id"), str) or not given["id"]:
            raise Refused("sample_without_id", f"{where}: it has no id, a text", status=400)
        items.append(item_of(run.name, given, place, known_as=run.id))
    return run, items


def body_of(request: Request, form: type[Form]) -> Form:
    try:
        return msgspec.json.decode(request.state.body or b"{}", type=form)
    except RecursionError:
        raise Refused("bad_request", "the body is nested too deep") from None


def query_of(request: Request) -> Query:
    return msgspec.convert(dict(request.query_params), Query, strict=False)


def answer(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def serving(acts: Mapping[str, Callable[[Request], Response]]) -> Callable[[Request], Any]:
    """An endpoint on a thread, when its body has come and is no longer than it may be."""

    async def endpoint(request: Request) -> Response:
        request.state.body = await take_bytes(request, BODY_BYTES_MAX)
        act = acts["GET" if request.method == "HEAD" else request.method]
        return await run_in_threadpool(act, request)

    return endpoint


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    await run_in_threadpool(app.ready)
    yield


ENDPOINTS = {
    "/v1/datasets": {"GET": list_datasets, "POST": create_dataset},
    "/v1/datasets/{id}": {"GET": show_dataset},
    "/v1/datasets/{id}/seal": {"POST": seal_dataset},
    "/v1/datasets/{id}/slices": {"GET": slice_dataset},
    "/v1/datasets/{id}/reprocess": {"POST": reprocess_dataset},
    "/v1/samples": {"GET": list_samples, "POST": add_samples, "PUT": correct_samples},
    "/v1/samples/{id}": {"GET": show_sample},
}
routes = [Route(path, serving(acts), methods=list(acts)) for path, acts in ENDPOINTS.items()]
handlers = refusal_answers()


async def refuse_form(request: Request, wrong: Exception) -> Response:
    """A body or a query of another form is refused with what is wrong with it."""
    return await handlers[Refused](request, Refused("bad_request", str(wrong)))


api = Starlette(
    routes=[*routes, Mount("/perdure", asgi(app))],
    exception_handlers={**handlers, msgspec.MsgspecError: refuse_form},
    lifespan=lifespan,
)
