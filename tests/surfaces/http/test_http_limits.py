"""How often an owner may ask, how much it may have open, and how many are answered at once."""

import asyncio
import inspect
import threading
from contextlib import AsyncExitStack, closing
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
from starlette.testclient import TestClient

from perdure.app.session import session as sessions
from perdure.engine.clock import SystemClock
from perdure.http import AccessScope, Principal, asgi
from perdure.model.errors import ConfigError
from perdure.stores import opening
from perdure.surfaces.cli.serve import serve
from perdure.surfaces.http import limits
from tests.surfaces.http.conftest import app_at, bearer, on_both_stores, problem
from tests.surfaces.http.raw import ask

JOB = {"pipeline": "shouting", "item": {"text": "hello"}}
JSON = {"content-type": "application/json"}
HERE = ("testserver",)


def batch(size: int) -> dict[str, object]:
    return {"pipeline": "shouting", "jobs": [{"item": {"text": "hello"}}] * size}


def server(app, **settings) -> TestClient:
    return TestClient(asgi(app, hosts=HERE, **settings), raise_server_exceptions=False)


def retry_after(answer: httpx.Response, code: str) -> int:
    assert (answer.status_code, problem(answer)) == (429, code)
    return int(answer.headers["retry-after"])


@on_both_stores
def test_servers_share_an_owners_rate_and_a_restart_forgets_none(app):
    ann, bob = bearer(app, "read"), bearer(app, "read", owner="bob")
    one = server(app, rate_per_owner="2/hour")
    assert one.get("/api/jobs", headers=ann).status_code == 200
    with closing(app_at(app._session.url)) as other:
        two = server(other, rate_per_owner="2/hour")
        assert problem(two.get("/api/gates", headers=ann)) == "forbidden"  # counts as any other
        assert 1_700 <= retry_after(two.get("/api/jobs", headers=ann), "rate_limited") <= 1_800
    assert 1_700 <= retry_after(one.get("/api/events", headers=ann), "rate_limited") <= 1_800
    assert one.get("/api/jobs", headers=bob).status_code == 200
    with closing(app_at(app._session.url)) as again:
        reopened = server(again, rate_per_owner="2/hour")
        assert retry_after(reopened.get("/api/jobs", headers=ann), "rate_limited")
        assert reopened.get("/healthz").status_code == 200
        for operator in (bearer(app, "admin", owner="ann"), bearer(app, "read_all", owner="")):
            told = [reopened.get("/api/jobs", headers=operator).status_code for _ in range(3)]
            assert told == [200] * 3


@on_both_stores
def test_servers_share_the_count_of_an_owners_open_jobs(app):
    ann, bob = bearer(app, "submit", "operate"), bearer(app, "submit", owner="bob")
    one = server(app, open_jobs_per_owner=3)
    made = one.post("/api/jobs/batch", json=batch(2), headers=ann).json()["jobs"]
    begun = one.post("/api/runs", json={"pipeline": "shouting", "name": "n"}, headers=ann)
    with closing(app_at(app._session.url)) as other:
        two = server(other, open_jobs_per_owner=3)
        full = "too_many_open_jobs"
        assert retry_after(two.post("/api/jobs/batch", json=batch(2), headers=ann), full) == 60
        assert two.post("/api/jobs", json=JOB, headers=ann).status_code == 202
        for path, asked in (
            ("/api/jobs", {"json": JOB}),
            (f"{begun.headers['location']}/items", {"content": b'{"key": "a", "item": {"text": "x"}}'}),
        ):  # fmt: skip
            kind = {} if "json" in asked else {"content-type": "application/x-ndjson"}
            assert retry_after(two.post(path, headers={**ann, **kind}, **asked), full) == 60
        assert problem(two.post("/api/jobs/batch", json=batch(4), headers=ann)) == "too_large"
        assert two.post("/api/jobs", json=JOB, headers=bob).status_code == 202
        operator = bearer(app, "admin", owner="ann")
        assert two.post("/api/jobs", json=JOB, headers=operator).status_code == 202
    for done in made:
        one.post(f"/api/jobs/{done['id']}/cancel", json={}, headers=ann)
    assert one.post("/api/jobs", json=JOB, headers=ann).status_code == 202
    # Two have ended in ten minutes: one more takes five, which is more than anybody is told to wait.
    assert retry_after(one.post("/api/jobs", json=JOB, headers=ann), full) == 60


