"""pgqueuer: its queue manager in a process, batches of 500, asyncpg where that is installed (its faster driver)."""

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
from benchmarks.workers import ledger
from benchmarks.workers.contender import Payload
from pgqueuer import AsyncpgDriver, PsycopgDriver, QueueManager, RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 500
DRIVER = "asyncpg" if importlib.util.find_spec("asyncpg") else "psycopg"


class Pgqueuer:
    """Its queries, on an event loop that waits while we do something else."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.Runner()
        self._own_cx, self._queries = self._loop.run(connected(url))
        self._loop.run(self._queries.install())
        self._cx = psycopg.connect(url, autocommit=True)

    def command(self, concurrency: int | None) -> list[str]:
        return [sys.executable, "-m", "benchmarks.workers.pgqueuer_side"]

    def enqueue(self, what: str, payloads: Sequence[Payload]) -> None:
        encoded = [msgspec.json.encode(one) for one in payloads]
        count = len(encoded)
        self._loop.run(self._queries.enqueue([what] * count, encoded, [0] * count))

    def send(self, what: str, payload: Payload) -> None:
        self._loop.run(self._queries.enqueue(what, msgspec.json.encode(payload)))

    def each(self, what: str, payloads: Sequence[Payload]) -> None:
        self._loop.run(self._each(what, payloads))

    async def _each(self, what: str, payloads: Sequence[Payload]) -> None:
        for one in payloads:
            await self._queries.enqueue(what, msgspec.json.encode(one))

    def busy(self) -> bool:
        return self._cx.execute("SELECT 1 FROM pgqueuer LIMIT 1").fetchone() is not None

    def finished(self) -> int:
        row = self._cx.execute("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
        return int((row.fetchone() or (0,))[0])

    def close(self) -> None:
        self._cx.close()
        self._loop.run(self._own_cx.close())
        self._loop.close()


async def connected(url: str) -> tuple[Any, Queries]:
    """A connection through the driver that is there, and its queries on that."""
    cx: Any
    if DRIVER == "asyncpg":
        import asyncpg

        cx = await asyncpg.connect(url)
        return cx, Queries(AsyncpgDriver(cx))
    cx = await psycopg.AsyncConnection.connect(url, autocommit=True)
    return cx, Queries(PsycopgDriver(cx))


async def main() -> None:
    """Be one worker process."""
    logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)  # it logs a line for every retry
    notes = ledger.mine()
    _, queries = await connected(os.environ[ledger.URL])
    work = QueueManager(queries)

    async def nothing(job: Job) -> None:
        msgspec.json.decode(job.payload or b"")

    async def flaky(job: Job) -> None:
        if job.attempts == 0:
            raise RetryRequested(delay=timedelta(0))

    async def timed(job: Job) -> None:
        notes.timed(msgspec.json.decode(job.payload or b"")["sent_ns"])

    async def held(job: Job) -> None:
        notes.held()
        await asyncio.sleep(600)

    for one in (nothing, flaky, timed, held):
        work.entrypoint(one.__name__)(one)
    notes.ready()
    await work.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1))


if __name__ == "__main__":
    asyncio.run(main())
