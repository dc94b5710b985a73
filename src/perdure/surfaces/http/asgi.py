"""The ASGI application: who is let in, what is read of a request, and what is answered when something is wrong.

Always true: nothing of a request is decoded before it is known whose it is and that it is not too large; a handler gets only
what was checked; whatever is raised becomes a problem of `problems.py`. Handlers run in threads, since a store's port blocks;
a body that comes slowly holds no connection to the store.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, get_args

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from perdure.app.job_refs import Called
from perdure.app.session.session import Session
from perdure.app.surface.access import principal_of
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import JobUnfinished, NoResult, PerdureError, StoreError
from perdure.model.views import JobView
from perdure.surfaces.http import captures, dead, events, health, jobs, login, operators, runs
from perdure.surfaces.http.endpoints import AnswerLater, Endpoint, HttpAnswer, HttpCall
from perdure.surfaces.http.limits import Door, HttpLimits, check_headers, read_body
from perdure.surfaces.http.openapi import openapi
from perdure.surfaces.http.problem_answers import (
    SAFE_HEADERS,
    checked,
    request_id_of,
    tell,
    token_words,
)
from perdure.surfaces.http.problems import Refused

ENDPOINTS: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *captures.ENDPOINTS,
    *runs.ENDPOINTS,
    *dead.ENDPOINTS,
    *operators.ENDPOINTS,
    *events.ENDPOINTS,
    *health.ENDPOINTS,
)

SOME_BYTES = 64 * 1024  # of a stream of lines, encoded at once

FindPrincipal = Callable[[Request], Awaitable[Principal | None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST_CHARS_SHOWN = 100
_HANDED = ("idempotency-key", "prefer", "last-event-id")
_NUL = "it has the character NUL, which no text may have"
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
        self._figures = session.figures  # counted from here on
        self._door = Door(session, limits)
        self._find_principal = find_principal or self._of_token
        self._hosts = frozenset(one.lower() for one in hosts)
        self._looked: dict[tuple[str, ...], tuple[int, Principal | None]] = {}  # by credential
        self._looking = asyncio.Lock()
        document = openapi(ENDPOINTS)

        async def describe(visit: login.Visit) -> Response:
            here = {"servers": [{"url": visit.request.scope.get("root_path") or "/"}]}
            return Response(_encode(document | here), media_type="application/json")

        self.routes = [
            Route("/api/openapi.json", self._page(describe, always=True), methods=["GET"]),
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
            request_id = request_id_of(request)
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
                async with self._door.serving(principal, always=endpoint.always):
                    call = HttpCall(
                        self._session,
                        principal,
                        request_id,
                        _path(request),
                        _query(request, endpoint.query),
                        body,
                        {one: request.headers[one] for one in _HANDED if one in request.headers},
                        self._door.may_wait(principal),
                    )
                    answer = await self._answer(endpoint, call)
                if isinstance(answer, AnswerLater):
                    seen = await self._ended(answer, principal)
                    answer = await self._door.in_thread(answer.then, seen)  # which may read
                _log.debug("request %s of %s: %s", request_id, principal.name, endpoint.name)
                return self._response(endpoint, answer, request, call)
            except Exception as error:  # whatever it is, it is told in our words
                return tell(error, request_id)

        return serve

    async def _answer(self, endpoint: Endpoint, call: HttpCall) -> HttpAnswer | AnswerLater:
        if endpoint.always:  # it has threads when all of ours are taken
            return await run_in_threadpool(endpoint.handler, call)
        async with self._door.making(call.principal, endpoint.makes(call.body)):
            return await self._door.in_thread(endpoint.handler, call)

    async def _ended(self, later: AnswerLater, principal: Principal) -> JobView:
        """The job when it has ended, or as it is when the wait is over, or when too many wait already."""
        until = asyncio.get_running_loop().time() + later.wait_s
        with self._door.waiting(principal) as may_wait:
            if later.called is not None and await _is_settled(later.called, may_wait=may_wait):
                return await later.job.view_async()
            if not may_wait:
                return await later.job.view_async()
            try:
                left_s = until - asyncio.get_running_loop().time()
                return await later.job.wait_async(wait_s=max(0.0, left_s))
            except JobUnfinished:
                return await later.job.view_async()

    def _response(
        self, endpoint: Endpoint, answer: HttpAnswer, request: Request, call: HttpCall
    ) -> Response:
        headers = {**SAFE_HEADERS, **answer.headers, "x-request-id": call.request_id}
        if "location" in headers:
            headers["location"] = request.scope.get("root_path", "") + headers["location"]
        answered: dict[str, Any] = {
            "status_code": answer.status,
            "headers": headers,
            "media_type": endpoint.gives,
        }
        if endpoint.hears:
            still = partial(self._still_is, request, call.principal)
            told = events.stream(
                call.session, call.principal.sees, answer.body, still, self._door.in_thread
            )
            return self._door.stream(call.principal, told, **answered)
        if endpoint.streams:
            return self._door.stream(call.principal, self._lines(answer.body), **answered)
        body = answer.body if endpoint.answers is bytes else _encode(answer.body)
        return Response(body, **answered)

    async def _lines(self, answers: Iterator[Any]) -> AsyncIterator[bytes]:
        """Line by line as they come, some at a time; while somebody reads slowly, nothing is read for it."""
        while some := await self._door.in_thread(_some, answers):
            yield some

    def _page(
        self, show: Callable[[login.Visit], Awaitable[Response]], *, always: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            request_id, form = request_id_of(request), {}
            try:
                check_headers(request)
                self._check_host(request)
                if request.method == "POST":
                    with self._door.reading():
                        form = await login.read_form(request)
                with self._door.answering(always=always):
                    visit = login.Visit(self._session, request, form, self._door.in_thread)
                    answer = await show(visit)
            except Exception as error:  # as for every other request
                return tell(error, request_id)
            for name, value in (*SAFE_HEADERS.items(), ("x-request-id", request_id)):
                answer.headers.setdefault(name, value)
            return answer

        return serve

    async def _still_is(self, request: Request, principal: Principal) -> bool:
        """Whether a request that is still open speaks for the same as before; it counts for no rate."""
        try:
            return await self._listener(request) == principal
        except StoreError:
            return True  # nobody can tell, and nothing is heard until the store is back
        except (Refused, PerdureError):
            return False

    async def _listener(self, request: Request) -> Principal | None:
        """Whom an open stream speaks for; of all streams of a token the store is asked once a beat."""
        if self._find_principal != self._of_token:
            return await self._find_principal(request)
        headers = (request.headers.get(one, "") for one in ("authorization", "cookie"))
        given = (request.url.scheme, *headers)
        async with self._looking:
            beat, known = events.beat_now(), self._looked.get(given)
            if known is None or known[0] != beat:
                known = (beat, await self._of_token(request))
                kept = {one: found for one, found in self._looked.items() if found[0] == beat}
                self._looked = kept | {given: known}
        return known[1]

    async def _let_in(self, request: Request, scope: AccessScope | None) -> Principal:
        if scope is None:
            return Principal("", "", frozenset())
        principal = await self._find_principal(request)
        if principal is not None:
            await self._door.check_rate(principal)
        told = token_words(request) if self._find_principal == self._of_token else ""
        return checked(principal, scope, told)

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
        # The path is not repeated: somebody may have put a token into it.
        root = request.scope.get("root_path") or ""
        if getattr(error, "status_code", 404) != 405:
            told = f"nothing answers at this path; what does stands in {root}/api/openapi.json"
            return tell(Refused("not_found", told), request_id_of(request))
        # The router takes the first row that fits, so a path by name comes before one with a parameter.
        meant = next(one for one in self.routes if one.matches(request.scope)[0] is not Match.NONE)
        methods = {
            name for one in self.routes if one.path == meant.path for name in one.methods or ()
        }
        allowed = ", ".join(sorted(methods))
        told = f"this path takes {allowed}"
        return tell(Refused("method_not_allowed", told, allow=allowed), request_id_of(request))


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


async def _is_settled(called: Future[Called], *, may_wait: bool) -> bool:
    """Wait for a call to end; whether its job has, or was handed over to a worker. Otherwise it is an earlier one's, under the same key."""
    if not may_wait:
        called.cancel()  # which hands it over
        return True
    try:
        over = await asyncio.wrap_future(called)
    except NoResult:
        return True
    return over.done or over.handed_over


