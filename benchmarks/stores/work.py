"""The same work for every contender: jobs, how their attempts end, and how a loop over them is timed.

A contender only says how it enqueues and how it takes a turn. What is timed is the same for all: the
calls `enqueue` and `turn`. What an engine around them would build (new jobs, records) is built outside
the clock, for us and for the raw loops alike.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from perdure.engine.clock import SystemClock
from perdure.engine.ids import Ids
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.jobs import ZERO, Claim, Counters, Record
from perdure.model.outcomes import Raised, Returned
from perdure.rules.evidence import evidence_of
from perdure.rules.presets import preset

ENQUEUE_BATCH = 1_000
ELAPSED_S = 0.125

_ids = Ids(SystemClock(), random.SystemRandom())


@dataclass(frozen=True, slots=True)
class Item:
    """A job to come: an id of its own and 120 bytes of payload."""

    id: str
    payload_json: str


def items(count: int) -> list[Item]:
    """So many jobs."""
    return [Item(_ids.next(), f'{{"n":{n:06d},"text":"{"x" * 100}"}}') for n in range(count)]


async def _nothing(item: object) -> None:
    """A stage that does nothing."""


def _ended(failed: bool) -> Record:
    """What the engine makes of a first attempt; every word in it is the engine's own."""
    stage = Stage("one", _nothing, preset("standard"), 60.0)
    line = LaidPipeline("p", "q", "c", (stage,), {"one": 1})
    now = datetime.now(UTC)
    claim = Claim(
        1,
        "",
        1,
        1,
        "p",
        "one",
        "",
        "{}",
        "{}",
        Counters(starts=1),
        ZERO,
        1,
        0,
        now,
        now,
        None,
        None,
    )
    raised = ConnectionResetError(104, "Connection reset by peer")
    outcome = Raised(evidence_of(raised)) if failed else Returned('"done"')
    return settle(Ending(claim, outcome, ELAPSED_S, 1), line, stage, chance=0.5)


SUCCESS = _ended(failed=False)
FAILURE = _ended(failed=True)


class Contender(Protocol):
    """One way to keep jobs, on a database of its own."""

    def prepared(self, batch: Sequence[Item]) -> Any:
        """What `enqueue` takes; built outside the clock."""
        ...

    def enqueue(self, prepared: Any) -> None:
        """Make the jobs durable, in one transaction."""
        ...

    def settled(self, claims: Sequence[Any], *, failing: bool) -> Any:
        """How the attempts ended; built outside the clock. With ``failing``, each job's first fails."""
        ...

    def turn(self, endings: Any, slots: int) -> Sequence[Any]:
        """Record the endings and claim so many jobs, in one transaction."""
        ...

    def ready(self) -> None:
        """Between enqueueing and draining: what a server's own upkeep would have done by then."""
        ...

    def server_ns(self) -> int | None:
        """CPU time that the server has spent for us; None when all of it is spent by ourselves."""
        ...

    def counted(self) -> tuple[int, int]:
        """Finished jobs and attempt rows."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """So many jobs in so much time, and where it was looked at, what a job cost in CPU time on either side."""

    jobs: int
    elapsed_s: float
    client_us: float | None = None
    server_us: float | None = None

    @property
    def jobs_s(self) -> float:
        """Jobs per second."""
        return self.jobs / self.elapsed_s


class Watch:
    """Counts the time of the calls that it makes, and no other."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._elapsed_s = 0.0
        self._client_ns = 0
        self._server_ns_begin = contender.server_ns()

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call on the clock."""
        begun_s, begun_ns = time.perf_counter(), time.thread_time_ns()
        answer = call(*arguments)
        self._client_ns += time.thread_time_ns() - begun_ns
        self._elapsed_s += time.perf_counter() - begun_s
        return answer

    def rate(self, jobs: int) -> Rate:
        """What the calls have come to."""
        spent_ns = self._contender.server_ns()
        server_us = None
        if spent_ns is not None and self._server_ns_begin is not None:
            server_us = (spent_ns - self._server_ns_begin) / jobs / 1e3
        return Rate(jobs, self._elapsed_s, self._client_ns / jobs / 1e3, server_us)


def fill(contender: Contender, count: int, *, batch: int = ENQUEUE_BATCH) -> Rate:
    """Enqueue so many jobs in batches."""
    new = items(count)
    lots = [contender.prepared(new[at : at + batch]) for at in range(0, count, batch)]
    watch = Watch(contender)
    for lot in lots:
        watch(contender.enqueue, lot)
    rate = watch.rate(count)
    contender.ready()
    return rate


def drain(contender: Contender, count: int, slots: int, *, failing: bool = False) -> Rate:
    """Take turns until nothing is left; refuse a result in which a job or an attempt is missing."""
    watch = Watch(contender)
    endings = contender.settled((), failing=failing)
    while claims := watch(contender.turn, endings, slots):
        endings = contender.settled(claims, failing=failing)
    rate = watch.rate(count)
    wanted = (count, count * 2 if failing else count)
    found = contender.counted()
    if found != wanted:
        raise AssertionError(f"{contender}: finished jobs and attempts {found}, wanted {wanted}")
    return rate


def cpu_ns(pid: int) -> int | None:
    """CPU time of a process of this machine; None where /proc does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
