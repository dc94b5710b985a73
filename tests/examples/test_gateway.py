"""The AI gateway, its API and its worker, running: what they say, what they keep, what they log, and a storm of 429s."""

import asyncio
import gc
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import httpx2
import msgspec
import pytest
from examples.gateway import providers
from examples.gateway.answers import BODY_BYTES_MAX
from examples.gateway.api import make_api
from examples.gateway.app import TIMEOUT_S, WAIT_S, make_texts, read_settings
from examples.gateway.gateway import Cache, Gateway, make_gateway
from examples.gateway.providers import Health, Provider, read_providers
from examples.gateway.schemas import CODES, HTTP_STATUS, AIError, AIFailure, Generated, error_of
from examples.gateway.scripted import KEY
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from perdure import ConfigError, JobFailed, JsonFormatter
from tests.examples.converter_kit import FAR_S, served, until
from tests.examples.gateway_kit import Trial, error_in, logged, settings_of, trial
from tests.house.tree import ROOT

SCHEMA = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
NAMES = ("cloud", "busy", "unset", "hasty", "one", "two", "three", "four", "five")


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with trial(tmp_path_factory.mktemp("gateway"), NAMES) as running:
        yield running


def ask_gateway(system: Trial, prompt: str, provider: str, **more: object) -> httpx2.Response:
    body = {"prompt": prompt, "provider": provider, **more}
    address = f"{system.gateway}/v1/ai/generate-text"
    return httpx2.post(address, json=body, headers={"x-request-id": "req-7"}, timeout=FAR_S)


def serve_all(endpoint: Callable[[Request], Awaitable[Response]]) -> Starlette:
    """A service that answers like this, whatever it is asked."""
    return Starlette(routes=[Route("/{path:path}", endpoint, methods=["GET", "POST"])])


@contextmanager
def gateway_to(
    endpoint: Callable[[Request], Awaitable[Response]], *names: str
) -> Iterator[httpx2.Client]:
    """A gateway whose providers all answer like this."""
    with served(serve_all(endpoint)) as address:
        all_ = {name: Provider(name, address, KEY, "m", timeout_s=FAR_S) for name in names}
        with (
            served(make_gateway(all_)) as gateway,
            httpx2.Client(base_url=gateway, timeout=FAR_S) as client,
        ):
            yield client


def ended(system: Trial, answer: httpx2.Response) -> httpx2.Response:
    """What the API says of a promised job when it has ended."""
    system.job(answer).wait(wait_s=FAR_S)
    return system.told(answer)


# -- the error schema ----------------------------------------------------------------------

FAILURE = AIFailure("RATE_LIMITED", "Slow down.", provider="p", retry_after_ms=5)
DETAILS = ("upstreamStatus", "upstreamCode", "setting", "field", "reason", "limit")


def sent(**more: object) -> dict[str, object]:
    failure = AIFailure("TIMEOUT", "No answer.", **more)
    told: dict[str, object] = msgspec.to_builtins(error_of(failure, "req-1"))
    return told


def test_an_error_has_the_fields_of_the_schema_and_no_others():
    assert len(CODES) == 9
    told = msgspec.to_builtins(error_of(FAILURE, "req-1"))
    assert told == {
        "id": "req-1", "code": "RATE_LIMITED", "message": "Slow down.", "httpStatus": 429, "retryable": True,
        "retryAfterMs": 5, "provider": "p",
    }  # fmt: skip
    with pytest.raises(msgspec.ValidationError, match="hint"):
        msgspec.convert(told | {"hint": 1}, AIError)


def test_each_code_has_a_status_and_its_default_flag():
    flags = {code: error_of(AIFailure(code, "x"), "i").retryable for code in CODES}
    assert [code for code in CODES if flags[code]] == list(CODES[:5])
    assert set(HTTP_STATUS) == set(CODES)


def test_details_go_to_their_bounds():
    full = dict.fromkeys(DETAILS, ["x" * 200] * 10)
    assert sent(details=full)["details"] == full


@pytest.mark.parametrize(
    "broken",
    [
        {"details": {"seventh": "x"}},
        {"details": {"reason": "x" * 201}},
        {"details": {"reason": ["x"] * 11}},
        {"details": {"reason": ["x" * 201]}},
        {"details": {"reason": {"deep": 1}}},
        {"retry_after_ms": -1},
        {"retry_after_ms": 0.5},
        {"http_status": 200},
        {"retryable": "yes"},
        {"provider": object()},
        {"provider": "half of a pair: \ud800"},
        {"details": {"upstreamCode": "\ud800"}},
    ],
)
def test_an_error_that_breaks_the_schema_becomes_an_internal_error(broken):
    told = sent(**broken)
    assert (told["id"], told["code"], told["httpStatus"]) == ("req-1", "INTERNAL_ERROR", 500)
    assert told["retryable"] is False
    assert "details" not in told


