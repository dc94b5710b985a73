"""An app with a worker's work done by hand, and clients of its API that speak for different people."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import perdure
from perdure.app.surface.access import create_token
from perdure.http import asgi
from perdure.model.operations import Deed

As = Callable[..., TestClient]


@pytest.fixture
def app(tmp_path) -> Iterator[perdure.App]:
    one = perdure.App(store=f"sqlite:///{tmp_path}/work.db")

    @one.stage(policy=perdure.Policy("once", attempts_max=1, otherwise=perdure.Rule("retry")))
    def shout(item: dict[str, Any]) -> Any:
        if item.get("broken"):
            raise ValueError("at /srv/secret/path.py: SELECT 1")
        return {"text": item["text"].upper()}

    one.pipeline("shouting", shout)
    one.ready()
    yield one
    one.close()


@pytest.fixture
def client(app) -> As:
    """A client with a token of these scopes and owner; without scopes it has none."""
    api = asgi(app, hosts=("testserver",))

    def speaking(*scopes: str, owner: str = "ann", **headers: str) -> TestClient:
        if scopes:
            deed = Deed("test", "")
            text, _ = create_token(
                app._session, name=f"{owner}'s", owner=owner, scopes=scopes, expires=None, deed=deed
            )
            headers["authorization"] = f"Bearer {text}"
        return TestClient(api, headers=headers, raise_server_exceptions=False)

    return speaking


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
