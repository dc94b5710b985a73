"""The ASGI application: who is let in, what is read of a request, and what is answered when something is wrong.

Always true: nothing of a request is decoded before it is known whose it is and that it is not too large; a handler gets only
what was checked; whatever is raised becomes a problem of `problems.py`. Handlers run in threads, since a store's port blocks;
a body that comes slowly holds no connection to the store.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from perdure.app.session.session import Session
from perdure.app.surface.access import principal_of
from perdure.app.surface.serving import trace_of
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import JobUnfinished, PerdureError, StoreError
from perdure.model.views import JobView
from perdure.surfaces.http import dead, events, health, jobs, login, operators, runs
from perdure.surfaces.http.endpoints import AnswerLater, Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.http.limits import Door, HttpLimits, check_headers, is_operator, read_body
from perdure.surfaces.http.openapi import openapi
from perdure.surfaces.http.problems import Refused, problem_of, refusal_of

ENDPOINTS: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *runs.ENDPOINTS,
    *dead.ENDPOINTS,
    *operators.ENDPOINTS,
    *health.ENDPOINTS,
)

SOME_BYTES = 64 * 1024  # of a stream of lines, encoded at once

FindPrincipal = Callable[[Request], Awaitable[Principal | None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST_CHARS_SHOWN = 100
_HANDED = ("idempotency-key", "prefer")
_NUL = "it has the character NUL, which no text may have"
_SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_encode = msgspec.json.Encoder(decimal_format="string").encode
_log = logging.getLogger("perdure.http")


class HttpApi:
    """The API of one app, as an ASGI application."""

    def __init__(
        self,
        session: Session,
        find_principal: FindPrincipal | None,
        hosts: Collection[str],
        limits: HttpLimits,
    ) -> None:
        self._session = session
        self._door = Door(session, limits)
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
        if find_principal is None:  # whoever has a login of their own shows its page, too
            self.routes += [
                Route("/login", self._page(login.show_login), methods=["GET"]),
                Route("/login", self._page(login.take_login), methods=["POST"]),
                Route("/logout", self._page(login.take_logout), methods=["POST"]),
            ]

    def _route(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

        async def serve(request: Request) -> Response:
            request_id = _request_id(request)
            try:
                check_headers(request)
                self._check_host(request)
                with self._door.answering(always=endpoint.always):
                    principal = await self._let_in(request, endpoint.scope)
                body = None
                if decoder is not None:
                    with self._door.reading(principal):
                        taken = await read_body(request, endpoint)
                    body = _decode(endpoint, decoder, taken)
                with self._door.answering(always=endpoint.always or is_operator(principal)):
                    call = HttpCall(
                        self._session,
                        principal,
                        request_id,
                        _path(request),
                        _query(request, endpoint.query),
                        body,
                        {one: request.headers[one] for one in _HANDED if one in request.headers},
                    )
                    answer = await self._answer(endpoint, call)
                if isinstance(answer, AnswerLater):
                    answer = answer.then(await self._ended(answer))
                mounted = request.scope.get("root_path", "")
                return self._response(endpoint, answer, request_id, mounted)
            except Exception as error:  # whatever it is, it is told in our words
                return self._tell(error, request_id)

        return serve

    async def _answer(self, endpoint: Endpoint, call: HttpCall) -> HttpAnswer | AnswerLater:
        if endpoint.always:  # it has threads when all of ours are taken
            return await run_in_threadpool(endpoint.handler, call)
        async with self._door.making(call.principal, endpoint.makes(call.body)):
            return await self._door.in_thread(endpoint.handler, call)

    async def _ended(self, later: AnswerLater) -> JobView:
        """The job when it has ended, or as it is when the wait is over, or when too many wait already."""
        with self._door.waiting() as may_wait:
            if not may_wait:
                return await later.job.view_async()
            try:
                return await later.job.wait_async(wait_s=later.wait_s)
            except JobUnfinished:
                return await later.job.view_async()

    def _response(
        self, endpoint: Endpoint, answer: HttpAnswer, request_id: str, mounted: str
    ) -> Response:
        headers = {**_SAFE_HEADERS, **answer.headers, "x-request-id": request_id}
        if "location" in headers:
            headers["location"] = mounted + headers["location"]
        answered: dict[str, Any] = {
            "status_code": answer.status,
            "headers": headers,
            "media_type": endpoint.gives,
        }
        if endpoint.streams:
            return self._door.stream(self._lines(answer.body), **answered)
        body = answer.body if endpoint.answers is bytes else _encode(answer.body)
        return Response(body, **answered)

    async def _lines(self, answers: Iterator[Any]) -> AsyncIterator[bytes]:
        """Line by line as they come, some at a time; while somebody reads slowly, nothing is read for it."""
        while some := await self._door.in_thread(_some, answers):
            yield some

    def _page(
        self, show: Callable[[login.Visit], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            try:
                check_headers(request)
                self._check_host(request)
                with self._door.reading():
                    form = await login.read_form(request) if request.method == "POST" else {}
                with self._door.answering():
                    visit = login.Visit(self._session, request, form, self._door.in_thread)
                    answer = await show(visit)
            except (Refused, PerdureError) as error:
                return self._tell(error, _request_id(request))
            for name, value in _SAFE_HEADERS.items():
                answer.headers.setdefault(name, value)
            return answer

        return serve

    async def _events(self, request: Request) -> Response:
        """What happens to one's own jobs, as it happens."""
        try:
            check_headers(request)
            self._check_host(request)
            with self._door.answering():
                principal = await self._let_in(request, AccessScope.READ)
                after = request.headers.get("last-event-id") or request.query_params.get("after")
                await self._door.in_thread(events.check_cursor, self._session, after)
            still = partial(self._still_is, request, principal)
            in_thread = self._door.in_thread
            told = events.stream(self._session, principal.sees, after, still, in_thread)
            kind = "text/event-stream"
            return self._door.stream(told, headers=_SAFE_HEADERS, media_type=kind)
        except (Refused, PerdureError) as error:
            return self._tell(error, _request_id(request))

    async def _still_is(self, request: Request, principal: Principal) -> bool:
        """Whether a request that is still open speaks for the same as before; it counts for no rate."""
        try:
            return await self._find_principal(request) == principal
        except StoreError:
            return True  # nobody can tell, and nothing is heard until the store is back
        except (Refused, PerdureError):
            return False

    async def _let_in(self, request: Request, scope: AccessScope | None) -> Principal:
        if scope is None:
            return Principal("", "", frozenset())
        principal = await self._find_principal(request)
        if principal is None:
            raise Refused("unauthenticated", www_authenticate="Bearer")
        await self._door.check_rate(principal)
        if not principal.may(scope):
            raise Refused("forbidden", f"this needs the scope {scope.value}")
        return principal

    async def _of_token(self, request: Request) -> Principal | None:
        given = request.headers.get("authorization")
        if given is None:
            visit = login.Visit(self._session, request, {}, self._door.in_thread)
            return await login.principal_of_cookie(visit)
        return await self._door.in_thread(principal_of, self._session, given)

    def _check_host(self, request: Request) -> None:
        """A page of another origin that had its name point here would otherwise speak with the browser's rights."""
        host = request.headers.get("host", "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name not in self._hosts and "*" not in self._hosts:
            raise Refused(
                "misdirected",
                f"the host asked for is {name[:_HOST_CHARS_SHOWN]!a}; to answer for it, this server is started "
                "with perdure serve --as HOST, or mounted with hosts=[…]",
            )

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
    limits: HttpLimits | None = None,
) -> Starlette:
    """The API as an ASGI application, to be served or mounted.

    ``principal`` finds out whom a request speaks for, where the tokens of `perdure token` are not to.
    """
    api = HttpApi(session, principal, hosts, limits or HttpLimits())
    served = Starlette(routes=api.routes, exception_handlers={HTTPException: api.refuse})
    served.router.redirect_slashes = False  # what is answered goes through the checks above
    return served


