"""A client that costs little: HTTP/1.1 on one connection that is kept, no more of it than our servers speak."""

import asyncio
from collections import Counter
from collections.abc import Callable

ASKED = b'{"pipeline": "nothing", "item": {"text": "hello", "n": 1}}'


class Line:
    """One connection."""

    def __init__(self, port: int, token: str = "") -> None:
        self._port = port
        self._head = f"host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n".encode()

    async def open(self) -> "Line":
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer."""
        kind = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        self._writer.write(b"%s %s HTTP/1.1\r\n" % (method.encode(), path.encode()))
        self._writer.write(self._head + (kind if body else b"") + b"\r\n" + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        return int(head[9:12]), await self._reader.readexactly(length)

    async def listen(self, hear: Callable[[bytes], None]) -> None:
        """Take server-sent events, and what comes between them, until the connection is closed."""
        self._writer.write(b"GET /api/events HTTP/1.1\r\n" + self._head + b"\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        if head[9:12] != b"200":
            raise SystemExit(f"no events: {head.decode()}")
        while piece := await self._reader.read(65_536):
            hear(piece)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


async def opened(count: int, port: int, token: str = "") -> list[Line]:
    """So many connections."""
    return [await Line(port, token).open() for _ in range(count)]


async def create(lines: list[Line], count: int) -> Counter[int]:
    """So many jobs over these lines at once; the answers by their status."""
    statuses: Counter[int] = Counter()
    left = iter(range(count))

    async def send(line: Line) -> None:
        for _ in left:
            status, _body = await line.ask("POST", "/api/jobs", ASKED)
            statuses[status] += 1

    await asyncio.gather(*map(send, lines))
    return statuses
