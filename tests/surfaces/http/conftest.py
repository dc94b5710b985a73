"""An app with a worker's work done by hand, and clients of its API that speak for different people."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.testclient import TestClient

import perdure
from perdure.app.session.session import Session
from perdure.app.surface.access import create_token
from perdure.http import asgi
from perdure.model.operations import Deed

As = Callable[..., TestClient]
DEED = Deed("test", "")


on_both_stores = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def app(request, tmp_path) -> Iterator[perdure.App]:
    """On SQLite, or where a test is `on_both_stores`; with ``PERDURE_TEST_HTTP=postgres`` all of them are there."""
    chosen = getattr(request, "param", os.environ.get("PERDURE_TEST_HTTP", "sqlite"))
    on_postgres = chosen == "postgres"
    sqlite = f"sqlite:///{tmp_path}/work.db"
    with closing(app_at(request.getfixturevalue("furnished") if on_postgres else sqlite)) as one:
        yield one


def app_at(url: str) -> perdure.App:
    """The app, as one of several processes may open it."""
    one = perdure.App(store=url)

    @one.stage(policy=perdure.Policy("once", attempts_max=1, otherwise=perdure.Rule("retry")))
    def shout(item: dict[str, Any]) -> Any:
        if item.get("broken"):
            raise ValueError("at /srv/secret/path.py: SELECT 1")
        return {"text": item["text"].upper()}

    one.pipeline("shouting", shout)
    one.ready()
    return one


def bearer(app: perdure.App, *scopes: str, owner: str = "ann") -> dict[str, str]:
    """The header of a token of these scopes and owner."""
    text, _ = create_token(
        app._session, name=f"{owner}'s", owner=owner, scopes=scopes, expires=None, deed=DEED
    )
    return {"authorization": f"Bearer {text}"}


def change_row(session: Session, sql: str, **values: object) -> None:
    """Write behind everybody's back, in the words of SQLite, on either store."""
    words = re.sub(r":(\w+)", r"%(\1)s", sql) if session.url.startswith("postgresql") else sql
    session.opened.control._execute(words, values)  # type: ignore[attr-defined]


@pytest.fixture
def client(app) -> As:
    """A client with a token of these scopes and owner; without scopes it has none."""
    api = asgi(app, hosts=("testserver",))

    def speaking(*scopes: str, owner: str = "ann", **headers: str) -> TestClient:
        if scopes:
            headers |= bearer(app, *scopes, owner=owner)
        return TestClient(api, headers=headers, raise_server_exceptions=False)

    return speaking


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    """One event loop, as a server has it, for clients that ask hundreds of times: else each request makes its own."""
    with start_blocking_portal() as one:
        yield one


def problem(answer: httpx.Response) -> str:
    """The code of a problem that has the form of one."""
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert set(told) == {"type", "title", "status", "code", "detail", "request_id"}
    assert (told["status"], told["request_id"]) == (
        answer.status_code,
        answer.headers["x-request-id"],
    )
    assert "\n" not in told["detail"]
    return str(told["code"])
