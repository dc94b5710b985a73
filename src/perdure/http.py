"""The HTTP API of an app: `asgi(app)` is served by any ASGI server, or mounted in an application of your own.

    from perdure.http import asgi
    from work import app

    api = asgi(app)                                   # uvicorn work_api:api
    own.mount("/perdure", asgi(app, principal=mine))  # behind a login of your own

It needs ``perdure[http]``.
"""

from collections.abc import Awaitable, Callable, Collection

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"perdure.http needs starlette ({missing}); install it: pip install 'perdure[http]'",
        name=missing.name,
    ) from None

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perdure.app import App
from perdure.app.surface import access
from perdure.model.access import AccessScope, Principal
from perdure.model.errors import PerdureError
from perdure.surfaces.http.asgi import LOOPBACK, FindPrincipal, api_of
from perdure.surfaces.http.limits import OPEN_JOBS_PER_OWNER, HttpLimits, take_bytes
from perdure.surfaces.http.problem_answers import checked, request_id_of, tell, token_words
from perdure.surfaces.http.problems import Refused

__all__ = [
    "AccessScope",
    "Principal",
    "Refused",
    "asgi",
    "authorize",
    "principal_of",
    "refusal_answers",
    "request_id_of",
    "take_bytes",
]

_ROUTER_CODES = {404: "not_found", 405: "method_not_allowed"}


def asgi(
    app: App,
    *,
    principal: FindPrincipal | None = None,
    hosts: Collection[str] = LOOPBACK,
    rate_per_owner: str | None = None,
    open_jobs_per_owner: int | None = OPEN_JOBS_PER_OWNER,
    requests_max: int = 100,
    waits_max: int = 1_000,
    streams_max: int = 1_000,
) -> Starlette:
    """The API of an app as an ASGI application.

    ``principal`` is an async function from a request to the `Principal` that it speaks for, or None; without it, the tokens
    of ``perdure token`` say so; while a stream of events is open it is asked again every 15 seconds. ``hosts`` are the names
    under which it is reached; what comes for another is refused.

    An owner may send ``rate_per_owner``, as in "50/s", and have so many open jobs; all servers of a store count together.
    This one answers at most ``requests_max`` at once, besides the waits of ``Prefer: wait`` and the streams.
    """
    limits = HttpLimits(
        rate_per_owner=rate_per_owner,
        open_jobs_per_owner=open_jobs_per_owner,
        requests_max=requests_max,
        waits_max=waits_max,
        streams_max=streams_max,
    )
    return api_of(app._session, principal=principal, hosts=hosts, limits=limits)


def principal_of(app: App, request: Request) -> Principal | None:
    """Whom the bearer token of a request speaks for, by the tokens of ``perdure token``; None where it brings no good one.

    For endpoints of your own beside the API. It asks the store, so on an event loop call it in a thread.
    """
    return access.principal_of(app._session, request.headers.get("authorization", ""))


def authorize(app: App, request: Request, scope: AccessScope) -> Principal:
    """Whom the bearer token of a request speaks for, if it has the scope; `Refused` otherwise, with 401 or 403.

    As `principal_of` it asks the store.
    """
    return checked(principal_of(app, request), scope, token_words(request))


def refusal_answers(
    *away: type[Exception],
) -> dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]:
    """For ``Starlette(exception_handlers=…)``: what endpoints of your own raise is told and logged as the API does it.

    That is `Refused`, every error of Perdure, and paths and methods that there are not. ``away`` are exceptions that say
    that a part of yours cannot be reached now, as ``psycopg.OperationalError``: 503. Anything else is 500, without a word of it.
    """

    async def answer(request: Request, error: Exception) -> Response:
        request_id = request_id_of(request)
        if isinstance(error, HTTPException):
            code = _ROUTER_CODES.get(error.status_code, "bad_request")
            refused = Refused(code, error.detail, status=error.status_code)
            refused.headers = dict(error.headers or {})
            return tell(refused, request_id)
        return tell(error, request_id, away=isinstance(error, away))

    return dict.fromkeys((HTTPException, Refused, PerdureError, *away, Exception), answer)
