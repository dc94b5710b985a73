"""The converter over HTTP: an API for programs and a page for people, from the same functions.

``uvicorn --factory converter.api:make_api``. Whatever is asked for with ``Accept: text/html``, as the forms of the page do
without JavaScript, is answered with the page; everything else with JSON. What is refused has one of the ten codes.
"""

import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from perdure import ConfigError, NotCancellable, NotRetriable, Settings

from .app import GATEWAY, Converter, make_converter
from .files import Listed
from .refusals import CODES, HANDLERS, Refused, error_of, line_of, wants_page
from .sessions import Sessions, check_origin
from .settings import ATTEMPTS_MAX, UPLOAD_BYTES_MAX, read_settings
from .templates import PAGE, PAGES, clean_name, iso

FORM_BYTES = 64 * 1024  # what a form may add to its files
FILES_MAX = 50  # in one request
GATE_LOOK_S = 1.0  # the banner is for everybody: one look at the gate a second is enough

log = logging.getLogger("converter")


def make_api(settings: Settings | None = None) -> Starlette:
    """The ASGI application."""
    try:
        settings = settings or read_settings()
        converter = make_converter(settings)
        converter.files.make_folders()
    except ConfigError as wrong:
        sys.exit(f"converter: {wrong}")
    site = Site(settings, converter)
    return Starlette(
        routes=[
            Route("/", site.show_page),
            Route("/queue", site.show_queue),
            Route("/api/upload", site.upload, methods=["POST"]),
            Route("/api/jobs", site.list_jobs),
            Route("/api/jobs/{id}", site.delete, methods=["DELETE"]),
            Route("/api/jobs/{id}/delete", site.delete, methods=["POST"]),  # forms know no DELETE
            Route("/api/jobs/{id}/retry", site.retry, methods=["POST"]),
            Route("/api/jobs/{id}/download", site.download),
            Mount("/page", StaticFiles(directory=PAGE / "static")),
        ],
        middleware=[Middleware(Sessions)],
        exception_handlers=HANDLERS,
        lifespan=site.lifespan,
    )


