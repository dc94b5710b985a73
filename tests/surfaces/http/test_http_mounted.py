"""Mounted in a FastAPI application that has a login of its own: it says whose a request is, and nothing else is asked."""

from collections.abc import Iterator
from typing import Annotated
from uuid import uuid4

import pytest
from fastapi import Cookie, FastAPI, HTTPException, Response
from starlette.testclient import TestClient

from perdure.app.surface.serving import pipeline_named
from perdure.http import AccessScope, Principal, asgi
from tests.surfaces.http.conftest import problem

PASSWORDS = {"ann": "a-password", "bob": "b-password"}
SCOPES = frozenset({AccessScope.SUBMIT, AccessScope.READ, AccessScope.OPERATE})


@pytest.fixture
def web(app) -> FastAPI:
    """An application with a login, a page and an endpoint of its own, and the API beside them."""
    sessions: dict[str, str] = {}
    web = FastAPI()

    @web.post("/login")
    def login(name: str, password: str, response: Response) -> dict[str, str]:
        if PASSWORDS.get(name) != password:
            raise HTTPException(401, "no")
        sessions[key := uuid4().hex] = name
        response.set_cookie("session", key, httponly=True, samesite="strict")
        return {"hello": name}

    @web.post("/logout")
    def logout(session: Annotated[str, Cookie()]) -> None:
        del sessions[session]

    @web.post("/shout")
    def shout(text: str, session: Annotated[str, Cookie()]) -> dict[str, str]:
        pipe = pipeline_named(app._session, "shouting")
        return {"job": pipe.enqueue({"text": text}, owner=sessions[session]).id}

    async def principal(request) -> Principal | None:
        name = sessions.get(request.cookies.get("session", ""))
        if name == "bob" and request.headers.get("x-break"):
            raise RuntimeError("the login's own database is away: /srv/login.db")
        return None if name is None else Principal(name, name, SCOPES)

    web.mount("/perdure", asgi(app, principal=principal, hosts=["jobs.example.com"]))
    return web


@pytest.fixture
def people(web) -> Iterator[dict[str, TestClient]]:
    """Ann and Bob, who have logged in, and a stranger."""
    found = {
        name: TestClient(web, "http://jobs.example.com", raise_server_exceptions=False)
        for name in (*PASSWORDS, "stranger")
    }
    for name, password in PASSWORDS.items():
        asked = {"name": name, "password": password}
        assert found[name].post("/login", params=asked).json() == {"hello": name}
    yield found
    for one in found.values():
        one.close()


ASKED = {"pipeline": "shouting", "item": {"text": "hello"}}


def test_who_has_logged_in_makes_a_job_and_fetches_its_result_where_the_answer_says(app, people):
    ann = people["ann"]
    made = ann.post("/perdure/api/jobs", json=ASKED)
    assert made.status_code == 202
    own = ann.post("/shout", params={"text": "there"}).json()["job"]
    listed = ann.get("/perdure/api/jobs").json()["jobs"]
    assert [one["id"] for one in listed] == [own, made.json()["job"]["id"]]
    assert {one["owner"] for one in listed} == {"ann"}
    with app.working(concurrency=2):
        done = ann.get(f"{made.headers['location']}/result", headers={"prefer": "wait=30"})
    assert (done.status_code, done.json()["result"]) == (200, {"text": "HELLO"})
    told = ann.get("/perdure/api/openapi.json").json()
    assert told["servers"] == [{"url": "/perdure"}]


def test_whose_a_request_is_comes_from_the_login_alone(people):
    ann, bob, stranger = people["ann"], people["bob"], people["stranger"]
    place = ann.post("/perdure/api/jobs", json=ASKED).headers["location"]
    assert problem(bob.get(place)) == "not_found"
    assert problem(stranger.get(place)) == "unauthenticated"
    assert problem(stranger.get(place, headers={"authorization": "Bearer x"})) == "unauthenticated"
    assert problem(ann.get("/perdure/api/stats")) == "forbidden"
    assert ann.post("/logout").status_code == 200
    assert problem(ann.get(place)) == "unauthenticated"


def test_a_login_that_fails_is_told_without_its_words_and_the_rest_goes_on(people):
    ann, bob = people["ann"], people["bob"]
    broken = bob.get("/perdure/api/jobs", headers={"x-break": "1"})
    assert (broken.status_code, problem(broken)) == (500, "internal")
    assert "login.db" not in broken.text
    assert ann.get("/perdure/api/jobs").status_code == 200
    assert problem(ann.get("/perdure/api/nothing")) == "not_found"
    assert problem(ann.get("/perdure/api/jobs", headers={"host": "evil.example"})) == "misdirected"
    assert ann.get("/nothing").json() == {"detail": "Not Found"}
