"""Answer at a worker's port for metrics: the process that its supervisor starts for that.

The store is read on a thread of its own, one look at a time: whoever asks while it does not answer gets what the processes
have counted, and that the store is away.
"""

import logging
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import FileIO
from typing import Any, ClassVar, NoReturn

import msgspec

from perdure.app.session.metrics import CONTENT_TYPE, metrics_text
from perdure.app.session.opening import open_store
from perdure.app.worker.metrics_port import Answering
from perdure.engine.observe import trace_of
from perdure.model.errors import PerdureError
from perdure.model.views import StoreFigures
from perdure.observers.log import write_logs
from perdure.observers.shared_figures import read_sums
from perdure.stores.opening import Opened

log = logging.getLogger("perdure")

_STORE_S_MAX = 5.0  # Prometheus gives up after ten
_REQUEST_S_MAX = 10.0
_REQUESTS_MAX = 8


class StoreLook:
    """Reads the store when asked to; those who ask meanwhile share the answer."""

    def __init__(self, url: str, *, wait_s: float = _STORE_S_MAX) -> None:
        self._url = url
        self._wait_s = wait_s
        self._opened: Opened | None = None
        self._lock = threading.Lock()
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="perdure-figures")
        self._pending: Future[StoreFigures | None] | None = None

    def figures(self) -> StoreFigures | None:
        """What the store says; None if it does not answer in time."""
        with self._lock:
            if self._pending is None or self._pending.done():
                self._pending = self._looking.submit(self._read)
            pending = self._pending
        try:
            return pending.result(self._wait_s)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Disconnect, on the thread that has connected."""
        self._looking.submit(self._disconnect)
        self._looking.shutdown()

    def _read(self) -> StoreFigures | None:
        try:
            if self._opened is None:
                self._opened = open_store(self._url, wait_s_max=_STORE_S_MAX, read_only=True)
            return self._opened.reader.figures()
        except PerdureError:
            self._disconnect()  # another connection may do better
            return None

    def _disconnect(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class MetricsServer(ThreadingHTTPServer):
    """Answers a few at once; who comes beyond that is sent away."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, text: Callable[[], bytes]) -> None:
        super().__init__(("", 0), Scrape, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.text = text
        self._room = threading.BoundedSemaphore(_REQUESTS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread of its own, if there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone away or was too slow, which is theirs; anything else is ours."""
        wrong = sys.exception()
        if wrong is not None and not isinstance(wrong, OSError):
            log.error("a scrape went wrong: %s", trace_of(wrong))


class Scrape(BaseHTTPRequestHandler):
    """One request."""

    server: MetricsServer
    timeout: ClassVar[float] = _REQUEST_S_MAX
    server_version = "perdure"
    sys_version = ""

    def do_GET(self) -> None:
        """The metrics."""
        if self.path.partition("?")[0] == "/metrics":
            self._send(HTTPStatus.OK, CONTENT_TYPE, self.server.text())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"the metrics are at /metrics\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """No line for each scrape."""

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)


def main() -> NoReturn:
    """Answer until the supervisor has ended."""
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(
            one, signal.SIG_IGN
        )  # sent to the whole group; we leave when our supervisor does
    line = FileIO(sys.stdin.fileno(), closefd=False)
    told = msgspec.json.decode(line.readline(), type=Answering)
    write_logs(form=told.log_format, level="WARNING")
    store, memory = StoreLook(told.url), mmap.mmap(told.figures, 0, prot=mmap.PROT_READ)

    def text() -> bytes:
        return metrics_text(store.figures(), read_sums(memory))

    server = MetricsServer(socket.socket(fileno=told.listening), text)
    threading.Thread(target=server.serve_forever, name="perdure-metrics", daemon=True).start()
    line.read(1)  # returns at end of file: the supervisor holds the other end
    os._exit(0)


if __name__ == "__main__":
    main()