def _request_id(request: Request) -> str:
    """The caller's own, if it is sane; else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else str(uuid4())


def _decode(endpoint: Endpoint, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    if b"\\u0000" in body and not endpoint.has_items:
        raise Refused("bad_request", _NUL)
    try:
        return decoder.decode_lines(body) if endpoint.lines else decoder.decode(body)
    except RecursionError:
        raise Refused("payload_refused", "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise Refused("bad_request", _in_words(wrong)) from None


def _path(request: Request) -> Mapping[str, str]:
    if any("\0" in one for one in request.path_params.values()):
        raise Refused("not_found")
    return request.path_params


def _query(request: Request, kind: type[Struct]) -> Any:
    asked: Mapping[str, str] = dict(request.query_params)
    if any("\0" in one for one in asked.values()):
        raise Refused("bad_request", _NUL)
    if len(asked) < len(request.query_params.multi_items()):
        raise Refused("bad_request", "a parameter is given twice")
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise Refused("bad_request", _in_words(wrong)) from None


def _in_words(wrong: Exception) -> str:
    return str(wrong).split("\n", 1)[0][:300] or "it cannot be read"


def _some(answers: Iterator[Any]) -> bytes:
    lines = bytearray()
    for one in answers:
        lines += _encode(one) + b"\n"
        if len(lines) >= SOME_BYTES:
            break
    return bytes(lines)
