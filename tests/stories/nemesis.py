"""A seeded killer of processes, and the checks of what a store and a ledger say after it."""

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.stories.kit import Seen, Story, WorkerProcess, until
from tests.stories.ledger import Success


@dataclass
class Nemesis:
    """Kills children with SIGKILL, and now and then a whole worker, which it starts again."""

    story: Story
    chance: random.Random
    pause_s: tuple[float, float]
    tuning: dict[str, Any]
    workers: list[WorkerProcess] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)  # worker numbers of children killed or orphaned
    strikes: dict[str, int] = field(default_factory=dict)

    def start(self, names: tuple[str, ...]) -> None:
        self.workers = [self.story.worker(name, **self.tuning) for name in names]

    def rage(self, *, ended_min: int, within_s: float) -> None:
        """Strike again and again until so many jobs have ended."""
        next_at = time.monotonic()

        def enough() -> bool:
            nonlocal next_at
            if time.monotonic() >= next_at:
                self._strike()
                next_at = time.monotonic() + self.chance.uniform(*self.pause_s)
            return self._has_ended(ended_min)

        until(f"{ended_min} jobs have ended under fire", enough, within_s=within_s)

    def rage_by_progress(self, *, ended_min: int, every: int, within_s: float) -> None:
        """Strike whenever so many more jobs have ended, until so many have: a slow machine is struck no more often."""
        for ended in range(every, ended_min + 1, every):
            until(f"{ended} jobs have ended", partial(self._has_ended, ended), within_s=within_s)
            self._strike()

    def _has_ended(self, jobs: int) -> bool:
        states = self.story.states()
        return states.get("succeeded", 0) + states.get("failed", 0) >= jobs

    def _strike(self) -> None:
        place = self.chance.randrange(len(self.workers))
        worker = self.workers[place]
        children = sorted(worker.children(), key=lambda one: one.pid)
        dice = self.chance.random()
        if dice < 0.1:
            self._kill_supervisor(worker)
            self._note(children, "supervisor")
        elif dice < 0.2:
            self._kill_supervisor(worker)
            self._kill_children(children, "supervisor and children")
        elif children:
            victim = self.chance.choice(children)
            self._kill_children([victim], f"child for {victim.role}")
        if worker.popen.poll() is not None:
            self.workers[place] = self.story.worker(worker.name, **self.tuning)

    def _kill_supervisor(self, worker: WorkerProcess) -> None:
        worker.kill(signal.SIGKILL)
        worker.popen.wait(30)

    def _kill_children(self, children: list[Seen], what: str) -> None:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        self._note(children, what)

    def _note(self, children: list[Seen], what: str) -> None:
        self.killed |= {child.worker for child in children}
        self.strikes[what] = self.strikes.get(what, 0) + 1


def successes(story: Story) -> list[Success]:
    """Committed successes, their times turned into the machine's monotonic ones."""
    offset_s = time.time() - time.monotonic()
    rows = story.rows(
        "SELECT j.id, a.stage, a.token, a.settled_at FROM perdure_attempts AS a "
        "JOIN perdure_jobs AS j ON j.no = a.job WHERE a.status = 'success'"
    )
    return [Success(id, stage, token, at_us / 1e6 - offset_s) for id, stage, token, at_us in rows]


def unjust(story: Story, killed: set[int]) -> list[str]:
    """Crashes counted on the work of a process that nobody killed, and failures of jobs in company."""
    crashes = story.rows(
        "SELECT j.id, a.worker, a.status, w.role FROM perdure_attempts AS a "
        "JOIN perdure_jobs AS j ON j.no = a.job JOIN perdure_workers AS w ON w.no = a.worker "
        "WHERE a.counted LIKE '%crashes%'"
    )
    found = [
        f"job {one['id']} has a crash on worker {one['worker']}, which nobody killed"
        for one in crashes
        if one["worker"] not in killed
    ]
    return found + [
        f"job {one['id']} failed for a crash in company, as {one['role']}"
        for one in crashes
        if one["status"] == "failed" and one["role"] != "alone"
    ]
