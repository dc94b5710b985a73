"""A pipeline that declares it is called in the server's process, by its sync policy, when somebody waits for the result."""

import asyncio
import threading

import httpx
import pytest

import perdure
from perdure.http import asgi
from perdure.model.errors import ConfigError
from tests.engine.kit import until
from tests.surfaces.http.conftest import bearer, on_both_stores, problem

WAIT = {"prefer": "wait=30"}


@pytest.fixture
def asked(app):
    """What the stages were called with, by which thread; the app has a pipeline that is called, and no worker."""
    calls: list[tuple[str, str]] = []

    @app.stage(policy="gateway-worker")
    async def answer(question, context):
        calls.append((question, threading.current_thread().name))
        if question == "busy":
            raise perdure.StageError("rate_limited", "slow down", wait_s=30)
        if question == "broken":
            raise perdure.StageError("invalid_request", "at /srv/secret.py")
        if question == "flaky" and len(calls) == 1:
            raise ConnectionError("the model hung up")
        return {"answer": f"{question} 42", "request": context.request_id}

    app.pipeline("answers", answer, sync_policy="gateway-sync")
    app.pipeline("later", answer)
    app.ready()
    return calls


def ask(client, question, pipeline="answers", headers=WAIT, **more):
    body = {"pipeline": pipeline, "item": question, **more}
    return client.post("/api/jobs", json=body, headers=headers)


@on_both_stores
def test_who_waits_is_answered_by_this_process_without_a_worker(app, asked, client):
    ann = client("submit", "read")
    done = ask(ann, "sum", headers={**WAIT, "x-request-id": "r-7"})
    assert (done.status_code, done.json()["result"]) == (
        200,
        {"answer": "sum 42", "request": "r-7"},
    )
    assert done.headers["preference-applied"] == "wait=30"
    job = ann.get(done.headers["location"]).json()
    assert (job["job"]["state"], job["job"]["owner"]) == ("succeeded", "ann")
    assert [one["status"] for one in job["attempts"]] == ["success"]
    assert [name for _, name in asked] == ["perdure-calls"], "not on the server's own loop"


def test_it_is_tried_once_more_here_and_what_takes_longer_is_handed_over(app, asked, client):
    ann = client("submit", "read")
    flaky = ask(ann, "flaky")
    assert (flaky.status_code, flaky.json()["job"]["attempts"]) == (200, 2)
    busy = ask(ann, "busy")
    job = busy.json()["job"]
    assert (busy.status_code, job["state"], job["view"]) == (202, "queued", "retrying")
    assert job["error"]["code"] == "RATE_LIMITED"
    assert 29_000 <= job["retryAfterMs"] <= 30_000
    (attempt,) = ann.get(busy.headers["location"]).json()["attempts"]
    assert (attempt["status"], attempt["decision"].split(":")[0]) == (
        "handed_over",
        "hand over to a durable job",
    )
    assert len(asked) == 3


def test_one_that_fails_is_answered_with_its_state_and_public_error(app, asked, client):
    failed = ask(client("submit"), "broken")
    assert failed.status_code == 200
    told = failed.json()
    assert (told["job"]["state"], told["result"]) == ("failed", None)
    assert told["job"]["error"]["code"] == "INVALID_REQUEST"
    assert "secret" not in failed.text


def test_others_wait_for_a_worker(app, asked, client):
    ann = client("submit")
    assert ask(ann, "sum", headers={}).status_code == 202
    for more in ({"priority": 1}, {"deadline_s": 60}, {"run_at": "2020-01-01T00:00:00Z"}):
        assert ask(ann, "sum", headers={"prefer": "wait=1"}, **more).status_code == 202
    assert ask(ann, "sum", "later", {"prefer": "wait=1"}).status_code == 202
    assert asked == []
    with app.working(concurrency=2):
        assert ask(ann, "sum", "later").json()["result"]["answer"] == "sum 42"


def test_the_same_key_finds_what_was_done_and_waits_for_what_is_done(app, asked, client):
    ann, key = client("submit"), {**WAIT, "idempotency-key": "k"}
    first, again = ask(ann, "sum", headers=key), ask(ann, "sum", headers=key)
    assert problem(ask(ann, "another", headers=key)) == "key_reused"
    assert (again.status_code, again.json()["result"]["answer"]) == (200, "sum 42")
    assert first.json()["job"]["id"] == again.json()["job"]["id"]
    other = {"prefer": "wait=1", "idempotency-key": "other"}
    ask(ann, "sum", headers={"idempotency-key": "other"})  # a worker's, and there is none
    assert ask(ann, "sum", headers=other).status_code == 202
    assert len(asked) == 1


def test_an_item_that_cannot_be_stored_is_refused_and_no_thread_is_left_waiting(app, asked, client):
    assert problem(ask(client("submit"), {"n": 2**70})) == "payload_refused"
    assert ask(client("submit"), "sum").status_code == 200


def test_where_too_many_wait_a_worker_does_it_and_open_jobs_are_bounded(app, asked):
    token = bearer(app, "submit", "read")
    let_go = threading.Event()

    @app.stage(policy="gateway-worker")
    def hang(item):
        asked.append(("hang", ""))
        assert let_go.wait(60)
        return item

    app.pipeline("hanging", hang, sync_policy="gateway-sync")
    app.ready()
    body = {"pipeline": "hanging", "item": 1}

    async def play() -> None:
        api = asgi(app, hosts=("testserver",), waits_max=1, open_jobs_per_owner=2)
        one = httpx.AsyncClient(
            transport=httpx.ASGITransport(api), base_url="http://testserver", headers=token
        )
        async with one:
            first = asyncio.create_task(one.post("/api/jobs", json=body, headers=WAIT, timeout=60))
            await asyncio.to_thread(until, lambda: asked, "the first is called")
            second = await one.post("/api/jobs", json=body, headers=WAIT)
            assert (second.status_code, second.json()["job"]["state"]) == (202, "queued")
            third = await one.post("/api/jobs", json=body, headers=WAIT)
            assert (third.status_code, third.json()["code"]) == (429, "too_many_open_jobs")
            let_go.set()
            done = await first
            assert (done.status_code, done.json()["result"]) == (200, 1)

    asyncio.run(play())


def test_a_policy_that_is_not_for_those_who_wait_is_refused_where_it_is_declared(app):
    @app.stage
    def copy(item):
        return item

    with pytest.raises(
        ConfigError, match="sync_policy of pipeline 'copies': policy 'standard' is not"
    ):
        app.pipeline("copies", copy, sync_policy="standard")
    assert "copies" not in app.pipelines
    with pytest.raises(ConfigError, match="sync_policy of pipeline 'copies'"):
        app.pipeline("copies", copy, sync_policy="gatway-sync")
