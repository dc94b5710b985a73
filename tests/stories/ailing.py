"""An HTTP server on the loopback that is down from its first call on, for a while; then it takes what comes.

Every call is kept with the moment at which it came and whether it was served. The moments are of the machine's
wall clock, which is the stores' as well.
"""

import asyncio
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_START_S_MAX = 10.0
_DOWN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
_WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call; ``at_s`` is seconds since 1970."""

    at_s: float
    served: bool


class Ailing:
    """The server; use it as a context manager. ``down_s`` is the time that a refusal takes."""

    def __init__(self, *, outage_s: float, latency_s: float, down_s: float) -> None:
        self._outage_s = outage_s
        self._latency_s = latency_s
        self._down_s = down_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ailing", daemon=True)
        self.calls: list[Call] = []
        self.url = ""

    @property
    def well_from_s(self) -> float:
        """When the outage is over; its first call has to have come."""
        return self.calls[0].at_s + self._outage_s

    @property
    def well(self) -> bool:
        """Whether the outage is over."""
        return bool(self.calls) and time.time() >= self.well_from_s

    def in_outage(self) -> int:
        """Calls that came while it was down."""
        return sum(call.at_s < self.well_from_s for call in self.calls)

    def wasted(self) -> int:
        """Calls that were not served."""
        return sum(not call.served for call in self.calls)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(_START_S_MAX):
            raise TimeoutError(f"the ailing server did not listen within {_START_S_MAX:g} s")
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            served = self._takes()
            await asyncio.sleep(self._latency_s if served else self._down_s)
            writer.write(_WELL if served else _DOWN)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller is gone
        finally:
            writer.close()

    def _takes(self) -> bool:
        now_s = time.time()
        served = bool(self.calls) and now_s >= self.well_from_s
        self.calls.append(Call(now_s, served))
        return served
