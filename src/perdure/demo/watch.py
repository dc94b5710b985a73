"""What the tour reads from the store while it looks on, and at the end."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from perdure import App
from perdure.demo.crew import DemoWorker
from perdure.demo.script import STAGES
from perdure.demo.stages import CRASH_STATUS
from perdure.model.filters import JobFilter
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.model.views import AttemptView, Books, JobView
from perdure.model.workers import WorkerView

_PAGE = 500
UNFINISHED = (State.QUEUED, State.PROCESSING)


@dataclass(frozen=True, slots=True)
class StageCount:
    """Where the items stand at one stage."""

    name: str
    passed: int
    waiting: int
    retrying: int
    running: int


@dataclass(frozen=True, slots=True)
class Look:
    """The store at one moment."""

    books: Books
    unfinished: tuple[JobView, ...]
    stages: tuple[StageCount, ...]
    workers: tuple[WorkerView, ...]

    @property
    def settled(self) -> int:
        """Items that have reached their end."""
        return self.books.succeeded + self.books.failed + self.books.cancelled

    @property
    def retrying(self) -> int:
        """Items that wait after a failure; read a moment later than the books, hence the bound."""
        return min(self.books.queued, sum(stage.retrying for stage in self.stages))

    def jobs_held_by(self, demo_worker: DemoWorker) -> list[JobView]:
        """The items in the hands of a worker's processes."""
        rows = {worker.no for worker in self.workers if belongs(worker, demo_worker)}
        return [job for job in self.unfinished if job.worker in rows]


def look(app: App) -> Look:
    """Read the store."""
    books, workers = app._session.opened.reader.books(), tuple(app._session.opened.reader.workers())
    unfinished = tuple(jobs_in(app, UNFINISHED))
    failed = tuple(jobs_in(app, (State.FAILED,)))
    return Look(books, unfinished, _stages(books, unfinished, failed), workers)


def jobs_in(app: App, states: tuple[State, ...] = ()) -> Iterator[JobView]:
    """All jobs in these states, newest first."""
    before = None
    while True:
        page = app._session.opened.reader.jobs(JobFilter(states=states), limit=_PAGE, before=before)
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].no


def _stages(
    books: Books, unfinished: tuple[JobView, ...], failed: tuple[JobView, ...]
) -> tuple[StageCount, ...]:
    shown = Counter((job.stage, job.shown_state) for job in unfinished)
    standing = Counter(job.stage for job in (*unfinished, *failed))
    counts = []
    beyond = books.succeeded
    for name in reversed(STAGES):
        waiting = shown[name, "queued"] + shown[name, "scheduled"]
        counts.append(
            StageCount(name, beyond, waiting, shown[name, "retrying"], shown[name, "processing"])
        )
        beyond += standing[name]
    return tuple(reversed(counts))


def belongs(worker: WorkerView, demo_worker: DemoWorker) -> bool:
    """Whether a working process is a child of that supervisor; its row's name ends in the pid."""
    return worker.name.endswith(f":{demo_worker.pid}")


def death_of(worker: WorkerView) -> Death | None:
    """How a working process ended, if it has."""
    return None if worker.death_json is None else msgspec.json.decode(worker.death_json, type=Death)


def killed_by_item(worker: WorkerView) -> bool:
    """Whether the demo's poison item ended it."""
    death = death_of(worker)
    return death is not None and death.exit_status == CRASH_STATUS


def went_silent(worker: WorkerView) -> bool:
    """Whether its lease ran out."""
    death = death_of(worker)
    return death is not None and death.why == "silent"


def most_eventful(app: App, jobs: list[JobView]) -> tuple[JobView, list[AttemptView]] | None:
    """The finished item that met the most kinds of failure, and its attempts."""
    best: tuple[int, JobView, list[AttemptView]] | None = None
    for job in jobs:
        sums = job.counters.plus(job.past)
        if job.state is State.SUCCEEDED and sums.failures + sums.waits + sums.crashes >= 2:
            attempts = app._session.opened.reader.attempts(job.no)
            kinds = len({one.kind for one in attempts if one.kind is not None})
            if kinds >= 2 and (best is None or kinds > best[0]):
                best = (kinds, job, attempts)
    return None if best is None else best[1:]
