"""procrastinate: its asynchronous worker in a process."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import procrastinate
import psycopg
from benchmarks.workers import ledger
from benchmarks.workers.contender import Payload

CONCURRENCY = 100  # more brings it nothing


class Procrastinate:
    """Its app, used synchronously."""

    def __init__(self, url: str) -> None:
        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
        self._tasks = tasks(self._app, None)
        self._app.open()
        self._app.schema_manager.apply_schema()
        self._cx = psycopg.connect(url, autocommit=True)

    def command(self, concurrency: int | None) -> list[str]:
        words = [sys.executable, "-m", "benchmarks.workers.procrastinate_side"]
        return [*words, str(concurrency or CONCURRENCY)]

    def enqueue(self, what: str, payloads: Sequence[Payload]) -> None:
        self._tasks[what].batch_defer(*({"item": one} for one in payloads))

    def send(self, what: str, payload: Payload) -> None:
        self._tasks[what].defer(item=payload)

    def each(self, what: str, payloads: Sequence[Payload]) -> None:
        for one in payloads:
            self.send(what, one)

    def busy(self) -> bool:
        row = self._cx.execute(
            "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"
        )
        return row.fetchone() is not None

    def finished(self) -> int:
        row = self._cx.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        return int((row.fetchone() or (0,))[0])

    def close(self) -> None:
        self._cx.close()
        self._app.close()


def tasks(app: procrastinate.App, notes: ledger.Ledger | None) -> dict[str, Any]:
    """Its tasks, by name."""
    again = procrastinate.RetryStrategy(max_attempts=2, wait=0)

    @app.task(name="nothing")
    async def nothing(item: Payload) -> None:
        pass

    @app.task(name="flaky", retry=again, pass_context=True)
    async def flaky(context: procrastinate.JobContext, item: Payload) -> None:
        if context.job.attempts == 0:
            raise ConnectionResetError(104, "Connection reset by peer")

    @app.task(name="timed")
    async def timed(item: Payload) -> None:
        assert notes is not None
        notes.timed(item["sent_ns"])

    @app.task(name="held")
    async def held(item: Payload) -> None:
        assert notes is not None
        notes.held()
        await asyncio.sleep(600)

    return {"nothing": nothing, "flaky": flaky, "timed": timed, "held": held}


async def main(concurrency: int) -> None:
    """Be one worker process."""
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # a line for every retry
    notes = ledger.mine()
    connector = procrastinate.PsycopgConnector(conninfo=os.environ[ledger.URL])
    app = procrastinate.App(connector=connector)
    tasks(app, notes)
    async with app.open_async():
        notes.ready()
        await app.run_worker_async(concurrency=concurrency, fetch_job_polling_interval=1.0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
