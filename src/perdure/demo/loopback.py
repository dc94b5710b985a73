"""A server on the loopback, on a thread of its own for as long as somebody needs it."""

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

_START_S_MAX = 10.0


class Loopback(ABC):
    """Use it as a context manager; whoever inherits from it answers calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: set[asyncio.Task[None]] = set()
        self._events: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.url = ""

    @abstractmethod
    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call; the connection is closed after it. A caller that goes is no error."""
        ...

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(_START_S_MAX):
            raise TimeoutError(f"{self._name} did not listen within {_START_S_MAX:g} s")
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
        call = asyncio.create_task(self._serve_connection(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self.answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller is gone, or does not speak HTTP
        finally:
            writer.close()
