"""Endpoints of an application's own, beside the API, know whom a token speaks for."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from perdure.app.surface.access import revoke_token, tokens
from perdure.http import AccessScope, asgi, principal_of
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
