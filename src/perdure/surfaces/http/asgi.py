"""The ASGI application: who is let in, what is read of a request, and what is answered when something is wrong.

Always true: nothing of a request is decoded before it is known whose it is and that it is not too large; a handler gets only
what was checked; whatever is raised becomes a problem of `problems.py`. Handlers run in threads, since a store's port blocks;
a body that comes slowly holds no connection to the store.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route

from perdure.app.session.session import Session
from perdure.app.surface.access import principal_of
from perdure.app.surface.serving import trace_of
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import JobUnfinished, PerdureError
from perdure.model.views import JobView
from perdure.surfaces.http import dead, events, health, jobs, operators, runs
from perdure.surfaces.http.endpoints import AnswerLater, Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.http.openapi import openapi
from perdure.surfaces.http.problems import Refused, problem_of, refusal_of

BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S_MAX = 30.0

ENDPOINTS: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *runs.ENDPOINTS,
    *dead.ENDPOINTS,
    *operators.ENDPOINTS,
    *health.ENDPOINTS,
)

FindPrincipal = Callable[[Request], Awaitable[Principal | None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HANDED = ("idempotency-key", "prefer")
_SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_encode = msgspec.json.Encoder(decimal_format="string").encode
_log = logging.getLogger("perdure.http")


class HttpApi:
    """The API of one app, as an ASGI application."""

    def __init__(
        self, session: Session, find_principal: FindPrincipal | None, hosts: Collection[str]
    ) -> None:
        self._session = session
        self._find_principal = find_principal or self._of_token
        self._hosts = frozenset(one.lower() for one in hosts)
        document = openapi(ENDPOINTS)

        async def describe(request: Request) -> Response:
            here = {"servers": [{"url": request.scope.get("root_path") or "/"}]}
            told = _encode(document | here)
            return Response(told, media_type="application/json", headers=_SAFE_HEADERS)

        self.routes = [
            Route("/api/openapi.json", describe, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
            *(Route(one.path, self._route(one), methods=[one.method]) for one in ENDPOINTS),
        ]

    def _route(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

        async def serve(request: Request) -> Response:
            request_id = _request_id(request)
            try:
                self._check_host(request)
                principal = await self._let_in(request, endpoint.scope)
                call = HttpCall(
                    self._session,
                    principal,
                    request_id,
                    request.path_params,
                    _query(request, endpoint.query),
                    None
                    if decoder is None
                    else _decode(endpoint, decoder, await _body(request, endpoint)),
                    {name: request.headers[name] for name in _HANDED if name in request.headers},
                )
                answer = await run_in_threadpool(endpoint.handler, call)
                if isinstance(answer, AnswerLater):
                    answer = answer.then(await _ended(answer))
            except Exception as error:  # whatever it is, it is told in our words
                return self._tell(error, request_id)
            return _response(request, endpoint, answer, request_id)

        return serve

    async def _events(self, request: Request) -> Response:
        """What happens to one's own jobs, as it happens."""
        try:
            self._check_host(request)
            principal = await self._let_in(request, AccessScope.READ)
            after = request.headers.get("last-event-id") or request.query_params.get("after")
            await run_in_threadpool(events.check_cursor, self._session, after)
        except (Refused, PerdureError) as error:
            return self._tell(error, _request_id(request))
        told = events.stream(self._session, principal.sees, after)
        return StreamingResponse(told, headers=_SAFE_HEADERS, media_type="text/event-stream")

    async def _let_in(self, request: Request, scope: AccessScope | None) -> Principal:
        if scope is None:
            return Principal("", "", frozenset())
        principal = await self._find_principal(request)
        if principal is None:
            raise Refused("unauthenticated", www_authenticate="Bearer")
        if not principal.may(scope):
            raise Refused("forbidden", f"this needs the scope {scope.value}")
        return principal

    async def _of_token(self, request: Request) -> Principal | None:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return await run_in_threadpool(principal_of, self._session, text.strip())

    def _check_host(self, request: Request) -> None:
        """A page of another origin that had its name point here would otherwise speak with the browser's rights."""
        host = request.headers.get("host", "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name not in self._hosts and "*" not in self._hosts:
            raise Refused("misdirected")

    async def refuse(self, request: Request, error: Exception) -> Response:
        """What the router says of a path or a method that there is not."""
        if getattr(error, "status_code", 404) != 405:
            return self._tell(Refused("not_found"), _request_id(request))
        # The router takes the first row that fits, so a path by name comes before one with a parameter.
        meant = next(one for one in self.routes if one.matches(request.scope)[0] is not Match.NONE)
        methods = {
            name for one in self.routes if one.path == meant.path for name in one.methods or ()
        }
        allowed = ", ".join(sorted(methods))
        return self._tell(Refused("method_not_allowed", allow=allowed), _request_id(request))

    def _tell(self, error: Exception, request_id: str) -> Response:
        refused = refusal_of(error)
        if refused.code == "internal":
            _log.error("request %s went wrong: %s", request_id, trace_of(error))
        problem = problem_of(refused, request_id)
        headers = {**_SAFE_HEADERS, **refused.headers, "x-request-id": request_id}
        kind = "application/problem+json"
        return Response(_encode(problem), problem.status, headers, media_type=kind)


def api_of(
    session: Session,
    *,
    principal: FindPrincipal | None = None,
    hosts: Collection[str] = LOOPBACK,
) -> Starlette:
    """The API as an ASGI application, to be served or mounted.

    ``principal`` finds out whom a request speaks for, where the tokens of `perdure token` are not to.
    """
    api = HttpApi(session, principal, hosts)
    return Starlette(routes=api.routes, exception_handlers={HTTPException: api.refuse})


async def _ended(later: AnswerLater) -> JobView:
    """The job when it has ended, or as it is when the wait is over."""
    try:
        return await later.job.wait_async(wait_s=later.wait_s)
    except JobUnfinished:
        return await later.job.view_async()


def _request_id(request: Request) -> str:
    """The caller's own, if it is sane; else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else str(uuid4())


async def _body(request: Request, endpoint: Endpoint) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != endpoint.takes:
        raise Refused("unsupported_media_type", f"the body must be {endpoint.takes}, in UTF-8")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused("unsupported_media_type", "the body must not be compressed")
    taken = bytearray()
    try:
        async with asyncio.timeout(BODY_S_MAX):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > BODY_BYTES_MAX:
                    raise Refused("too_large", f"a body may have {BODY_BYTES_MAX:,} bytes")
    except TimeoutError:
        raise Refused("bad_request", f"the body did not come within {BODY_S_MAX:g} s") from None
    return bytes(taken)


def _decode(endpoint: Endpoint, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode_lines(body) if endpoint.lines else decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Refused("bad_request", _in_words(wrong)) from None


def _query(request: Request, kind: type[Struct]) -> Any:
    asked: Mapping[str, str] = dict(request.query_params)
    if len(asked) < len(request.query_params.multi_items()):
        raise Refused("bad_request", "a parameter is given twice")
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise Refused("bad_request", _in_words(wrong)) from None


def _in_words(wrong: Exception) -> str:
    return str(wrong).split("\n", 1)[0][:300] or "it cannot be read"


def _response(
    request: Request, endpoint: Endpoint, answer: HttpAnswer, request_id: str
) -> Response:
    headers = {**_SAFE_HEADERS, **answer.headers, "x-request-id": request_id}
    if "location" in headers:  # it is where the API is mounted
        headers["location"] = request.scope.get("root_path", "") + headers["location"]
    if not endpoint.streams:
        return Response(_encode(answer.body), answer.status, headers, media_type=endpoint.gives)
    lines = (_encode(one) + b"\n" for one in answer.body)
    told = iterate_in_threadpool(lines)
    return StreamingResponse(told, answer.status, headers, media_type=endpoint.gives)
