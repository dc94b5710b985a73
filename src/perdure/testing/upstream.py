"""A misbehaving upstream: an HTTP server on the loopback that answers by script.

    with Upstream() as upstream:
        upstream.script(Answer(429, {"error": "slow down"}, {"Retry-After": "7"}), Answer(200, {}))
        client = Client(base_url=upstream.url)

Each request takes the next answer of the script; the last one is repeated. An answer may be cut off,
reset or left hanging, before its first byte or after any other. What was asked is kept in
``requests``. Every thread and connection ends with the ``with`` block.
"""

import json
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

_HEAD_BYTES_MAX = 65_536
_UNSENT_BYTES = 1_000  # announced and never sent by an answer that is cut off


class After(StrEnum):
    """What happens after the body."""

    END = "end"  # the answer is complete
    CUT = "cut"  # more was announced; the connection is closed
    RESET = "reset"  # more was announced; the connection is reset
    HANG = "hang"  # more was announced; nothing happens


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. A dict or list is sent as JSON; without a status the body is sent as it is."""

    status: int | None = 200
    body: bytes | str | dict[str, Any] | list[Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: After = After.END

    def wire(self) -> bytes:
        """The answer as it goes over the wire."""
        content = self._content()
        if self.status is None:
            return content
        announced = len(content) + (0 if self.after is After.END else _UNSENT_BYTES)
        headers = {
            "Content-Type": "text/plain"
            if isinstance(self.body, bytes | str)
            else "application/json",
            "Connection": "close",
            **self.headers,
            "Content-Length": str(announced),
        }
        lines = [f"HTTP/1.1 {self.status} Scripted"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + content

    def _content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return text.encode()


CLOSED = Answer(None, after=After.CUT)
RESET = Answer(None, after=After.RESET)
HANGING = Answer(None, after=After.HANG)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """The server; use it as a context manager. With ``tls`` it speaks HTTPS."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._script: tuple[Answer, ...] = (Answer(),)
        self._taken = 0
        self._lock = threading.Lock()
        self._server = _Server(self, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.host, self.port = "127.0.0.1", int(self._server.server_address[1])
        self.url = f"{'http' if tls is None else 'https'}://{self.host}:{self.port}"

    def script(self, *answers: Answer) -> None:
        """Answer the requests from now on with these, and forget what was asked before."""
        with self._lock:
            self._script, self._taken = answers, 0
            self.requests.clear()

    def next_answer(self, request: Request) -> Answer:
        """Keep the request and take the next answer."""
        with self._lock:
            self.requests.append(request)
            answer = self._script[min(self._taken, len(self._script) - 1)]
            self._taken += 1
            return answer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, upstream: Upstream, tls: ssl.SSLContext | None) -> None:
        self.upstream = upstream
        self.tls = tls
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Exchange)

    def track(self, connection: socket.socket, *, is_open: bool) -> None:
        with self._open_lock:
            (self._open.add if is_open else self._open.discard)(connection)

    def hang_up(self) -> None:
        """End the connections that hang, so that their threads end."""
        with self._open_lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what many tests are about."""


class _Exchange(socketserver.BaseRequestHandler):
    """One connection: one request, one answer."""

    server: _Server

    def handle(self) -> None:
        connection = self.request
        self.server.track(connection, is_open=True)
        try:
            if self.server.tls is not None:
                connection = self.server.tls.wrap_socket(connection, server_side=True)
            with connection:
                self._exchange(connection)
        finally:
            self.server.track(self.request, is_open=False)

    def _exchange(self, connection: socket.socket) -> None:
        request = _read(connection)
        if request is None:
            return
        answer = self.server.upstream.next_answer(request)
        connection.sendall(answer.wire())
        if answer.after is After.HANG:
            connection.recv(1)  # until the client leaves or the server hangs up
        elif answer.after is After.RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _read(connection: socket.socket) -> Request | None:
    with connection.makefile("rb") as stream:
        first = stream.readline(_HEAD_BYTES_MAX).decode("latin-1").split(" ")
        if len(first) < 3:
            return None
        headers: dict[str, str] = {}
        while line := stream.readline(_HEAD_BYTES_MAX).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect") == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(lambda: _chunk(stream), b""))
        else:
            body = stream.read(int(headers.get("content-length", "0")))
        return Request(first[0], first[1], headers, body)


def _chunk(stream: Any) -> bytes:
    length = int(stream.readline().split(b";")[0], 16)
    content: bytes = stream.read(length)
    stream.readline()
    return content
