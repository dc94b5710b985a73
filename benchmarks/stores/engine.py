"""Our own worker on the same jobs: a process with the event loop, the pump and a stage that does nothing.

It runs in a child process, because a worker ends its process. The clock runs from when it begins to work until
its last record is written and it ends. What the engine does around the store (a task for each job, judgement, the
explained decision) is part of it, and is not yet tuned.
"""

import json
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path

from benchmarks.stores.ours import LEASE_S, counted
from benchmarks.stores.work import Rate

from perdure.app.app import App
from perdure.engine.clock import SystemClock
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.workers import NewWorker, Role
from perdure.rules.policy import RETRY, Policy

ROOT = Path(__file__).parents[2]
CONCURRENCY = 600
CHILD_S_MAX = 300
AT_ONCE = Policy("at-once", otherwise=RETRY, own_delay=lambda failures, kind: 0.0)


def measure(url: str, jobs: int, *, failing: bool) -> Rate:
    """Enqueue so many jobs and let a worker drain them."""
    argv = [sys.executable, "-m", "benchmarks.stores.engine", url, str(jobs), str(int(failing))]
    ended = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=CHILD_S_MAX, check=False
    )
    if ended.returncode:
        raise AssertionError(f"the worker ended with {ended.returncode}: {ended.stderr[-2000:]}")
    wanted, found = (jobs, jobs * 2 if failing else jobs), counted(url)
    if found != wanted:
        raise AssertionError(f"the worker's jobs and attempts are {found}, wanted {wanted}")
    return Rate(jobs, float(json.loads(ended.stdout.splitlines()[-1])))


class Stage:
    """Does nothing but count its calls; with ``failing`` each job's first call raises."""

    def __init__(self, jobs: int, *, failing: bool) -> None:
        self._left = jobs
        self._failing = failing
        self._seen: set[int] = set()

    async def one(self, item: dict[str, object]) -> None:
        number = int(str(item["n"]))
        if self._failing and number not in self._seen:
            self._seen.add(number)
            raise ConnectionResetError(104, "Connection reset by peer")
        self._left -= 1
        if self._left == 0:
            self.done()

    def done(self) -> None:
        """Set to the worker's drain."""


def main(url: str, jobs: int, *, failing: bool) -> None:
    """Be a worker, and print how long it took."""
    app, stage = App(url), Stage(jobs, failing=failing)
    pipeline = app.pipeline("p", app.stage(name="one", policy=AT_ONCE)(stage.one))
    pipeline.enqueue_many({"n": n, "text": "x" * 100} for n in range(jobs))
    boot = NewWorker(uuid.uuid4().hex, "bench", Role.MAIN, LEASE_S)
    worker = Worker(
        app._session.opened.store, app._session.catalogue,
        WorkerIdentity(app._session.opened.store.add_worker(boot), 0, CONCURRENCY),
        WorkerSettings(concurrency=CONCURRENCY, grace_s=30.0, poll_s=1.0, tick_s=0.01),
        clock=SystemClock(), chance=random.SystemRandom(), observers=app._session.observers,
    )  # fmt: skip
    stage.done = worker.drain  # type: ignore[method-assign]
    begun_s = time.perf_counter()
    worker.main()
    print(json.dumps(time.perf_counter() - begun_s), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), failing=sys.argv[3] == "1")
