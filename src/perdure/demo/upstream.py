"""A misbehaving upstream: a small HTTP server on the loopback, in a thread of the tour.

What it does to a request follows from the script and from how often it has seen this item at this
stage. A fault counts when it strikes: the bad answer goes out, or the caller has given up waiting.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from perdure.demo.loopback import Loopback
from perdure.demo.script import STAGES, Fault, Script

POISON = "%PDF-1.7 %%EOF"  # the text that the demo's parser does not survive
HANG_S = 8.0  # longer than any stage of the demo waits
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
class DemoAnswer:
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


class DemoUpstream(Loopback):
    """The server; use it as a context manager."""

    def __init__(self, script: Script) -> None:
        super().__init__("demo-upstream")
        self._script = script
        self._seen: Counter[tuple[int, str]] = Counter()
        self._struck: Counter[Fault] = Counter()

    def faults(self) -> dict[Fault, int]:
        """How often each fault has struck so far."""
        return dict(self._struck)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What the script has for this item at this stage."""
        path = await _read_path(reader)
        if path == "/faults":
            await _send(writer, DemoAnswer(200, json.dumps(self._struck).encode()))
        elif (place := _place(path)) is None:
            await _send(writer, DemoAnswer(404, b'{"error": "no such path"}'))
        else:
            await self._meet(*place, reader, writer)

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

    def _good_answer(self, stage: str, item: int) -> DemoAnswer:
        match stage:
            case "fetch":
                text = POISON if item == self._script.poison else invoice_text(item)
                body: dict[str, object] = {"text": text}
            case "extract":
                body = {"supplier": supplier(item), "total": total(item)}
            case _:
                body = {"row": item}
        return DemoAnswer(200, json.dumps(body).encode())


def bad_answer(fault: Fault, item: int) -> DemoAnswer:
    """The answer that carries a fault."""
    match fault:
        case Fault.RATE_LIMIT:
            return DemoAnswer(429, b'{"error": "slow down"}', {"Retry-After": "1"})
        case Fault.UNAVAILABLE:
            return DemoAnswer(503, b'{"error": "no capacity"}')
        case Fault.MALFORMED if item % 2:
            return DemoAnswer(200, b'{"supplier": "' + supplier(item).encode())  # cut short
        case Fault.MALFORMED:
            return DemoAnswer(200, b'Sure! Here is the JSON you asked for: {"total": ...}')
        case _:
            return DemoAnswer(400, b'{"error": "this document cannot be read"}')


def invoice_text(item: int) -> str:
    """What an ordinary document says."""
    return f"Invoice {item}. {supplier(item)}. Total {total(item):.2f} EUR."


def supplier(item: int) -> str:
    """Who wrote the invoice."""
    return ("Adler & Sohn", "Brightwater Ltd", "Cobalt Works", "Dunmore Paper")[item % 4]


def total(item: int) -> float:
    """What the invoice asks for."""
    return item * 7919 % 99_991 / 100


async def _read_path(reader: asyncio.StreamReader) -> str:
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


async def _send(writer: asyncio.StreamWriter, answer: DemoAnswer) -> None:
    writer.write(answer.wire())
    await writer.drain()


async def _gives_up(reader: asyncio.StreamReader) -> None:
    """Say nothing until the caller closes the connection, or until HANG_S have passed."""
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(1), HANG_S)
