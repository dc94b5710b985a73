"""How long answers take in a store of many jobs, beside one of few, asked in turns."""

import asyncio
import json
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from benchmarks.serving import client, servers
from benchmarks.serving.measures import Sizes
from benchmarks.stores.places import Places
from tests.stores.crowd import fill_postgres, fill_sqlite

from perdure import App

# Ann has 50 jobs, of a thousand owners; a tenth of all has failed, in 300 groups.
OF_ANN = (
    "/api/jobs", "/api/jobs?limit=500", "/api/jobs?state=failed", "/api/jobs?since=1970-01-01T00:00:00Z",
    "/api/dead", "/api/dead/groups", "/api/runs", "/api/jobs/{id}", "/api/jobs/{id}/result",
)  # fmt: skip
OF_ALL = (
    "/api/jobs",
    "/api/dead",
    "/api/dead/groups",
    "/api/stats",
    "/api/audit-log",
    "/api/workers",
)


def answers(places: Places, scheme: str, sizes: Sizes) -> dict[str, Any]:
    """The p95 of every list, show, group and stats answer in ms, by the number of jobs."""
    with ExitStack() as stack:
        crowds = [stack.enter_context(_crowd(places, scheme, jobs)) for jobs in sizes.crowds]
        took = asyncio.run(_ask_in_turns(crowds, sizes.answers))
    return {
        path: {str(jobs): _p95_ms(times) for jobs, times in zip(sizes.crowds, both, strict=True)}
        for path, both in took.items()
    }


@contextmanager
def _crowd(places: Places, scheme: str, jobs: int) -> Iterator[tuple[int, str, str]]:
    """A server of so many jobs: its port, and tokens of Ann and of a viewer."""
    with places.fresh(scheme) as url:
        app = App(url)
        app.ready()
        _fill(url, jobs)
        tokens = servers.token(app, "ann"), servers.token(app, "", scopes=("read_all",))
        app.close()
        with servers.serving(servers.OURS, url, places.folder, log=f"{jobs}.log") as server:
            yield server.port, *tokens


def _fill(url: str, jobs: int) -> None:
    if url.startswith("sqlite:///"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        fill_sqlite(raw.execute, jobs)
        raw.close()
        return
    with psycopg.connect(url, autocommit=True) as cx:
        fill_postgres(cx.execute, jobs)


async def _ask_in_turns(
    crowds: list[tuple[int, str, str]], times: int
) -> dict[str, tuple[list[float], ...]]:
    took: dict[str, tuple[list[float], ...]] = {}
    for place, paths in ((1, OF_ANN), (2, OF_ALL)):
        lines = [(await client.opened(1, crowd[0], crowd[place]))[0] for crowd in crowds]
        ids = [await _one_job(line) for line in lines]
        for path in paths:
            each: tuple[list[float], ...] = tuple([] for _ in crowds)
            for _ in range(times):
                for line, id, found in zip(lines, ids, each, strict=True):
                    found.append(await _took_s(line, path.replace("{id}", id)))
            whose = "ann" if place == 1 else "all"
            took[f"{path} of {whose}"] = each
        for line in lines:
            await line.close()
    return took


async def _took_s(line: client.Line, path: str) -> float:
    began_s = time.perf_counter()
    status, body = await line.ask("GET", path)
    if status != 200:
        raise SystemExit(f"{path} was answered with {status}: {body[:500]!r}")
    return time.perf_counter() - began_s


async def _one_job(line: client.Line) -> str:
    """A job that has succeeded."""
    _, body = await line.ask("GET", "/api/jobs?state=succeeded&limit=1")
    return str(json.loads(body)["jobs"][0]["id"])


def _p95_ms(times: list[float]) -> float:
    return round(1e3 * statistics.quantiles(times, n=20, method="inclusive")[-1], 3)
