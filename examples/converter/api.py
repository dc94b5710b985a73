"""The converter over HTTP: an API for programs and a page for people, from the same functions.

``uvicorn --factory converter.api:make_api``. Whatever is asked for with ``Accept: text/html``, as the forms of the page do
without JavaScript, is answered with the page; everything else with JSON. What is refused has one of the ten codes.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from perdure import ConfigError, NotCancellable, NotRetriable, Settings

from .app import GATEWAY, Converter, make_converter
from .files import Listed
from .forms import FILES_MAX, LARGEST_MAX, files_of
from .refusals import CODES, HANDLERS, Refused, error_of, wants_page
from .sessions import with_session
from .settings import ATTEMPTS_MAX, UPLOAD_BYTES_MAX, read_settings
from .templates import PAGE, PAGES, clean_name, iso

ONLY_FAILED = "Only a file that has failed can be tried again."
A_MOMENT = "since is a moment with a time zone, as in 2030-01-01T00:00:00+00:00"


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
            Route("/api/jobs/{id}/cancel", site.delete, methods=["POST"]),
            Route("/api/jobs/{id}/retry", site.retry, methods=["POST"]),
            Route("/api/jobs/{id}/download", site.download),
            Mount("/page", StaticFiles(directory=PAGE / "static")),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=with_session)],
        exception_handlers=HANDLERS,
        lifespan=site.lifespan,
    )


class Site:
    """What the endpoints share."""

    def __init__(self, settings: Settings, converter: Converter) -> None:
        self._converter, self._app, self._files = converter, converter.app, converter.files
        self._attempts_max = settings[ATTEMPTS_MAX]
        self._bytes_max = settings[UPLOAD_BYTES_MAX]

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Connect before the first request, and disconnect after the last."""
        await run_in_threadpool(self._files.make_table)
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
                "gateway": "flowing" if self._app.gate(GATEWAY).flows else "held",
            }
        )

    def show_page(self, request: Request) -> Response:
        """``GET /``: the page; ``accepted``, ``known`` and ``refused`` are what a form has just come to."""

        def count(name: str) -> int:
            said = request.query_params.get(name, "")
            return int(said) if said.isdecimal() and len(said) < 4 else 0

        refused = request.query_params.get("refused")
        return self._render(
            "page.html",
            request,
            said=CODES[refused][1] if refused in CODES else None,
            accepted=count("accepted"),
            known=count("known"),
            at_once=(FILES_MAX, LARGEST_MAX * self._bytes_max),
        )

    def show_queue(self, request: Request) -> Response:
        """``GET /queue``: the part of the page that changes; with ``since`` only the rows that did."""
        return self._render("queue.html", request)

    def _render(self, name: str, request: Request, **more: Any) -> Response:
        listed = self._listed(request)
        page = PAGES.get_template(name).render(
            jobs=[self._told(row) for row in listed.rows],
            listed=listed,
            held=not self._app.gate(GATEWAY).flows,
            bytes_max=self._bytes_max,
            **more,
        )
        return HTMLResponse(page)

    def _listed(self, request: Request) -> Listed:
        asked = request.query_params.get("since")
        try:
            since = datetime.fromisoformat(asked) if asked else None
        except ValueError:
            raise Refused("UNKNOWN", A_MOMENT, status=400) from None
        if since is not None and since.tzinfo is None:
            raise Refused("UNKNOWN", A_MOMENT, status=400)
        return self._files.listed(request.state.owner, since)

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """A file as programs and people are told of it."""
        told = {name: iso(it) if isinstance(it, datetime) else it for name, it in row.items()}
        code, _ = told.pop("errorCode"), told.pop("upload")
        told["error"] = None if code is None else error_of(code)
        told["maxAttempts"] = self._attempts_max
        told["retryable"] = row["status"] == "failed" and self._is_kept(row)
        return told

    def _is_kept(self, row: dict[str, Any]) -> bool:
        return not row["expired"] and self._files.is_kept(row["upload"])

    def _own(self, job_id: str, request: Request) -> dict[str, Any]:
        """One of the owner's files; another's is as one that never was."""
        try:
            row = self._files.find(str(UUID(job_id)), request.state.owner)
        except ValueError:
            row = None
        if row is None:
            raise Refused("FORBIDDEN")
        return row

    # -- what is done --------------------------------------------------------------------

    async def upload(self, request: Request) -> Response:
        """``POST /api/upload``: files of a form, each a job."""
        accepted, refused = [], []
        async with files_of(request, self._bytes_max) as files:
            for file in files:
                name = clean_name(file.filename or "")
                try:
                    accepted.append(await run_in_threadpool(self._accept, file, name, request))
                except Refused as no:
                    refused.append({"filename": name, "error": no.error})
        if not accepted and not refused:
            raise Refused("NOT_PDF", "Choose a file first.")
        if not accepted:
            raise Refused(refused[0]["error"]["code"])
        if wants_page(request):
            known = sum(one["duplicate"] and one["status"] == "complete" for one in accepted)
            code = {"refused": refused[0]["error"]["code"]} if refused else {}
            said = {"accepted": len(accepted) - known, "known": known, **code}
            return RedirectResponse(f"/?{urlencode(said)}", 303)
        return JSONResponse({"jobs": accepted, "refused": refused}, 202)

    def _accept(self, file: UploadFile, name: str, request: Request) -> dict[str, Any]:
        if b"%PDF-" not in file.file.read(1024):
            raise Refused("NOT_PDF")
        file.file.seek(0)
        owner, conversions = request.state.owner, self._converter.conversions
        job_id, created = self._files.accept(file.file, name, owner, conversions)
        return {**self._told(self._own(job_id, request)), "duplicate": not created}

    def retry(self, request: Request) -> Response:
        """``POST /api/jobs/{id}/retry``: a failed file is tried again, while its PDF is there."""
        row = self._own(request.path_params["id"], request)
        if row["status"] != "failed":
            raise Refused("NOT_READY", ONLY_FAILED)
        if not self._is_kept(row):
            self._files.touch(row["upload"])  # so that an open page learns of it
            raise Refused("EXPIRED")
        try:
            self._app.job(row["id"]).retry(by="owner", reason="retried on the page")
        except NotRetriable:  # it was retried at the same time
            raise Refused("NOT_READY", ONLY_FAILED) from None
        return self._done(request, row["id"])

    def delete(self, request: Request) -> Response:
        """``DELETE /api/jobs/{id}``: what is in work is cancelled; what has ended is removed, but not by ``…/cancel``."""
        row = self._own(request.path_params["id"], request)
        in_work = row["status"] in ("queued", "processing")
        if not in_work and request.url.path.endswith("/cancel"):  # of a page that is old
            return self._done(request, row["id"])
        if not in_work:  # first: it cannot be retried without its PDF, only cancelled
            self._files.close(row["upload"], delete=True)
        with suppress(NotCancellable):  # what has ended by now: its row goes on to answer for it
            self._app.job(row["id"]).cancel(by="owner", reason="cancelled on the page")
            self._files.close(row["upload"], delete=False)
        return self._done(request, row["id"])

    def _done(self, request: Request, job_id: str) -> Response:
        if wants_page(request):
            return RedirectResponse("/", 303)
        row = self._files.find(job_id, request.state.owner)
        return JSONResponse({"job": None if row is None else self._told(row)})

    def download(self, request: Request) -> Response:
        """``GET /api/jobs/{id}/download``: the XML."""
        row = self._own(request.path_params["id"], request)
        if row["status"] != "complete":
            raise Refused("NOT_READY")
        if row["expired"]:
            raise Refused("EXPIRED")
        try:
            result = self._app.job(row["id"]).result(wait_s=0)
            content = self._files.read_result(result["xml"], row["upload"])
        except FileNotFoundError:
            if not self._files.results.is_dir():  # it may come back
                raise Refused("IO_ERROR") from None
            self._files.close(row["upload"], delete=False)  # it can be uploaded anew
            raise Refused("EXPIRED") from None
        name = quote(f"{Path(row['filename']).stem}.xml", safe="")
        as_file = f"attachment; filename=\"result.xml\"; filename*=UTF-8''{name}"
        headers = {"content-disposition": as_file}
        return Response(content, media_type="application/xml", headers=headers)