@on_both_stores
def test_however_many_come_at_once_a_limit_is_passed_by_a_request_of_each_other_server(
    app, monkeypatch
):
    monkeypatch.setattr(limits, "MAKING_MAX", 2)  # the size of the largest request
    token = bearer(app, "submit")

    async def play(other) -> list[int]:
        apis = [asgi(one, hosts=HERE, open_jobs_per_owner=5) for one in (app, other)]
        posts = [
            post(httpx.ASGITransport(api), path, asked)
            for path, asked in (("/api/jobs", JOB), ("/api/jobs/batch", batch(2)))
            for api in apis * 5
        ]
        return await asyncio.gather(*posts)

    async def post(transport, path, asked) -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as one:
            return (await one.post(path, json=asked, headers=token, timeout=60)).status_code

    with closing(app_at(app._session.url)) as other:
        told = asyncio.run(play(other))
    assert set(told) == {202, 429}
    made = app._session.opened.reader.open_jobs("ann")
    print(f"{made} open jobs with a limit of 5")
    assert 3 <= made <= 5 + 2


def test_beyond_its_bound_a_server_sheds_requests_and_still_says_that_it_lives(app):
    async def play() -> None:
        let_go = asyncio.Event()

        async def find(request) -> Principal:
            await let_go.wait()
            return Principal("ann", "ann", frozenset({AccessScope.READ}))

        api = asgi(app, principal=find, hosts=HERE, requests_max=2)
        slow = [ask(api, "GET", path, {}) for path in ("/api/jobs", "/api/events")]
        async with slow[0] as first, slow[1] as second:
            await asyncio.sleep(0)
            for path in ("/api/jobs", "/api/events"):
                async with ask(api, "GET", path, {}) as shed:
                    assert await shed.status() == 503
                    assert msgspec.json.decode(await shed.body())["code"] == "overloaded"
            for path in ("/healthz", "/readyz", "/api/openapi.json"):
                async with ask(api, "GET", path, {}) as alive:
                    assert await alive.status() == 200
            let_go.set()
            assert [await first.status(), await second.status()] == [200, 200]
            async with ask(api, "GET", "/api/jobs", {}) as later:  # a stream is none of them
                assert await later.status() == 200

    asyncio.run(play())


def test_those_who_send_slowly_keep_nobody_else_out(app, monkeypatch):
    monkeypatch.setattr(limits, "FORMS_MAX", 3)
    monkeypatch.setattr(limits, "READING_MAX", 6)  # of which an owner has half
    token = bearer(app, "submit", "read")
    sent = (
        ("/login", {"content-type": "application/x-www-form-urlencoded"}),
        ("/api/jobs", {**token, **JSON}),
    )
    begun, let_go = asyncio.Semaphore(0), asyncio.Event()

    async def slowly() -> dict[str, Any]:
        begun.release()
        await let_go.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def play() -> None:
        api = asgi(app, hosts=HERE, requests_max=2)
        async with AsyncExitStack() as under_way:
            for path, headers in sent * 3:
                await under_way.enter_async_context(ask(api, "POST", path, headers, slowly))
                await begun.acquire()
            for path, headers in sent:
                async with ask(api, "POST", path, headers, slowly) as shed:
                    assert await shed.status() == 503
            async with ask(api, "GET", "/api/jobs", token) as other:
                assert await other.status() == 200
            let_go.set()

    asyncio.run(play())


