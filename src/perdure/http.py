"""The HTTP API of an app: `asgi(app)` is served by any ASGI server, or mounted in an application of your own.

    from perdure.http import asgi
    from work import app

    api = asgi(app)                                   # uvicorn work_api:api
    own.mount("/perdure", asgi(app, principal=mine))  # behind a login of your own

It needs ``perdure[http]``.
"""

from collections.abc import Collection

from starlette.applications import Starlette

from perdure.app import App
from perdure.model.access import AccessScope, Principal
from perdure.surfaces.http.asgi import LOOPBACK, FindPrincipal, api_of

__all__ = ["AccessScope", "Principal", "asgi"]


def asgi(
    app: App, *, principal: FindPrincipal | None = None, hosts: Collection[str] = LOOPBACK
) -> Starlette:
    """The API of an app as an ASGI application.

    ``principal`` is an async function from a request to the `Principal` that it speaks for, or None; without it, the tokens
    of ``perdure token`` say so. While a stream of events is open it is asked again every 15 seconds. ``hosts`` are the names under which it is reached; what comes for another is refused.
    """
    return api_of(app._session, principal=principal, hosts=hosts)
