"""The whole life of three jobs on SQLite, step by step, each acknowledged when its call has returned.

Every step is one transaction at a moment of its own, on a clock that stands still in between. So the tables
after each step are the same in every run, to the last bit, and whoever finds a file can tell which steps are in
it. Each call may be sent again after an error, as the port promises.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from perdure.model.errors import StoreError
from perdure.model.filters import JobFilter
from perdure.model.jobs import Claim, ClaimOrder, Lane, NewJob, Record
from perdure.model.operations import Deed, Retention, Revival, Target
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.model.workers import NewWorker, Role
from perdure.stores.opening import Opened, open_store
from perdure.stores.sqlite import connection
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    failure,
    release,
    retry,
    success,
)
from perdure.testing.store_contract.fresh_store import uuid_of

LANES = [Lane("q", "c", "p", stage) for stage in ("one", "two")]
JOBS = [uuid_of(1), uuid_of(2), uuid_of(3)]
WORKER = 1
STEP_S = 10
TRIES = 3
DEED = Deed("ann", "to see what happens")
PAYLOAD = '{"text":"' + "x" * 6000 + '"}'  # more than a page

Call = Callable[[], object]
Tables = dict[str, list[tuple[object, ...]]]


class Life:
    """One file, from the first step that is not in it yet."""

    def __init__(self, path: Path, done: int = 0) -> None:
        self._path = path
        self._clock = VirtualClock()
        self._clock.push(done * STEP_S)
        self._opened: Opened | None = None
        self.done = done

    def go_on(self, say: Callable[[str], None]) -> None:
        """The steps that are left; after an error of ours the same call is sent again."""
        while self.done < len(STEPS):
            self._sent(STEPS[self.done], say)
            self._clock.push(STEP_S)
            self.done += 1
            say(f"done {self.done}")

    def _sent(self, step: "Step", say: Callable[[str], None]) -> None:
        call = None
        for _ in range(TRIES):
            try:
                call = call or step(self)
                call()
                return
            except StoreError as error:
                say(f"error {type(error).__name__} {self.done}")
        raise AssertionError("the fault does not end")

    @property
    def opened(self) -> Opened:
        """The store; one that a step did not open, since it was opened before, is opened now."""
        if self._opened is None:
            self._open()
        assert self._opened is not None
        return self._opened

    # -- steps: each gives the call that it is -------------------------------------------

    def open(self) -> Call:
        return self._open

    def lanes(self) -> Call:
        return lambda: self.opened.store.lanes(LANES)

    def hire(self) -> Call:
        worker = NewWorker("boot-1", "host:1", Role.MAIN, 3600.0)
        return lambda: self.opened.store.add_worker(worker)

    def enqueue(self) -> Call:
        jobs = [
            NewJob(id, "p", 1, "one", PAYLOAD, key=f"key {id}", deadline_s=3600.0) for id in JOBS
        ]
        return lambda: self.opened.store.enqueue(jobs)

    def claim(self) -> Call:
        order = ClaimOrder(WORKER, 1, (1, 2))
        store = self.opened.store
        return lambda: store.claims_held(WORKER) or store.turn([], order, by=WORKER).claims

    def carry_on(self) -> Call:
        return self._settled(lambda claim: advance(claim, WORKER, 2, reclaim=True))

    def retry(self) -> Call:
        return self._settled(lambda claim: retry(claim, WORKER, delay_s=0.0))

    def release(self) -> Call:
        return self._settled(lambda claim: release(claim, WORKER))

    def succeed(self) -> Call:
        return self._settled(lambda claim: success(claim, WORKER))

    def fail(self) -> Call:
        return self._settled(lambda claim: failure(claim, WORKER))

    def cancel(self) -> Call:
        return self._settled(lambda claim: cancellation(claim, WORKER))

    def revive(self) -> Call:
        job = self._dead_letter()
        again = Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
        return lambda: self.opened.control.revive([again], DEED)

    def discard(self) -> Call:
        job = self._dead_letter()
        return lambda: self.opened.control.discard([Target(job.no, job.id, job.token)], DEED)

    def prune(self) -> Call:
        ends = Retention(succeeded_s=1.0, discarded_s=1.0)
        return lambda: self.opened.control.prune(ends, limit=10)

    def close(self) -> Call:
        return self.opened.close  # the last one out moves the log into the file

    def _open(self) -> None:
        url = f"sqlite:///{self._path}"
        self._opened = open_store(url, self._clock, create=True, wait_s_max=5.0)

    def _dead_letter(self) -> JobView:
        (job,) = self.opened.reader.jobs(JobFilter(states=(State.FAILED,)))
        return job

    def _settled(self, record_of: Callable[[Claim], Record]) -> Call:
        (claim,) = self.opened.store.claims_held(WORKER)
        record = record_of(claim)
        return lambda: self.opened.store.turn([record], None, by=WORKER)


Step = Callable[[Life], Call]

STEPS: tuple[Step, ...] = (
    Life.open, Life.lanes, Life.hire, Life.enqueue,
    Life.claim, Life.carry_on, Life.retry, Life.claim, Life.succeed,
    Life.claim, Life.fail, Life.revive, Life.claim, Life.release, Life.claim, Life.fail, Life.discard,
    Life.claim, Life.cancel, Life.prune, Life.close,
)  # fmt: skip


def live(path: str, said: str, *, always_moves_the_log: bool = False) -> None:
    """Be a process that lives through all steps, and says on a file of its own which are done."""
    if always_moves_the_log:
        connection.WAL_BYTES_MAX = 0
    word = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    Life(Path(path)).go_on(lambda text: os.write(word, f"{text}\n".encode()) and None)


def live_moving(path: str, said: str) -> None:
    """The same, in a process that moves the log into the file after every commit."""
    live(path, said, always_moves_the_log=True)


def tables_of(path: Path) -> Tables:
    """All that is in a file, looked at in a copy: what recovers the file itself must be our own code."""
    if not path.exists():
        return {}
    with tempfile.TemporaryDirectory(prefix="perdure-look-") as folder:
        copy = Path(folder) / path.name
        for ending in ("", "-wal", "-shm"):
            if (own := path.with_name(path.name + ending)).exists():
                shutil.copy(own, copy.with_name(copy.name + ending))
        raw = sqlite3.connect(copy, isolation_level=None)
        try:
            found = raw.execute("PRAGMA integrity_check").fetchall()
            assert found == [("ok",)], found
            names = raw.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            return {
                name: raw.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
                for (name,) in names
            }
        finally:
            raw.close()
