"""An HTTP server on the loopback that is down from its first call on, for a while; then it takes what comes.

Every call is kept with the moment at which it came and whether it was served. The moments are of the machine's
wall clock, which is the stores' as well.
"""

import asyncio
import time
from dataclasses import dataclass

from perdure.demo.loopback import Loopback

_DOWN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
_WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call; ``at_s`` is seconds since 1970."""

    at_s: float
    served: bool


class Ailing(Loopback):
    """The server; use it as a context manager. ``down_s`` is the time that a refusal takes."""

    def __init__(self, *, outage_s: float, latency_s: float, down_s: float) -> None:
        super().__init__("ailing")
        self._outage_s = outage_s
        self._latency_s = latency_s
        self._down_s = down_s
        self.calls: list[Call] = []

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

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        served = self._takes()
        await asyncio.sleep(self._latency_s if served else self._down_s)
        writer.write(_WELL if served else _DOWN)
        await writer.drain()

    def _takes(self) -> bool:
        now_s = time.time()
        served = bool(self.calls) and now_s >= self.well_from_s
        self.calls.append(Call(now_s, served))
        return served
