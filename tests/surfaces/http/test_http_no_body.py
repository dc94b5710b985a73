"""A deed needs no body where every field may be left out and the path names what is meant."""

import pytest

from perdure.surfaces.http.asgi import ENDPOINTS
from tests.surfaces.http.conftest import problem

EVERYTHING = ("submit", "read", "operate")


def made(ann) -> str:
    asked = {"pipeline": "shouting", "item": {"text": "hello"}}
    return str(ann.post("/api/jobs", json=asked).json()["job"]["id"])


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/json"}])
def test_a_job_and_a_run_are_cancelled_without_a_word(client, headers):
    ann = client(*EVERYTHING)
    answer = ann.post(f"/api/jobs/{made(ann)}/cancel", headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    run = ann.post("/api/runs", json={"pipeline": "shouting", "name": "nightly"}).json()["id"]
    answer = ann.post(f"/api/runs/{run}/cancel", headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


def test_a_body_without_a_type_and_one_that_is_needed_are_refused(client):
    ann = client(*EVERYTHING)
    job = made(ann)
    assert problem(ann.post(f"/api/jobs/{job}/cancel", content=b"{}")) == "unsupported_media_type"
    assert problem(ann.post("/api/jobs")) == "unsupported_media_type"
    assert ann.get(f"/api/jobs/{job}").json()["job"]["state"] == "queued"


def test_nothing_does_not_mean_all_dead_letters(client):
    ann = client(*EVERYTHING)
    assert problem(ann.post("/api/dead/discard")) == "unsupported_media_type"
    assert ann.post("/api/dead/discard", json={}).status_code == 200


def test_a_field_that_there_is_not_is_answered_with_those_that_there_are(client):
    ann = client(*EVERYTHING)
    answer = ann.post(f"/api/jobs/{made(ann)}/retry", json={"payload": {"text": "x"}})
    assert problem(answer) == "bad_request"
    assert answer.json()["detail"] == (
        "Object contains unknown field `payload`; there are: item, from_start, dry_run, reason"
    )


def test_the_document_says_where_a_body_may_be_left_out(client):
    paths = client().get("/api/openapi.json").json()["paths"]
    said = {
        one.path: paths[one.path]["post"]["requestBody"]["required"]
        for one in ENDPOINTS
        if one.method == "POST" and one.body is not None
    }
    assert said["/api/jobs/{id}/retry"] is said["/api/runs/{id}/pause"] is False
    assert said["/api/jobs"] is said["/api/dead/discard"] is said["/api/gates/{name}/hold"] is True
