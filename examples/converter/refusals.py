"""What is refused: the ten public codes, each with a status and the one line that people read, and how an answer says it."""

import logging
from collections.abc import Mapping

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
AWAY = (psycopg.OperationalError, StoreError, OSError, ClientDisconnect)  # database, disk, client


def error_of(code: str, line: str = "") -> dict[str, str]:
    """What programs and people read of a code; whatever is no public code is UNKNOWN."""
    code = code if code in CODES else "UNKNOWN"
    return {"code": code, "message": line or CODES[code][1]}


class Refused(Exception):
    """A request that is answered with one of the codes, and its line or a better one."""

    def __init__(self, code: str, line: str = "", *, status: int | None = None) -> None:
        super().__init__(code)
        self.error, self.status = error_of(code, line), status or CODES[code][0]
        self.headers: Mapping[str, str] = {}


def wants_page(request: Request) -> bool:
    """Whether a browser shows the answer, and no program reads it."""
    return "text/html" in request.headers.get("accept", "")


async def refuse(request: Request, error: Exception) -> Response:
    """Whatever was raised, as JSON or on the page. The log has more of what is no fault of the request's."""
    if isinstance(error, Refused):
        refused = error
    elif isinstance(error, HTTPException):  # what is no endpoint, or no form
        code = "FORBIDDEN" if error.status_code == 404 else "UNKNOWN"
        refused = Refused(code, error.detail, status=error.status_code)
        refused.headers = error.headers or {}  # of a wrong method, those that there are
    elif isinstance(error, AWAY):
        log.warning("%s %s: %s: %s", request.method, request.url.path, type(error).__name__, error)
        refused = Refused("IO_ERROR")
    else:  # a defect of ours; the server logs it
        refused = Refused("UNKNOWN")
    if not wants_page(request):
        return JSONResponse({"error": refused.error}, refused.status, refused.headers)
    if request.method == "POST" and refused.error == error_of(refused.error["code"]):
        return RedirectResponse(f"/?refused={refused.error['code']}", 303)
    page = PAGES.get_template("refused.html").render(refused.error)
    return HTMLResponse(page, refused.status, refused.headers)


HANDLERS = dict.fromkeys((Refused, HTTPException, *AWAY, Exception), refuse)
