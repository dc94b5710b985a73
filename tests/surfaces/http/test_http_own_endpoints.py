"""Endpoints of an application's own, beside the API, know whom a token speaks for and refuse as it does."""

import logging

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from perdure import NotCancellable, RunUnfinished, StoreUnavailable, UnknownName
from perdure.app.surface.access import revoke_token, tokens
from perdure.http import (
    AccessScope,
    Refused,
    asgi,
    authorize,
    principal_of,
    refusal_answers,
    request_id_of,
    take_bytes,
)
from perdure.model.operations import Deed
from tests.surfaces.http.conftest import bearer, on_both_stores


@pytest.fixture
def portal(app) -> TestClient:
    def show(request: Request) -> Response:
        who = principal_of(app, request)
        if who is None or not who.may(AccessScope.READ):
            return Response(status_code=401)
        return JSONResponse({"owner": who.owner, "name": who.name})

    mounted = Mount("/perdure", asgi(app, hosts=("testserver",)))
    return TestClient(Starlette(routes=[Route("/mine", show), mounted]))


@on_both_stores
def test_a_token_of_the_api_opens_an_endpoint_of_ones_own_for_the_same_owner(portal, app):
    token = bearer(app, "read")
    assert portal.get("/mine", headers=token).json() == {"owner": "ann", "name": "ann's"}
    assert portal.get("/perdure/api/jobs", headers=token).status_code == 200


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nonsense", "Basic YW5uOmFubg==", "pdt_x"])
def test_what_is_no_good_token_speaks_for_nobody(portal, header):
    assert portal.get("/mine", headers={"authorization": header}).status_code == 401


def test_without_a_header_a_request_speaks_for_nobody_and_a_revoked_token_neither(portal, app):
    assert portal.get("/mine").status_code == 401
    token = bearer(app, "read")
    (kept,) = tokens(app._session)
    revoke_token(app._session, kept.id, Deed("test", ""))
    assert portal.get("/mine", headers=token).status_code == 401


def test_a_scope_that_a_token_lacks_is_not_its_own(portal, app):
    assert portal.get("/mine", headers=bearer(app, "submit")).status_code == 401


class Away(Exception):
    """Stands for what a driver raises whose server is not there."""


RAISED = {
    "own": Refused("report_not_ready", "the file is queued", status=409, retry_after="7"),
    "ours": Refused("too_large"),
    "unknown": UnknownName("there is no job 'of bob'"),
    "ended": NotCancellable("it has ended"),
    "unfinished": RunUnfinished("it goes on"),
    "away": Away("10.0.0.1 is away"),
    "store": StoreUnavailable("10.0.0.1 is away"),
    "bug": ZeroDivisionError("secret"),
}


@pytest.fixture
def own(app) -> TestClient:
    def show(request: Request) -> Response:
        return JSONResponse({"owner": authorize(app, request, AccessScope.READ).owner})

    def fail(request: Request) -> Response:
        raise RAISED[request.path_params["what"]]

    async def measure(request: Request) -> Response:
        return JSONResponse({"bytes": len(await take_bytes(request, 10))})

    def name(request: Request) -> Response:
        raise Refused("mine", request_id_of(request), status=409)

    routes = [
        Route("/mine", show),
        Route("/named", name),
        Route("/fail/{what}", fail),
        Route("/body", measure, methods=["POST"]),
    ]
    served = Starlette(routes=routes, exception_handlers=refusal_answers(Away))
    return TestClient(served, raise_server_exceptions=False)


@on_both_stores
def test_an_endpoint_of_ones_own_lets_in_whom_the_api_lets_in_and_says_the_same(own, portal, app):
    assert own.get("/mine", headers=bearer(app, "read")).json() == {"owner": "ann"}
    for headers in ({}, {"authorization": "Bearer nonsense"}, bearer(app, "submit")):
        headers["x-request-id"] = "same"
        told, api = (
            own.get("/mine", headers=headers),
            portal.get("/perdure/api/jobs", headers=headers),
        )
        assert told.json() == api.json()
        assert told.status_code == api.status_code in (401, 403)
        assert told.headers == api.headers


def test_a_request_without_an_id_has_one_and_the_same_for_its_job_and_its_error(own):
    answers = [own.get("/named") for _ in range(2)]
    ids = {answer.json()["detail"] for answer in answers}
    assert ids == {answer.json()["request_id"] for answer in answers}
    assert ids == {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("own", 409, "report_not_ready"),
        ("ours", 413, "too_large"),
        ("unknown", 404, "not_found"),
        ("ended", 409, "not_cancellable"),
        ("unfinished", 409, "run_unfinished"),
        ("away", 503, "store_error"),
        ("store", 503, "store_error"),
        ("bug", 500, "internal"),
    ],
)
def test_what_an_endpoint_raises_is_told_as_a_problem_without_a_word_too_many(
    own, caplog, what, status, code
):
    caplog.set_level(logging.WARNING, "perdure.http")
    answer = own.get(f"/fail/{what}", headers={"x-request-id": "r1"})
    told = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, told["status"], told["code"]) == (status, status, code)
    assert (told["request_id"], answer.headers["x-request-id"]) == ("r1", "r1")
    assert not any(word in answer.text for word in ("10.0.0.1", "secret", "bob"))
    logged = [one.getMessage() for one in caplog.records if one.name == "perdure.http"]
    assert [line.startswith("request r1 ") for line in logged] == [True] * (status >= 500)


def test_a_code_of_ones_own_has_its_words_and_headers(own):
    answer = own.get("/fail/own")
    assert (answer.json()["type"], answer.json()["detail"]) == ("about:blank", "the file is queued")
    assert answer.headers["retry-after"] == "7"


def test_a_path_or_method_that_there_is_not_and_a_body_that_is_too_large_are_told_so_too(own):
    assert own.get("/nothing").json()["code"] == "not_found"
    refused = own.get("/body")
    assert (refused.json()["code"], refused.headers["allow"]) == ("method_not_allowed", "POST")
    assert own.post("/body", content=b"x" * 10).json() == {"bytes": 10}
    assert own.post("/body", content=b"x" * 11).json()["code"] == "too_large"
