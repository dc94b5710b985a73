"""A line between a client and a PostgreSQL server that can be cut, stopped, slowed and robbed of an answer.

    with Proxy(server.port) as proxy:
        connection = psycopg.connect(proxy.url(database))
        proxy.lose_reply()

What is always true: bytes are passed on unchanged and in order, or not at all; each of the two directions of
a link has a thread of its own. A trap (`lose_reply`, `hold`) is sprung once, by the first message of a client
that holds its words. An answer is lost only after the server has given the whole of it, up to its
ReadyForQuery: by then the transaction of a single statement, of a pipeline or of a COMMIT has ended.

`close` ends every link and every thread.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from tests.servers.postgres import HOST

CHUNK_BYTES = 65_536
READY_FOR_QUERY = b"Z"
JOIN_S_MAX = 10.0
# Encryption would hide where an answer ends.
PLAIN = "sslmode=disable&gssencmode=disable"


@dataclass(slots=True)
class Trap:
    """What is to happen to the first message with these words, and whether it has."""

    kind: Literal["lose", "hold"]
    words: bytes
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a port of its own and passes on to another."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._listener: socket.socket | None = None
        self._taker: threading.Thread | None = None
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._latency_s = 0.0
        self._trap: Trap | None = None
        self._traps: list[Trap] = []

    def __enter__(self) -> Self:
        self.accept()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, url: str) -> str:
        """The same database, through here."""
        parts = urlsplit(url)
        who, _, _ = parts.netloc.rpartition("@")
        query = "&".join(filter(None, [parts.query, PLAIN]))
        return urlunsplit(parts._replace(netloc=f"{who}@{HOST}:{self.port}", query=query))

    # -- what can be done to the line --------------------------------------------------------

    def accept(self) -> None:
        """Take connections, on the same port as before."""
        listener = socket.create_server((HOST, self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._taker = self._thread(self._take, listener)

    def refuse(self) -> None:
        """Nobody listens any more; what is connected stays, and is all that there is to cut."""
        if self._listener is not None and self._taker is not None:
            listener, self._listener = self._listener, None
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it
            listener.close()
            _join(self._taker)  # it may be bringing in one more

    def reset(self) -> None:
        """Cut every link at once, on both ends."""
        with self._guard:
            links = list(self._links)
        for link in links:
            link.cut()

    def black_hole(self) -> None:
        """Take everything and pass nothing on, on old links and new ones, until `heal`."""
        self._flowing.clear()

    def latency(self, seconds: float) -> None:
        """Pass everything on so much later, in each direction."""
        self._latency_s = seconds

    def lose_reply(self, words: bytes = b"") -> Trap:
        """Pass the next message with these words on, swallow the whole answer, then cut the link."""
        return self._set(Trap("lose", words))

    def hold(self, words: bytes = b"") -> Trap:
        """Keep the next message with these words back until the trap is ``released``."""
        return self._set(Trap("hold", words))

    def heal(self) -> None:
        """Pass everything on again, also what was kept back."""
        self._latency_s = 0.0
        self._trap = None
        for trap in self._traps:
            trap.released.set()
        self._flowing.set()

    def close(self) -> None:
        """End every link and every thread."""
        self.refuse()
        self.heal()
        self.reset()
        with self._guard:
            threads = list(self._threads)
        for thread in threads:
            _join(thread)

    # -- what the threads do -----------------------------------------------------------------

    def _set(self, trap: Trap) -> Trap:
        self._traps.append(trap)
        self._trap = trap
        return trap

    def _thread(self, work: Callable[..., None], *given: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=given, name=f"proxy-{work.__name__}")
        with self._guard:
            self._threads.append(thread)
        thread.start()
        return thread

    def _take(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self.target))
            except OSError:
                _cut(client)
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._guard:
                self._links.add(link)
            self._thread(self._ask, link)
            self._thread(self._answer, link)

    def _ask(self, link: "_Link") -> None:
        """Pass on what the client says."""
        while chunk := link.read(link.client):
            self._pause()
            trap = self._trap
            if trap is not None and trap.words in chunk:
                self._trap = None
                if trap.kind == "lose":
                    link.losing = trap
                else:
                    trap.sprung.set()
                    trap.released.wait()
            link.write(link.server, chunk)
        self._end(link)

    def _answer(self, link: "_Link") -> None:
        """Pass on what the server says, or swallow it."""
        swallowed = b""
        while chunk := link.read(link.server):
            self._pause()
            if link.losing is None:
                link.write(link.client, chunk)
                continue
            swallowed += chunk
            if _whole(swallowed):
                link.cut()
                link.losing.sprung.set()
                break
        self._end(link)

    def _pause(self) -> None:
        if self._latency_s:
            time.sleep(self._latency_s)
        self._flowing.wait()

    def _end(self, link: "_Link") -> None:
        link.close()
        with self._guard:
            self._links.discard(link)


@dataclass(slots=True, eq=False)
class _Link:
    """One client's connection, and ours to the server for it."""

    client: socket.socket
    server: socket.socket
    losing: Trap | None = None

    def read(self, end: socket.socket) -> bytes:
        try:
            return end.recv(CHUNK_BYTES)
        except OSError:
            return b""

    def write(self, end: socket.socket, chunk: bytes) -> None:
        try:
            end.sendall(chunk)
        except OSError:
            self.cut()

    def cut(self) -> None:
        _cut(self.client)
        _cut(self.server)

    def close(self) -> None:
        """Say goodbye to both; whoever reads from either is woken."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _join(thread: threading.Thread) -> None:
    thread.join(JOIN_S_MAX)
    assert not thread.is_alive(), f"{thread.name} goes on"


def _cut(end: socket.socket) -> None:
    """Send a reset: no goodbye, and what was not yet read is gone."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it
        end.close()


def _whole(answer: bytes) -> bool:
    """Whether a server's messages go as far as ReadyForQuery: each is a letter and its length."""
    place = 0
    while place + 5 <= len(answer):
        (length,) = struct.unpack_from("!I", answer, place + 1)
        end = place + 1 + length
        if answer[place : place + 1] == READY_FOR_QUERY and end <= len(answer):
            return True
        place = end
    return False
