"""pgqueuer on the same server with the same jobs, by its own means: its queries, its queue manager, its retry.

The clock of a drain runs from its first look at the queue until its last log rows are written, so that neither
its start-up nor its shutdown counts against it. It deletes a job that is done and keeps log rows.

It has two drivers. With psycopg its listener and its queries share one connection, and a query waits until the
listener lets go of it, so asyncpg is the one to compare with: it is used wherever it is installed.
"""

import asyncio
import importlib.util
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
from benchmarks.stores.places import Places
from benchmarks.stores.work import ENQUEUE_BATCH, Item, Rate, items
from pgqueuer import AsyncpgDriver, PsycopgDriver, QueueManager, RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 500
DRIVER = "asyncpg" if importlib.util.find_spec("asyncpg") else "psycopg"


def measured(places: Places, *, jobs: int, retries: int, singles: int) -> dict[str, Rate]:
    """Each on a database of its own."""
    logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)  # it logs a line for every retry
    with places.fresh("postgresql") as url:
        bulk, drain = asyncio.run(drained(url, jobs, failing=False))
    with places.fresh("postgresql") as url:
        _, retry = asyncio.run(drained(url, retries, failing=True))
    with places.fresh("postgresql") as url:
        single = asyncio.run(_singles(url, singles))
    return {"bulk enqueue": bulk, "drain": drain, "retry": retry, "single enqueue": single}


async def drained(url: str, count: int, *, failing: bool) -> tuple[Rate, Rate]:
    """Enqueue so many jobs, and drain them."""
    async with _queries(url) as queries:
        bulk = await _enqueued(queries, items(count))
        with psycopg.connect(url, autocommit=True) as cx:
            cx.execute("VACUUM ANALYZE pgqueuer")
        worked = _Worked(count)
        work = QueueManager(queries)
        work.entrypoint("one")(worked.failing_once if failing else worked.succeeding)
        await work.run(
            batch_size=BATCH, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1)
        )
        worked.check(failures=count if failing else 0)
        return bulk, Rate(count, queries.written_s - queries.looked_s)


class _Watched(Queries):
    """Its queries, and when the first and the last of a drain took place."""

    looked_s = 0.0
    written_s = 0.0

    async def dequeue(self, *arguments: Any, **named: Any) -> Any:
        self.looked_s = self.looked_s or time.perf_counter()
        return await super().dequeue(*arguments, **named)

    async def log_jobs(self, *arguments: Any, **named: Any) -> None:
        await super().log_jobs(*arguments, **named)
        self.written_s = time.perf_counter()


class _Worked:
    """Entrypoints that do nothing but count their calls."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._finished = 0
        self._failed = 0

    async def succeeding(self, job: Job) -> None:
        self._finished += 1

    async def failing_once(self, job: Job) -> None:
        if job.attempts == 0:
            self._failed += 1
            raise RetryRequested(delay=timedelta(0))
        self._finished += 1

    def check(self, *, failures: int) -> None:
        if (self._finished, self._failed) != (self._count, failures):
            raise AssertionError(
                f"pgqueuer finished {self._finished} of {self._count} jobs after {self._failed} failures"
            )


async def _singles(url: str, count: int) -> Rate:
    async with _queries(url) as queries:
        new = items(count)
        begun_s = time.perf_counter()
        for one in new:
            await queries.enqueue("one", one.payload_json.encode())
        return Rate(count, time.perf_counter() - begun_s)


async def _enqueued(queries: Queries, new: list[Item]) -> Rate:
    lots = [
        [one.payload_json.encode() for one in new[at : at + ENQUEUE_BATCH]]
        for at in range(0, len(new), ENQUEUE_BATCH)
    ]
    elapsed_s = 0.0
    for lot in lots:
        begun_s = time.perf_counter()
        await queries.enqueue(["one"] * len(lot), lot, [0] * len(lot))
        elapsed_s += time.perf_counter() - begun_s
    return Rate(len(new), elapsed_s)


@asynccontextmanager
async def _queries(url: str) -> AsyncIterator[_Watched]:
    cx = await _CONNECT[DRIVER](url)
    try:
        queries = _Watched(AsyncpgDriver(cx) if DRIVER == "asyncpg" else PsycopgDriver(cx))
        await queries.install()
        yield queries
    finally:
        await cx.close()


async def _asyncpg(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


async def _psycopg(url: str) -> Any:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


_CONNECT: dict[str, Callable[[str], Awaitable[Any]]] = {"asyncpg": _asyncpg, "psycopg": _psycopg}