def test_a_store_that_does_not_answer_takes_no_thread_from_the_check_of_health(app, monkeypatch):
    monkeypatch.setattr(limits, "THREADS", 2)
    token, entered, let_go = bearer(app, "read"), threading.Semaphore(0), threading.Event()
    reader = type(app._session.opened.reader)
    read = reader.access_token

    def hang(self, id):
        entered.release()
        assert let_go.wait(60)
        return read(self, id)

    async def play() -> None:
        api = asgi(app, hosts=HERE)
        async with AsyncExitStack() as under_way:
            stuck = [
                await under_way.enter_async_context(ask(api, "GET", "/api/jobs", token))
                for _ in range(4)
            ]
            for _ in range(2):
                assert await asyncio.to_thread(entered.acquire, timeout=60)
            async with ask(api, "GET", "/healthz", {}) as alive:
                assert await alive.status() == 200
            let_go.set()
            assert [await one.status() for one in stuck] == [200] * 4

    monkeypatch.setattr(reader, "access_token", hang)
    asyncio.run(play())


def test_waits_and_streams_have_bounds_of_their_own(app):
    token = bearer(app, "submit", "read")

    async def play() -> None:
        api = asgi(app, hosts=HERE, requests_max=1, waits_max=1, streams_max=1)
        async with ask(api, "GET", "/api/events", token) as listener:
            assert await listener.status() == 200
            async with ask(api, "GET", "/api/events", token) as shed:
                assert await shed.status() == 503
                assert msgspec.json.decode(await shed.body())["code"] == "overloaded"
            transport = httpx.ASGITransport(api)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as ann:
                post = partial(ann.post, "/api/jobs", json=JOB, timeout=60)
                waiting = asyncio.create_task(post(headers={**token, "prefer": "wait=60"}))
                while b"job_accepted" not in await listener.piece():
                    pass
                told = await post(headers={**token, "prefer": "wait=60"})
                assert (told.status_code, told.json()["job"]["state"]) == (202, "queued")
                assert "preference-applied" not in told.headers
                async with app.working(concurrency=2):
                    assert (await waiting).status_code == 200
        async with ask(api, "GET", "/api/events", token) as again:
            assert await again.status() == 200

    asyncio.run(play())


def test_an_owner_whose_requests_take_long_keeps_no_other_waiting(app, monkeypatch):
    """Ann's reads hang, more of them than there are threads; Bob is answered, and Ann's come through when they can."""
    monkeypatch.setattr(limits, "THREADS", 2)
    tokens = {who: bearer(app, "read", owner=who) for who in ("ann", "bob")}
    entered, let_go = threading.Semaphore(0), threading.Event()
    reader = type(app._session.opened.reader)
    read = reader.open_jobs

    def hang(self, owner):
        if owner == "ann":
            entered.release()
            assert let_go.wait(60)
        return read(self, owner)

    doors: list[limits.Door] = []

    class NotedDoor(limits.Door):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            doors.append(self)

    async def in_line(count: int) -> None:
        """Until so many of Ann's requests wait for their turn."""
        async with asyncio.timeout(60):
            while doors[0]._lines["ann"].statistics().tasks_waiting != count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def play() -> None:
        api = asgi(app, hosts=HERE, requests_max=3)
        async with AsyncExitStack() as under_way:
            stuck = []
            for n in range(4):
                one = ask(api, "GET", "/api/jobs", tokens["ann"])
                stuck.append(await under_way.enter_async_context(one))
                if n == 0:
                    assert await asyncio.to_thread(entered.acquire, timeout=60)
                await in_line(n)
            async with ask(api, "GET", "/api/jobs", tokens["ann"]) as shed:
                assert await shed.status() == 503
            async with ask(api, "GET", "/api/jobs", tokens["bob"]) as other:
                assert await other.status() == 200
            let_go.set()
            assert [await one.status() for one in stuck] == [200] * 4
        assert doors[0]._lines == {}, "who asks for nothing has no line"

    monkeypatch.setattr("perdure.surfaces.http.asgi.Door", NotedDoor)
    monkeypatch.setattr(reader, "open_jobs", hang)
    asyncio.run(play())


