"""The tour: a misbehaving upstream, two workers, a thousand items, and a SIGKILL in the middle.

It looks on through the store, as any screen would, and tells what it sees to whoever shows it.
Whatever happens, also to the tour itself, every process that it started is ended before it is.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from perdure import App
from perdure.app.session.waiting import looks
from perdure.demo.crew import Crew, DemoWorker, Grip
from perdure.demo.script import Fault, Script, write_script
from perdure.demo.stages import HURRIED, UPSTREAM, declare
from perdure.demo.summary import Summary
from perdure.demo.upstream import DemoUpstream
from perdure.demo.watch import (
    UNFINISHED,
    Look,
    belongs,
    jobs_in,
    killed_by_item,
    look,
    most_eventful,
    went_silent,
)
from perdure.model.jobs import ZERO
from perdure.model.states import State
from perdure.model.workers import Role, WorkerView

LIMIT_S = 110.0
LEASE_S = 3.0
_GLANCE_S = 0.2
_RATE_S = 3.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class TourOrder:
    """The tour that is wanted. ``command`` starts a worker, its app and options left out."""

    items: int
    seed: int
    folder: Path
    command: Sequence[str]
    without: frozenset[Fault] = frozenset()
    limit_s: float = LIMIT_S

    @property
    def store(self) -> str:
        """The URL of the tour's store."""
        return f"sqlite:///{self.folder / 'demo.db'}"

    @property
    def concurrency(self) -> int:
        """Items in flight in each worker: few enough for small tours to have a middle."""
        return max(2, min(16, self.items // 20))


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth telling, and when it was."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class TourSnapshot:
    """All that a screen shows."""

    order: TourOrder
    elapsed_s: float
    rate_per_s: float
    look: Look
    crew: tuple[DemoWorker, ...]
    faults: dict[Fault, int]
    happenings: tuple[Happening, ...]


Show = Callable[[TourSnapshot], None]


class Interrupts:
    """Turns the first signal that asks us to end into an exception, and is deaf from then on."""

    def __init__(self) -> None:
        self._deaf = False
        self._before = {number: signal.getsignal(number) for number in _ENDING}

    def __enter__(self) -> Self:
        for number in _ENDING:
            signal.signal(number, self._hear)
        return self

    def deafen(self) -> None:
        """From here on we clean up, and nothing may disturb that."""
        self._deaf = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._deaf:
            return
        self._deaf = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def give_tour(order: TourOrder, show: Show) -> Summary:
    """Give the tour; returns when everything has ended."""
    script = write_script(seed=order.seed, items=order.items, without=order.without)
    app, pipeline = declare(order.store)
    with closing(app), Interrupts() as interrupts, DemoUpstream(script) as upstream:
        begun_s = time.monotonic()
        pipeline.enqueue_many({"invoice": number} for number in range(1, order.items + 1))
        with Crew(
            _command(order), folder=order.folder, environment=_environment(order, upstream.url)
        ) as crew:
            tour = _Tour(order, script, app, upstream, crew, show, begun_s)
            try:
                tour.walk()
            finally:
                interrupts.deafen()
        return tour.summary(time.monotonic() - begun_s)


def _command(order: TourOrder) -> list[str]:
    times = ["--lease-ttl", str(LEASE_S), "--grace", "0.5", "--poll", "0.25"]
    tuning = ["--concurrency", str(order.concurrency), *times, "--log-format", "json"]
    return [*order.command, "perdure.demo.work:app", *tuning]


def _environment(order: TourOrder, upstream: str) -> dict[str, str]:
    """Ours, without the settings that somebody may have made for work of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return {**kept, "PERDURE_CONFIG": "", "PERDURE_STORE": order.store, UPSTREAM: upstream}


@dataclass(slots=True)
class _Tour:
    order: TourOrder
    script: Script
    app: App
    upstream: DemoUpstream
    crew: Crew
    show: Show
    begun_s: float
    happenings: list[Happening] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    _pace: deque[tuple[float, int]] = field(default_factory=deque)
    _buried: set[int] = field(default_factory=set)
    _victim: DemoWorker | None = None
    _victim_held: int = 0
    _struck_s: float = 0.0
    _succeeded_by: DemoWorker | None = None

    @property
    def elapsed_s(self) -> float:
        """Since the first item was enqueued."""
        return time.monotonic() - self.begun_s

    def walk(self) -> None:
        """Start the workers and look on until all items have ended, or the time has."""
        self._say(f"enqueued {self.order.items:,} invoices for fetch → extract → store")
        for _ in range(2):
            self._hire("")
        for seen in looks(lambda: look(self.app), every_s=_GLANCE_S):
            self._notice(seen)
            self.show(self._snapshot(seen))
            if seen.settled == seen.books.accepted or self._over():
                return
            self._strike_in_the_middle(seen)

    def summary(self, elapsed_s: float) -> Summary:
        """What it came to; read when the workers have ended."""
        jobs = list(jobs_in(self.app))
        sums = ZERO
        for job in jobs:
            sums = sums.plus(job.counters).plus(job.past)
        bereaved = [job for job in jobs if job.counters.crashes + job.past.crashes]
        reader = self.app._session.opened.reader
        return Summary(
            items=self.order.items,
            seed=self.order.seed,
            elapsed_s=elapsed_s,
            books=reader.books(),
            findings=tuple(reader.audit()),
            failures=tuple(reader.failures()),
            faults=self._faults(reader.workers()),
            sums=sums,
            bereaved=len(bereaved),
            rescued=sum(1 for job in bereaved if job.state is State.SUCCEEDED),
            history=most_eventful(self.app, jobs),
            unfinished=tuple(job for job in jobs if job.state in UNFINISHED),
            trouble=tuple(self.trouble),
        )

    # -- what is seen --------------------------------------------------------------------

    def _snapshot(self, seen: Look) -> TourSnapshot:
        return TourSnapshot(
            order=self.order,
            elapsed_s=self.elapsed_s,
            rate_per_s=self._rate_per_s(seen.settled),
            look=seen,
            crew=tuple(self.crew.workers),
            faults=self._faults(seen.workers),
            happenings=tuple(self.happenings),
        )

    def _rate_per_s(self, settled: int) -> float:
        now_s = self.elapsed_s
        self._pace.append((now_s, settled))
        while now_s - self._pace[0][0] > _RATE_S:
            self._pace.popleft()
        then_s, before = self._pace[0]
        return (settled - before) / (now_s - then_s) if now_s > then_s else 0.0

    def _faults(self, workers: Sequence[WorkerView]) -> dict[Fault, int]:
        """The upstream's own count, and from the store: who died, and how that became known."""
        silent = {
            demo_worker.pid
            for demo_worker in self.crew.workers
            for worker in workers
            if demo_worker.killed and belongs(worker, demo_worker) and went_silent(worker)
        }
        crashes = sum(1 for worker in workers if killed_by_item(worker))
        return {**self.upstream.faults(), Fault.CRASH: crashes, Fault.SIGKILL: len(silent)}

    def _notice(self, seen: Look) -> None:
        for worker in sorted(seen.workers, key=lambda one: one.no):
            if worker.dead_at is not None and worker.no not in self._buried:
                self._buried.add(worker.no)
                if killed_by_item(worker):
                    self._say(self._obituary(worker))
        victim = self._victim
        if victim is not None and self._succeeded_by is None and not seen.jobs_held_by(victim):
            waited_s = self.elapsed_s - self._struck_s
            self._say(
                f"{victim.name}'s lease ran out: after {waited_s:.1f} s its "
                f"{self._victim_held} items are free again"
            )
            self._succeeded_by = self._hire(f" in place of {victim.name}")

    def _obituary(self, worker: WorkerView) -> str:
        names = [
            demo_worker.name for demo_worker in self.crew.workers if belongs(worker, demo_worker)
        ]
        killed = f"invoice {self.script.poison} killed {names[0]}'s process"
        match worker.role:
            case Role.MAIN | Role.CALLER:
                return f"{killed}; its neighbours become suspects"
            case Role.SUSPECTS:
                return f"{killed} for suspects; each runs alone now"
            case Role.ALONE:
                return f"{killed}, alone in it: the poison is found"

    # -- what is done --------------------------------------------------------------------

    def _hire(self, where: str) -> DemoWorker:
        demo_worker = self.crew.hire()
        self._say(f"started {demo_worker.name} (process {demo_worker.pid}){where}")
        return demo_worker

    def _strike_in_the_middle(self, seen: Look) -> None:
        if self._victim is not None or Fault.SIGKILL in self.order.without:
            return
        if seen.settled * 2 < self.order.items:
            return
        for demo_worker in sorted(self.crew.workers, key=lambda one: -len(seen.jobs_held_by(one))):
            if (
                demo_worker.running
                and _may_be_struck(seen, demo_worker)
                and self._strike(demo_worker)
            ):
                return

    def _strike(self, demo_worker: DemoWorker) -> bool:
        """Kill a worker that has items in its hands; False when it has let them go meanwhile."""
        with Grip(demo_worker) as grip:
            seen = look(self.app)
            if not _may_be_struck(seen, demo_worker):
                return False
            grip.strike()
        self._victim, self._victim_held = demo_worker, len(seen.jobs_held_by(demo_worker))
        self._struck_s = self.elapsed_s
        self._say(
            f"killed {demo_worker.name} with SIGKILL: {self._victim_held} items were in its hands"
        )
        return True

    def _over(self) -> bool:
        if self.elapsed_s > self.order.limit_s:
            return True
        ended = [
            demo_worker
            for demo_worker in self.crew.workers
            if not demo_worker.running and not demo_worker.killed
        ]
        for demo_worker in ended:
            tail = demo_worker.log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            self.trouble.append(
                f"{demo_worker.name} ended by itself with status {demo_worker.process.returncode}; "
                f"its last words: {' / '.join(tail) or 'none'}"
            )
        return bool(ended)

    def _say(self, text: str) -> None:
        self.happenings.append(Happening(self.elapsed_s, text))


def _may_be_struck(seen: Look, demo_worker: DemoWorker) -> bool:
    """Its items must survive one crash more: the tour shows that no innocent one is failed."""
    held = seen.jobs_held_by(demo_worker)
    return bool(held) and all(job.counters.crashes + 1 < HURRIED.crashes_max for job in held)
