"""Every HTTP client's own exceptions for the same faults of one server."""

import asyncio
import inspect
import socket
import urllib.request

import pytest

from perdure import meaning_of
from perdure.testing import CLOSED, HANGING, RESET, After, Answer
from tests.house.markdown import fences
from tests.house.tree import ROOT
from tests.sdks.kit import PATIENT_S, RETRIED_IN_REPORTS, TIMEOUT_S, Sdk, seen, waits_in_reports

httpx2 = Sdk("httpx2")
httpx = Sdk("httpx")
requests = Sdk("requests")
aiohttp = Sdk("aiohttp")
urllib3 = Sdk("urllib3")


def by_httpx2(url, timeout_s):
    with httpx2.Client(timeout=httpx2.Timeout(PATIENT_S, read=timeout_s)) as one:
        return one.get(url).raise_for_status().text


def by_httpx(url, timeout_s):
    with httpx.Client(timeout=httpx.Timeout(PATIENT_S, read=timeout_s)) as one:
        return one.get(url).raise_for_status().text


def by_async_httpx2(url, timeout_s):
    async def get():
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(PATIENT_S, read=timeout_s)) as one:
            return (await one.get(url)).raise_for_status().text

    return asyncio.run(get())


def by_requests(url, timeout_s):
    with requests.Session() as one:
        response = one.get(url, timeout=(PATIENT_S, timeout_s))
        response.raise_for_status()
        return response.text


def by_aiohttp(url, timeout_s):
    async def get():
        timeout = aiohttp.ClientTimeout(sock_connect=PATIENT_S, sock_read=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as one,
            one.get(url, raise_for_status=True) as response,
        ):
            return await response.text()

    return asyncio.run(get())


def by_urllib3(url, timeout_s):
    timeout = urllib3.Timeout(connect=PATIENT_S, read=timeout_s)
    with urllib3.PoolManager(timeout=timeout, retries=False) as one:
        response = one.request("GET", url)
        return response if response.status >= 400 else response.data


def by_urllib(url, timeout_s):
    with urllib.request.urlopen(url, timeout=timeout_s) as response:
        return response.read()


CLIENTS = [by_httpx2, by_httpx, by_async_httpx2, by_requests, by_aiohttp, by_urllib3, by_urllib]
every_client = pytest.mark.parametrize("get", CLIENTS, ids=[one.__name__ for one in CLIENTS])

FAULTS = [
    ("closed", CLOSED, "ambiguous", PATIENT_S),
    ("reset", RESET, "ambiguous", PATIENT_S),
    ("cut off", Answer(200, "half", after=After.CUT), "ambiguous", PATIENT_S),
    ("reset in the body", Answer(200, "half", after=After.RESET), "ambiguous", PATIENT_S),
    ("no answer in time", HANGING, "timeout", TIMEOUT_S),
    ("body never ends", Answer(200, "half", after=After.HANG), "timeout", TIMEOUT_S),
    ("no HTTP", Answer(None, b"220 mail.example ESMTP\r\n"), "ambiguous", PATIENT_S),
    ("unavailable", Answer(503, "busy", {"Retry-After": "4"}), "upstream_unavailable", PATIENT_S),
    ("rate limit", Answer(429, {"error": "slow"}, {"Retry-After": "4"}), "rate_limited", PATIENT_S),
    ("not found", Answer(404, "gone"), "not_found", PATIENT_S),
]


