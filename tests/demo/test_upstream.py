"""The misbehaving upstream, over its real socket and through the stages that call it."""

import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest

from perdure.demo import stages
from perdure.demo.client import BadStatus, post, post_async
from perdure.demo.script import Fault, Script, write_script
from perdure.demo.upstream import POISON, DemoUpstream
from perdure.model.kinds import Kind
from perdure.rules.classify import classify_evidence
from perdure.rules.evidence import evidence_of
from tests.demo.kit import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)

ITEM = {"invoice": 5}
DOCUMENT = {"invoice": 5, "text": "Invoice 5."}


def scripted(*plan: Fault, stage: str = "extract", item: int = 5) -> Script:
    """Item 5 meets these faults, one after the other."""
    return Script(
        seed=1, items=10, poison=9, refused=frozenset({7}), plans={(item, stage): tuple(plan)}
    )


@pytest.fixture
def serve(monkeypatch):
    """Start an upstream that follows a script, where the stages look for it."""
    started = []

    def start(script: Script) -> DemoUpstream:
        upstream = DemoUpstream(script)
        upstream.__enter__()
        started.append(upstream)
        monkeypatch.setenv(stages.UPSTREAM, upstream.url)
        return upstream

    yield start
    for upstream in started:
        upstream.__exit__(None, None, None)


def kind_of(error: BaseException) -> Kind:
    return classify_evidence(evidence_of(error), now=NOW).kind


def test_an_item_without_faults_walks_through_all_three_stages(serve):
    upstream = serve(scripted())
    document = stages.fetch(ITEM)
    facts = asyncio.run(stages.extract(document))
    assert stages.store(facts) == {
        "invoice": 5,
        "supplier": "Brightwater Ltd",
        "total": 395.95,
        "row": 5,
    }
    assert upstream.faults() == {}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.RATE_LIMIT, Kind.RATE_LIMITED),
        (Fault.UNAVAILABLE, Kind.UPSTREAM_UNAVAILABLE),
        (Fault.MALFORMED, Kind.INVALID_OUTPUT),
        (Fault.REFUSED, Kind.INVALID_REQUEST),
    ],
)
def test_a_bad_answer_is_recognised_from_both_clients(serve, fault, kind):
    upstream = serve(scripted(fault, fault))
    with pytest.raises((BadStatus, ValueError)) as on_the_loop:
        asyncio.run(stages.extract(DOCUMENT))
    with pytest.raises((urllib.error.HTTPError, ValueError)) as on_a_thread:
        post(f"{upstream.url}/extract/5", {}, timeout_s=5.0)
    assert (kind_of(on_the_loop.value), kind_of(on_a_thread.value)) == (kind, kind)
    assert upstream.faults() == {fault: 2}


def test_both_clients_pass_on_the_wait_that_a_429_asks_for(serve):
    upstream = serve(scripted(Fault.RATE_LIMIT, Fault.RATE_LIMIT))
    with pytest.raises(BadStatus) as on_the_loop:
        asyncio.run(stages.extract(DOCUMENT))
    with pytest.raises(urllib.error.HTTPError) as on_a_thread:
        post(f"{upstream.url}/extract/5", {}, timeout_s=5.0)
    hints = [
        classify_evidence(evidence_of(one.value), now=NOW).hint_s
        for one in (on_the_loop, on_a_thread)
    ]
    assert hints == [1.0, 1.0]


def test_both_shapes_of_malformed_json_are_no_json():
    for item in (4, 5):
        with (
            DemoUpstream(scripted(Fault.MALFORMED, item=item)) as upstream,
            pytest.raises(json.JSONDecodeError),
        ):
            asyncio.run(post_async(f"{upstream.url}/extract/{item}", {}))


def test_a_hang_outlasts_the_call_and_counts_when_the_caller_gives_up(serve):
    upstream = serve(scripted(Fault.HANG, stage="fetch"))
    with pytest.raises(TimeoutError) as gave_up:
        post(f"{upstream.url}/fetch/5", {}, timeout_s=0.2)
    assert kind_of(gave_up.value) is Kind.TIMEOUT
    until("the hang is counted", lambda: upstream.faults() == {Fault.HANG: 1}, within_s=30)


def test_what_happens_follows_from_item_stage_and_times_seen_and_not_from_the_order(serve):
    script = write_script(seed=2, items=60, without=[Fault.HANG])
    met = sorted(item for item, stage in script.plans if stage == "fetch")

    def answers(items: list[int]) -> tuple[dict[int, list[int]], dict[Fault, int]]:
        with DemoUpstream(script) as upstream:
            urls = {item: f"{upstream.url}/fetch/{item}" for item in items}
            return {item: [status(urls[item]) for _ in "123"] for item in items}, upstream.faults()

    statuses, struck = answers([1, 2, *met])
    assert answers([*reversed(met), 2, 1]) == (statuses, struck)
    assert struck == {Fault.UNAVAILABLE: len(met)}
    assert [statuses[item].count(503) for item in met] == [1] * len(met)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_refused_item_is_refused_every_time(serve):
    upstream = serve(scripted())
    assert [status(f"{upstream.url}/extract/7") for _ in "123"] == [400, 400, 400]
    assert upstream.faults() == {Fault.REFUSED: 3}


def test_the_faults_that_struck_can_be_asked_for_over_http(serve):
    upstream = serve(scripted(Fault.UNAVAILABLE))
    assert status(f"{upstream.url}/extract/5") == 503
    with urllib.request.urlopen(f"{upstream.url}/faults", timeout=5) as answer:
        assert json.loads(answer.read()) == {"503": 1}


def test_only_the_poison_item_has_the_text_that_kills(serve):
    serve(scripted())
    assert stages.fetch({"invoice": 9})["text"] == POISON
    assert stages.fetch({"invoice": 8})["text"] != POISON


def test_the_poison_ends_the_process_it_is_read_in_at_once():
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(stages.extract({"invoice": 9, "text": POISON}))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == stages.CRASH_STATUS


@pytest.mark.parametrize("path", ["/", "/extract", "/extract/x", "/other/5", "/extract/-1"])
def test_an_unknown_path_is_not_found_and_strikes_nobody(serve, path):
    upstream = serve(scripted(Fault.UNAVAILABLE))
    assert status(upstream.url + path) == 404
    assert upstream.faults() == {}


def test_a_caller_that_talks_nonsense_or_leaves_hurts_nobody(serve):
    upstream = serve(scripted())
    host, port = upstream.url.removeprefix("http://").split(":")
    for words in (b"", b"\x00\xff\r\n\r\n", b"POST /fetch/5 HTTP/1.1\r\nContent-Length: 9\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(words)
    assert status(f"{upstream.url}/fetch/5") == 200


def test_it_ends_at_once_though_somebody_still_waits(serve):
    upstream = DemoUpstream(scripted(Fault.HANG))
    with upstream:
        host, port = upstream.url.removeprefix("http://").split(":")
        line = socket.create_connection((host, int(port)), timeout=5)
        line.sendall(b"GET /extract/5 HTTP/1.1\r\n\r\n")
        until("the call hangs", lambda: upstream._calls, within_s=30)
    assert line.recv(1) == b""
    line.close()
    assert upstream.faults() == {}
