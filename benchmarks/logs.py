"""What log lines cost the pump when 5,000 jobs fail at once: as they were written before lines had a queue, and now.

A worker inside this process works 5,000 jobs off that all fail at their first attempt, which is a warning each. Its log goes
into a pipe that another process reads. *Direct* is the way of the standard library: the thread that logs makes the
line and writes it. The CPU time is that of the pump's thread alone, by its own clock; *none* writes no lines at all.

    PYTHONPATH=. python benchmarks/logs.py [--quick] [--json FILE] [--rounds N]
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perdure import App
from perdure.engine.observe import Observers
from perdure.model.events import Event
from perdure.model.filters import JobFilter
from perdure.model.states import State
from perdure.observers.event_lines import JsonFormatter, TextFormatter, level_of
from perdure.observers.log import log, log_event
from perdure.observers.log_queue import LogQueue, LogStream
from perdure.ports import Observer
from perdure.rules.policy import RETRY, Policy

JOBS, JOBS_QUICK = 5_000, 60
ONCE = Policy("once", attempts_max=1, otherwise=RETRY)
WAYS = ("none", "text, direct", "text, queued", "JSON, direct", "JSON, queued")
_DONE_S_MAX = 600.0


@dataclass
class Cost:
    """What one way took: lines and bytes, CPU of the pump's thread and of the process, and time in all."""

    lines: int
    bytes: int
    pump_ms: float
    process_ms: float
    took_ms: float
    dropped: int


def main() -> None:
    """Measure, print a table, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--quick", action="store_true", help="see that it runs; numbers mean nothing"
    )
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument("--rounds", type=int, default=5, help="how often each way is taken")
    given = arguments.parse_args()
    jobs, rounds = (JOBS_QUICK, 1) if given.quick else (JOBS, given.rounds)
    found = measured(jobs, rounds)
    print("\n".join(told(found, jobs)))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


def measured(jobs: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Every way, in turns."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(vars(cost_of(way, jobs)))
    return found


def told(found: dict[str, list[dict[str, Any]]], jobs: int) -> list[str]:
    """A table of medians; a line's cost is what the pump takes more than without a log."""
    lines = [
        "| log | lines | bytes | pump's CPU, ms | of it for a job's lines, µs | process's CPU, ms | dropped |",
        "|---|---|---|---|---|---|---|",
    ]
    bare_ms = middle(found["none"], "pump_ms")
    for way, costs in found.items():
        pump_ms = middle(costs, "pump_ms")
        for_lines_us = 1_000 * (pump_ms - bare_ms) / jobs
        lines.append(
            f"| {way} | {middle(costs, 'lines'):,.0f} | {middle(costs, 'bytes'):,.0f} | {pump_ms:,.0f} | "
            f"{for_lines_us:.1f} | {middle(costs, 'process_ms'):,.0f} | {middle(costs, 'dropped'):,.0f} |"
        )
    return lines


def middle(costs: list[dict[str, Any]], what: str) -> float:
    """The median of several rounds."""
    values = sorted(cost[what] for cost in costs)
    return float(values[len(values) // 2])


def cost_of(way: str, jobs: int) -> Cost:
    """Let so many jobs fail at once, and log it that way."""
    with tempfile.TemporaryDirectory() as folder:
        app = App(f"sqlite:///{folder}/logs.db")
        pipe = app.pipeline("invoices", app.stage(policy=ONCE)(ask))
        pipe.enqueue_many(range(jobs))
        with closing(app), Reading() as reading, logged(way, reading) as (observer, output):
            app._session.observers = Observers([observer])
            begun_s, process_s = time.monotonic(), time.process_time()
            with app.working(concurrency=jobs):
                pump_s = pump_clock()
                await_all(app, jobs)
                spent_s = pump_s()
            output.flush()
            process_s = time.process_time() - process_s
            took_s = time.monotonic() - begun_s
            dropped = getattr(output, "dropped", 0)
        lines, size = reading.counts
    return Cost(lines, size, 1e3 * spent_s, 1e3 * process_s, 1e3 * took_s, dropped)


async def ask(item: Any) -> Any:
    """As a stage whose upstream is not there."""
    raise ConnectionError("nobody answers")


def await_all(app: App, jobs: int) -> None:
    """Wait until all have failed."""
    failed = JobFilter(states=(State.FAILED,))
    give_up_at = time.monotonic() + _DONE_S_MAX
    while app._session.opened.reader.preview(failed).count < jobs:
        if time.monotonic() > give_up_at:
            sys.exit(f"not all of {jobs} jobs have failed within {_DONE_S_MAX:g} s")
        time.sleep(0.05)


def pump_clock() -> Callable[[], float]:
    """A clock of the CPU time that the pump's thread has spent since it began."""
    give_up_at = time.monotonic() + _DONE_S_MAX
    while time.monotonic() < give_up_at:
        for one in threading.enumerate():
            if one.name == "perdure-pump" and one.ident is not None:
                number = time.pthread_getcpuclockid(one.ident)
                return lambda: time.clock_gettime(number)
        time.sleep(0.001)
    sys.exit("the worker has no pump")


class Reading:
    """A process that reads a pipe to its end and counts lines and bytes."""

    def __enter__(self) -> Self:
        reads, writes = os.pipe()
        self.stream = os.fdopen(writes, "w")
        self._process = subprocess.Popen(["wc", "-lc"], stdin=reads, stdout=subprocess.PIPE)
        os.close(reads)
        return self

    def __exit__(self, *raised: object) -> None:
        self.stream.close()
        said, _ = self._process.communicate()
        lines, size = said.split()
        self.counts = int(lines), int(size)


@contextmanager
def logged(way: str, reading: Reading) -> Iterator[tuple[Observer, logging.Handler]]:
    """The log written in one way, at its usual level; who tells it, and who writes it."""
    form, _, how = way.partition(", ")
    formatter = TextFormatter() if form == "text" else JsonFormatter()
    output: logging.Handler
    if way == "none":
        output = logging.NullHandler()
    elif how == "direct":
        output = logging.StreamHandler(reading.stream)
        output.setFormatter(formatter)
    else:
        output = LogQueue(LogStream(reading.stream), formatter, sums_up=form == "text")
    before = (log.handlers[:], log.level, log.propagate)
    log.handlers[:], log.propagate = [output], False
    log.setLevel(logging.CRITICAL if way == "none" else logging.INFO)
    try:
        yield (log_event_at_once if how == "direct" else log_event), output
    finally:
        output.close()
        log.handlers[:], log.level, log.propagate = before


def log_event_at_once(event: Event) -> None:
    """As events were logged before: the words are put together at once, and the caller is looked for."""
    level = level_of(event)
    if log.isEnabledFor(level):
        fields = {name: value for name, value in event.fields.items() if value is not None}
        words = [event.name.value, *(f"{name}={value}" for name, value in fields.items())]
        extra = {"perdure_event": event.name.value, "perdure": fields}
        log.log(level, "%s", " ".join(words), extra=extra)


if __name__ == "__main__":
    main()
