"""The HTTP API for people: upload a transcript, see what becomes of it, fetch the report. `uvicorn examples.reports.api:api`

The owner comes from the token (`perdure token create --owner ann --scope submit --scope read`) and from nowhere else; what is
somebody else's is not found. There is no endpoint that runs a job again: that is an operator's, `perdure jobs retry`. Beside it, under
/perdure, is the API for operators: jobs, gates, dead letters.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
from examples.reports.app import DOCUMENT, EXTENSIONS, Upload, app, reports
from examples.reports.follow import Follower
from examples.reports.report import CURRENT
from obstore.exceptions import BaseError as ObjectStoreError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from examples.reports import files, monitoring, objects
from perdure import CallerError, State, StoreError, UnknownName
from perdure.http import AccessScope, Principal, asgi, principal_of

UPLOAD_BYTES_MAX = 200_000  # of text: more than the model can read
NAME_CHARS_MAX = 120
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
SHOWN = ("id", "name", "bytes", "version", "status", "error_code", "error_message", "queued_at", "started_at", "processed_at")  # fmt: skip


class Problem(Exception):
    """What a request is answered with when it cannot be served."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def principal_in(request: Request, scope: AccessScope) -> Principal:
    """Whom a request speaks for, if it may do that."""
    who = principal_of(app, request)
    if who is None:
        raise Problem(401, "unauthorized", "Send a token: Authorization: Bearer ….")
    if not who.may(scope):
        raise Problem(403, "forbidden", f"This needs a token with the scope {scope}.")
    return who


def owner_of(request: Request, scope: AccessScope) -> str:
    """Whose files a request is about; an operator without an owner has none."""
    who = principal_in(request, scope)
    if not who.owner:
        raise Problem(403, "forbidden", "This needs a token of an owner.")
    return who.owner


async def upload(request: Request) -> Response:
    """POST /api/files/upload?name=talk.txt, the text as the body."""
    owner = await run_in_threadpool(owner_of, request, AccessScope.SUBMIT)
    name = name_in(request.query_params.get("name", ""))
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > UPLOAD_BYTES_MAX:
            raise Problem(413, "file_too_large", f"A file has at most {UPLOAD_BYTES_MAX} bytes.")
    given = request.headers.get("x-request-id", "")  # it goes on to the model, as a header
    request_id = given if REQUEST_ID.fullmatch(given) else None
    return await run_in_threadpool(take_in, owner, name, bytes(body), request_id)


def name_in(given: str) -> str:
    if not 0 < len(given) <= NAME_CHARS_MAX or set(given) & set("/\\") or not given.isprintable():
        raise Problem(400, "invalid_name", "Give the name of the file: ?name=talk.txt.")
    if PurePosixPath(given).suffix.lower() not in EXTENSIONS:
        raise Problem(
            400, "unsupported_extension", f"A transcript ends in {', '.join(EXTENSIONS)}."
        )
    return given


def take_in(owner: str, name: str, body: bytes, request_id: str | None) -> Response:
    """The object first, then its row and its job in one transaction.

    An object whose transaction fails is not removed: the commit may have happened. It is found as an orphan, if it is one.
    """
    id = str(uuid4())
    item = Upload(id, name, f"{objects.UPLOADS}{id}/{name}", sha256(body).hexdigest(), CURRENT)
    try:
        objects.put_once(item.key, body)
    except (ObjectStoreError, OSError):
        raise Problem(503, "upload_failed", "The file could not be stored. Try again.") from None
    try:
        with files.database() as connection:
            job = reports.enqueue(
                item, owner=owner, key=id, request_id=request_id, within=connection
            )
            row = {"id": id, "name": name, "bytes": len(body), "version": item.version}
            file = files.add(connection, **row, owner=owner, job_id=job.id, upload_key=item.key)
    except (psycopg.OperationalError, StoreError):
        raise Problem(503, "enqueue_failed", "The file could not be queued. Try again.") from None
    return answer(shown(file), 201)


def list_files(request: Request) -> Response:
    """GET /api/files?limit=50&cursor=…"""
    owner = owner_of(request, AccessScope.READ)
    limit, cursor = number_in(request, "limit", 50), number_in(request, "cursor", None)
    found = files.page(owner, before=cursor, limit=min(limit, 200))
    after = str(found[-1]["no"]) if len(found) == min(limit, 200) else None
    return answer({"files": [shown(one) for one in found], "next_cursor": after})


