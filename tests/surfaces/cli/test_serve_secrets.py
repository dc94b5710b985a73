"""A server as it is run, at its most talkative: no secret that goes in comes out, and a request is found in its log by its id."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

import perdure
from perdure.app.surface.access import create_token
from perdure.model.operations import Deed
from tests.stories.kit import until
from tests.surfaces.http.test_http_canaries import (
    API_KEY,
    BEARER,
    HEADER,
    OWN,
    PASSWORD,
    PAYLOAD,
    dump,
    hits,
)

WORK = f"""
import logging

import perdure

logging.basicConfig(level=logging.DEBUG)  # whatever anybody says
app = perdure.App()
SAID = "POST https://me:{PASSWORD}@host/v1?api_key={API_KEY} with Authorization: Bearer {BEARER} failed"


@app.stage(policy=perdure.Policy("once", attempts_max=1, otherwise=perdure.Rule("retry")))
def shout(item):
    if "broken" in item:
        raise perdure.StageError("invalid_request", SAID)
    if "odd" in item:
        raise RuntimeError(SAID)
    return {{"text": item["text"].upper()}}


app.pipeline("shouting", shout)
"""


class Wire:
    """Requests of one token over a connection of their own."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The connection and the answer, of which nothing is read yet."""
        line = HTTPConnection("127.0.0.1", self._port, timeout=60)
        given = {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            "x-api-key": HEADER,
            "cookie": f"session={HEADER}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        line.request(method, path, None if body is None else json.dumps(body), given)
        return line, line.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """The status, and the answer with its headers."""
        line, answer = self.open(method, path, body, **headers)
        try:
            return answer.status, f"{answer.headers} {answer.read().decode()}"
        finally:
            line.close()


@pytest.fixture
def tokens(tmp_path) -> dict[str, str]:
    app = perdure.App(f"sqlite:///{tmp_path}/perdure.db")
    app.ready()
    made = {
        name: create_token(
            app._session, name=name, owner=owner, scopes=scopes, expires=None, deed=Deed("t", "")
        )[0]
        for name, owner, scopes in (
            ("ann", "ann", OWN),
            ("bob", "bob", OWN),
            ("root", "", ["admin"]),
        )
    }
    app.close()
    return made


def speak(port: int, tokens: dict[str, str]) -> Iterator[str]:
    """What Ann and strangers say; what is told to anybody but the owner of an item."""
    ann, stranger = Wire(port, tokens["ann"]), Wire(port, BEARER)
    asked = {"pipeline": "shouting", "item": {"text": PAYLOAD}}
    for item in ({"text": PAYLOAD}, {"broken": PAYLOAD}, {"odd": PAYLOAD}):
        status, told = ann.ask(
            "POST", "/api/jobs", asked | {"item": item}, prefer="wait=60", x_request_id="r-canary"
        )
        assert status == 200
        yield told.replace(PAYLOAD.upper(), "")
    for who in (ann, stranger):
        yield who.ask("GET", f"/api/jobs?api_key={API_KEY}&token={BEARER}")[1]
        yield who.ask("GET", f"/api/jobs/{BEARER}", x_request_id="r-refused")[1]
        yield who.ask("POST", f"/api/{API_KEY}", asked)[1]
        yield who.ask("POST", "/api/jobs", asked | {"api_key": API_KEY})[1]
        yield who.ask("POST", "/login", asked)[1]
    yield ann.ask("GET", "/api/jobs", authorization=f"Basic {BEARER}")[1]
    yield ann.ask("GET", "/api/jobs", host=f"me:{PASSWORD}@127.0.0.1")[1].replace(PASSWORD, "", 1)


@contextmanager
def hearing(port: int, token: str) -> Iterator[Any]:
    line, answer = Wire(port, token).open("GET", "/api/events")
    try:
        assert answer.readline() == b": listening\n"
        yield answer
    finally:
        answer.close()
        line.close()


def heard_until(answer: Any, words: bytes, times: int) -> str:
    found = b""
    while found.count(words) < times:
        piece = answer.readline()
        assert piece, "the stream has ended"
        found += piece
    return found.decode()


def look(port: int, token: str) -> Iterator[str]:
    one = Wire(port, token)
    for path in ("jobs", "dead", "dead/groups", "runs", "stats", "audit-log", "workers", "queues"):
        yield one.ask("GET", f"/api/{path}")[1]
    listed = one.ask("GET", "/api/jobs")[1]
    for id in re.findall(r'"id":"([0-9a-f-]{36})"', listed):
        shown = json.loads(one.ask("GET", f"/api/jobs/{id}")[1].partition("\n\n")[2])
        yield repr((shown["job"], shown["attempts"]))


@pytest.mark.story
def test_no_secret_comes_out_of_a_server_that_tells_all_it_can(tmp_path, tokens):
    (tmp_path / "work.py").write_text(WORK)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PERDURE")}
    command = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "work:app", "--worker"]
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen(
            [*command, "--port", "0"],
            cwd=tmp_path,
            env=kept | {"PERDURE_LOG_LEVEL": "DEBUG"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as serving,
    ):
        try:
            port = int(re.search(r":(\d+)/api", serving.stdout.readline())[1])
            until(
                "it is ready, with its worker",
                lambda: Wire(port, "").ask("GET", "/readyz")[0] == 200,
                within_s=60,
            )
            with hearing(port, tokens["root"]) as stream:
                told = list(speak(port, tokens))
                heard = heard_until(stream, b'"state":"failed"', 2)
            bobs, roots = list(look(port, tokens["bob"])), list(look(port, tokens["root"]))
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(60) == 0
        finally:
            serving.kill()
        log.seek(0)
        lines = log.read()
    secrets = [*tokens.values(), PASSWORD, API_KEY, BEARER, HEADER]
    assert hits([*secrets, PAYLOAD], lines, heard, *bobs) == []
    assert hits(secrets, *told, *roots) == []
    assert hits([*secrets, PAYLOAD], dump(f"sqlite:///{tmp_path}/perdure.db")) == []
    assert "request r-canary of ann: create_job" in lines
    assert "request r-refused was refused: not_found" in lines
    assert "request r-refused was refused: unauthenticated" in lines
    assert "request_id=r-canary" in lines or '"request_id": "r-canary"' in lines
    assert len(roots) > len(bobs)
