"""How both services answer: JSON with the id of its request, the error schema, health; and how they call others."""

import logging
import ssl
from typing import Any

import httpx2
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perdure import CallerError
from perdure.http import Refused, request_id_of

from .schemas import AIFailure, error_of, invalid

log = logging.getLogger("gateway")
# A connection that is kept may be closed by the other side just when a call is sent: each call makes its own.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
BODY_BYTES_MAX = 262_144  # the longest prompt, however it is escaped
TLS = ssl.create_default_context()  # takes longer than a call: made once


def new_client(**options: Any) -> httpx2.AsyncClient:
    """A client for other services."""
    return httpx2.AsyncClient(limits=LIMITS, verify=TLS, **options)


def as_json(told: object, status: int = 200, *, request: Request, **headers: str) -> Response:
    """An answer; every one has the id of its request."""
    headers = {"x-request-id": request_id_of(request), **headers}
    return Response(msgspec.json.encode(told), status, headers, "application/json")


async def tell_failure(request: Request, failure: Exception) -> Response:
    """An error as the schema has it; what nobody expected, or breaks the schema, is an INTERNAL_ERROR."""
    headers = {}
    if isinstance(failure, HTTPException):
        headers.update(failure.headers or {})  # of a wrong method, those that there are
        failure = AIFailure("INVALID_REQUEST", "There is no such endpoint.", http_status=failure.status_code)  # fmt: skip
    if isinstance(failure, Refused):
        failure = invalid(failure.detail, failure.status)
    if isinstance(failure, CallerError):
        failure = invalid(str(failure))
    if not isinstance(failure, AIFailure):
        failure = AIFailure("INTERNAL_ERROR", "Something went wrong inside.")
    error = error_of(failure, request_id_of(request))
    alarm = logging.ERROR if error.code in ("CONFIG_MISSING", "INTERNAL_ERROR") else logging.INFO
    broken = f" in place of a broken {failure.code}" if error.code != failure.code else ""
    log.log(alarm, "request %s: %s%s", error.id, error.code, broken)
    if isinstance(error.retry_after_ms, int):
        headers["retry-after"] = str(-(-error.retry_after_ms // 1_000))
    return as_json({"error": error}, error.http_status, request=request, **headers)


async def tell_health(request: Request) -> Response:
    """``GET /health``: the process lives."""
    return as_json({"status": "ok"}, request=request)


TOLD = (AIFailure, CallerError, HTTPException, Refused, Exception)
HANDLERS = dict.fromkeys(TOLD, tell_failure)
HEALTH = [Route("/health", tell_health), Route("/healthz", tell_health)]