def number_in(request: Request, name: str, otherwise: int | None) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return otherwise
    if not given.isascii() or not given.isdecimal() or not 0 < int(given) < 2**63:
        raise Problem(400, f"invalid_{name}", f"{name} is a number above 0.")
    return int(given)


def file_of(request: Request) -> dict[str, Any]:
    owner = owner_of(request, AccessScope.READ)
    try:
        id = str(UUID(request.path_params["id"]))
    except ValueError:
        raise Problem(400, "invalid_file_id", "That is no id of a file.") from None
    file = files.find(id, owner)
    if file is None:
        raise Problem(404, "file_not_found", "There is no such file.")
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
    between_stages = job.state is State.QUEUED and not job.error_kind and job.stage != "read"
    under_way = between_stages or job.state in (State.PROCESSING, State.SUCCEEDED)
    error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
    return {
        "attempts": failures + under_way,
        "max_attempts": DOCUMENT.attempts_max,
        "next_run_at": job.due_at if job.state is State.QUEUED else None,
        "last_error": error,
    }


def fetch_report(request: Request) -> Response:
    """GET /api/files/{id}/report"""
    file = file_of(request)
    if file["report_key"] is None:
        raise Problem(409, "report_not_ready", f"The file is {file['status']}.")
    try:
        body = objects.get(file["report_key"])
    except (ObjectStoreError, OSError):
        raise Problem(500, "report_fetch_failed", "The report cannot be read now.") from None
    return Response(body, media_type="application/json")


def fetch_raw_output(request: Request) -> Response:
    """GET /api/files/{id}/raw: what the model said that did not fit, for the owner of the file alone."""
    file = file_of(request)
    try:
        body = app.read_capture(file["raw_output"] or "", owner=file["owner"])
    except UnknownName:
        raise Problem(404, "raw_output_not_found", "Nothing was put aside for it.") from None
    download = {"content-disposition": "attachment", "x-content-type-options": "nosniff"}
    return Response(body, media_type="text/plain; charset=utf-8", headers=download)


def monitor(request: Request) -> Response:
    """GET /api/monitoring, for operators."""
    principal_in(request, AccessScope.READ_ALL)
    return answer(monitoring.numbers())


def health(request: Request) -> Response:
    """GET /health: whether the database answers and the files are brought after their jobs."""
    with files.database() as connection:
        connection.execute("SELECT 1")
    if not request.app.state.follower.is_well():
        raise Problem(503, "follower_stopped", "Files are no longer brought after their jobs.")
    return answer({"status": "ok"})


def shown(file: dict[str, Any]) -> dict[str, Any]:
    return {name: file[name] for name in SHOWN}


def answer(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def tell(_: Request, error: Exception) -> Response:
    """Every refusal in one form; what went wrong on our side stays here."""
    match error:
        case Problem():
            status, code, message = error.status, error.code, str(error)
        case HTTPException():
            code = "not_found" if error.status_code == 404 else "bad_request"
            status, message = error.status_code, error.detail
        case CallerError():
            status, code, message = 400, "bad_request", str(error)
        case psycopg.OperationalError() | StoreError():
            status, code, message = 503, "database_unavailable", "The server cannot do that now."
        case _:
            status, code, message = 500, "internal_error", "The server cannot do that now."
    return answer({"error": {"code": code, "message": message}}, status)


TOLD = (Problem, HTTPException, CallerError, psycopg.OperationalError, StoreError, Exception)


@asynccontextmanager
async def lifespan(served: Starlette) -> AsyncIterator[None]:
    await run_in_threadpool(app.ready)
    served.state.follower = Follower()
    served.state.follower.start()
    yield
    await run_in_threadpool(served.state.follower.stop)


api = Starlette(
    routes=[
        Route("/api/files/upload", upload, methods=["POST"]),
        Route("/api/files", list_files),
        Route("/api/files/{id}", show_file),
        Route("/api/files/{id}/report", fetch_report),
        Route("/api/files/{id}/raw", fetch_raw_output),
        Route("/api/monitoring", monitor),
        Route("/health", health),
        Mount("/perdure", asgi(app)),
    ],
    exception_handlers=dict.fromkeys(TOLD, tell),
    lifespan=lifespan,
)
