"""What an exception says is for operators: no owner reads a word of it, at no endpoint, however the attempt has ended."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from starlette.testclient import TestClient

import perdure
from perdure import Backoff, Policy, Rule, StageError
from perdure.http import asgi
from perdure.model.kinds import KINDS, Kind
from perdure.surfaces.http.asgi import ENDPOINTS
from perdure.surfaces.http.events import stream
from tests.engine.kit import until
from tests.surfaces.http.conftest import bearer
from tests.surfaces.http.test_http_events import heard, listening

MARK = "row17host"
ONCE = Policy("once", attempts_max=1, otherwise=Rule("retry"))
LATER = Policy("later", attempts_max=3, otherwise=Rule("retry"), backoff=Backoff("fixed", 900.0))


class Row17HostError(Exception):
    """Its very name is nobody's but the operators'."""


class BadlyShown:
    def __repr__(self) -> str:
        return MARK


def bad_delay(failures: int, kind: Any) -> float:
    raise RuntimeError(MARK)


def go_wrong(how: str, context: perdure.Context) -> Any:
    """Everything that a stage can do to tell what it should not."""
    text = f"operators only: {MARK} of tenant bob"
    match how:
        case "own class":
            raise Row17HostError(text)
        case "cause":
            raise ValueError("bad") from Row17HostError(text)
        case "group":
            raise ExceptionGroup(text, [ValueError(text), Row17HostError(text)])
        case "unstorable":
            return BadlyShown()
        case "named":
            raise StageError(
                "input_invalid", text, public_code="empty", public_message="The text is empty."
            )
        case "library":
            return int(text)
        case "answer":
            answer = {"error": {"message": text, "code": text, "type": text}}
            raise perdure.AnswerError(text, status=422, body=answer)
    raise StageError(how, text)


HOWS = (
    *("own class", "cause", "group", "unstorable", "named", "library", "answer"),
    *(one.value for one in Kind if one is not Kind.WORKER_LOST),
)


@pytest.fixture
def app(tmp_path) -> Iterator[perdure.App]:
    one = perdure.App(f"sqlite:///{tmp_path}/work.db")
    own = Policy("own", attempts_max=3, otherwise=Rule("retry"), own_delay=bad_delay)
    for name, policy in (("once", ONCE), ("later", LATER), ("own", own)):
        stage = one.stage(name=name, policy=policy)(go_wrong)
        one.pipeline(name, stage)
    with closing(one):
        one.ready()
        yield one


def answers(one: TestClient, app: perdure.App, jobs: list[str], run: str) -> Iterator[str]:
    """What every endpoint that reads, and some that write, answers to somebody about these."""
    captures = [(job, one.id) for job in jobs for one in app.job(job).captures()]
    assert captures, "tracebacks are kept"
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or endpoint.hears:  # events are heard below
            continue
        if "{capture}" in endpoint.path:
            paths = [endpoint.path.format(id=job, capture=name) for job, name in captures]
        elif "{id}" in endpoint.path:
            paths = [endpoint.path.format(id=id) for id in (*jobs, run)]
        else:
            paths = [endpoint.path.format(name="model")]
        for path in paths:
            yield f"{path}: {one.get(path).text}"
    for job in jobs:
        for deed in ("retry", "run-now", "cancel"):
            answer = one.post(f"/api/jobs/{job}/{deed}", json={"dry_run": True})
            yield f"{deed}: {answer.text}"
    for deed in ("preview", "redrive"):
        yield one.post("/api/dead/" + deed, json={"pipeline": "once"}).text


async def events(app: perdure.App, after: str, count: int) -> str:
    told, found = stream(app._session, "ann", after), []
    await listening(told)
    async with asyncio.timeout(30):
        while len(found) < count:
            found += heard(await anext(told))
    await told.aclose()
    return repr(found)


def test_an_owner_reads_nothing_of_what_an_exception_says(app):
    cursor = app._session.opened.reader.changes(None, limit=1).cursor
    pipes = [app.get_pipeline(name) for name in ("once", "later", "own")]
    jobs = [pipe.enqueue(how, owner="ann").id for pipe in pipes for how in HOWS]
    run = pipes[0].run(HOWS, owner="ann", name="all", failure_budget=1.0).id
    with app.working(concurrency=8, capture_tracebacks="on"):
        until(
            lambda: (
                all(app.job(id).attempts() for id in jobs)
                and app.get_run(run).view().ended_at is not None
            ),
            "each has been tried",
        )
    api = asgi(app, hosts=("testserver",))
    ann = TestClient(api, headers=bearer(app, "submit", "read", "operate"))
    told = [*answers(ann, app, jobs, run), asyncio.run(events(app, cursor, 2 * len(jobs)))]
    assert [one[:300] for one in told if MARK in one.lower()] == []
    stories = [ann.get(f"/api/jobs/{id}").json() for id in jobs]
    attempts = [one for story in stories for one in story["attempts"]]
    assert {one["status"] for one in attempts} >= {"failed", "retrying"}
    assert all("detail" not in one for one in attempts)
    said = {one["error"]["message"] for one in attempts}
    assert said <= {facts.sentence for facts in KINDS.values()} | {"The text is empty."}
    assert said >= {"The text is empty.", KINDS[Kind.AUTH].sentence}


@pytest.mark.parametrize("scope", ["read_all", "admin"])
def test_an_operator_reads_it_in_a_field_of_its_own(app, scope):
    job = app.get_pipeline("once").enqueue("own class", owner="ann")
    with app.working(concurrency=1):
        job.wait()
    api = asgi(app, hosts=("testserver",))
    root = TestClient(api, headers=bearer(app, scope, owner=""))
    (attempt,) = root.get(f"/api/jobs/{job.id}").json()["attempts"]
    assert attempt["error"]["message"] == KINDS[Kind.UNKNOWN].sentence
    assert attempt["detail"].startswith(f"Row17HostError at {__name__}:")
    assert attempt["detail"].endswith(f": operators only: {MARK} of tenant bob")
