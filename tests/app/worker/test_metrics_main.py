"""Who answers at a worker's port: a store that is away, or does not answer, costs a scrape its part and no more."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from threading import Event, Thread

import pytest

import perdure
from perdure.app.worker.metrics_main import _REQUESTS_MAX, MetricsServer, StoreLook
from tests.engine.kit import until
from tests.servers.proxy import Proxy


def test_a_store_that_is_made_later_is_read_then(tmp_path):
    url = f"sqlite:///{tmp_path}/work.db"
    with closing(StoreLook(url)) as look, closing(perdure.App(url)) as app:
        assert look.figures() is None
        app.ready()
        found = look.figures()
        assert found is not None
        assert found.flows == []


def test_a_store_that_hangs_is_not_waited_for_and_read_again_when_it_answers(postgres, furnished):
    with (
        Proxy(postgres.port) as proxy,
        closing(StoreLook(proxy.url(furnished), wait_s=60.0)) as look,
    ):
        assert look.figures() is not None
        proxy.black_hole()
        look._wait_s = 0.2
        assert look.figures() is None
        assert look._pending is not None
        asked = look._pending
        assert look.figures() is None  # no second question while the first is out
        assert look._pending is asked
        proxy.heal()
        until(lambda: look.figures() is not None, "the store is read again")


@pytest.fixture
def served() -> Iterator[tuple[MetricsServer, int]]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = MetricsServer(listening, lambda: b"perdure_store_up 1\n")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server, listening.getsockname()[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_the_metrics_are_answered_and_only_to_a_question(served):
    _, port = served
    at = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{at}/metrics?name[]=x", timeout=60) as answer:
        assert answer.read() == b"perdure_store_up 1\n"
        assert answer.headers["Server"].strip() == "perdure"
    for asked, status in (("/", 404), ("/metrics/", 404)):
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(at + asked, timeout=60)
        assert (told.value.code, told.value.read()) == (status, b"the metrics are at /metrics\n")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(urllib.request.Request(f"{at}/metrics", method="POST"), timeout=60)


def test_more_than_a_few_at_once_are_sent_away_and_those_that_came_are_answered(served):
    server, port = served
    go_on, answered = Event(), server.text
    server.text = lambda: (go_on.wait(60), answered())[1]  # type: ignore[method-assign]
    waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(_REQUESTS_MAX)]
    for one in waiting:
        one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    until(lambda: server._room._value == 0, "all room is taken")
    with closing(socket.create_connection(("127.0.0.1", port))) as beyond:
        beyond.settimeout(60)
        assert beyond.recv(1) == b""
    go_on.set()
    for one in waiting:
        with closing(one):
            one.settimeout(60)
            assert one.recv(65_536).startswith(b"HTTP/1.0 200 OK")
