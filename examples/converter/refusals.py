"""What is refused: the ten public codes, each with a status and the one line that people read, and how an answer says it."""

import logging

import psycopg
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from perdure import StoreError

from .templates import PAGES

log = logging.getLogger("converter")

CODES: dict[str, tuple[int, str]] = {
    "NOT_PDF": (415, "This file is not a PDF."),
    "TOO_LARGE": (413, "This file is too large."),
    "GW_4XX": (422, "The converter cannot make sense of this file."),
    "GW_5XX": (502, "The converter has a problem."),
    "GW_TIMEOUT": (504, "The converter did not answer in time."),
    "IO_ERROR": (503, "The file could not be read or saved. Try again in a moment."),
    "NOT_READY": (409, "This file has no result yet."),
    "EXPIRED": (404, "This file is no longer kept. Upload it again."),
    "FORBIDDEN": (403, "This file is not yours, or is not there."),
    "UNKNOWN": (500, "Something went wrong on our side."),
}


class Refused(Exception):
    """A request that is answered with one of the codes, and its line or a better one."""

    def __init__(self, code: str, line: str = "") -> None:
        self.code = code
        self.status, self.line = CODES[code][0], line or CODES[code][1]
        super().__init__(f"{code}: {self.line}")


def line_of(code: str | None) -> str | None:
    """What people read for a code of a job; whatever is no public code is UNKNOWN."""
    return None if code is None else CODES.get(code, CODES["UNKNOWN"])[1]


def wants_page(request: Request) -> bool:
    """Whether a browser shows the answer, and no program reads it."""
    return "text/html" in request.headers.get("accept", "")


def error_of(refused: Refused) -> dict[str, str]:
    """The error envelope's inside."""
    return {"code": refused.code, "message": refused.line}


async def refuse(request: Request, error: Exception) -> Response:
    """A refusal, as JSON or on the page."""
    assert isinstance(error, Refused)
    if wants_page(request) and request.method == "POST":
        return RedirectResponse(f"/?refused={error.code}", 303)
    if wants_page(request):
        page = PAGES.get_template("refused.html").render(line=error.line, code=error.code)
        return HTMLResponse(page, error.status)
    return JSONResponse({"error": error_of(error)}, error.status)


async def refuse_http(request: Request, error: Exception) -> Response:
    """What is no endpoint, or asks for what cannot be: there is no better code than FORBIDDEN or UNKNOWN."""
    assert isinstance(error, HTTPException)
    told = {"code": "FORBIDDEN" if error.status_code == 404 else "UNKNOWN", "message": error.detail}
    return JSONResponse({"error": told}, error.status_code, headers=error.headers)


async def refuse_away(request: Request, error: Exception) -> Response:
    """Database or disk is away for a moment; the log has more."""
    log.warning("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
    return await refuse(request, Refused("IO_ERROR"))


async def refuse_unknown(request: Request, error: Exception) -> Response:
    """A defect of ours; the log has the traceback, and nobody else."""
    return await refuse(request, Refused("UNKNOWN"))


HANDLERS = {
    Refused: refuse,
    ClientDisconnect: refuse_away,  # in the middle of an upload; nobody reads the answer
    HTTPException: refuse_http,
    psycopg.OperationalError: refuse_away,
    StoreError: refuse_away,
    OSError: refuse_away,
    Exception: refuse_unknown,
}
