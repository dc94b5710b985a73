"""The HTTP API of an app: `asgi(app)` is served by any ASGI server, or mounted in an application of your own.

    from perdure.http import asgi
    from work import app

    api = asgi(app)                                   # uvicorn work_api:api
    own.mount("/perdure", asgi(app, principal=mine))  # behind a login of your own

It needs ``perdure[http]``.
"""

from collections.abc import Collection

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"perdure.http needs starlette ({missing}); install it: pip install 'perdure[http]'",
        name=missing.name,
    ) from None

from starlette.requests import Request

from perdure.app import App
from perdure.app.surface import access
from perdure.model.access import AccessScope, Principal
from perdure.surfaces.http.asgi import LOOPBACK, FindPrincipal, api_of
from perdure.surfaces.http.limits import OPEN_JOBS_PER_OWNER, HttpLimits

__all__ = ["AccessScope", "Principal", "asgi", "principal_of"]


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
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return access.principal_of(app._session, text.strip())
