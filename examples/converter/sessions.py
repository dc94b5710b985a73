"""Whose request it is: a cookie nobody can guess, and nothing from other sites.

The owner of files is a hash of the cookie, so that neither the database nor the log has what opens them.
"""

import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .refusals import Refused

COOKIE = "converter_session"
KEPT_S = 365 * 86_400
SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Sessions:
    """Gives each visitor a session; ``scope["owner"]`` says whose a request is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find or make the session, and add the cookie and the safe headers to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        known = session_in(Headers(scope=scope).get("cookie", ""))
        session = known or secrets.token_urlsafe(24)
        scope["owner"] = hashlib.sha256(session.encode()).hexdigest()[:32]
        secure = "; Secure" if scope["scheme"] == "https" else ""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
                if known is None:
                    kept = f"Max-Age={KEPT_S}; Path=/; HttpOnly; SameSite=Lax{secure}"
                    headers.append("set-cookie", f"{COOKIE}={session}; {kept}")
            await send(message)

        await self._app(scope, receive, answer)


def session_in(cookies: str) -> str | None:
    """The session that a Cookie header brings, if it can be one of ours."""
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None and len(found.value) == 32 else None


def check_origin(headers: Headers) -> None:
    """Refuse what another site makes a browser send; clients that are no browsers say neither."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        own = site in ("same-origin", "none")
    else:
        own = origin is None or origin.partition("://")[2] == headers.get("host")
    if not own:
        raise Refused("FORBIDDEN", "Other sites may not do this for you.")
