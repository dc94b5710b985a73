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

from perdure import CallerError, JobView, NotChangeable, Run, StoreError, UnknownName
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
Name = Annotated[str, msgspec.Meta(pattern=f"^{NAME}$")]


class NewDataset(msgspec.Struct, forbid_unknown_fields=True):
    """A data set to be begun, or gone on with: the same tenant and name are the same one."""

    name: Name
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


class Problem(Exception):
    """What a request is answered with when it cannot be served."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def tenant_of(request: Request, scope: AccessScope) -> str:
    """Whose data sets a request is about."""
    who = principal_of(app, request)
    if who is None:
        raise Problem(401, "unauthorized", "Send a token: Authorization: Bearer ….")
    meant = request.headers.get("x-tenant-id")
    if not meant:
        raise Problem(400, "tenant_missing", "Say whom you mean to be: X-Tenant-Id: ….")
    if meant != who.owner or not who.may(scope):
        raise Problem(403, "forbidden", f"This needs a token of {meant!r} with the scope {scope}.")
    return meant


def body_of(request: Request, kind: type[Kind]) -> Kind:
    """What was sent."""
    return msgspec.json.decode(request.state.body or b"{}", type=kind)


def run_of(tenant: str, named: str) -> Run:
    """The run of a data set, by its id or name."""
    return app.get_run(named, owner=tenant)


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
    tenant = tenant_of(request, READ)
    found = app.runs(pipeline=samples.name, owner=tenant, limit=PAGE_MAX)
    return answer({"datasets": [dataset_shown(one) for one in found]})


def show_dataset(request: Request) -> Response:
    """GET /v1/datasets/{id}"""
    return answer(dataset_shown(run_of(tenant_of(request, READ), request.path_params["id"])))


def seal_dataset(request: Request) -> Response:
    """POST /v1/datasets/{id}/seal: all samples are in, so it can end."""
    run = run_of(tenant_of(request, SUBMIT), request.path_params["id"])
    run.seal()
    return answer(dataset_shown(run))


def slice_dataset(request: Request) -> Response:
    """GET /v1/datasets/{id}/slices?topic=food&offset=0&limit=100: rows of what is done, dead samples in none."""
    run = run_of(tenant_of(request, READ), request.path_params["id"])
    topic, offset = request.query_params.get("topic"), number_in(request, "offset", 0)
    rows = (one.value for one in run.results(failed=False, wait=False))
    meant = (one for one in rows if topic in (None, one["topic"]))
    return answer({"rows": list(islice(meant, offset, offset + limit_in(request)))})


def reprocess_dataset(request: Request) -> Response:
    """POST /v1/datasets/{id}/reprocess: its dead letters in a run of their own, whose id is told."""
    tenant, asked = tenant_of(request, OPERATE), body_of(request, Reprocess)
    run = run_of(tenant, request.path_params["id"])
    meant = {} if asked.stage is None else {"stage": asked.stage}
    redrive = app.dead.redrive(run=run.no, owner=tenant, reason=asked.reason, by=tenant, **meant)
    child = redrive.run
    return answer({"redrive": redrive.id, "dataset": None if child is None else child.id}, 202)


def add_samples(request: Request) -> Response:
    """POST /v1/samples: what is in by its id is known, and nothing is done twice."""
    tenant, asked = tenant_of(request, SUBMIT), body_of(request, NewSamples)
    run = run_of(tenant, asked.dataset)
    if run.view().sealed_at is not None:
        raise NotChangeable("the data set is sealed: all of its samples are in")
    items = [item_of(run.name, one, number) for number, one in enumerate(identified(asked), 1)]
    fed = samples.run(items, name=run.name, owner=tenant, backlog_max=None, seal=False).fed
    return answer({"accepted": fed.created, "known": fed.known + fed.repeated}, 202)


def correct_samples(request: Request) -> Response:
    """PUT /v1/samples: dead letters are tried again with what is sent in their place, from the first stage on."""
    tenant, asked = tenant_of(request, OPERATE), body_of(request, NewSamples)
    run = run_of(tenant, asked.dataset)
    items = [item_of(run.name, one, number) for number, one in enumerate(identified(asked), 1)]
    payloads = {str(one.key): one.payload for one in items}
    done = app.jobs.retry(
        payloads=payloads, pipeline=samples.name, run=run.no, owner=tenant, by=tenant
    )
    return answer({"redrive": done.id, "samples": len(payloads)}, 202)


def list_samples(request: Request) -> Response:
    """GET /v1/samples?dataset=…&status=dlq&limit=50&before=…, newest first."""
    tenant = tenant_of(request, READ)
    status = request.query_params.get("status")
    states = [state for state, name in STATUSES.items() if name == status]
    if status is not None and not states:
        raise Problem(400, "invalid_status", f"One of: {', '.join(STATUSES.values())}.")
    run = run_of(tenant, request.query_params.get("dataset", ""))
    chosen = {"run": run.no, "owner": tenant} | ({"state": states[0]} if states else {})
    before = number_in(request, "before", 0)
    found = app.jobs.list(limit=limit_in(request), before=before or None, **chosen)
    after = found[-1].no if len(found) == limit_in(request) else None
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


def identified(asked: NewSamples) -> list[dict[str, Any]]:
    """The samples of a request; over HTTP each has an id, since there is no line to know it by."""
    if not all(isinstance(one.get("id"), str) and one["id"] for one in asked.samples):
        raise Problem(400, "sample_without_id", "Each sample has an id, a text.")
    return asked.samples


def dataset_shown(run: Run) -> dict[str, Any]:
    view = run.view()
    return {
        "id": run.id,
        "name": run.name,
        **status_of(run),
        "why": view.why,
        "parent": view.parent,
    }


def sample_shown(job: JobView) -> dict[str, Any]:
    reason = {"stage": job.stage, "error": job.error_message, "last_attempt_at": job.claimed_at}
    row = None if job.result_json is None else msgspec.json.decode(job.result_json)
    return {
        "id": job.id,
        "key": job.key,
        "status": STATUSES[job.state.value],
        "dlq_reason": reason if job.state.value == "failed" else None,
        "row": row,
    }


def number_in(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name, str(otherwise))
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise Problem(400, f"invalid_{name}", f"{name} is a number from 0 on.")
    return int(given)


def limit_in(request: Request) -> int:
    return min(max(number_in(request, "limit", 50), 1), PAGE_MAX)


def answer(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def tell(status: int, code: str, message: str) -> Response:
    return answer({"error": {"code": code, "message": message}}, status)


def telling(status: int, code: str) -> Callable[[Request, Exception], Response]:
    away = "The server cannot do that now."
    return lambda _, error: tell(status, code, away if status >= 500 else str(error))


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


api = Starlette(
    routes=[
        Route("/v1/datasets", serving(create_dataset), methods=["POST"]),
        Route("/v1/datasets", serving(list_datasets)),
        Route("/v1/datasets/{id}", serving(show_dataset)),
        Route("/v1/datasets/{id}/seal", serving(seal_dataset), methods=["POST"]),
        Route("/v1/datasets/{id}/slices", serving(slice_dataset)),
        Route("/v1/datasets/{id}/reprocess", serving(reprocess_dataset), methods=["POST"]),
        Route("/v1/samples", serving(add_samples), methods=["POST"]),
        Route("/v1/samples", serving(correct_samples), methods=["PUT"]),
        Route("/v1/samples", serving(list_samples)),
        Route("/v1/samples/{id}", serving(show_sample)),
        Mount("/perdure", asgi(app)),
    ],
    exception_handlers={
        Problem: lambda _, problem: tell(problem.status, problem.code, str(problem)),
        msgspec.MsgspecError: telling(400, "invalid_body"),
        UnknownName: telling(404, "not_found"),
        NotChangeable: telling(409, "not_changeable"),
        CallerError: telling(400, "bad_request"),
        StoreError: telling(503, "store_unavailable"),
        Exception: telling(500, "internal_error"),
    },
    lifespan=lifespan,
)