class Site:
    """What the endpoints share."""

    def __init__(self, settings: Settings, converter: Converter) -> None:
        self._settings = settings
        self._converter = converter
        self._app, self._files = converter.app, converter.files
        self._gate: tuple[float, bool] = (-GATE_LOOK_S, False)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Connect before the first request, and disconnect after the last."""
        await run_in_threadpool(self._files.prepare)
        await run_in_threadpool(self._app.ready)
        yield
        await run_in_threadpool(self._converter.close)

    # -- what is shown -------------------------------------------------------------------

    def list_jobs(self, request: Request) -> Response:
        """``GET /api/jobs``: the owner's files; with ``since`` what has changed from that moment on."""
        listed = self._listed(request)
        return JSONResponse(
            {
                "jobs": [self._told(row) for row in listed.rows],
                "active_count": listed.active,
                "timestamp": listed.asked_from.isoformat(),
                "gateway": "held" if self._is_held() else "flowing",
            }
        )

    def show_page(self, request: Request) -> Response:
        """``GET /``: the page; ``accepted`` and ``refused`` are what a form has just come to."""
        said = request.query_params
        refused, accepted = said.get("refused"), said.get("accepted", "")
        told = {
            "said": line_of(refused) if refused in CODES else None,
            "accepted": int(accepted) if accepted.isdecimal() and len(accepted) < 4 else 0,
        }
        return HTMLResponse(self._render("page.html", request, **told))

    def show_queue(self, request: Request) -> Response:
        """``GET /queue``: the part of the page that changes; with ``since`` only the rows that did."""
        return HTMLResponse(self._render("queue.html", request))

    def _render(self, name: str, request: Request, **more: Any) -> str:
        listed = self._listed(request)
        return PAGES.get_template(name).render(
            jobs=[self._told(row) for row in listed.rows],
            listed=listed,
            held=self._is_held(),
            attempts_max=self._settings[ATTEMPTS_MAX],
            bytes_max=self._settings[UPLOAD_BYTES_MAX],
            **more,
        )

    def _listed(self, request: Request) -> Listed:
        asked = request.query_params.get("since")
        try:
            since = datetime.fromisoformat(asked) if asked else None
        except ValueError:
            raise HTTPException(400, "since is a moment, as in 2030-01-01T00:00:00+00:00") from None
        if since is not None and since.tzinfo is None:
            raise HTTPException(400, "since needs a time zone, as in 2030-01-01T00:00:00+00:00")
        return self._files.listed(request.scope["owner"], since)

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """A file as programs and people are told of it, under the document's names."""
        code, failed = row["errorCode"], row["status"] == "failed"
        moments = {"createdAt": "created_at", "startedAt": "started_at", "updatedAt": "updated_at",
                   "endedAt": "ended_at", "expiresAt": "expires_at"}  # fmt: skip
        same = ("queuedAt", "lastAttemptAt", "retryAfter")
        return {
            "id": row["id"],
            "filename": row["name"],
            "bytes": row["bytes"],
            "status": row["status"],
            "attemptCount": row["attemptCount"],
            "maxAttempts": self._settings[ATTEMPTS_MAX],
            "error": None if code is None else {"code": code, "message": line_of(code)},
            "expired": row["is_expired"],
            "deleted": row["is_deleted"],
            "version": row["version"],
            "retryable": failed
            and not row["is_expired"]
            and self._files.source(row["upload"]).exists(),
            "downloadCount": row["download_count"],
            **{name: iso(row[column]) for name, column in moments.items()},
            **{name: iso(row[name]) for name in same},
        }

    def _is_held(self) -> bool:
        looked_s, held = self._gate
        if time.monotonic() - looked_s >= GATE_LOOK_S:
            held = not self._app.gate(GATEWAY).flows
            self._gate = (time.monotonic(), held)
        return held

    # -- what is done --------------------------------------------------------------------

    async def upload(self, request: Request) -> Response:
        """``POST /api/upload``: files of a form, each a job."""
        check_origin(request.headers)
        owner, ids, refusals = request.scope["owner"], [], []
        async with form_files(request, self._settings[UPLOAD_BYTES_MAX]) as files:
            for file in files:
                name = clean_name(file.filename or "")
                try:
                    ids.append(await run_in_threadpool(self._accept, file, name, owner))
                except Refused as refused:
                    refusals.append((name, refused))
        if not ids:
            raise refusals[0][1]
        if wants_page(request):
            code = {"refused": refusals[0][1].code} if refusals else {}
            return RedirectResponse(f"/?{urlencode({'accepted': len(ids), **code})}", 303)
        jobs = [{**self._told(await run_in_threadpool(self._own, id_, owner)), "duplicate": not created}
                for id_, created in ids]  # fmt: skip
        refused_too = [{"filename": name, "error": error_of(one)} for name, one in refusals]
        return JSONResponse({"jobs": jobs, "refused": refused_too}, 202)

    def _accept(self, file: UploadFile, name: str, owner: str) -> tuple[str, bool]:
        if b"%PDF-" not in file.file.read(1024):
            raise Refused("NOT_PDF")
        if (file.size or 0) > self._settings[UPLOAD_BYTES_MAX]:
            raise Refused("TOO_LARGE")
        file.file.seek(0)
        return self._files.accept(file.file, name, owner, self._converter.conversions)

    def retry(self, request: Request) -> Response:
        """``POST /api/jobs/{id}/retry``: a failed file is tried again, while its PDF is there."""
        row = self._asked_for(request)
        if row["status"] != "failed":
            raise Refused("NOT_READY", "Only a file that has failed can be tried again.")
        if row["is_expired"] or not self._files.source(row["upload"]).exists():
            raise Refused("EXPIRED")
        try:
            self._app.job(row["id"], owner=request.scope["owner"]).retry(
                by="owner", reason="retried on the page"
            )
        except NotRetriable:  # it was retried at the same time
            raise Refused("NOT_READY", "Only a file that has failed can be tried again.") from None
        return self._done(request, row["id"])

    def delete(self, request: Request) -> Response:
        """``DELETE /api/jobs/{id}``: what is in work is cancelled; what has ended is removed."""
        row = self._asked_for(request)
        if row["status"] in ("queued", "processing"):
            self._files.shut(row["upload"])
            try:
                self._app.job(row["id"], owner=request.scope["owner"]).cancel(
                    by="owner", reason="cancelled on the page"
                )
            except NotCancellable:
                log.info("job %s ended before it could be cancelled", row["id"])
        else:
            self._files.delete(row["upload"])
        return self._done(request, row["id"])

    def download(self, request: Request) -> Response:
        """``GET /api/jobs/{id}/download``: the XML."""
        row = self._own(request.path_params["id"], request.scope["owner"])
        if row["status"] != "complete":
            raise Refused("NOT_READY")
        if row["is_expired"]:
            raise Refused("EXPIRED")
        try:
            result = self._app.job(row["id"], owner=request.scope["owner"]).result(wait_s=0)
            content = self._files.read_result(result["xml"], row["upload"])
        except FileNotFoundError:
            raise Refused("EXPIRED") from None
        name = quote(f"{Path(row['name']).stem}.xml", safe="")
        as_file = {
            "content-disposition": f"attachment; filename=\"result.xml\"; filename*=UTF-8''{name}"
        }
        return Response(content, media_type="application/xml", headers=as_file)

    def _asked_for(self, request: Request) -> dict[str, Any]:
        check_origin(request.headers)
        return self._own(request.path_params["id"], request.scope["owner"])

    def _own(self, job_id: str, owner: str) -> dict[str, Any]:
        """One of the owner's files; another's is as one that never was."""
        try:
            row = self._files.find(str(UUID(job_id)), owner)
        except ValueError:
            row = None
        if row is None:
            raise Refused("FORBIDDEN")
        return row

    def _done(self, request: Request, job_id: str) -> Response:
        if wants_page(request):
            return RedirectResponse("/", 303)
        row = self._files.find(job_id, request.scope["owner"])
        return JSONResponse({"job": None if row is None else self._told(row)})


# -- forms ---------------------------------------------------------------------------------


@asynccontextmanager
async def form_files(request: Request, bytes_max: int) -> AsyncIterator[list[UploadFile]]:
    """The files of a form, gone at the end of the block. What is too large is refused before it is read to its end."""
    limit = bytes_max + FORM_BYTES
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise Refused("TOO_LARGE")

    async def bounded() -> AsyncIterator[bytes]:
        read = 0
        async for chunk in request.stream():
            read += len(chunk)
            if read > limit:
                raise Refused("TOO_LARGE")
            yield chunk

    parser = MultiPartParser(request.headers, bounded(), max_files=FILES_MAX)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError):
        raise Refused("NOT_PDF", "Send the file as a form.") from None
    try:
        files = [
            one for one in form.getlist("file") if isinstance(one, UploadFile) and one.filename
        ]
        if not files:
            raise Refused("NOT_PDF", "Choose a file first.")
        yield files
    finally:
        await form.close()
