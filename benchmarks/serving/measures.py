"""What is measured of the server: creates beside a bare handler, a mixed load, listeners, and what time tells of an id."""

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
from benchmarks.serving import client, servers
from benchmarks.stores.places import Places
from msgspec import Struct

from perdure import App

SHED = (
    "overloaded",
    "rate_limited",
)  # said before anything was done; all else from 500 on is an error
_TOGETHER = 40
_LISTENING, _EVENT = b": listening", b"event: job_accepted"


class Sizes(Struct, frozen=True):
    """How much of everything."""

    creates: int = 5_000
    rounds: int = 3
    load_s: float = 60.0
    listen_s: float = 15.0
    listeners: int = 200
    calm_s: float = 11.0  # PostgreSQL tells what an idle connection has done after ten
    tries: int = 5_000
    lines: int = 16
    crowds: tuple[int, int] = (1_000, 1_000_000)
    answers: int = 400


def creates(places: Places, scheme: str, sizes: Sizes) -> dict[str, Any]:
    """Creates a second, ours and the bare handler's in turns, each on a fresh store; medians."""
    found: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    for _ in range(sizes.rounds):
        for name, command in (("ours", servers.OURS), ("bare", servers.BARE)):
            with places.fresh(scheme) as url:
                made = _token(url, "ann") if name == "ours" else ""
                with servers.serving(command, url, places.folder) as server:
                    found[name].append(asyncio.run(_create(server, made, sizes)))
    return {
        name: {what: statistics.median(one[what] for one in rounds) for what in rounds[0]}
        for name, rounds in found.items()
    }


async def _create(server: servers.ServerProcess, token: str, sizes: Sizes) -> dict[str, float]:
    lines = await client.opened(sizes.lines, server.port, token)
    await client.create(lines, sizes.lines)  # its threads and connections are there
    cpu_s, began_s = server.cpu_s(), time.perf_counter()
    statuses = await client.create(lines, sizes.creates)
    took_s, cpu_s = time.perf_counter() - began_s, server.cpu_s() - cpu_s
    await _hang_up(lines)
    if set(statuses) != {202}:
        raise SystemExit(f"not every create was accepted: {dict(statuses)}")
    return {"per_s": sizes.creates / took_s, "cpu_us": 1e6 * cpu_s / sizes.creates}


def load(places: Places, scheme: str, sizes: Sizes) -> dict[str, Any]:
    """Creates and lists at once with a worker behind: what was answered, memory early and late, and the books."""
    with places.fresh(scheme) as url:
        made = _token(url, "ann")
        log = places.folder / "worker.log"
        with (
            servers.serving(servers.OURS, url, places.folder) as server,
            servers.running(servers.WORKER, url, log),
        ):
            found = asyncio.run(_load(server, made, sizes))
        app = App(url)
        books = app._session.opened.reader.books()
        app.close()
    accepted = found["statuses"].get("create 202", 0)
    found["books"] = "balanced" if books.balanced and books.accepted == accepted else str(books)
    return found


