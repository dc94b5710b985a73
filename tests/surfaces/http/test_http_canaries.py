"""Secrets that go in come out nowhere: not in a log at DEBUG, not in a column, not in an event, not in another's answer."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

import perdure
from perdure.app.surface.access import create_token
from perdure.http import asgi
from perdure.model.operations import Deed
from perdure.surfaces.http.events import stream
from tests.stores.kit import TABLES, file_in, furnished
from tests.stories.looking import looking_at
from tests.surfaces.http.test_http_events import listening, until

DEED = Deed("test", "")
PASSWORD = "canary3pass9Kq2vXw7Lm4"
API_KEY = "sk-canary7QpLs0mVn3XzWtYb8"
BEARER = "canary5wrong1Token6Rr2Gg9Hh4Jj"
PAYLOAD = "canary-in-an-item"
HEADER = "canary-in-a-header"
OWN = ("submit", "read", "operate")
KEPT = {"payload", "input", "result", "value"}  # where an item and its result stand by right


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{furnished(file_in(tmp_path))}"
    return request.getfixturevalue("furnished")


@pytest.fixture
def app(url) -> Iterator[perdure.App]:
    app = perdure.App(url)

    @app.stage()
    def shout(item: Any) -> Any:
        if "broken" in item:
            raise perdure.StageError(
                "invalid_request",
                f"POST https://me:{PASSWORD}@host/v1?api_key={API_KEY} with Authorization: Bearer {BEARER} failed",
            )
        return {"text": item["text"].upper()}

    app.pipeline("shouting", shout)
    app.ready()
    yield app
    app.close()


def test_no_secret_is_in_a_log_a_column_an_event_or_another_owners_answer(app, url, caplog):
    caplog.set_level(logging.DEBUG)
    tokens = {
        name: create_token(
            app._session, name=name, owner=owner, scopes=scopes, expires=None, deed=DEED
        )[0]
        for name, owner, scopes in (
            ("ann", "ann", OWN),
            ("bob", "bob", OWN),
            ("root", "", ["admin"]),
        )
    }
    api = asgi(app, hosts=("testserver",))

    def client(token: str) -> TestClient:
        headers = {"authorization": f"Bearer {token}", "x-api-key": HEADER, "cookie": f"a={HEADER}"}
        return TestClient(api, headers=headers, raise_server_exceptions=False)

    ann, bob, root = (client(tokens[name]) for name in ("ann", "bob", "root"))
    told = [*speak(ann), *speak(client(BEARER)), *speak(client("x" * 2_000 + BEARER))]
    seen = asyncio.run(events(app, api))
    others = [*look(bob), *look(root)]
    secrets = [*tokens.values(), PASSWORD, API_KEY, BEARER, HEADER]
    secrets += [urlsplit(url).password] if urlsplit(url).password else []
    ours = [one for one in caplog.records if not one.name.startswith("httpx")]  # the client's own
    everything = "\n".join(f"{one.getMessage()} {one.args}" for one in ours)
    assert everything
    assert hits((*secrets, PAYLOAD), everything) == []
    assert hits((*secrets, PAYLOAD), seen) == []
    assert hits(secrets, *told) == []
    assert hits(secrets, *others) == []
    assert hits([PAYLOAD], *look(bob)) == []
    columns = dump(url)
    assert hits((*secrets, PAYLOAD), columns) == []
    assert "[secret]" in columns, "the stage's words are kept, without the secrets"


def test_a_store_that_is_away_is_told_without_its_password(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    app = perdure.App(f"postgresql://me:{PASSWORD}@127.0.0.1:1/nowhere")
    one = TestClient(asgi(app, hosts=("testserver",)), raise_server_exceptions=False)
    answers = [
        one.get("/readyz"),
        one.get("/api/jobs", headers={"authorization": f"Bearer prd_{BEARER}"}),
    ]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert hits([PASSWORD, BEARER], caplog.text, *(answer.text for answer in answers)) == []
    app.close()


def test_what_went_wrong_inside_is_logged_with_its_place_and_without_secrets(app, caplog):
    async def principal(request: Any) -> None:
        raise RuntimeError(f"no answer of postgres://me:{PASSWORD}@host/logins") from ValueError(
            f"Authorization: Bearer {BEARER}"
        )

    api = asgi(app, principal=principal, hosts=("testserver",))
    answer = TestClient(api, raise_server_exceptions=False).get("/api/jobs")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    (line,) = [one.getMessage() for one in caplog.records if one.name == "perdure.http"]
    assert f"request {answer.json()['request_id']} went wrong: RuntimeError: " in line
    assert "test_http_canaries:" in line
    assert "; after ValueError: " in line
    assert hits([PASSWORD, BEARER], caplog.text, answer.text) == []


def speak(one: TestClient) -> Iterator[str]:
    """Jobs that succeed, fail, wait and are cancelled, and requests that are wrong; without the answers that own the item."""
    asked = {"pipeline": "shouting", "item": {"text": PAYLOAD}}
    yield one.post("/api/jobs", json=asked).headers.get("location", "")
    yield one.post(f"/api/jobs?token={BEARER}", json=asked).text
    yield one.post("/api/jobs", json=asked | {"api_key": API_KEY}).text
    yield one.post("/api/jobs", json=asked | {"priority": API_KEY}).text
    yield one.post("/api/jobs", content=f'{{"item": "{PAYLOAD}", "oops'.encode()).text
    yield one.get(f"/api/jobs/{BEARER}").text
    yield one.post(f"/api/{BEARER}", json=asked).text


def look(one: TestClient) -> Iterator[str]:
    """All that somebody is shown, the wide lists first."""
    paths = ["/api/jobs", "/api/runs", "/api/dead", "/api/dead/groups", "/api/stats", "/metrics"]
    paths += ["/api/audit-log", "/api/workers", "/api/gates", "/api/queues", "/api/schedules"]
    for path in paths:
        yield one.get(path).text
    for job in one.get("/api/jobs").json().get("jobs", ()):
        shown = one.get(f"/api/jobs/{job['id']}").json()
        yield repr((shown["job"], shown["attempts"]))


async def events(app: perdure.App, api: Any) -> str:
    """What everybody is told of a job that succeeds and one that fails."""
    heard = stream(app._session, None, None)
    await listening(heard)
    pipe = app.get_pipeline("shouting")
    await pipe.call_async({"text": PAYLOAD}, owner="ann")
    with suppress(perdure.JobFailed):
        await pipe.call_async({"broken": PAYLOAD}, owner="ann")
    told = await until(heard, 2)
    await heard.aclose()
    return repr(told)


def dump(url: str) -> str:
    """Every column of every table but those that hold items and results."""
    looking = looking_at(url)
    try:
        rows = [row for name in TABLES for row in looking.rows(f"SELECT * FROM perdure_{name}", ())]
        return "\n".join(
            repr([value for name, value in zip(row._names, row, strict=True) if name not in KEPT])
            for row in rows
        )
    finally:
        looking.close()


def hits(secrets: Any, *texts: str) -> list[str]:
    return [f"{one} in {text[:200]}" for one in secrets for text in texts if one in text]
