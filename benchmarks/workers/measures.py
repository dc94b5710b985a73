"""The measurements: how fast a queue is filled and drained, how soon a worker begins, how much memory it takes.

The clock of a drain starts when the jobs are durable and the workers, which are there already, may see them; it
ends when no job in the database is open any more. So neither enqueueing nor starting a process is in it, and
noticing the work is. Until then the workers stand still: some enqueue in one transaction and some in several,
and nobody gets a start. Every measurement has a database of its own.
"""

import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.stores.growth import percentile
from benchmarks.stores.places import Places, calibration
from benchmarks.workers import ledger
from benchmarks.workers.contender import Contender, Payload
from benchmarks.workers.crew import Crew, crew
from benchmarks.workers.huey_side import Huey
from benchmarks.workers.perdure_side import Perdure
from benchmarks.workers.pgqueuer_side import Pgqueuer
from benchmarks.workers.procrastinate_side import Procrastinate

DRAIN_S_MAX = 120.0
PAUSE_S = 0.03  # between two jobs that are sent to an idle worker, and a little more each time
BATCH = 1_000  # jobs of one transaction, of those that are enqueued in bulk
STEADY_S = 0.005  # between two jobs of a steady stream: 200 in a second
WINDOW = 100  # jobs of such a stream before it is another's turn
EARLY = 10  # jobs that are not looked at
CONTENDERS: dict[str, dict[str, Callable[[str], Contender]]] = {
    "sqlite": {"perdure": Perdure, "huey": Huey},
    "postgresql": {"perdure": Perdure, "pgqueuer": Pgqueuer, "procrastinate": Procrastinate},
}
SLOW = ("procrastinate", "huey")  # they get fewer jobs: a rate needs no minutes
NOT_ASYNC = ("huey",)  # one job in flight for each thread


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. Of retries pgqueuer gets fewer: one takes it several times as long."""

    rounds: int
    jobs: int
    jobs_slow: int
    retries: int
    retries_pgqueuer: int
    retries_slow: int
    singles: int
    samples: int
    steady: int
    in_flight: int


def measured(
    places: Places, schemes: tuple[str, ...], sizes: Sizes, only: Collection[str] = ()
) -> dict[str, Any]:
    """All values of all rounds, by store, measurement and contender."""
    found: dict[str, Any] = {scheme: {} for scheme in schemes}
    noise = []
    for _ in range(sizes.rounds):
        noise.append(calibration(places.folder))
        for scheme in schemes:
            for what, name, value in _round(places, scheme, sizes, only):
                said = summary(what, [value])
                print(f"{scheme}, {what}, {name}: {said}", file=sys.stderr, flush=True)
                found[scheme].setdefault(what, {}).setdefault(name, []).append(value)
    return {"noise": noise, **found}


def _round(
    places: Places, scheme: str, sizes: Sizes, only: Collection[str]
) -> Iterator[tuple[str, str, Any]]:
    names = CONTENDERS[scheme]
    for what, measure in MEASURES.items():
        for name in names if not only or what in only else ():
            value = measure(places, scheme, name, sizes)
            if value is not None:
                yield what, name, value
    for what, compare in TIMED.items():
        if not only or what in only:
            for name, taken_ms in compare(places, scheme, names, sizes).items():
                yield what, name, taken_ms


@contextmanager
def _opened(places: Places, scheme: str, name: str) -> Iterator[tuple[str, Any]]:
    with places.fresh(scheme) as url:
        contender = CONTENDERS[scheme][name](url)
        try:
            yield url, contender
        finally:
            contender.close()


@contextmanager
def _at_work(
    places: Places, scheme: str, name: str, *, count: int = 1, concurrency: int | None = None
) -> Iterator[tuple[Any, Crew]]:
    with (
        _opened(places, scheme, name) as (url, contender),
        crew(contender, url, count=count, concurrency=concurrency) as workers,
    ):
        yield contender, workers


def bulk(places: Places, scheme: str, name: str, sizes: Sizes) -> float:
    """Jobs a second that one client enqueues in transactions of a thousand, while nobody works."""
    new = payloads(sizes.jobs_slow if name in SLOW else sizes.jobs)
    with _opened(places, scheme, name) as (_, contender):
        contender.enqueue("nothing", new[:1])  # the first finds nothing prepared
        begun_s = time.monotonic()
        for at in range(0, len(new), BATCH):
            contender.enqueue("nothing", new[at : at + BATCH])
        return round(len(new) / (time.monotonic() - begun_s), 1)


def single(places: Places, scheme: str, name: str, sizes: Sizes) -> float:
    """Jobs a second that one client enqueues one by one."""
    with _opened(places, scheme, name) as (_, contender):
        contender.each("nothing", payloads(sizes.singles // 10 + 1))
        begun_s = time.monotonic()
        contender.each("nothing", payloads(sizes.singles))
        return round(sizes.singles / (time.monotonic() - begun_s), 1)


def drained(
    places: Places, scheme: str, name: str, what: str, jobs: int, *, count: int = 1
) -> float:
    """Jobs a second of so many processes."""
    with _at_work(places, scheme, name, count=count) as (contender, workers):
        with workers.frozen():
            contender.enqueue(what, payloads(jobs))
            begun_s = time.monotonic()
        ended_s = workers.until(lambda: not contender.busy(), within_s=DRAIN_S_MAX)
        if contender.finished() != jobs:
            raise AssertionError(f"{name} finished {contender.finished()} of {jobs} jobs")
        attempts = jobs * 2 if what == "flaky" else jobs
        if isinstance(contender, Perdure) and contender.attempts() != attempts:
            raise AssertionError(f"{contender.attempts()} attempts are kept, wanted {attempts}")
    return round(jobs / (ended_s - begun_s), 1)


def payloads(count: int) -> list[Payload]:
    """About 120 bytes each."""
    return [{"n": n, "text": "x" * 100} for n in range(count)]


def one_process(places: Places, scheme: str, name: str, sizes: Sizes) -> float:
    """Drain with one worker process."""
    jobs = sizes.jobs_slow if name in SLOW else sizes.jobs
    return drained(places, scheme, name, "nothing", jobs)


def two_processes(places: Places, scheme: str, name: str, sizes: Sizes) -> float:
    """Drain with two."""
    jobs = sizes.jobs_slow if name in SLOW else sizes.jobs
    return drained(places, scheme, name, "nothing", jobs, count=2)


def retries(places: Places, scheme: str, name: str, sizes: Sizes) -> float:
    """Drain, where every job fails once and may be tried again at once."""
    few = {"pgqueuer": sizes.retries_pgqueuer, **dict.fromkeys(SLOW, sizes.retries_slow)}
    return drained(places, scheme, name, "flaky", few.get(name, sizes.retries))


class _Stream:
    """Jobs that say how long it took until they began, sent to one contender."""

    def __init__(self, contender: Any, workers: Crew) -> None:
        self._contender = contender
        self._workers = workers
        self._sent = 0

    def send(self, count: int) -> None:
        """So many, at a steady pace; returns when all have begun. A late one delays none of the others."""
        next_at_s = time.monotonic()
        for _ in range(count):
            time.sleep(max(0.0, next_at_s - time.monotonic()))
            self._contender.send("timed", {"sent_ns": time.monotonic_ns()})
            next_at_s = max(next_at_s + STEADY_S, time.monotonic() - 10 * STEADY_S)
        self._sent += count
        self._workers.until(lambda: len(self._lines()) >= self._sent, within_s=60)

    def taken_ms(self, first: int) -> list[float]:
        """How long each took, without the first few, which found nothing prepared."""
        return [round(int(line) / 1e6, 2) for line in self._lines()[first:]]

    def _lines(self) -> list[str]:
        return ledger.lines(self._workers.folder, "timed")


@contextmanager
def _streams(places: Places, scheme: str, names: Iterable[str]) -> Iterator[dict[str, _Stream]]:
    """Everybody at work at the same time, on a database of its own: what disturbs one disturbs all."""
    with ExitStack() as opened:
        yield {
            name: _Stream(*opened.enter_context(_at_work(places, scheme, name))) for name in names
        }


def pick_up(
    places: Places, scheme: str, names: Iterable[str], sizes: Sizes
) -> dict[str, list[float]]:
    """Milliseconds from before a job is sent until its stage begins, on idle workers; job by job in turns."""
    with _streams(places, scheme, names) as streams:
        for number in range(EARLY + sizes.samples):
            for stream in streams.values():
                stream.send(1)
                time.sleep(PAUSE_S + number % 10 / 1000)  # in step with nobody's polling
        return {name: stream.taken_ms(EARLY) for name, stream in streams.items()}


def steady(
    places: Places, scheme: str, names: Iterable[str], sizes: Sizes
) -> dict[str, list[float]]:
    """The same, while a job is sent every five milliseconds; half a second of it in turns."""
    with _streams(places, scheme, names) as streams:
        for stream in streams.values():
            stream.send(EARLY)
        for at in range(0, sizes.steady, WINDOW):
            for stream in streams.values():
                stream.send(min(WINDOW, sizes.steady - at))
        return {name: stream.taken_ms(EARLY) for name, stream in streams.items()}


def memory(places: Places, scheme: str, name: str, sizes: Sizes) -> float | None:
    """Peak MiB of all processes of one worker with many jobs in flight."""
    if name in NOT_ASYNC:
        return None
    count = sizes.in_flight
    with _at_work(places, scheme, name, concurrency=count) as (contender, workers):
        contender.enqueue("held", payloads(count))
        workers.until(lambda: len(ledger.lines(workers.folder, "held")) >= count, within_s=120)
        return workers.memory_mib()


MEASURES: dict[str, Callable[[Places, str, str, Sizes], Any]] = {
    "bulk enqueue": bulk,
    "single enqueue": single,
    "drain, 1 process": one_process,
    "drain, 2 processes": two_processes,
    "retry": retries,
    "memory": memory,
}
TIMED: dict[str, Callable[[Places, str, Iterable[str], Sizes], dict[str, list[float]]]] = {
    "pick-up": pick_up,
    "steady": steady,
}


def summary(what: str, values: list[Any]) -> dict[str, Any]:
    """The median of the rounds and all values; of times to begin the percentiles over all samples."""
    if what in TIMED:
        every = [one for series in values for one in series]
        return {
            "p50_ms": percentile(every, 0.5),
            "p95_ms": percentile(every, 0.95),
            "p99_ms": percentile(every, 0.99),
            "p99_ms_all": [percentile(series, 0.99) for series in values],
            "samples": len(every),
        }
    unit = "mib" if what == "memory" else "jobs_s"
    return {unit: round(statistics.median(values), 1), f"{unit}_all": values}
