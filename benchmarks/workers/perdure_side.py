"""Ours: the worker of the command line, with supervisor, leases, fencing and attempt rows."""

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from benchmarks.workers.contender import Payload

from perdure.app.app import App

CONCURRENCY = 1_500
_BUSY = "SELECT 1 FROM perdure_jobs WHERE state IN ('queued', 'processing') LIMIT 1"
_FINISHED = "SELECT count(*) FROM perdure_jobs WHERE state = 'succeeded'"
_ATTEMPTS = "SELECT count(*) FROM perdure_attempts WHERE number > 0"


class Perdure:
    """Ours on either store."""

    def __init__(self, url: str) -> None:
        self._app = App(url)
        self._pipelines = {name: self._declared(name) for name in _STAGES}
        self._app.ready()  # makes the tables
        self._cx = _connected(url)

    def _declared(self, name: str) -> Any:
        async def stage(item: dict[str, Any]) -> None:
            """Never run here: the workers have their own."""

        return self._app.pipeline(name, self._app.stage(name=name)(stage))

    def command(self, concurrency: int | None) -> list[str]:
        words = [sys.executable, "-m", "perdure.surfaces.cli", "worker"]
        words += ["benchmarks.workers.our_app:app", "--log-level", "WARNING", "--grace", "5"]
        return [*words, "--concurrency", str(concurrency or CONCURRENCY)]

    def enqueue(self, what: str, payloads: Sequence[Payload]) -> None:
        self._pipelines[what].enqueue_many(payloads)

    def send(self, what: str, payload: Payload) -> None:
        self._pipelines[what].enqueue(payload)

    def each(self, what: str, payloads: Sequence[Payload]) -> None:
        for one in payloads:
            self.send(what, one)

    def busy(self) -> bool:
        return self._cx.execute(_BUSY).fetchone() is not None

    def finished(self) -> int:
        return int(self._cx.execute(_FINISHED).fetchone()[0])

    def attempts(self) -> int:
        """Rows of ended attempts."""
        return int(self._cx.execute(_ATTEMPTS).fetchone()[0])

    def close(self) -> None:
        self._cx.close()
        self._app.close()


_STAGES = ("nothing", "flaky", "timed", "held")


def _connected(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(Path(url.removeprefix("sqlite:///")), isolation_level=None)
    return psycopg.connect(url, autocommit=True)
