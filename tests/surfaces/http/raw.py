"""An ASGI client that is as slow as a test wants: to send its body, or to read its answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

Receive = Callable[[], Awaitable[dict[str, Any]]]


class RawAnswer:
    """What has come of an answer so far; while it is not ``reading``, whoever sends it waits."""

    def __init__(self) -> None:
        self.reading = asyncio.Event()
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        self._told.put_nowait(message)

    async def status(self) -> int:
        """The status; one reads on from there."""
        self.reading.set()
        return int((await self._next())["status"])

    async def piece(self) -> bytes:
        """The next piece of the body."""
        return bytes((await self._next()).get("body", b""))

    async def body(self) -> bytes:
        """All of the body that is left."""
        found, more = b"", True
        while more:
            message = await self._next()
            found, more = found + message.get("body", b""), message.get("more_body", False)
        return found

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self._told.get()


async def _empty() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


@asynccontextmanager
async def ask(
    api: Any, method: str, path: str, headers: Mapping[str, str], receive: Receive = _empty
) -> AsyncIterator[RawAnswer]:
    """A request under way, which is broken off at the end of the block."""
    given = {"host": "testserver", **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
        "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("test", 1), "server": ("testserver", 80),
    }  # fmt: skip
    answer = RawAnswer()
    under_way = asyncio.create_task(api(scope, receive, answer.send))
    try:
        yield answer
    finally:
        under_way.cancel()
        await asyncio.gather(under_way, return_exceptions=True)
