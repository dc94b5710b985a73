"""The misbehaving upstream does what its script says, and leaves nothing behind."""

import http.client
import json
import socket
import threading
import time

import pytest

from perdure.testing import CLOSED, HANGING, RESET, After, Answer, Upstream


def get(upstream, method="GET", path="/", **more):
    connection = http.client.HTTPConnection(upstream.host, upstream.port, timeout=20)
    try:
        connection.request(method, path, **more)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def test_each_request_takes_the_next_answer_and_the_last_is_repeated(upstream):
    upstream.script(Answer(503, "busy", {"Retry-After": "7"}), Answer(200, {"n": 1}))
    status, body, headers = get(upstream)
    assert (status, body, headers["Retry-After"]) == (503, b"busy", "7")
    for _ in range(2):
        status, body, headers = get(upstream)
        assert (status, json.loads(body), headers["Content-Type"]) == (
            200,
            {"n": 1},
            "application/json",
        )


def test_what_was_asked_is_kept_until_the_next_script(upstream):
    upstream.script(Answer())
    get(upstream, "POST", "/v1/chat", body=b"hello", headers={"X-Name": "value"})
    (request,) = upstream.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat", b"hello")
    assert request.headers["x-name"] == "value"
    upstream.script(Answer())
    assert upstream.requests == []


def test_a_body_in_chunks_is_read(upstream):
    upstream.script(Answer())
    get(
        upstream,
        "POST",
        body=iter([b"hel", b"lo"]),
        encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )
    assert upstream.requests[0].body == b"hello"


def test_a_client_that_asks_whether_to_go_on_is_told_to(upstream):
    upstream.script(Answer(200, "done"))
    with socket.create_connection((upstream.host, upstream.port), timeout=20) as one:
        one.sendall(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(b"hello")
        with one.makefile("rb") as stream:
            assert stream.readline() == b"HTTP/1.1 200 Scripted\r\n"


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (CLOSED, http.client.RemoteDisconnected),
        (RESET, ConnectionResetError),
        (Answer(200, "half", after=After.CUT), http.client.IncompleteRead),
        (Answer(200, "half", after=After.RESET), ConnectionResetError),
        (Answer(None, b"220 mail\r\n"), http.client.BadStatusLine),
    ],
)
def test_an_answer_breaks_off_as_the_script_says(upstream, answer, raised):
    upstream.script(answer)
    with pytest.raises(raised):
        get(upstream)


def test_a_client_that_says_nothing_is_not_a_request(upstream):
    upstream.script(Answer())
    socket.create_connection((upstream.host, upstream.port), timeout=20).close()
    assert get(upstream)[0] == 200
    assert len(upstream.requests) == 1


def test_every_thread_and_connection_ends_with_the_block():
    before = set(threading.enumerate())
    with Upstream() as own:
        own.script(HANGING)
        client = socket.create_connection((own.host, own.port), timeout=20)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + 20
        while not own.requests and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(own.requests) == 1
    assert client.recv(1) == b""  # the server hung up
    client.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((own.host, own.port), timeout=20)