def _decode(endpoint: Endpoint, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    if b"\\u0000" in body and not endpoint.has_items:
        raise Refused("bad_request", _NUL)
    try:
        return decoder.decode_lines(body) if endpoint.lines else decoder.decode(body)
    except RecursionError:
        raise Refused("payload_refused", "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        told = (_wrong_line(decoder, body) if endpoint.lines else None) or _in_words(wrong)
        if "unknown field" in told and " - at " not in told:
            told += f"; there are: {', '.join(endpoint.body.__struct_encode_fields__)}"
        told += "; nothing of this body was taken" if endpoint.lines else ""
        raise Refused("bad_request", told) from None


def _wrong_line(decoder: msgspec.json.Decoder[Any], body: bytes) -> str | None:
    """The first line that cannot be read, by its number, and why."""
    for number, line in enumerate(body.split(b"\n"), 1):
        try:
            if line.strip():
                decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            return f"line {number}: {_in_words(wrong)}"
    return None


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
        told = _in_words(wrong)
        raise Refused("bad_request", told + _parameters_there_are(kind, told)) from None


def _parameters_there_are(kind: type[Struct], told: str) -> str:
    """Where a name or a value of a query is none of those that there are, these."""
    fields = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
    if "unknown field" in told:
        return f"; there are: {', '.join(fields)}" if fields else "; there are none here"
    for name, declared in fields.items():
        if "enum value" in told and told.endswith(f"`$.{name}`"):
            return f"; one of: {', '.join(value for one in get_args(declared) for value in get_args(one))}"
    return ""


def _in_words(wrong: Exception) -> str:
    return str(wrong).split("\n", 1)[0][:300] or "it cannot be read"


def _some(answers: Iterator[Any]) -> bytes:
    lines = bytearray()
    for one in answers:
        lines += _encode(one) + b"\n"
        if len(lines) >= SOME_BYTES:
            break
    return bytes(lines)
