"""Whose request it is: a cookie nobody can guess, and nothing from other sites.

The owner of files is a hash of the cookie, so that neither the database nor the log has what opens them.
"""

import hashlib
import secrets

from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from .refusals import Refused, refuse

COOKIE = "converter_session"
KEPT_S = 365 * 86_400
SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


async def with_session(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Find or make the session, whose owner is ``request.state.owner``; add its cookie and safe headers to the answer."""
    secure = request.url.scheme == "https"
    # Nobody but this very host can have set a cookie of that name.
    cookie = f"__Host-{COOKIE}" if secure else COOKIE
    known = request.cookies.get(cookie, "")
    session = known if len(known) == 32 else secrets.token_urlsafe(24)
    request.state.owner = hashlib.sha256(session.encode()).hexdigest()[:32]
    if is_own(request):
        answer = await call_next(request)
    else:
        forged = Refused("FORBIDDEN", "Other sites may not do this for you.")
        answer = await refuse(request, forged)
    for name, value in SAFE.items():
        answer.headers.setdefault(name, value)
    if session != known:
        answer.set_cookie(
            cookie, session, max_age=KEPT_S, httponly=True, samesite="Lax", secure=secure
        )
    return answer


def is_own(request: Request) -> bool:
    """Whether no other site makes a browser send it; clients that are no browsers say neither."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if request.method in ("GET", "HEAD"):
        return True
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")
