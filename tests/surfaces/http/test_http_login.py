"""Browsers: a token is changed for a cookie, the cookie ends where it should, and no other page can write by it."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from perdure.app.surface.access import create_token, revoke_token
from perdure.http import AccessScope, Principal, asgi
from perdure.model.operations import Deed
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.endpoints import Endpoint
from perdure.surfaces.http.login import SAFE_METHODS
from tests.surfaces.http.conftest import problem
from tests.surfaces.http.test_http_cells import World

DEED = Deed("test", "")
PAGE = {"sec-fetch-site": "same-origin", "origin": "http://testserver"}
JOB = {"pipeline": "shouting", "item": {"text": "x"}}


class Browser:
    """A browser with a token of its own in its owner's hand."""

    def __init__(self, app, *, https: bool = False, expires: str | None = None, **token: Any):
        given = {"name": "web", "owner": "ann", "scopes": ["submit", "read"], **token}
        self.session = app._session
        self.token, self.kept = create_token(self.session, expires=expires, deed=DEED, **given)
        base = f"http{'s' if https else ''}://testserver"
        self.http = TestClient(asgi(app, hosts=("testserver",)), base, follow_redirects=False)

    def log_in(self, token: str | None = None, **headers: str):
        return self.http.post("/login", data={"token": token or self.token}, headers=headers)

    @property
    def csrf(self) -> str:
        return str(self.http.cookies["perdure_csrf"])


@pytest.fixture
def browser(app) -> Browser:
    one = Browser(app)
    assert one.log_in(**PAGE).status_code == 303
    return one


def test_a_token_is_changed_for_a_cookie_that_scripts_cannot_read(app):
    browser = Browser(app)
    page = browser.http.get("/login")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    answer = browser.log_in()
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    kept, csrf = answer.headers.get_list("set-cookie")
    assert kept.startswith("perdure_login=")
    assert kept.endswith("; HttpOnly; Path=/; SameSite=strict")
    assert csrf.startswith("perdure_csrf=")
    assert csrf.endswith("; Path=/; SameSite=strict")
    assert browser.token not in answer.text + str(answer.headers)
    assert browser.http.get("/api/jobs").status_code == 200
    seen = browser.http.get("/login").text
    assert "As <strong>web</strong>, owner ann, for read, submit, until 20" in seen


def test_with_https_the_cookie_is_the_hosts_own(app):
    browser = Browser(app, https=True)
    kept, csrf = browser.log_in().headers.get_list("set-cookie")
    assert kept.startswith("__Host-perdure=")
    for one in (kept, csrf):
        assert {"Secure", "Path=/", "SameSite=strict"} <= set(one.split("; "))
    assert browser.http.get("/api/jobs").status_code == 200


def test_the_cookie_ends_no_later_than_its_token(app):
    browser = Browser(app, expires="60s")
    kept, _ = browser.log_in().headers.get_list("set-cookie")
    (expires,) = [one[8:] for one in kept.split("; ") if one.startswith("expires=")]
    assert parsedate_to_datetime(expires) <= browser.kept.expires_at
    assert parsedate_to_datetime(expires) > datetime(2020, 1, 1, tzinfo=UTC)


def test_a_token_that_is_not_good_is_told_on_the_page(app):
    browser = Browser(app)
    for text in ("no token", "perdure_" + "0" * 32 + "_" + "a" * 43, "<script>"):
        answer = browser.log_in(text)
        assert answer.status_code == 401
        assert '<p role="alert" id="wrong">This token opens nothing' in answer.text
        assert text not in answer.text
        assert "set-cookie" not in answer.headers


def test_logging_out_ends_the_login_on_the_server(browser):
    old = dict(browser.http.cookies)
    answer = browser.http.post("/logout", data={"csrf": browser.csrf}, headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    assert not browser.http.cookies
    browser.http.cookies.update(old)
    assert problem(browser.http.get("/api/jobs")) == "unauthenticated"
    assert problem(browser.http.post("/api/jobs", json=JOB)) == "unauthenticated"
    assert "Log in" in browser.http.get("/login").text
    assert browser.http.post("/logout").status_code == 303


def test_a_revoked_token_ends_its_logins(browser):
    revoke_token(browser.session, browser.kept.id, DEED)
    assert problem(browser.http.get("/api/jobs")) == "unauthenticated"


def test_a_cookie_is_no_bearer_and_a_bearer_needs_no_csrf(browser):
    kept = browser.http.cookies["perdure_login"]
    for text in (f"Bearer {kept}", "Basic x", ""):  # the good cookie beside it does not help
        answer = browser.http.get("/api/jobs", headers={"authorization": text})
        assert problem(answer) == "unauthenticated"
    bearer = {"authorization": f"Bearer {browser.token}", "sec-fetch-site": "cross-site"}
    assert browser.http.post("/api/jobs", json=JOB, headers=bearer).status_code == 202
    forged = browser.http.get("/api/jobs", headers={"cookie": f"perdure_login={browser.token}"})
    assert problem(forged) == "unauthenticated"


@pytest.mark.parametrize("headers", [
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "null"},
    {"origin": "http://evil.example"}, {"origin": "http://testserver.evil.example"},
])  # fmt: skip
def test_no_other_page_logs_a_browser_in_or_out(browser, headers):
    assert problem(browser.log_in(**headers)) == "cross_site"
    csrf = {"csrf": browser.csrf}
    assert problem(browser.http.post("/logout", data=csrf, headers=headers)) == "cross_site"
    assert problem(browser.http.post("/logout", data={"csrf": "0"}, headers=PAGE)) == "cross_site"
    assert browser.http.get("/api/jobs").status_code == 200
    right = {**PAGE, "x-csrf-token": browser.csrf}
    assert browser.http.post("/logout", headers=right).status_code == 303