@pytest.mark.parametrize(
    ("code", "message"), [("BUSY", "x"), ("TIMEOUT", ""), ("TIMEOUT", "a\nb"), ("TIMEOUT", "a\n")]
)
def test_a_code_or_a_message_that_is_none_becomes_an_internal_error(code, message):
    assert error_of(AIFailure(code, message), "req-1").code == "INTERNAL_ERROR"


@pytest.mark.parametrize("broken", ["", "two words", "req-1\n", "\ud800", "é"])
def test_an_id_that_breaks_the_schema_is_told_by_nobody(broken):
    told = error_of(AIFailure("TIMEOUT", "No answer."), broken)
    assert (told.code, told.id) == ("INTERNAL_ERROR", "unknown")


def test_the_error_in_the_readme_is_what_the_gateway_says(system):
    page = (ROOT / "examples" / "gateway" / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.+?)```", page, re.DOTALL)
    answer = ask_gateway(system, "script: 429 after=2 | as in the README", "cloud")
    assert json.loads(shown) == {"error": error_in(answer)}


def test_the_error_of_a_job_has_what_every_error_must_have_and_no_more(system):
    answer = system.post("script: 422 | what of it is told", "cloud")
    assert set(error_in(answer)) == {"id", "code", "message", "httpStatus", "retryable"}
    later = ended(system, system.post("script: 401 | what of it is told", "cloud", later=True))
    assert set(error_in(later)) == {"id", "code", "message", "httpStatus", "retryable"}


# -- what the gateway answers --------------------------------------------------------------


def test_a_text_comes_from_the_provider_once_and_then_from_the_cache(system):
    first, second = (ask_gateway(system, "a line, twice", "cloud").json() for _ in range(2))
    assert first["text"] == second["text"] == '{"line": "It rains."}'
    assert (first.get("cached", False), second["cached"]) == (False, True)
    assert ask_gateway(system, "a line, twice", "cloud", maxTokens=9).json().get("cached") is None
    assert system.calls()["a line, twice"] == 2


def test_a_failure_is_never_kept(system):
    prompt = "script: 500, ok | not kept"
    assert ask_gateway(system, prompt, "cloud").status_code == 502
    assert ask_gateway(system, prompt, "cloud").status_code == 200


def test_the_cache_forgets_after_an_hour_and_has_a_bound(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("examples.gateway.gateway.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("examples.gateway.gateway.KEPT_MAX", 2)
    cache, text = Cache(), Generated("t", "p", "m")
    cache.put("a", text)
    now_s[0] = 3_600.0
    assert cache.get("a").cached
    now_s[0] = 3_600.1
    assert cache.get("a") is None
    for key in ("b", "c", "d"):
        cache.put(key, text)
    assert (len(cache), cache.get("b"), cache.hits) == (2, None, 1)


# -- a call that is under way --------------------------------------------------------------


def joined(gateway: str) -> int:
    """How many requests have come to no call of their own."""
    return int(httpx2.get(f"{gateway}/v1/ai/status").json()["cache"]["hits"])


def test_a_worker_joins_the_call_that_outlasted_the_wait_of_its_user_and_it_is_made_once(tmp_path):
    """The provider was called twice at once, and both were paid."""
    prompt = "script: hold | longer than anybody waits"
    with trial(tmp_path, ["cloud"], wait_ms=5_000) as system:
        answer = system.post(prompt, "cloud")
        assert answer.status_code == 202, answer.text
        until("the worker has joined the call", lambda: joined(system.gateway) == 1)
        assert system.told(answer).json()["status"] == "processing"
        assert httpx2.post(f"{system.scripted}/release").status_code == 200
        assert ended(system, answer).json()["text"] == '{"line": "It rains."}'
        sync, worker = system.job(answer).attempts()
        assert (sync.policy, sync.code) == ("gateway-sync/1", "TIMEOUT")
        assert (worker.policy, worker.code) == ("gateway-worker/2", None)
        assert system.calls() == {prompt: 1}


def test_an_error_goes_to_all_who_wait_for_the_call_and_to_nobody_after_it():
    calls, release = [], threading.Event()

    async def refuse(request: Request) -> Response:
        if request.method == "POST":
            calls.append(request.url.path)
            await asyncio.to_thread(release.wait, FAR_S)
        return Response(status_code=503)

    with gateway_to(refuse, "one") as gateway, ThreadPoolExecutor(2) as users:
        post = partial(gateway.post, "/v1/ai/generate-text", json={"prompt": "x"})
        both = [users.submit(post) for _ in range(2)]
        try:
            until("one is called", lambda: calls)
            until("one waits for the other's call", lambda: joined(str(gateway.base_url)) == 1)
            assert len(calls) == 1
        finally:
            release.set()
        errors = [error_in(one.result()) for one in both]
        assert [one["code"] for one in errors] == ["UPSTREAM_UNAVAILABLE"] * 2
        assert errors[0]["id"] != errors[1]["id"]
        assert error_in(post())["code"] == "UPSTREAM_UNAVAILABLE"
    assert len(calls) == 2


def test_a_call_goes_on_when_the_server_drops_the_request_of_a_client_that_has_left(system):
    """Uvicorn does not, others do."""
    prompt = "script: hold | dropped"

    async def leave_and_come_back() -> tuple[bool, Response]:
        provider = Provider("p", f"{system.scripted}/v1", KEY, "m", timeout_s=FAR_S)
        gateway = Gateway({"p": provider})
        async with gateway.lifespan(make_gateway({})):
            first = asyncio.create_task(gateway.generate_text(request_for(prompt)))
            await asyncio.to_thread(until, "the call is made", lambda: prompt in system.calls())
            first.cancel()
            await asyncio.wait([first])
            await asyncio.to_thread(httpx2.post, f"{system.scripted}/release")
            return first.cancelled(), await gateway.generate_text(request_for(prompt))

    dropped, answer = asyncio.run(leave_and_come_back())
    assert dropped
    assert (answer.status_code, json.loads(answer.body)["cached"]) == (200, True)
    assert system.calls()[prompt] == 1


def test_an_error_that_finds_nobody_waiting_any_more_is_no_alarm(caplog):
    called, release = threading.Event(), threading.Event()

    async def refuse(_: Request) -> Response:
        called.set()
        await asyncio.to_thread(release.wait, FAR_S)
        return Response(status_code=503)

    async def leave(provider: Provider) -> None:
        gateway = Gateway({"p": provider})
        async with gateway.lifespan(make_gateway({})):
            first = asyncio.create_task(gateway.generate_text(request_for("dropped")))
            assert await asyncio.to_thread(called.wait, FAR_S)
            (call,) = gateway._calls.values()
            first.cancel()
            await asyncio.wait([first])
            release.set()
            await asyncio.wait([call])

    with served(serve_all(refuse)) as address:
        provider = Provider("p", address, KEY, "m", timeout_s=FAR_S)
        gc.collect()
        caplog.clear()  # of what earlier tests have left behind
        try:
            asyncio.run(leave(provider))
        finally:
            release.set()
    gc.collect()
    assert provider.health.last_code == "UPSTREAM_UNAVAILABLE"
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []


def request_for(prompt: str) -> Request:
    """A request of which the body has come whole."""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": json.dumps({"prompt": prompt}).encode()}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@pytest.mark.parametrize("step", ["nonsense", "drift", "cut"])
def test_an_answer_of_another_form_is_an_invalid_upstream_response(system, step):
    error = error_in(ask_gateway(system, f"script: {step} | form", "one", schema=SCHEMA))
    assert (error["code"], error["provider"]) == ("INVALID_UPSTREAM_RESPONSE", "one")
    assert set(error["details"]) == {"reason"}


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["any text", "with a schema"])
@pytest.mark.parametrize(
    ("content", "usage"),
    [
        (None, {}),
        (["It rains."], {}),
        ("a\x00b", {}),
        pytest.param("x" * 100_001, {}, id="too long"),
        ('{"line": ""}', {"prompt_tokens": None}),
        ('{"line": ""}', {"prompt_tokens": -1}),
        ('{"line": ""}', {"completion_tokens": "4"}),
    ],
)
def test_an_answer_without_a_text_or_with_counts_that_are_none_is_invalid_and_not_kept(
    content, usage, schema
):
    said = [(content, usage), ('{"line": ""}', {})]

    async def complete(request: Request) -> Response:
        content, usage = said.pop(0)
        choice = {"message": {"content": content}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": usage})

    with gateway_to(complete, "one") as gateway:
        first, second = (
            gateway.post("/v1/ai/generate-text", json={"prompt": "x", "schema": schema})
            for _ in range(2)
        )
    assert error_in(first)["code"] == "INVALID_UPSTREAM_RESPONSE"
    assert (second.status_code, second.json().get("cached")) == (200, None)


@pytest.mark.parametrize(
    ("status", "code"), [(200, "INVALID_UPSTREAM_RESPONSE"), (503, "UPSTREAM_UNAVAILABLE")]
)
@pytest.mark.parametrize(
    "body", [b"\xff", b"null", b"{}", pytest.param(b"[" * 3_000, id="3000 levels")]
)
def test_a_body_that_cannot_be_read_is_an_invalid_response_or_says_no_more_than_its_status(
    body, status, code
):
    async def complete(request: Request) -> Response:
        return Response(body, status)

    with gateway_to(complete, "one") as gateway:
        error = error_in(gateway.post("/v1/ai/generate-text", json={"prompt": "x"}))
        health = gateway.get("/v1/ai/status").json()
    assert (error["code"], error["provider"]) == (code, "one")
    assert [one["consecutiveFailures"] for one in health["providers"]] == [1]


def test_a_provider_without_a_key_is_told_by_the_name_of_its_setting_and_not_called(system):
    error = error_in(ask_gateway(system, "no key", "unset"))
    assert (error["code"], error["details"]) == ("CONFIG_MISSING", {"setting": ["AI_UNSET_KEY"]})
    assert "no key" not in system.calls()


def deep(levels: int) -> bytes:
    return b'{"prompt": "x", "schema": ' + b'{"a": ' * levels + b"1" + b"}" * (levels + 1)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"prompt": ""}',
        b'{"prompt": "x", "promt": 1}',
        b"\xff",
        b'{"prompt": "x", "provider": "cloud\\n"}',
        b'{"prompt": "x", "schema": {"type": "banana"}}',
        b'{"prompt": "x", "schema": {"$ref": "http://127.0.0.1/form"}}',
        pytest.param(deep(300), id="300 levels"),
        pytest.param(deep(3_000), id="3000 levels"),
    ],
)
@pytest.mark.parametrize("service", ["gateway", "api"])
def test_a_request_that_is_not_valid_is_refused_by_both_and_makes_no_job(system, service, body):
    before = len(system.texts.app.jobs.list(limit=1_000))
    where = system.gateway if service == "gateway" else str(system.api.base_url)
    error = error_in(httpx2.post(f"{where}/v1/ai/generate-text", content=body))
    assert (error["code"], error["httpStatus"], error["retryable"]) == (
        "INVALID_REQUEST",
        400,
        False,
    )
    assert len(system.texts.app.jobs.list(limit=1_000)) == before


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a\\u0000b"}',
        b'{"prompt": "x", "schema": {"maximum": 99999999999999999999999999}}',
        pytest.param(deep(70), id="70 levels"),
    ],
)
@pytest.mark.parametrize("prefer", ["", "respond-async"])
def test_what_cannot_be_stored_is_an_invalid_request_with_the_reason(system, body, prefer):
    path, headers = "/v1/ai/generate-text", {"prefer": prefer}
    error = error_in(system.api.post(path, content=body, headers=headers))
    assert (error["code"], error["httpStatus"]) == ("INVALID_REQUEST", 400)
    assert set(error["details"]) == {"reason"}


@pytest.mark.parametrize("service", ["gateway", "api"])
def test_a_body_that_is_too_large_is_an_invalid_request_and_the_largest_prompt_is_not(
    system, service
):
    where = system.gateway if service == "gateway" else str(system.api.base_url)
    post = partial(httpx2.post, f"{where}/v1/ai/generate-text", timeout=FAR_S)
    error = error_in(post(content=b" " * (BODY_BYTES_MAX + 1)))
    assert (error["code"], error["httpStatus"]) == ("INVALID_REQUEST", 413)
    largest = json.dumps({"prompt": "\U0001f327" * 20_000, "provider": "cloud"})
    assert post(content=largest).status_code == 200


@pytest.mark.parametrize("key", ["", "k" * 201, "k" * 1_000])
@pytest.mark.parametrize("prefer", ["", "respond-async"])
def test_a_key_that_is_none_is_an_invalid_request_with_the_rule(system, key, prefer):
    headers = {"idempotency-key": key, "prefer": prefer}
    error = error_in(system.api.post("/v1/ai/generate-text", json={"prompt": "x"}, headers=headers))
    assert (error["code"], error["httpStatus"]) == ("INVALID_REQUEST", 400)
    assert "must have 1 to 200 printable characters" in error["details"]["reason"]


def test_a_provider_that_nobody_has_is_an_invalid_request(system):
    assert error_in(ask_gateway(system, "x", "nobody"))["code"] == "INVALID_REQUEST"
    assert error_in(system.post("x", "nobody"))["code"] == "INVALID_REQUEST"


def test_what_is_not_there_is_told_in_the_schema_too(system):
    for answer in (httpx2.get(f"{system.gateway}/nothing"), system.api.get("/v1/ai/jobs/none")):
        assert error_in(answer)["httpStatus"] == 404


def test_a_wrong_method_is_answered_with_those_that_there_are(system):
    path = "/v1/ai/generate-text"
    for answer in (httpx2.get(f"{system.gateway}{path}"), system.api.get(path)):
        assert error_in(answer)["httpStatus"] == 405
        assert answer.headers["allow"] == "POST"


def test_an_id_that_is_not_sane_is_replaced(system):
    for told in (b"bad id", b"x" * 65, b"", b"caf\xe9"):
        answer = system.api.get("/nothing", headers={b"x-request-id": told})
        assert error_in(answer)["id"] not in ("", told.decode("latin-1"))


# -- health --------------------------------------------------------------------------------


def test_the_status_tells_how_each_provider_is(system):
    for n in range(3):
        ask_gateway(system, f"script: 503 | health {n}", "two")
    told = {one["name"]: one for one in system.api.get("/v1/ai/status").json()["providers"]}
    assert set(told) == set(NAMES)
    assert (told["two"]["healthy"], told["two"]["consecutiveFailures"]) == (False, 3)
    assert told["two"]["lastCode"] == "UPSTREAM_UNAVAILABLE"
    assert (told["three"]["healthy"], told["three"]["checkedAt"] is None) == (True, False)
    assert (told["unset"]["configured"], told["cloud"]["configured"]) == (False, True)
    ask_gateway(system, "script: 429 | health", "two")  # it answers, so it lives
    told = {one["name"]: one for one in system.api.get("/v1/ai/status").json()["providers"]}
    assert (told["two"]["healthy"], told["two"]["lastCode"]) == (True, "RATE_LIMITED")


def test_a_snapshot_of_health_is_good_for_half_a_minute(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(providers.time, "monotonic", lambda: now_s[0])
    health = Health()
    assert not health.is_fresh()
    health.note("TIMEOUT")
    now_s[0] = 29.9
    assert health.is_fresh()
    now_s[0] = 30.0
    assert not health.is_fresh()


def test_all_providers_are_looked_at_at_once():
    both = asyncio.Barrier(2)

    async def models(request: Request) -> Response:
        await both.wait()  # one after the other they would never meet
        return JSONResponse({"data": []})

    with gateway_to(models, "one", "two") as gateway:
        told = gateway.get("/v1/ai/status").json()["providers"]
    assert [one["lastCode"] for one in told] == [None, None]


def test_a_provider_that_hangs_holds_the_status_up_for_some_seconds_at_most(monkeypatch, tmp_path):
    assert providers.PROBE_S <= 5.0  # the API waits for ten
    monkeypatch.setattr(providers, "PROBE_S", 0.2)

    async def models(request: Request) -> Response:
        await request.receive()
        await request.receive()  # nothing comes before the caller gives up
        return Response()

    with gateway_to(models, "one") as gateway:
        settings = settings_of(str(gateway.base_url), ["one"], tmp_path / "perdure.db")
        with served(make_api(settings)) as api:
            answer = httpx2.get(f"{api}/v1/ai/status", timeout=FAR_S)
    assert [one["lastCode"] for one in answer.json()["providers"]] == ["TIMEOUT"]


def test_what_the_gateway_says_of_itself_has_the_id_of_its_request(system):
    for path in ("/v1/ai/status", "/internal/gateway/health"):
        answer = system.api.get(path, headers={"x-request-id": "req-9"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "req-9")


@pytest.mark.parametrize("status", [200, 302, 404, 502])
def test_a_page_of_a_proxy_is_no_status_of_the_gateway(tmp_path, status):
    async def page(request: Request) -> Response:
        return HTMLResponse("<h1>nginx</h1>", status)

    with (
        served(serve_all(page)) as address,
        served(make_api(settings_of(address, ["p"], tmp_path / "perdure.db"))) as api,
    ):
        error = error_in(httpx2.get(f"{api}/v1/ai/status"))
    assert (error["code"], error["httpStatus"]) == ("UPSTREAM_UNAVAILABLE", 503)


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_all_services_tell_that_they_live(system, path):
    for address in (f"{system.gateway}{path}", f"{system.api.base_url}{path}"):
        assert httpx2.get(address).json() == {"status": "ok"}
    assert system.api.get("/internal/gateway/health").json() == {"status": "ok"}


# -- now or later --------------------------------------------------------------------------


def test_a_user_who_waits_gets_the_text_after_the_one_retry_of_a_post(system):
    """The real system retried no POST, so that its one retry was never made (PC-004.1)."""
    answer = system.post("script: 503, ok | one retry", "three")
    assert (answer.status_code, answer.json()["provider"]) == (200, "three")
    assert system.calls()["script: 503, ok | one retry"] == 2


def test_a_rate_limit_is_not_waited_for_and_the_job_is_due_when_the_provider_says(system):
    answer = system.post("script: 429 after=2, ok | hint", "four")
    assert (answer.status_code, answer.json()["retryAfterMs"]) == (202, 2_000)
    assert ended(system, answer).json()["text"] == '{"line": "It rains."}'
    sync, first = system.job(answer).attempts()
    assert (sync.policy, first.policy) == ("gateway-sync/1", "gateway-worker/2")
    assert first.claimed_at >= sync.settled_at + timedelta(seconds=2)


def test_the_wait_of_a_rate_limit_is_a_floor_in_the_worker_in_both_forms(system):
    with logged() as lines:
        for form, name in (("after=3", "one"), ("date=4", "five")):
            answer = system.post(f"script: 429 {form}, ok | floor", name, later=True, x_request_id=f"floor-{name}")  # fmt: skip
            assert ended(system, answer).status_code == 200
    (seconds,), (date,) = lines.retries("floor-one"), lines.retries("floor-five")
    assert (seconds["delayMs"], seconds["hinted"]) == (3_000, True)
    assert 2_000 < date["delayMs"] <= 5_000  # by the server's own Date; neither has fractions


def test_the_same_key_is_the_same_job(system):
    headers = {"idempotency-key": "once", "prefer": "respond-async"}
    body = {"prompt": "one job", "provider": "cloud"}
    first, second = (
        system.api.post("/v1/ai/generate-text", json=body, headers=headers) for _ in range(2)
    )
    assert first.json()["job"] == second.json()["job"]
    assert ended(system, first).status_code == 200
    assert system.calls()["one job"] == 1


@pytest.mark.parametrize("step", ["ok", "422", "hang"])
@pytest.mark.parametrize("prefer", ["", "respond-async"])
def test_a_key_of_another_request_is_refused_and_nothing_of_its_job_is_told(tmp_path, step, prefer):
    """Whatever has become of the first one: a text, an error, or nothing yet."""
    path, key = "/v1/ai/generate-text", {"idempotency-key": "k"}
    with trial(tmp_path, ["cloud"]) as system:
        body = {"prompt": f"script: {step} | private", "schema": {"default": 1}}
        first = system.api.post(path, json=body, headers=key | {"prefer": "respond-async"})
        if step != "hang":
            system.job(first).wait(wait_s=FAR_S)
        for other in (body | {"prompt": "another"}, body | {"schema": {"default": True}}):
            error = error_in(system.api.post(path, json=other, headers=key | {"prefer": prefer}))
            assert (error["code"], error["httpStatus"]) == ("INVALID_REQUEST", 422)
            assert error["details"] == {"field": "Idempotency-Key"}
        again = dict(reversed(body.items()))
        same = system.api.post(path, json=again, headers=key | {"prefer": "respond-async"})
        assert system.job(same) == system.job(first)
        assert len(system.texts.app.jobs.list()) == 1


def test_a_key_is_that_of_the_first_request_even_when_an_operator_has_corrected_it(tmp_path):
    path, headers = "/v1/ai/generate-text", {"idempotency-key": "k", "prefer": "respond-async"}
    with trial(tmp_path, ["cloud"]) as system:
        post = partial(system.api.post, path, json={"prompt": "script: 422 | no"}, headers=headers)
        first = post()
        assert system.job(first).wait(wait_s=FAR_S).state == "failed"
        system.job(first).retry(payload={"prompt": "corrected"})
        assert system.job(post()) == system.job(first)


def test_a_job_is_told_by_its_id_and_not_by_its_number(system):
    ended(system, system.post("a text of somebody's own", "cloud", later=True))
    (job, *_) = system.texts.app.jobs.list(limit=1)
    unknown = "01a1efe7-59ca-7212-a9f3-dc8a2e38bad7"
    for named in (str(job.no), "1", f"{job.no:032}", unknown, "%00"):
        error = error_in(system.api.get(f"/v1/ai/jobs/{named}"))
        assert (error["code"], error["httpStatus"]) == ("INVALID_REQUEST", 404)
    assert system.api.get(f"/v1/ai/jobs/{job.id}").status_code == 200


@pytest.mark.parametrize(
    ("form", "least_ms", "most_ms"),
    [("after=7", 7_000, 7_000), ("date=90", 89_000, 91_000), ("date=-90", 0, 0)],
)
def test_retry_after_is_read_in_both_forms(system, form, least_ms, most_ms):
    asked_s = time.monotonic()
    told_ms = error_in(ask_gateway(system, f"script: 429 {form} | {form}", "cloud"))["retryAfterMs"]
    passed_ms = (time.monotonic() - asked_s) * 1_000 if form.startswith("date") else 0
    assert told_ms <= most_ms
    assert told_ms + passed_ms >= least_ms


@pytest.mark.parametrize("form", ["after=soon", "after=-1", ""])
def test_a_wait_that_makes_no_sense_is_told_by_nobody(system, form):
    error = error_in(ask_gateway(system, f"script: 429 {form} | {form} no wait", "cloud"))
    assert (error["code"], error.get("retryAfterMs")) == ("RATE_LIMITED", None)


# -- mistakes of the real system -----------------------------------------------------------


def test_a_proxy_s_404_page_is_no_invalid_answer_of_the_model(tmp_path):
    """It was taken for INVALID_UPSTREAM_RESPONSE, and retried (PC-004.2)."""

    async def page(request: Request) -> Response:
        return HTMLResponse("<h1>404</h1><p>nginx</p>", 404)

    with served(serve_all(page)) as address:
        texts = make_texts(settings_of(address, ["p"], tmp_path / "perdure.db"))
        with pytest.raises(JobFailed) as failed:
            texts.pipelines["p", False].call({"prompt": "x"})
        (job,) = texts.app.jobs.list()
        assert (failed.value.public_code, job.counters.failures) == ("INVALID_REQUEST", 1)
        texts.app.close()


def flagged(code: str, *, retryable: bool) -> Starlette:
    """A gateway whose every answer is this code with this flag."""

    async def refuse(request: Request) -> Response:
        error = error_of(AIFailure(code, "No.", retryable=retryable), "req-1")
        return Response(msgspec.json.encode({"error": error}), error.http_status)

    return serve_all(refuse)


@pytest.mark.parametrize(
    ("code", "retryable", "tries"),
    [
        ("CONFIG_MISSING", True, 1),  # a flag does not overrule a code (PC-004.2)
        ("TIMEOUT", False, 1),  # "do not retry" is decided once, and kept (PC-004.3)
        ("INTERNAL_ERROR", False, 2),  # what the code says anyway is no news (decision 0042)
        ("INTERNAL_ERROR", True, 2),
    ],
)
def test_a_flag_says_only_what_its_code_does_not(tmp_path, code, retryable, tries):
    with served(flagged(code, retryable=retryable)) as address:
        texts = make_texts(settings_of(address, ["p"], tmp_path / "perdure.db"))
        job = texts.pipelines["p", False].enqueue({"prompt": "x"})
        with logged() as lines, texts.app.working(poll_s=0.05):
            assert job.wait(wait_s=FAR_S).state == "failed"
        made = len(job.attempts())
        texts.app.close()
    assert (made, told_ends([json.loads(one) for one in lines.texts])) == (tries, [code])


def told_ends(lines: list[dict[str, Any]]) -> list[str]:
    """The codes of what has failed for good: a failure is told once."""
    return [one["error_code"] for one in lines if one.get("event") == "job_failed"]


# -- the log -------------------------------------------------------------------------------


def test_no_line_has_a_secret_or_what_the_provider_said(system):
    prompt = "script: 429 after=1, 500, nonsense, ok | a prompt that is nobody's business"
    with logged() as lines:
        answer = system.post(prompt, "busy", x_request_id="canary")
        assert ended(system, answer).status_code == 200
        error_in(ask_gateway(system, prompt.replace("ok", "401"), "busy"))
    told = "\n".join(lines.texts)
    assert len(lines.retries("canary")) >= 2
    for secret in (KEY, "your key was", "nobody's business", "It rains", "scripted_500"):
        assert secret not in told


def test_a_line_of_the_api_is_json_whoever_writes_it():
    record = logging.LogRecord("gateway", logging.ERROR, "", 0, "request %s", ("r",), None)
    told = json.loads(JsonFormatter().format(record))
    assert (told["level"], told["message"]) == ("error", "request r")


def test_a_missing_setting_is_told_as_an_error_in_the_log(system):
    with logged() as lines:
        ask_gateway(system, "alarm", "unset")
    alarms = [json.loads(one) for one in lines.texts]
    assert [one["message"] for one in alarms if one["level"] == "error"] == [
        "request req-7: CONFIG_MISSING"
    ]


# -- a storm -------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True], ids=["api", "worker"])
def test_a_storm_of_rate_limits_costs_one_call_for_each_refusal_and_each_text(tmp_path, later):
    """No amplification: what the provider counts is the least that can be, and nobody comes back early."""
    requests, refusals = 24, 8
    with trial(tmp_path, ["busy"]) as system, ThreadPoolExecutor(requests) as users:
        storm = {"refusals": refusals, "after": "1"}
        assert httpx2.post(f"{system.scripted}/storm", json=storm).status_code == 200
        post = partial(system.post, provider="busy", later=later)
        answers = list(users.map(lambda n: post(f"storm {n}"), range(requests)))
        assert {one.status_code for one in answers} <= {200, 202}
        promised = [one for one in answers if one.status_code == 202]
        until(
            "all have ended", lambda: all(system.told(one).status_code != 202 for one in promised)
        )
        ends = Counter(system.told(one).status_code for one in promised)
        calls = system.calls()
        tries = [system.job(one).attempts() for one in promised]
    # Three tries by the document: who is refused three times is a dead letter, and the storm has a refusal less for others.
    assert set(ends) <= {200, 429}
    texts = requests - ends[429]
    assert sum(calls.values()) == refusals + texts
    refused = [
        pair for tried in tries for pair in pairwise(tried) if pair[0].code == "RATE_LIMITED"
    ]
    assert refused
    for one, after in refused:
        assert after.claimed_at >= one.settled_at + timedelta(seconds=1)
    for tried in tries:
        by_policy = Counter(one.policy for one in tried)
        assert by_policy["gateway-sync/1"] <= 1
        assert by_policy["gateway-worker/2"] <= 3


# -- settings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "AI_GATEWAY_URL"),
        ({"AI_GATEWAY_URL": "here", "AI_PROVIDERS": "a"}, "AI_GATEWAY_URL must begin with http"),
        ({"AI_GATEWAY_URL": "http://x"}, "AI_PROVIDERS"),
        ({"AI_GATEWAY_URL": "http://x", "AI_PROVIDERS": ","}, "AI_PROVIDERS is ','; it must name"),
        ({"AI_GATEWAY_URL": "http://x", "AI_PROVIDERS": "a,a"}, "AI_PROVIDERS is 'a,a'; it must"),
        ({"AI_GATEWAY_URL": "http://x", "AI_PROVIDERS": "a", "AI_WAIT_MS": "soon"}, "AI_WAIT_MS"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(monkeypatch, environment, named):
    told(monkeypatch, environment)
    with pytest.raises(ConfigError, match=named):
        read_settings()


def told(monkeypatch, environment: dict[str, str]) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)


def test_the_defaults_are_those_of_the_readme_and_a_wait_is_over_before_a_provider_s_time(
    monkeypatch,
):
    told(monkeypatch, {"AI_PROVIDERS": "a", "AI_GATEWAY_URL": "http://x"})
    settings, (one,) = read_settings(), read_providers().values()
    wait_s, call_s = settings[WAIT_S], settings[TIMEOUT_S]
    found = {"WAIT": wait_s, "NAME_TIMEOUT": one.timeout_s, "GATEWAY_TIMEOUT": call_s}
    page = (ROOT / "examples" / "gateway" / "README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"(?m)^\| `AI_(\w+)_MS` \|.+\| (\d+) \|$", page))
    assert said == {name: f"{1_000 * time_s:g}" for name, time_s in found.items()}
    assert wait_s < one.timeout_s < call_s


def test_the_gateway_s_settings_are_refused_by_name_too(monkeypatch):
    with pytest.raises(ConfigError, match="AI_PROVIDERS"):
        read_providers()
    told(monkeypatch, {"AI_PROVIDERS": "a a"})
    with pytest.raises(
        ConfigError, match="AI_PROVIDERS is 'a a'; it must name providers, each once"
    ):
        read_providers()
    told(monkeypatch, {"AI_PROVIDERS": "my-model", "AI_MY_MODEL_TIMEOUT_MS": "0"})
    with pytest.raises(ConfigError, match="AI_MY_MODEL_TIMEOUT_MS is '0'"):
        read_providers()
    told(monkeypatch, {"AI_PROVIDERS": "a", "AI_A_KEY": "k", "AI_A_URL": "http://u"})
    (one,) = read_providers().values()
    assert (one.key, one.url, one.timeout_s) == ("k", "http://u", 30.0)
    assert "k" not in repr(one).split("'")


@pytest.mark.parametrize("key", ["canary\n", "canary\u00e9", "canary ", " "])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(monkeypatch, key):
    told(monkeypatch, {"AI_PROVIDERS": "a", "AI_A_KEY": key, "AI_A_URL": "http://u"})
    with pytest.raises(ConfigError, match="AI_A_KEY has") as refused:
        read_providers()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["localhost:9/v1", "http://[bad/v1", "http://u:65536/v1", "http://u v/v1", "http://u/v1 "],
)
def test_an_address_that_can_be_none_is_refused_by_name(monkeypatch, url):
    told(monkeypatch, {"AI_PROVIDERS": "a", "AI_A_KEY": "k", "AI_A_URL": url})
    with pytest.raises(ConfigError, match="AI_A_URL must"):
        read_providers()
