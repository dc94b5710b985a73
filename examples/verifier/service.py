"""The submissions service: pages of runs, files, and versions of the game; it can be told to misbehave.

``uvicorn verifier.service:service``, or with ``--factory verifier.service:make_service`` one that takes submissions at ``POST
/submit`` and orders at ``POST /faults``: [{"path": "/files/r7.save", "status": 429, "retry_after": "3", "count": 1}]. An order with {"body": …} sends that
in place of the answer, and one with {"hold": true} makes the call wait until orders are forgotten, which an empty list does. Several for one path
are obeyed one after the other; a path that ends with * is any that begins so. The file that SUBMISSIONS_FILE names keeps what was submitted.
"""

import asyncio
import io
import json
import os
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

PAGE_RUNS = 10
VERSIONS = tuple(f"2.{n}" for n in range(10))
MODS = {"base": "1.0", "map-markers": "1.4"}
GAME = Path(__file__).with_name("game.py")


@dataclass
class Order:
    """What to do wrong with requests of a path, and how often yet."""

    path: str
    status: int | None = None
    retry_after: str | None = None
    body: str | None = None
    hold: bool = False
    count: int = 1

    def is_for(self, path: str) -> bool:
        """Whether a request is meant."""
        prefix = self.path.removesuffix("*")
        return path.startswith(prefix) if prefix != self.path else path == self.path

    @property
    def kind(self) -> str:
        """What it is, in a word or two."""
        if self.hold:
            return "slow answer"
        if self.status is None:
            return "garbled answer"
        hint = " with a hint" if self.retry_after is not None else ""
        return f"{self.status}{hint}"


@dataclass
class Known:
    """What the service has, was told and has seen."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    calls: list[str] = field(
        default_factory=list
    )  # paths, in the order in which they were asked for
    forgotten: asyncio.Event = field(default_factory=asyncio.Event)
    faults: Counter[str] = field(default_factory=Counter)

    def take(self, run: dict[str, Any], save: str | None, base_url: str) -> None:
        """Take a run; one that has a save and no link is given one."""
        if save is not None:
            self.files[f"{run['id']}.save"] = save.encode()
            run.setdefault("link", f"{base_url}files/{run['id']}.save")
        self.runs[run["id"]] = run

    def strike(self, path: str) -> Order | None:
        """The order that is to be obeyed now; it is obeyed once less."""
        found = next((one for one in self.orders if one.is_for(path)), None)
        if found is not None:
            self.faults[found.kind] += 1
            found.count -= 1
            if found.count == 0:
                self.orders.remove(found)
        return found


def make_service(*, takes_orders: bool = True) -> Starlette:
    """A service; one that takes orders is for trials alone."""
    service = Starlette()
    known = service.state.known = Known()
    service.state.kept = Path(os.environ.get("SUBMISSIONS_FILE", os.devnull))
    service.state.kept.touch()
    for line in service.state.kept.read_text().splitlines():
        known.take(*json.loads(line))
    for path, endpoint in (
        ("/api/runs", list_runs),
        ("/api/runs/{id}", tell_run),
        ("/files/{name}", send_file),
        ("/games/{version}/mods", tell_mods),
        ("/games/{package}", send_game),
    ):
        service.router.routes.append(Route(path, faulty(endpoint)))
    service.router.routes.append(Route("/traffic", tell_traffic))
    if takes_orders:
        service.router.routes += [
            Route("/submit", submit, methods=["POST"]),
            Route("/faults", take_orders, methods=["POST"]),
        ]
    return service


def faulty(endpoint: Any) -> Any:
    """An endpoint that obeys orders first."""

    async def answer(request: Request) -> Response:
        known: Known = request.app.state.known
        known.calls.append(request.url.path)
        order = known.strike(request.url.path)
        if order is not None and order.hold:
            await known.forgotten.wait()
        if order is None or order.hold:
            return endpoint(request, known)
        hint = {} if order.retry_after is None else {"retry-after": order.retry_after}
        return PlainTextResponse(order.body or "told to", order.status or 200, headers=hint)

    return answer


def list_runs(request: Request, known: Known) -> Response:
    """The runs of a category since a moment, oldest first, a page at a time."""
    asked = request.query_params
    page = int(asked.get("page", "1"))
    found = sorted(
        (
            {name: one.get(name) for name in ("id", "game", "category", "submitted_date")}
            for one in known.runs.values()
            if (one["game"], one["category"]) == (asked["game"], asked["category"])
            and one["submitted_date"] >= asked.get("since", "")
        ),
        key=lambda one: (one["submitted_date"], one["id"]),
    )
    shown = found[(page - 1) * PAGE_RUNS : page * PAGE_RUNS]
    more = len(found) > page * PAGE_RUNS
    return JSONResponse({"runs": shown, "next": page + 1 if more else None})


def tell_run(request: Request, known: Known) -> Response:
    found = known.runs.get(request.path_params["id"])
    return refuse(404) if found is None else JSONResponse(found)


def send_file(request: Request, known: Known) -> Response:
    content = known.files.get(request.path_params["name"])
    return refuse(404) if content is None else Response(content, media_type="text/plain")


def tell_mods(request: Request, known: Known) -> Response:
    return JSONResponse(MODS)


def send_game(request: Request, known: Known) -> Response:
    """The package of a version; all of them have the same program."""
    version = request.path_params["package"].removesuffix(".zip")
    if version not in VERSIONS:
        return refuse(404)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.write(GAME, "game.py")
        archive.writestr("VERSION", version)
    return Response(package.getvalue(), media_type="application/zip")


async def tell_traffic(request: Request) -> Response:
    """What was seen since the service was started."""
    known: Known = request.app.state.known
    return JSONResponse({"calls": known.calls, "faults": known.faults})


async def submit(request: Request) -> Response:
    """Take runs, {"run": {…}, "save": text} each."""
    known: Known = request.app.state.known
    with request.app.state.kept.open("a") as kept:
        for one in await request.json():
            taken = (one["run"], one.get("save"), str(request.base_url))
            known.take(*taken)
            kept.write(json.dumps(taken) + "\n")
    return JSONResponse({"runs": len(known.runs)}, 202)


async def take_orders(request: Request) -> Response:
    """Add orders; an empty list forgets them all."""
    known: Known = request.app.state.known
    try:
        orders = [Order(**one) for one in await request.json()]
    except (TypeError, ValueError):
        return JSONResponse({"error": "orders are a list of {path, status, …}"}, 400)
    known.orders = [*known.orders, *orders] if orders else []
    if not orders:
        known.forgotten.set()
        known.forgotten = asyncio.Event()
    return JSONResponse({"orders": len(known.orders)})


def refuse(status: int) -> Response:
    return JSONResponse({"error": status}, status)


service = make_service(takes_orders=False)