def test_one_owner_leaves_half_of_the_places_to_others(app, monkeypatch):
    monkeypatch.setattr(limits, "READING_MAX", 2)
    tokens = {who: bearer(app, "submit", "read", owner=who) for who in ("ann", "bob")}

    begun = asyncio.Semaphore(0)

    async def never() -> dict[str, Any]:
        begun.release()
        await asyncio.Event().wait()
        raise AssertionError

    async def play() -> None:
        api = asgi(app, hosts=HERE, streams_max=4)
        async with AsyncExitStack() as open_ones:
            for who, places in (("ann", 2), ("bob", 2)):
                for n in range(places + 1):
                    heard = await open_ones.enter_async_context(
                        ask(api, "GET", "/api/events", tokens[who])
                    )
                    assert await heard.status() == (200 if n < places else 503), who
            for token in tokens.values():
                headers = {**token, **JSON}
                await open_ones.enter_async_context(ask(api, "POST", "/api/jobs", headers, never))
                await begun.acquire()
            async with ask(api, "POST", "/api/jobs", {**tokens["ann"], **JSON}, never) as third:
                assert await third.status() == 503

    asyncio.run(play())


@on_both_stores
def test_who_sends_or_reads_slowly_holds_no_connection(app, monkeypatch):
    """The store has one connection here; these clients stop in the midst, and others are served."""
    one = partial(opening.open_store, clock=SystemClock(), create=True, wait_s_max=10.0)
    monkeypatch.setattr(sessions, "open_store", partial(one, connections=1))
    with closing(app_at(app._session.url)) as narrow:
        api, token = asgi(narrow, hosts=HERE), bearer(app, "submit", "read")
        front = TestClient(api, headers=token)
        run = front.post("/api/runs", json={"pipeline": "shouting", "name": "n"}).headers[
            "location"
        ]
        asyncio.run(_play_slowly(api, token, run))


async def _play_slowly(api, token, run) -> None:
    sent = asyncio.Event()

    async def upload() -> dict[str, object]:
        if sent.is_set():
            await asyncio.Event().wait()
        sent.set()
        return {"type": "http.request", "body": b'{"pipeline": ', "more_body": True}

    transport = httpx.ASGITransport(api)
    async with (
        ask(api, "POST", "/api/jobs", {**token, **JSON}, receive=upload),
        ask(api, "GET", "/api/jobs", token),
        ask(api, "GET", f"{run}/results", token),
        ask(api, "GET", "/api/events", token),
        httpx.AsyncClient(
            transport=transport, base_url="http://testserver", headers=token
        ) as other,
    ):
        await sent.wait()
        for _ in range(3):
            assert (await other.post("/api/jobs", json=JOB, timeout=60)).status_code == 202
            assert (await other.get("/api/jobs", timeout=60)).status_code == 200


@pytest.mark.parametrize(("setting", "value"), [
    ("rate_per_owner", "fast"), ("rate_per_owner", "0/s"), ("open_jobs_per_owner", 0),
    ("requests_max", None), ("waits_max", "9"), ("streams_max", True),
])  # fmt: skip
def test_a_limit_that_is_none_is_refused_by_its_name(app, setting, value):
    with pytest.raises(ConfigError, match=f"{setting} is {value!r}"):
        asgi(app, **{setting: value})


def test_the_command_and_the_function_have_the_same_limits():
    wanted = msgspec.structs.asdict(limits.HttpLimits())
    given = {name: one.default for name, one in inspect.signature(asgi).parameters.items()}
    assert {name: given[name] for name in wanted} == wanted
    options = serve.make_context("serve", ["work:app"]).params
    for name in ("rate_per_owner", "open_jobs_per_owner", "requests_max"):
        assert options[name] == wanted[name]