@every_client
@pytest.mark.parametrize(
    ("answer", "kind", "timeout_s"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_means_the_same_to_every_client(upstream, get, answer, kind, timeout_s):
    upstream.script(answer)
    evidence, verdict = seen(lambda: get(upstream.url, timeout_s))
    assert verdict.kind == kind, (verdict, evidence)
    assert verdict.hint_s == (4.0 if "Retry-After" in answer.headers else None)


@every_client
def test_a_refused_connection_was_never_sent(closed_port, get):
    evidence, verdict = seen(lambda: get(closed_port, PATIENT_S))
    assert verdict.kind == "network", (verdict, evidence)


def test_a_report_job_tries_again_what_was_never_sent_or_cut_off(upstream, closed_port):
    assert waits_in_reports(lambda: by_httpx(closed_port, PATIENT_S)) == RETRIED_IN_REPORTS
    for answer in (CLOSED, RESET, Answer(200, "half", after=After.CUT)):
        upstream.script(answer)
        assert waits_in_reports(lambda: by_httpx(upstream.url, PATIENT_S)) == RETRIED_IN_REPORTS


@every_client
def test_a_certificate_that_nobody_trusts_is_a_setting(untrusted, get):
    evidence, verdict = seen(lambda: get(untrusted.url, PATIENT_S))
    assert verdict.kind == "config_missing", (verdict, evidence)


@every_client
def test_a_name_that_does_not_resolve_was_never_sent(get, monkeypatch):
    def unknown(*args, **more):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    evidence, verdict = seen(lambda: get("http://nowhere.invalid:80", PATIENT_S))
    assert verdict.kind == "network", (verdict, evidence)


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_an_empty_pool_is_our_own_shortage(upstream, library):
    upstream.script(Answer(200, "half", after=After.HANG))
    limits = library.Limits(max_connections=1)
    timeout = library.Timeout(PATIENT_S, pool=0.05)
    with library.Client(limits=limits, timeout=timeout) as one, one.stream("GET", upstream.url):
        evidence, verdict = seen(lambda: one.get(upstream.url))
    assert verdict.kind == "resource_exhausted", (verdict, evidence)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://"])
@pytest.mark.parametrize("get", [by_httpx2, by_httpx, by_requests, by_aiohttp])
def test_an_address_that_cannot_be_asked_is_final(get, url):
    evidence, verdict = seen(lambda: get(url, PATIENT_S))
    assert verdict.kind == "invalid_request", (verdict, evidence)


RESPONSES = [
    httpx2.get,
    httpx.get,
    lambda url: requests.get(url, timeout=PATIENT_S),
]


@pytest.mark.parametrize("get", RESPONSES, ids=["httpx2", "httpx", "requests"])
def test_a_response_is_evidence_too(upstream, get):
    body = {"error": {"code": "insufficient_quota", "message": "no money"}}
    upstream.script(Answer(429, body, {"Retry-After": "4"}))
    evidence, verdict = seen(lambda: get(upstream.url))
    assert (verdict.kind, verdict.hint_s, evidence.status) == ("billing", 4.0, 429)
    assert evidence.message == "no money"
    upstream.script(Answer(200, {"error": {"code": 503, "message": "Provider returned error"}}))
    evidence, verdict = seen(lambda: get(upstream.url))
    assert (verdict.kind, evidence.status) == ("upstream_unavailable", 503)


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
def test_a_body_that_has_not_arrived_is_not_fetched(upstream, library):
    upstream.script(Answer(503, "half", {"Retry-After": "4"}, after=After.HANG))
    with library.Client(timeout=PATIENT_S) as one, one.stream("GET", upstream.url) as response:
        evidence, verdict = seen(lambda: response)
        assert not response.is_stream_consumed
    assert (verdict.kind, verdict.hint_s, evidence.facts) == ("upstream_unavailable", 4.0, ())


def test_a_body_that_requests_has_not_read_is_not_fetched(upstream):
    upstream.script(Answer(503, "half", after=After.HANG))
    with requests.get(upstream.url, stream=True, timeout=PATIENT_S) as response:
        assert seen(lambda: response)[1].kind == "upstream_unavailable"
        assert response._content_consumed is False


@pytest.mark.parametrize("name", ["by_urllib", "by_aiohttp", "by_httpx_stream"])
def test_the_page_gives_an_exception_the_body_that_its_client_leaves_on_the_line(upstream, name):
    page = (ROOT / "docs" / "howto-codes.md").read_text(encoding="utf-8")
    (block,) = (one for one in fences(page) if one.lines and one.lines[0] == "# reading.py")
    written = {}
    exec("\n".join(block.lines), written)
    get = written[name]

    def ask():
        asked = get(upstream.url)
        return asyncio.run(asked) if inspect.iscoroutine(asked) else asked

    upstream.script(Answer(503, {"error": {"code": "RATE_LIMITED", "retryAfterMs": 7000}}))
    with pytest.raises(Exception) as caught:
        ask()
    meaning = meaning_of(caught.value, "gateway-worker")
    assert (meaning.code, meaning.status, meaning.wait_s) == ("RATE_LIMITED", 503, 7.0)
    upstream.script(Answer(401, {"error": {"code": "RATE_LIMITED"}}, after=After.CUT))
    with pytest.raises(Exception) as caught:  # of a body that breaks off, the status is left
        ask()
    meaning = meaning_of(caught.value, "gateway-worker")
    assert (meaning.kind, meaning.status) == ("auth", 401)
    upstream.script(Answer(401, "no gzip", {"Content-Encoding": "gzip"}))
    with pytest.raises(Exception) as caught:
        ask()
    assert meaning_of(caught.value, "gateway-worker").status == 401
    upstream.script(Answer(200, "all is well"))
    assert ask() == b"all is well"
