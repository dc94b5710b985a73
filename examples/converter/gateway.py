"""The gateway: turns a PDF into XML over HTTP, and can be told to fail, to hang and to be slow.

``uvicorn converter.gateway:gateway``, or with ``--factory converter.gateway:make_gateway`` one that takes orders at
``POST /faults``: {"status": 503, "code": "GW_UNAVAILABLE"}, {"hang": true}, {"slow_s": 2}, {"body": "half of <an"}; with
{"count": 3} for so many calls only, {} for none.
"""

import asyncio
import hashlib
import io
import re
from contextlib import suppress
from dataclasses import dataclass, field

from lxml import etree
from pypdf import PdfReader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

BYTES_MAX = 64 * 1024 * 1024
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Faults:
    """What the gateway was told to do wrong, and for how many calls yet."""

    status: int | None = None
    code: str = "GW_UNAVAILABLE"
    hang: bool = False
    slow_s: float = 0.0
    body: str | None = None
    count: int | None = None

    def strike(self) -> "Faults":
        """The faults of one call."""
        if self.count is None:
            return self
        self.count -= 1
        return self if self.count >= 0 else Faults()

    @property
    def kinds(self) -> list[str]:
        """What is wrong, in a word each."""
        said = {
            "hung": self.hang,
            "slow": self.slow_s,
            str(self.status): self.status,
            "strange answer": self.body,
        }
        return [kind for kind, is_so in said.items() if is_so]


@dataclass
class Traffic:
    """What the gateway has seen: calls, the most at once, the faults that struck, how often each PDF was converted."""

    calls: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    converted: dict[str, int] = field(default_factory=dict)


def make_gateway(*, takes_orders: bool = True) -> Starlette:
    """A gateway; one that takes orders is for trials alone."""
    gateway = Starlette()
    gateway.state.faults, gateway.state.traffic = Faults(), Traffic()
    gateway.state.told = asyncio.Event()
    gateway.router.routes += [
        Route("/process", process, methods=["POST"]),
        Route("/healthz", tell_health),
        Route("/traffic", tell_traffic),
    ]
    if takes_orders:
        gateway.router.routes.append(Route("/faults", take_orders, methods=["POST"]))
    return gateway


async def process(request: Request) -> Response:
    """A PDF in, XML out."""
    traffic: Traffic = request.app.state.traffic
    traffic.calls += 1
    traffic.in_flight += 1
    traffic.in_flight_max = max(traffic.in_flight, traffic.in_flight_max)
    try:
        await request.body()
        return await do_wrong(request) or await convert(request)
    finally:
        traffic.in_flight -= 1


async def convert(request: Request) -> Response:
    """What `process` does on a good day."""
    content = await request.body()
    if not content:
        return refuse(400, "VALIDATION_ERROR", "the request has no body")
    if len(content) > BYTES_MAX:
        return refuse(413, "VALIDATION_ERROR", f"the PDF is larger than {BYTES_MAX} bytes")
    if b"%PDF-" not in content[:1024]:
        return refuse(415, "VALIDATION_ERROR", "the request's body is not a PDF")
    accepted = request.headers.get("accept", "*/*")
    if not any(form in accepted for form in ("xml", "*/*", "application/*")):
        return refuse(406, "INVALID_MAPPING", "only application/xml can be made")
    try:
        xml = await run_in_threadpool(xml_of, content)
    except Exception as wrong:  # noqa: BLE001 - a broken PDF makes pypdf raise anything
        return refuse(422, "PARSE_ERROR", f"the PDF cannot be read: {type(wrong).__name__}")
    converted = request.app.state.traffic.converted
    sha256 = hashlib.sha256(content).hexdigest()
    converted[sha256] = converted.get(sha256, 0) + 1
    return Response(xml, media_type="application/xml")


def xml_of(pdf: bytes) -> bytes:
    """The text of a PDF as XML, a line an element."""
    reader = PdfReader(io.BytesIO(pdf))
    root = etree.Element("document", pages=str(len(reader.pages)))
    for name, value in (reader.metadata or {}).items():
        meta = etree.SubElement(root, "meta", name=_xml_text(name.lstrip("/")))
        meta.text = _xml_text(str(value))
    for number, page in enumerate(reader.pages, start=1):
        box = page.mediabox
        size = {"width": f"{float(box.width):g}", "height": f"{float(box.height):g}"}
        leaf = etree.SubElement(root, "page", number=str(number), **size)
        for line in page.extract_text().splitlines():
            if line.strip():
                etree.SubElement(leaf, "line").text = _xml_text(line)
    made: bytes = etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)
    return made


def _xml_text(text: str) -> str:
    return NOT_IN_XML.sub("\ufffd", text)


def refuse(status: int, code: str, message: str) -> Response:
    """An error as the gateway tells it."""
    return JSONResponse({"error": {"code": code, "message": message}}, status)


async def do_wrong(request: Request) -> Response | None:
    """Whatever the gateway was told to do to a call; None if it is to be answered as ever."""
    state = request.app.state
    faults = state.faults.strike()
    for kind in faults.kinds:
        state.traffic.faults[kind] = state.traffic.faults.get(kind, 0) + 1
    told = state.told
    while faults.hang and not told.is_set() and not await request.is_disconnected():
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), 0.05)
    if faults.slow_s:
        await asyncio.sleep(faults.slow_s)
    if faults.status is not None:
        return refuse(faults.status, faults.code, "it was told to fail")
    return None if faults.body is None else Response(faults.body, media_type="application/xml")


async def take_orders(request: Request) -> Response:
    """Replace what is done wrong; whoever hangs is let go."""
    state = request.app.state
    try:
        state.faults = Faults(**await request.json())
    except (TypeError, ValueError):
        known = ", ".join(vars(Faults()))
        return refuse(400, "VALIDATION_ERROR", f"orders are a JSON object of: {known}")
    state.told.set()
    state.told = asyncio.Event()
    return JSONResponse({"faults": vars(state.faults)})


async def tell_health(request: Request) -> Response:
    """Whether a PDF would be converted now."""
    faults = request.app.state.faults
    if faults.status is not None and faults.status >= 500 and faults.count is None:
        return refuse(503, "GW_UNAVAILABLE", "it was told to fail")
    if faults.hang and faults.count is None:
        await request.app.state.told.wait()
    return JSONResponse({"status": "ok"})


async def tell_traffic(request: Request) -> Response:
    """What was seen since the gateway was started."""
    return JSONResponse(vars(request.app.state.traffic))


gateway = make_gateway(takes_orders=False)
