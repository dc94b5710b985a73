"""The HTTP API for people: upload a transcript, see what becomes of it, fetch the report. `uvicorn examples.reports.api:api`

The owner comes from the token (`perdure token create --owner ann --scope submit --scope read`) and from nowhere else; what is
somebody else's is not found. There is no endpoint that runs a job again: that is an operator's, `perdure jobs retry`. Beside it, under
/perdure, is the API for operators alone (`--scope read_all` or `admin`): jobs, gates, dead letters.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
from examples.reports.app import DOCUMENT, EXTENSIONS, Upload, app, reports
from examples.reports.follow import following
from examples.reports.report import CURRENT
from obstore.exceptions import BaseError as ObjectStoreError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from examples.reports import files, monitoring, objects
from perdure import State, StoreError, UnknownName
from perdure.http import (
    AccessScope,
    Principal,
    Refused,
    asgi,
    authorize,
    refusal_answers,
    request_id_of,
    take_bytes,
)

UPLOAD_BYTES_MAX = 200_000  # of text: more than the model can read
NAME_CHARS_MAX = 120
PAGE_FILES_MAX = 200
SHOWN = ("id", "name", "bytes", "version", "status", "error_code", "error_message", "queued_at", "started_at", "processed_at")  # fmt: skip


def owner_of(request: Request, scope: AccessScope) -> str:
    """Whose files a request is about; an operator without an owner has none."""
    owner = authorize(app, request, scope).owner
    if not owner:
        raise Refused("forbidden", "this needs a token of an owner")
    return owner


async def upload(request: Request) -> Response:
    """POST /api/files/upload?name=talk.txt, the text as the body."""
    owner = await run_in_threadpool(owner_of, request, AccessScope.SUBMIT)
    name = name_in(request)
    body = await take_bytes(request, UPLOAD_BYTES_MAX)
    return await run_in_threadpool(take_in, owner, name, body, request_id_of(request))


def name_in(request: Request) -> str:
    name = request.query_params.get("name", "")
    if not 0 < len(name) <= NAME_CHARS_MAX or set(name) & set("/\\") or not name.isprintable():
        raise Refused("invalid_name", "give the name of the file: ?name=talk.txt", status=400)
    if PurePosixPath(name).suffix.lower() not in EXTENSIONS:
        ends = ", ".join(EXTENSIONS)
        raise Refused("unsupported_extension", f"a transcript ends in {ends}", status=400)
    return name


def take_in(owner: str, name: str, body: bytes, request_id: str) -> Response:
    """The object first, then its row and its job in one transaction.

    An object whose transaction fails is not removed: the commit may have happened. It is found as an orphan, if it is one.
    """
    id = str(uuid4())
    item = Upload(id, name, f"{objects.UPLOADS}{id}/{name}", sha256(body).hexdigest(), CURRENT)
    try:
        objects.put_once(item.key, body)
    except (ObjectStoreError, OSError):
        raise Refused("upload_failed", "it could not be stored; try again", status=503) from None
    try:
        with files.database() as connection:
            job = reports.enqueue(
                item, owner=owner, key=id, request_id=request_id, within=connection
            )
            row = {"id": id, "name": name, "bytes": len(body), "version": item.version}
            file = files.add(connection, **row, owner=owner, job_id=job.id, upload_key=item.key)
    except (psycopg.OperationalError, StoreError):
        raise Refused("enqueue_failed", "it could not be queued; try again", status=503) from None
    return answer(shown(file), 201)


def list_files(request: Request) -> Response:
    """GET /api/files?limit=50&cursor=…"""
    owner = owner_of(request, AccessScope.READ)
    limit = min(number_in(request, "limit", 50), PAGE_FILES_MAX)
    found = files.page(owner, before=number_in(request, "cursor", 2**63 - 1), limit=limit)
    after = str(found[-1]["no"]) if len(found) == limit else None
    return answer({"files": [shown(one) for one in found], "next_cursor": after})


def number_in(request: Request, name: str, otherwise: int) -> int:
    given = request.query_params.get(name, str(otherwise))
    fits = given.isascii() and given.isdecimal() and len(given) < 20  # int() refuses very long ones
    if not fits or not 0 < int(given) < 2**63:
        raise Refused(f"invalid_{name}", f"{name} is a number above 0", status=400)
    return int(given)


def file_of(request: Request) -> dict[str, Any]:
    owner = owner_of(request, AccessScope.READ)
    try:
        id = str(UUID(request.path_params["id"]))
    except ValueError:
        raise Refused("invalid_file_id", "that is no id of a file", status=400) from None
    file = files.find(id, owner)
    if file is None:
        raise Refused("file_not_found", "there is no such file", status=404)
    return file


def show_file(request: Request) -> Response:
    """GET /api/files/{id}: the file as people see it, and beside it how its job stands."""
    file = file_of(request)
    return answer({**shown(file), "processing": processing(file)})


def processing(file: dict[str, Any]) -> dict[str, Any] | None:
    try:
        job = app.job(file["job_id"] or "", owner=file["owner"]).view()
    except UnknownName:  # pruned, long after it has ended
        return None
    failures = job.counters.failures + job.past.failures
    waits = job.state is State.QUEUED
    between_stages = waits and not job.error_kind and file["status"] == "processing"
    under_way = between_stages or job.state in (State.PROCESSING, State.SUCCEEDED)
    error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
    return {
        "attempts": failures + under_way,
        "max_attempts": DOCUMENT.attempts_max,
        "next_run_at": job.due_at if waits else None,
        "last_error": error,
    }


def fetch_report(request: Request) -> Response:
    """GET /api/files/{id}/report"""
    file = file_of(request)
    if file["report_key"] is None:
        raise Refused("report_not_ready", f"the file is {file['status']}", status=409)
    try:
        body = objects.get(file["report_key"])
    except (ObjectStoreError, OSError):
        raise Refused("report_fetch_failed", "it cannot be read now", status=500) from None
    return Response(body, media_type="application/json")


def fetch_raw_output(request: Request) -> Response:
    """GET /api/files/{id}/raw: what the model said that did not fit, for the owner of the file alone."""
    file = file_of(request)
    body = app.read_capture(file["raw_output"] or "", owner=file["owner"])  # none: 404
    download = {"content-disposition": "attachment", "x-content-type-options": "nosniff"}
    return Response(body, media_type="text/plain; charset=utf-8", headers=download)


def monitor(request: Request) -> Response:
    """GET /api/monitoring, for operators."""
    authorize(app, request, AccessScope.READ_ALL)
    return answer(monitoring.numbers())


def health(request: Request) -> Response:
    """GET /health: whether the database answers and the files are brought after their jobs."""
    with files.database() as connection:
        connection.execute("SELECT 1")
    if not request.app.state.is_well():
        told = "files are no longer brought after their jobs"
        raise Refused("follower_stopped", told, status=503)
    return answer({"status": "ok"})


async def operator_of(request: Request) -> Principal:
    """Whom Perdure's own API answers: users have files, not jobs. What the model said is not for operators either."""
    found = await run_in_threadpool(authorize, app, request, AccessScope.READ_ALL)
    if "capture" in request.path_params:
        raise Refused("not_found")
    return found


def shown(file: dict[str, Any]) -> dict[str, Any]:
    return {name: file[name] for name in SHOWN}


def answer(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


@asynccontextmanager
async def lifespan(served: Starlette) -> AsyncIterator[None]:
    await run_in_threadpool(app.ready)
    with following() as served.state.is_well:
        yield


api = Starlette(
    routes=[
        Route("/api/files/upload", upload, methods=["POST"]),
        Route("/api/files", list_files),
        Route("/api/files/{id}", show_file),
        Route("/api/files/{id}/report", fetch_report),
        Route("/api/files/{id}/raw", fetch_raw_output),
        Route("/api/monitoring", monitor),
        Route("/health", health),
        Mount("/perdure", asgi(app, principal=operator_of)),
    ],
    exception_handlers=refusal_answers(psycopg.OperationalError),
    lifespan=lifespan,
)
