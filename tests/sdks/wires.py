"""Servers that speak just enough of a protocol to make a driver raise its own exceptions."""

import socket
import socketserver
import struct
import threading
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True  # a driver may keep its connection open until it is collected

    def handle_error(self, request, client_address):
        pass


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on the loopback that has this talk on every connection; its port."""

    class Exchange(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.settimeout(20)
            talk(self.request)

    with _Threads(("127.0.0.1", 0), Exchange) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


# -- Redis ------------------------------------------------------------------------------


def redis_talk(answer: bytes, *, to_auth: bytes = b"+OK\r\n") -> Callable[[socket.socket], None]:
    """Greet a client as Redis does, and give every other command this answer; b"" hangs up."""

    def talk(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while first := stream.readline():
            words = []
            for _ in range(int(first[1:])):
                length = int(stream.readline()[1:])
                words.append(stream.read(length + 2)[:-2].upper())
            greeting = words[0] in (b"HELLO", b"CLIENT", b"SELECT")
            reply = to_auth if words[0] == b"AUTH" else b"+OK\r\n" if greeting else answer
            if not reply:
                return
            connection.sendall(reply)

    return talk


# -- PostgreSQL -------------------------------------------------------------------------

_NO_ENCRYPTION = (80877103, 80877104)  # what a client asks first: TLS? GSSAPI?


def _message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def _error(severity: str, state: str, text: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": state, "M": text}
    content = "".join(f"{name}{value}\0" for name, value in fields.items()) + "\0"
    return _message(b"E", content.encode())


def postgres_talk(
    state: str, text: str, *, at_start: bool = False, then_gone: bool = False
) -> Callable[[socket.socket], None]:
    """Let a client in and refuse its query with this state, or refuse it at the door."""

    def talk(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while True:
            length, code = struct.unpack("!ii", stream.read(8))
            stream.read(length - 8)
            if code not in _NO_ENCRYPTION:
                break
            connection.sendall(b"N")
        if at_start:
            connection.sendall(_error("FATAL", state, text))
            return
        settings = b"".join(
            _message(b"S", f"{name}\0{value}\0".encode())
            for name, value in {"client_encoding": "UTF8", "server_version": "18.0"}.items()
        )
        ready = _message(b"Z", b"I")
        connection.sendall(_message(b"R", struct.pack("!i", 0)) + settings + ready)
        while kind := stream.read(1):
            stream.read(struct.unpack("!i", stream.read(4))[0] - 4)
            if kind == b"X" or (kind in b"QS" and then_gone):
                return
            if kind in b"QS":
                connection.sendall(_error("ERROR", state, text) + ready)

    return talk


# -- AWS event streams ------------------------------------------------------------------


def aws_event(headers: dict[str, str], payload: bytes) -> bytes:
    """One frame of an event stream."""
    named = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack("!H", len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(named) + len(payload) + 16, len(named))
    head = prelude + struct.pack("!I", crc32(prelude))
    return head + named + payload + struct.pack("!I", crc32(head + named + payload))
