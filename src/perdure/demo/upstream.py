"""A misbehaving upstream: a small HTTP server on the loopback, in a thread of the tour.

What it does to a request follows from the script and from how often it has seen this item at this
stage. A fault counts when it strikes: the bad answer goes out, or the caller has given up waiting.
"""

import asyncio
import json
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from perdure.demo.script import STAGES, Fault, Script

POISON = "%PDF-1.7 %%EOF"  # the text that the demo's parser does not survive
HANG_S = 8.0  # longer than any stage of the demo waits
_START_S_MAX = 10.0
_HEAD_BYTES_MAX = 16_384

_PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over the wire."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        """The answer as HTTP/1.1."""
        headers = {**_JSON, **self.headers, "Content-Length": str(len(self.body))}
        lines = [f"HTTP/1.1 {self.status} {_PHRASES[self.status]}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class Upstream:
    """The server; use it as a context manager."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._seen: Counter[tuple[int, str]] = Counter()
        self._struck: Counter[Fault] = Counter()
        self._calls: set[asyncio.Task[None]] = set()
        self._events: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-upstream", daemon=True)
        self.url = ""

    def faults(self) -> dict[Fault, int]:
        """How often each fault has struck so far."""
        return dict(self._struck)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(_START_S_MAX):
            raise TimeoutError(f"the demo's upstream did not listen within {_START_S_MAX:g} s")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._events.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_S_MAX)

    # -- its own thread ------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._events, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=512)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        await self._stop.wait()
        server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.create_task(self._call(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = await _asked(reader)
            if path == "/faults":
                await _send(writer, Answer(200, json.dumps(self._struck).encode()))
            elif (place := _place(path)) is None:
                await _send(writer, Answer(404, b'{"error": "no such path"}'))
            else:
                await self._meet(*place, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller is gone, or does not speak HTTP
        finally:
            writer.close()

    async def _meet(
        self, stage: str, item: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        fault = self._script.fault(item, stage, self._seen[item, stage])
        self._seen[item, stage] += 1
        if fault is Fault.HANG:
            await _gives_up(reader)
            self._struck[fault] += 1
        elif fault is not None:
            self._struck[fault] += 1  # first, so that who was struck finds it counted
            await _send(writer, bad_answer(fault, item))
        else:
            await asyncio.sleep(self._script.latency_s(item, stage))
            await _send(writer, self._good_answer(stage, item))

    def _good_answer(self, stage: str, item: int) -> Answer:
        match stage:
            case "fetch":
                text = POISON if item == self._script.poison else invoice_text(item)
                body: dict[str, object] = {"text": text}
            case "extract":
                body = {"supplier": supplier(item), "total": total(item)}
            case _:
                body = {"row": item}
        return Answer(200, json.dumps(body).encode())


def bad_answer(fault: Fault, item: int) -> Answer:
    """The answer that carries a fault."""
    match fault:
        case Fault.RATE_LIMIT:
            return Answer(429, b'{"error": "slow down"}', {"Retry-After": "1"})
        case Fault.UNAVAILABLE:
            return Answer(503, b'{"error": "no capacity"}')
        case Fault.MALFORMED if item % 2:
            return Answer(200, b'{"supplier": "' + supplier(item).encode())  # cut short
        case Fault.MALFORMED:
            return Answer(200, b'Sure! Here is the JSON you asked for: {"total": ...}')
        case _:
            return Answer(400, b'{"error": "this document cannot be read"}')


def invoice_text(item: int) -> str:
    """What an ordinary document says."""
    return f"Invoice {item}. {supplier(item)}. Total {total(item):.2f} EUR."


def supplier(item: int) -> str:
    """Who wrote the invoice."""
    return ("Adler & Sohn", "Brightwater Ltd", "Cobalt Works", "Dunmore Paper")[item % 4]


def total(item: int) -> float:
    """What the invoice asks for."""
    return item * 7919 % 99_991 / 100


async def _asked(reader: asyncio.StreamReader) -> str:
    """The path of a request, whose body is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:_HEAD_BYTES_MAX].decode("latin-1")
    request, *lines = head.split("\r\n")
    length = 0
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "content-length" and value.strip().isdecimal():
            length = int(value)
    await reader.readexactly(length)
    parts = request.split(" ")
    return parts[1] if len(parts) == 3 else ""


def _place(path: str) -> tuple[str, int] | None:
    stage, _, item = path.removeprefix("/").partition("/")
    return (stage, int(item)) if stage in STAGES and item.isdecimal() else None


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(answer.wire())
    await writer.drain()


async def _gives_up(reader: asyncio.StreamReader) -> None:
    """Say nothing until the caller closes the connection, or until HANG_S have passed."""
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(1), HANG_S)
