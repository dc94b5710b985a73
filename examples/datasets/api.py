"""Samples and data sets over HTTP, each tenant's own: `uvicorn examples.datasets.api:api --port 4102`

The tenant is the owner of the token (`perdure token create --owner acme --scope submit --scope read --scope operate`). The header
X-Tenant-Id says whom the caller means to be, and must be the same; what is another tenant's is not found. Beside it, under /perdure, is the
API for operators.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from examples.datasets.app import app, samples
from examples.datasets.build import NAME, item_of, status_of
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from perdure import CallerError, Item, JobView, NotChangeable, PerdureError, Run
from perdure.http import AccessScope, asgi, principal_of

BODY_BYTES_MAX = 8_000_000
PAGE_MAX = 500
STATUSES = {
    "queued": "pending",
    "processing": "processing",
    "succeeded": "completed",
    "failed": "dlq",
    "cancelled": "skipped",
}
Kind = TypeVar("Kind")
SUBMIT, READ, OPERATE = AccessScope.SUBMIT, AccessScope.READ, AccessScope.OPERATE


class NewDataset(msgspec.Struct, forbid_unknown_fields=True):
    """A data set to be begun, or gone on with: the same tenant and name are the same one."""

    name: Annotated[str, msgspec.Meta(pattern=f"^{NAME}$")]
    failure_budget: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    failure_check_interval: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None


class NewSamples(msgspec.Struct, forbid_unknown_fields=True):
    """Samples for a data set; or corrected ones, in place of its dead letters with their ids."""

    dataset: str
    samples: list[dict[str, Any]]


class Reprocess(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters are to be driven again: all of the data set, or those of a stage."""

    stage: str | None = None
    reason: str = ""


class Problem(CallerError):
    """What a request is refused with, where Perdure has no error of its own for it."""

    def __init__(self, http_status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.http_status, self.code = http_status, code


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
    topic, offset = request.query_params.get("topic"), number_in(request, "offset", 0)
    meant = (one.value for one in results if topic in (None, one.value["topic"]))
    return answer({"rows": list(islice(meant, offset, offset + limit_in(request)))})


def reprocess_dataset(request: Request) -> Response:
    """POST /v1/datasets/{id}/reprocess: its dead letters in a run of their own, whose id is told."""
    run, asked = run_in(request, OPERATE), body_of(request, Reprocess)
    whose = run.view().owner
    meant = {"run": run.no, "owner": whose} | ({"stage": asked.stage} if asked.stage else {})
    redrive = app.dead.redrive(reason=asked.reason, by=whose, **meant)
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
    payloads, whose = {str(one.key): one.payload for one in items}, run.view().owner
    redrive = app.jobs.retry(
        payloads=payloads, pipeline=samples.name, run=run.no, owner=whose, by=whose
    )
    return answer({"redrive": redrive.id, "samples": len(payloads)}, 202)


def list_samples(request: Request) -> Response:
    """GET /v1/samples?dataset=…&status=dlq&limit=50&before=…, newest first."""
    tenant = tenant_of(request, READ)
    run = app.get_run(request.query_params.get("dataset", ""), owner=tenant)
    chosen = {"run": run.no, "owner": tenant}
    status, limit = request.query_params.get("status"), limit_in(request)
    if status is not None:
        states = [state for state, name in STATUSES.items() if name == status]
        if not states:
            raise Problem(400, "invalid_status", f"One of: {', '.join(STATUSES.values())}.")
        chosen["state"] = states[0]
    found = app.jobs.list(limit=limit, before=number_in(request, "before", 0) or None, **chosen)
    after = found[-1].no if len(found) == limit else None
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
    told = {"id": run.id, "name": run.name, **status_of(run)}
    return {**told, "why": view.why, "parent": view.parent}


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
    who, meant = principal_of(app, request), request.headers.get("x-tenant-id")
    if who is None:
        raise Problem(401, "unauthorized", "Send a token: Authorization: Bearer ….")
    if not meant:
        raise Problem(400, "tenant_missing", "Say whom you mean to be: X-Tenant-Id: ….")
    if meant != who.owner or not who.may(scope):
        raise Problem(403, "forbidden", f"This needs a token of {meant!r} with the scope {scope}.")
    return meant


def run_in(request: Request, scope: AccessScope) -> Run:
    """The data set that the path names, by id or name."""
    return app.get_run(request.path_params["id"], owner=tenant_of(request, scope))


def items_in(request: Request, scope: AccessScope) -> tuple[Run, list[Item]]:
    """The samples of a request and their data set; over HTTP each has an id, since there is no line to know it by."""
    tenant, asked = tenant_of(request, scope), body_of(request, NewSamples)
    run = app.get_run(asked.dataset, owner=tenant)
    if not all(isinstance(one.get("id"), str) and one["id"] for one in asked.samples):
        raise Problem(400, "sample_without_id", "Each sample has an id, a text.")
    return run, [item_of(run.name, one, number) for number, one in enumerate(asked.samples, 1)]


def body_of(request: Request, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(request.state.body or b"{}", type=kind)
    except msgspec.MsgspecError as wrong:
        raise Problem(400, "invalid_body", str(wrong)) from None


def number_in(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name, str(otherwise))
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise Problem(400, f"invalid_{name}", f"{name} is a number from 0 on.")
    return int(given)


def limit_in(request: Request) -> int:
    return min(max(number_in(request, "limit", 50), 1), PAGE_MAX)


def answer(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def tell(_: Request, error: Exception) -> Response:
    """Every refusal in one form: Perdure's errors know their code and status; what went wrong on our side stays here."""
    known = error if isinstance(error, PerdureError) else PerdureError()
    away = "The server cannot do that now."
    message = str(error) if isinstance(error, CallerError) else away
    return answer({"error": {"code": known.code, "message": message}}, known.http_status)


def serving(act: Callable[[Request], Response]) -> Callable[[Request], Any]:
    """An endpoint on a thread, when its body has come and is no longer than it may be."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                raise Problem(413, "too_large", f"A body has at most {BODY_BYTES_MAX} bytes.")
        request.state.body = bytes(body)
        return await run_in_threadpool(act, request)

    return endpoint


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    await run_in_threadpool(app.ready)
    yield


ENDPOINTS = (
    ("GET", "/v1/datasets", list_datasets),
    ("POST", "/v1/datasets", create_dataset),
    ("GET", "/v1/datasets/{id}", show_dataset),
    ("POST", "/v1/datasets/{id}/seal", seal_dataset),
    ("GET", "/v1/datasets/{id}/slices", slice_dataset),
    ("POST", "/v1/datasets/{id}/reprocess", reprocess_dataset),
    ("GET", "/v1/samples", list_samples),
    ("POST", "/v1/samples", add_samples),
    ("PUT", "/v1/samples", correct_samples),
    ("GET", "/v1/samples/{id}", show_sample),
)
routes = [Route(path, serving(act), methods=[method]) for method, path, act in ENDPOINTS]
api = Starlette(
    routes=[*routes, Mount("/perdure", asgi(app))],
    exception_handlers={PerdureError: tell, Exception: tell},
    lifespan=lifespan,
)
