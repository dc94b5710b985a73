"""Second names of fields over HTTP, in the log and in exports: those that the policies of a pipeline bring."""

import json
import logging

import httpx
import pytest
from starlette.testclient import TestClient

import perdure
from perdure.http import asgi
from perdure.observers.log import JsonFormatter
from tests.engine.kit import until
from tests.surfaces.http.conftest import bearer


@pytest.fixture
def clerk(app) -> TestClient:
    """Ann, who has a job of the converter's that waits for its second try, and one of another policy."""

    @app.stage(policy="converter")
    def convert(item):
        response = httpx.Response(502, request=httpx.Request("POST", "http://gateway/process"))
        response.raise_for_status()

    @app.stage(
        policy=perdure.Policy(
            "own", vocabulary=perdure.Vocabulary("own", aliases={"state": "phase", "value": "text"})
        )
    )
    def copy(item):
        return item

    converting, copying = app.pipeline("converting", convert), app.pipeline("copying", copy)
    app.ready()
    waits = converting.enqueue({"text": "x"}, owner="ann")
    with app.working(concurrency=1):
        run = copying.run([{"text": "a"}], name="copies", owner="ann", key="text")
        run.wait()
        until(waits.attempts, "it was tried")
    api = asgi(app, hosts=("testserver",))
    return TestClient(api, headers=bearer(app, "read", "operate"))


def test_a_job_has_the_names_of_its_pipelines_policy_beside_ours(app, clerk):
    jobs = {one["pipeline"]: one for one in clerk.get("/api/jobs").json()["jobs"]}
    waits = jobs["converting"]
    assert (waits["attempts"], waits["failures"], waits["attempts_max"]) == (1, 1, 3)
    assert waits["attemptCount"] == 1
    assert waits["retryAfter"] == waits["next_run_at"] is not None
    assert waits["lastAttemptAt"] == waits["last_attempt_at"] < waits["next_run_at"]
    assert 5_000 <= waits["retry_after_ms"] <= 10_000
    assert "phase" not in waits
    assert jobs["copying"]["phase"] == jobs["copying"]["state"] == "succeeded"
    assert "attemptCount" not in jobs["copying"]
    story = clerk.get(f"/api/jobs/{waits['id']}").json()
    assert story["job"] == waits
    assert story["attempts"][0]["retryAfter"] == story["attempts"][0]["next_run_at"]
    assert "retryAfter" in clerk.post(f"/api/jobs/{waits['id']}/cancel", json={}).json()


def test_results_have_them_over_http_and_in_a_file(app, clerk, tmp_path):
    (run,) = clerk.get("/api/runs").json()["runs"]
    (line,) = clerk.get(f"/api/runs/{run['id']}/results").text.splitlines()
    assert json.loads(line)["text"] == json.loads(line)["value"] == {"text": "a"}
    app.get_run("copies").write_results(tmp_path / "out.jsonl")
    written = json.loads((tmp_path / "out.jsonl").read_text())
    assert written["result"] == {"text": "a"}


def test_a_log_line_has_them_in_json_and_only_there(app, clerk, caplog):
    caplog.set_level(logging.INFO, "perdure")
    jobs = clerk.get("/api/jobs").json()["jobs"]
    (waits,) = [one["id"] for one in jobs if one["pipeline"] == "converting"]
    retried = app.job(waits)
    retried.run_now()
    with app.working(concurrency=1):
        until(lambda: len(retried.attempts()) == 2, "it was tried again")
    (record,) = [
        one for one in caplog.records if getattr(one, "perdure_event", "") == "job_retried"
    ]
    told = json.loads(JsonFormatter().format(record))
    assert told["gateway_status"] == told["upstream_status"] == 502
    assert "gateway_status" not in record.getMessage()


def test_the_document_stays_true_of_an_answer_with_second_names(clerk):
    """They stand beside what it says, and it forbids nothing besides."""
    told = clerk.get("/api/openapi.json").json()["components"]["schemas"]["JobShown"]
    assert told.get("additionalProperties", True) is True
    job = clerk.get("/api/jobs").json()["jobs"][0]
    assert set(told["required"]) <= set(job)
