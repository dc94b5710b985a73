"""Browsers: a page that takes a token and gives a cookie, and what has to come with a write by that cookie.

Always true: scripts cannot read the cookie, and pages of other sites cannot have it sent. A write by it is refused unless it brings
the login's CSRF text in a header and neither `Sec-Fetch-Site` nor `Origin` names another place. A request with an
`Authorization` header is not one by cookie, whatever cookies it has.
"""

import hmac
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from perdure.app.session.session import Session
from perdure.app.surface import access
from perdure.model.access import Login, Principal
from perdure.surfaces.http.limits import take_bytes
from perdure.surfaces.http.problems import Refused

CSRF_HEADER = "x-csrf-token"
CSRF_COOKIE = "perdure_csrf"  # for scripts of this server's own pages
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_FORM_BYTES_MAX = 4_096
_STYLE = "body{font:1em system-ui,sans-serif;margin:3em auto;max-width:30em;padding:0 1em}:root{color-scheme:light dark}label,input{display:block;margin:.5em 0}input{width:100%}"
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_CSP = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_NOT_GOOD = "This token opens nothing: it is not known, was revoked or has expired."


class Visit(Struct, frozen=True):
    """What a browser asks, with the fields of its form, and where to do what blocks."""

    session: Session
    request: Request
    form: Mapping[str, str]
    in_thread: Callable[..., Awaitable[Any]]


async def principal_of_cookie(visit: Visit) -> Principal | None:
    """Whom a browser speaks for; what is to change something must prove that it comes from a page of ours."""
    login, request = await _login(visit), visit.request
    if login is None:
        return None
    if request.method not in SAFE_METHODS:
        _check_place(request)
        _check_csrf(login, request.headers.get(CSRF_HEADER, ""))
    return login.principal


async def show_login(visit: Visit) -> Response:
    """The page: a form, or who is logged in."""
    login = await _login(visit)
    return _form_page() if login is None else _login_page(login)


async def take_login(visit: Visit) -> Response:
    """Take a token, and give a cookie for it."""
    session, request = visit.session, visit.request
    _check_place(request)
    token = visit.form.get("token", "").strip()
    text = await visit.in_thread(access.log_in, session, token)
    login = None if text is None else await visit.in_thread(access.login_of, session, text)
    if text is None or login is None:
        return _form_page(_NOT_GOOD)
    answer = _to_login_page()
    _set_cookie(request, answer, _cookie_name(request), text, login, readable=False)
    _set_cookie(request, answer, CSRF_COOKIE, login.csrf, login, readable=True)
    return answer


async def take_logout(visit: Visit) -> Response:
    """End a login."""
    request = visit.request
    _check_place(request)
    login = await _login(visit)
    if login is not None:
        _check_csrf(login, request.headers.get(CSRF_HEADER) or visit.form.get("csrf", ""))
        await visit.in_thread(access.log_out, visit.session, login)
    answer = _to_login_page()
    answer.delete_cookie(_cookie_name(request), secure=_is_https(request), samesite="strict")
    answer.delete_cookie(CSRF_COOKIE, secure=_is_https(request), samesite="strict")
    return answer


async def _login(visit: Visit) -> Login | None:
    text = visit.request.cookies.get(_cookie_name(visit.request), "")
    found: Login | None = None
    if text:
        found = await visit.in_thread(access.login_of, visit.session, text)
    return found


def _check_place(request: Request) -> None:
    """Refuse what a page of another place has sent; old browsers say nothing of it."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin"):
        raise Refused("cross_site", f"the browser says that it comes from elsewhere ({site[:20]})")
    if (
        origin is not None
        and origin.partition("://")[2].lower() != request.headers.get("host", "").lower()
    ):
        raise Refused("cross_site", "its Origin is another than this server")


def _check_csrf(login: Login, given: str) -> None:
    if not hmac.compare_digest(login.csrf.encode(), given.encode()):
        raise Refused(
            "cross_site", f"send the cookie {CSRF_COOKIE} as the header X-CSRF-Token, too"
        )


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, each once; none where nothing was sent."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind and request.headers.get("content-length", "0") == "0":
        return {}
    if kind != "application/x-www-form-urlencoded":
        raise Refused("unsupported_media_type", "the body must be a form, urlencoded")
    taken = await take_bytes(request, _FORM_BYTES_MAX)
    found = parse_qs(taken.decode("utf-8", "replace"))
    return {name: values[0] for name, values in found.items()}


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _cookie_name(request: Request) -> str:
    """With https a name that browsers keep others from setting."""
    return "__Host-perdure" if _is_https(request) else "perdure_login"


def _set_cookie(
    request: Request, answer: Response, name: str, text: str, login: Login, *, readable: bool
) -> None:
    answer.set_cookie(
        name,
        text,
        expires=login.expires_at,
        path="/",
        secure=_is_https(request),
        httponly=not readable,
        samesite="strict",
    )


def _to_login_page() -> Response:
    return Response(status_code=303, headers={"location": "login"})


def _form_page(wrong: str = "") -> Response:
    alert = f'<p role="alert" id="wrong">{escape(wrong)}</p>' if wrong else ""
    about = "about wrong" if wrong else "about"
    return _page(
        "Log in",
        f'{alert}<form method="post" action="login"><label for="token">Access token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required '
        f'aria-describedby="{about}"><p id="about">As <code>perdure token create</code> showed it.</p>'
        "<button>Log in</button></form>",
        401 if wrong else 200,
    )


def _login_page(login: Login) -> Response:
    who = login.principal
    whose = f"owner {who.owner}" if who.owner else "no owner"
    scopes = ", ".join(sorted(who.scopes))
    until = f"{login.expires_at:%Y-%m-%d %H:%M} UTC"
    return _page(
        "Logged in",
        f"<p>As <strong>{escape(who.name)}</strong>, {escape(whose)}, for {escape(scopes)}, until {until}.</p>"
        f'<form method="post" action="logout"><input type="hidden" name="csrf" value="{login.csrf}">'
        "<button>Log out</button></form>",
    )


def _page(title: str, body: str, status: int = 200) -> Response:
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} – Perdure</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{title}</h1>{body}</main></body></html>",
        status,
        # With no-referrer, which all else has, a browser sends the form as if from nowhere (Fetch: `Origin: null`).
        {"content-security-policy": _CSP, "referrer-policy": "same-origin"},
    )
