"""An HTTP server on the loopback that answers as the simulator's model of an upstream does, from its first call on.

Which of its calls fare badly by chance is the same each time. Every call is kept with the moment at which it came and the form of its answer. The moments are of the machine's
wall clock, which is the stores' as well.
"""

import asyncio
import time
from dataclasses import dataclass

from perdure.demo.loopback import Loopback
from perdure.simulate.replies import Form, Reply
from perdure.simulate.upstream import SimulatedUpstream, UpstreamModel

_SEED = 1
_STATUS = {
    Form.OK: "200 OK",
    Form.UNAVAILABLE: "503 Service Unavailable",
    Form.FAULT: "500 Internal Server Error",
    Form.LIMITED: "429 Too Many Requests",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call; ``at_s`` is seconds since 1970, ``at_once`` the calls that it had then, with this one."""

    at_s: float
    form: Form
    at_once: int


class Ailing(Loopback):
    """The server; use it as a context manager."""

    def __init__(self, model: UpstreamModel) -> None:
        super().__init__("ailing")
        self._model = model
        self._upstream = SimulatedUpstream(model, _SEED)
        self._at_once = 0
        self.calls: list[Call] = []

    @property
    def well_from_s(self) -> float:
        """When its outage is over; its first call has to have come."""
        return self.calls[0].at_s + self._model.back_s

    @property
    def well(self) -> bool:
        """Whether its outage is over."""
        return bool(self.calls) and time.time() >= self.well_from_s

    def in_outage(self) -> int:
        """Calls that came while it was down."""
        return sum(call.at_s < self.well_from_s for call in self.calls)

    def wasted(self) -> int:
        """Calls that were not served."""
        return sum(call.form is not Form.OK for call in self.calls)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self._at_once += 1
        reply = self._reply()
        await asyncio.sleep(reply.took_s)
        self._at_once -= 1  # before its answer, which lets the caller send the next
        lines = [f"HTTP/1.1 {_STATUS[reply.form]}", "Content-Length: 2", "Connection: close"]
        if reply.hint_s is not None:
            lines.append(f"Retry-After-Ms: {reply.hint_s * 1_000:.3f}")
        writer.write("\r\n".join([*lines, "", "{}"]).encode())
        await writer.drain()

    def _reply(self) -> Reply:
        now_s = time.time()
        first_s = self.calls[0].at_s if self.calls else now_s
        reply = self._upstream.call(now_s - first_s)
        self.calls.append(Call(now_s, reply.form, self._at_once))
        return reply


def down_for(outage_s: float, *, latency_s: float, down_s: float) -> UpstreamModel:
    """An upstream that is down from the start, and then takes what comes."""
    return UpstreamModel(
        rate_per_s=None, latency_s=latency_s, down_s=down_s, outages_s=((0.0, outage_s),)
    )