def test_no_other_page_has_the_cookies_forgotten(browser):
    """It comes without the cookie, which browsers keep back; its answer would delete them all the same."""
    answer = TestClient(browser.http.app).post("/logout", headers={"sec-fetch-site": "cross-site"})
    assert problem(answer) == "cross_site"


def test_a_form_that_is_none_is_refused(app):
    post = Browser(app).http.post
    assert problem(post("/login", json={"token": "x"})) == "unsupported_media_type"
    assert problem(post("/login", data={"token": "x" * 5_000})) == "too_large"
    assert problem(post("/login", data={"token": "x"}, headers={"host": "evil"})) == "misdirected"
    assert Browser(app).http.post("/login", data={"other": "x"}).status_code == 401


def test_whoever_brings_a_login_of_their_own_has_no_page_of_ours(app):
    async def ann(request):
        return Principal("ann", "ann", frozenset({AccessScope.READ}))

    other = TestClient(asgi(app, principal=ann, hosts=("testserver",)))
    assert problem(other.get("/login")) == "not_found"
    assert other.get("/api/jobs").status_code == 200


def test_a_browser_logs_in_where_the_api_is_mounted(app):
    browser = Browser(app)
    web = Starlette(routes=[Mount("/perdure", asgi(app, hosts=("testserver",)))])
    http = TestClient(web)
    page = http.post("/perdure/login", data={"token": browser.token}, headers=PAGE)
    assert (page.status_code, page.url.path) == (200, "/perdure/login")
    assert "Logged in" in page.text
    assert http.get("/perdure/api/jobs").status_code == 200


def test_names_are_text_on_the_page(app):
    browser = Browser(app, name="<b>x", owner="<script>alert(1)</script>")
    browser.log_in()
    page = browser.http.get("/login").text
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<b>" not in page


def test_every_answer_has_the_headers_of_a_careful_server(browser):
    answers = [
        browser.http.get(path)
        for path in ("/login", "/api/jobs", "/api/openapi.json", "/healthz", "/nope", "/api/jobs/")
    ]
    answers += [browser.http.post("/login", data={"token": "x"}), browser.http.put("/login")]
    answers += [browser.http.post("/logout", data={"csrf": browser.csrf})]
    for one in answers:
        assert one.headers["x-request-id"]
        policy = one.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "unsafe" not in policy
        assert one.headers["cache-control"] == "no-store"
        assert one.headers["x-content-type-options"] == "nosniff"
        page = one.headers.get("content-type", "").startswith("text/html")
        assert one.headers["referrer-policy"] == ("same-origin" if page else "no-referrer")
    assert "form-action 'self'" in answers[0].headers["content-security-policy"]


# What comes with a write by cookie, and whether it may pass. RIGHT and OTHER stand for this and for another login's CSRF text.
CSRF_CELLS: dict[str, tuple[dict[str, str], bool]] = {
    "no header": (PAGE, False),
    "empty header": ({**PAGE, "x-csrf-token": ""}, False),
    "wrong header": ({**PAGE, "x-csrf-token": "0" * 64}, False),
    "another login's header": ({**PAGE, "x-csrf-token": "OTHER"}, False),
    "cross-site": ({"x-csrf-token": "RIGHT", "sec-fetch-site": "cross-site"}, False),
    "same-site": ({"x-csrf-token": "RIGHT", "sec-fetch-site": "same-site"}, False),
    "foreign origin": ({"x-csrf-token": "RIGHT", "origin": "https://evil.example"}, False),
    "null origin": ({"x-csrf-token": "RIGHT", "origin": "null"}, False),
    "right": ({**PAGE, "x-csrf-token": "RIGHT"}, True),
    "right, of an old browser": ({"x-csrf-token": "RIGHT"}, True),
}
WRITES: list[Endpoint] = [one for one in ENDPOINTS if one.method not in SAFE_METHODS]


def test_every_write_by_cookie_proves_where_it_comes_from(app, client):
    world, wrong = World(app, client), []
    browser, other = (Browser(app, name=name, scopes=["admin"]) for name in ("one", "other"))
    for one in (browser, other):
        one.log_in()
    for endpoint in WRITES:
        for name, (headers, may) in CSRF_CELLS.items():
            sent = {
                key: {"RIGHT": browser.csrf, "OTHER": other.csrf}.get(value, value)
                for key, value in headers.items()
            }
            answer = world.send(browser.http, endpoint, "ann", sent)
            refused = answer.status_code == 403 and answer.json()["code"] == "cross_site"
            if refused is may or (may and answer.status_code in (400, 401, 403, 404, 422, 500)):
                wrong.append(f"{endpoint.method} {endpoint.path}, {name}: {answer.status_code}")
    cells = len(WRITES) * len(CSRF_CELLS)
    print(f"FIGURE CSRF cells: {cells} of {cells} tested, {len(WRITES)} writing endpoints")
    assert wrong == []


def test_only_methods_that_change_nothing_go_without():
    assert {one.method for one in ENDPOINTS} - {one.method for one in WRITES} == {"GET"}
    assert len(WRITES) > 15
