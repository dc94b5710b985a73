"""huey on SQLite: its consumer with one thread in a process; it looks every 5 ms, and syncs every commit.

It keeps no attempts and takes a job from the file before running it, so a crash loses what it was at.
"""

import logging
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workers import ledger
from benchmarks.workers.contender import Payload
from huey import SqliteHuey
from huey.consumer import Consumer

LOOK_S = 0.005


class Huey:
    """Its storage, and its tasks to enqueue."""

    def __init__(self, url: str) -> None:
        self._huey = opened(url)
        self._tasks = tasks(self._huey, None)
        self._sent = 0
        self._cx = sqlite3.connect(_file(url), isolation_level=None)

    def command(self, concurrency: int | None) -> list[str]:
        # By -m its tasks would be named after __main__, and nobody would know them.
        return [sys.executable, "-c", "from benchmarks.workers import huey_side; huey_side.main()"]

    def enqueue(self, what: str, payloads: Sequence[Payload]) -> None:
        storage = self._huey.storage
        rows = [
            (storage.name, self._huey.serialize_task(self._tasks[what].s(one)), 0)
            for one in payloads
        ]
        with storage.db(commit=True) as cursor:
            cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
        self._sent += len(rows)

    def send(self, what: str, payload: Payload) -> None:
        self._tasks[what](payload)
        self._sent += 1

    def each(self, what: str, payloads: Sequence[Payload]) -> None:
        for one in payloads:
            self.send(what, one)

    def busy(self) -> bool:
        return self.finished() < self._sent

    def finished(self) -> int:
        """Results that are kept; an error that is to be tried again has none."""
        return int(self._cx.execute("SELECT count(*) FROM kv").fetchone()[0])

    def close(self) -> None:
        self._cx.close()
        self._huey.storage.close()


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def opened(url: str) -> SqliteHuey:
    """Its queue in that file."""
    return SqliteHuey("bench", filename=str(_file(url)), fsync=True, store_none=True, utc=True)


def tasks(huey: SqliteHuey, notes: ledger.Ledger | None) -> dict[str, Any]:
    """Its tasks, by name."""

    @huey.task(name="nothing")
    def nothing(item: Payload) -> None:
        pass

    @huey.task(name="flaky", retries=1, retry_delay=0, context=True)
    def flaky(item: Payload, task: Any = None) -> None:
        if task.retries == 1:
            raise ConnectionResetError(104, "Connection reset by peer")

    @huey.task(name="timed")
    def timed(item: Payload) -> None:
        assert notes is not None
        notes.timed(item["sent_ns"])

    return {"nothing": nothing, "flaky": flaky, "timed": timed}


def main() -> None:
    """Be one worker process."""
    logging.getLogger("huey").setLevel(logging.CRITICAL)  # a line for every task
    notes = ledger.mine()
    huey = opened(os.environ[ledger.URL])
    tasks(huey, notes)
    notes.ready()
    Consumer(
        huey, workers=1, initial_delay=LOOK_S, backoff=1.0, max_delay=LOOK_S, periodic=False
    ).run()


if __name__ == "__main__":
    main()