async def _load(server: servers.ServerProcess, token: str, sizes: Sizes) -> dict[str, Any]:
    lines = await client.opened(sizes.lines, server.port, token)
    statuses: Counter[str] = Counter()
    end_at = time.monotonic() + sizes.load_s

    async def send(what: str, line: client.Line) -> None:
        while time.monotonic() < end_at:
            asked = ("POST", client.ASKED) if what == "create" else ("GET", b"")
            status, body = await line.ask(asked[0], "/api/jobs", asked[1])
            statuses[f"{what} {answer_word(status, body)}"] += 1

    memory: list[float] = []

    async def look() -> None:
        while time.monotonic() < end_at:
            await asyncio.sleep(sizes.load_s / 20)
            memory.append(server.memory_mib())

    sends = [send("list" if n % 3 == 0 else "create", line) for n, line in enumerate(lines)]
    await asyncio.gather(look(), *sends)
    await _hang_up(lines)
    shed, errors = shed_and_errors(statuses)
    quarter = max(len(memory) // 4, 1)
    return {
        "statuses": dict(statuses),
        "errors": errors,
        "shed": shed,
        "memory_mib": [round(statistics.median(some), 1) for some in (memory[quarter : 2 * quarter], memory[-quarter:])],
    }  # fmt: skip


def answer_word(status: int, body: bytes) -> str:
    """An answer in a word: its status, and the code where it is a problem; a store that is away is not a server that sheds."""
    return str(status) if status < 400 else f"{status} {json.loads(body)['code']}"


def shed_and_errors(statuses: Mapping[str, int]) -> tuple[int, int]:
    """How many answers were shed, and how many are errors of the server."""
    shed = sum(count for what, count in statuses.items() if what.split()[-1] in SHED)
    errors = sum(
        count
        for what, count in statuses.items()
        if int(what.split()[1]) >= 500 and what.split()[-1] not in SHED
    )
    return shed, errors


def listeners(places: Places, scheme: str, sizes: Sizes) -> dict[str, Any]:
    """CPU of the server and transactions of its database, with one listener and with many, while a job comes every 50 ms."""
    found = {}
    for count in (1, sizes.listeners):
        with places.fresh(scheme) as url:
            made = _token(url, "ann")
            with servers.serving(servers.OURS, url, places.folder) as server:
                found[str(count)] = asyncio.run(_listen(server, made, url, count, sizes))
    return found


async def _listen(
    server: servers.ServerProcess, token: str, url: str, count: int, sizes: Sizes
) -> dict[str, float]:
    heard: Counter[bytes] = Counter()

    def hear(piece: bytes) -> None:
        heard.update({word: piece.count(word) for word in (_LISTENING, _EVENT)})

    (sender,) = await client.opened(1, server.port, token)
    lines = await client.opened(count, server.port, token)
    tasks = []
    async with asyncio.timeout(servers.START_S_MAX):
        for begin in range(0, count, _TOGETHER):  # more at once would be shed
            some = lines[begin : begin + _TOGETHER]
            tasks += [asyncio.create_task(line.listen(hear)) for line in some]
            while heard[_LISTENING] < len(tasks):  # noqa: ASYNC110 - until all of them are heard
                await asyncio.sleep(0.05)
    await asyncio.sleep(sizes.calm_s)
    sent = 0
    cpu_s, transactions, began_s = server.cpu_s(), _transactions(url), time.monotonic()
    while time.monotonic() < began_s + sizes.listen_s:
        await client.create([sender], 1)
        sent += 1
        await asyncio.sleep(0.05)
    took_s = time.monotonic() - began_s
    cpu_share = (server.cpu_s() - cpu_s) / took_s
    await asyncio.sleep(sizes.calm_s)
    per_s = (_transactions(url) - transactions) / (took_s + sizes.calm_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _hang_up([sender, *lines])
    return {
        "cpu_share": cpu_share,
        "transactions_per_s": per_s,
        "heard_share": heard[_EVENT] / (sent * count),
    }


def _transactions(url: str) -> float:
    """Of this database since it was made; SQLite counts none."""
    if url.startswith("sqlite"):
        return float("nan")
    with psycopg.connect(url, autocommit=True) as cx:
        found = cx.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return float(found[0]) if found else float("nan")


def telling(places: Places, scheme: str, sizes: Sizes) -> dict[str, Any]:
    """How well the time to an answer tells another's job from one that never was: the area under the curve, 0.5 is not at all."""
    with places.fresh(scheme) as url:
        app = App(url)
        token = servers.token(app, "bob")
        pipe = app.pipeline("nothing", app.stage(_nothing))
        made = pipe.enqueue_many([{"n": n} for n in range(sizes.tries // 2)], owner="ann")
        known = [one.id for one in made]
        app.close()
        with servers.serving(servers.OURS, url, places.folder) as server:
            return asyncio.run(_tell(server, token, known))


async def _tell(server: servers.ServerProcess, token: str, known: list[str]) -> dict[str, Any]:
    (line,) = await client.opened(1, server.port, token)
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(100):
        await line.ask("GET", f"/api/jobs/{uuid4()}")
    for n, id in enumerate(known):
        pair = [(True, id), (False, f"{id[:14]}{uuid4().hex[:4]}{id[18:]}")]
        for is_known, asked in pair if n % 2 else reversed(pair):
            began_s = time.perf_counter()
            status, _ = await line.ask("GET", f"/api/jobs/{asked}")
            took[is_known].append(time.perf_counter() - began_s)
            if status != 404:
                raise SystemExit(f"another's job was answered with {status}")
    await _hang_up([line])
    medians = {("known" if is_known else "unknown"): 1e3 * statistics.median(times) for is_known, times in took.items()}  # fmt: skip
    return {"auc": area(took[True], took[False]), "tries": 2 * len(known), "median_ms": medians}


def area(ones: list[float], others: list[float]) -> float:
    """The chance that one of the first is larger than one of the second, ties as half: by ranks."""
    pooled = sorted([(value, True) for value in ones] + [(value, False) for value in others])
    ranks, place = 0.0, 0
    while place < len(pooled):
        end = place
        while end < len(pooled) and pooled[end][0] == pooled[place][0]:
            end += 1
        middle = (place + 1 + end) / 2
        ranks += middle * sum(is_one for _, is_one in pooled[place:end])
        place = end
    return (ranks - len(ones) * (len(ones) + 1) / 2) / (len(ones) * len(others))


async def _nothing(item: Any) -> None:
    """Stands for the stage of that name, which no one runs here."""


def _token(url: str, owner: str) -> str:
    app = App(url)
    try:
        app.ready()
        return servers.token(app, owner)
    finally:
        app.close()


async def _hang_up(lines: list[client.Line]) -> None:
    for line in lines:
        with suppress(OSError):
            await line.close()
