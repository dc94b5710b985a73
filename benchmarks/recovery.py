"""How soon work goes on after a fault, beside what is promised: real workers, real kills, a real server.

Each figure is the worst of several rounds, with the start of Python processes and all that the machine did meanwhile
in it. A figure is measured from the fault, or from the moment at which a stranger can connect again.

    PYTHONPATH=. python benchmarks/recovery.py [--long] [--rounds N] [--json FILE] [--only WORD]
"""

import argparse
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.stores import report
from benchmarks.stores.places import versions
from tests.servers.postgres import Mode, Server
from tests.stores.postgres.test_half_open import network
from tests.stories import test_gil, test_kill, test_postgres_crash, test_restart, test_writers
from tests.stories.hands import working
from tests.stories.kit import Story, played, until

ROOT = Path(__file__).parents[1]
ROUNDS, ROUNDS_LONG = 3, 10
LEASE_S = test_kill.LEASE_S
HELD_JOB = [{"work": {"until": "go"}}]
JOBS_A_RESTART = 400


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that is promised within a time, and how to measure it so many times."""

    what: str
    limit_s: float
    measure: Callable[[Server, int], list[float]]


@contextmanager
def told_quietly(url: str | None) -> Iterator[Story]:
    """A story on that store, or on a file of its own; its logs are shown if it breaks down."""
    said = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            redirect_stdout(said),
            played(Path(folder), url) as story,
        ):
            yield story
    except BaseException:
        sys.stderr.write(said.getvalue())
        raise


def each_on(
    scheme: str, play: Callable[[Story], list[float]], server: Server, rounds: int
) -> list[float]:
    """A story of its own for each round."""
    taken: list[float] = []
    for _ in range(rounds):
        with told_quietly(server.create_database() if scheme == "postgresql" else None) as story:
            taken += play(story)
    return taken


def claimed_again(story: Story, job: str, killed_us: int) -> list[float]:
    """From the kill to the next claim; how much of it is the start of the process that claims is said aside."""
    claim = test_kill.ran_again(story, job, killed_us)
    taken_s = (claim["claimed_at"] - killed_us) / 1e6
    start_s = (claim["claimed_at"] - max(claim["started_at"], killed_us)) / 1e6
    print(f"  {taken_s:.2f} s, {start_s:.2f} s of it the start of a process", file=sys.stderr)
    return [taken_s]


def child_killed(story: Story) -> list[float]:
    """The process that runs a job is killed: until the job is claimed again."""
    worker = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", HELD_JOB)
    story.started(job, "work")
    killed_us = test_kill.kill_child(worker)
    return claimed_again(story, job, killed_us)


def worker_killed(story: Story) -> list[float]:
    """A whole worker is killed: until another, with the default poll, has claimed its job."""
    doomed = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", HELD_JOB)
    story.started(job, "work")
    story.judging(story.worker("b", lease_s=LEASE_S, poll_s=1.0))
    killed_us = test_kill.kill_all(doomed)
    return claimed_again(story, job, killed_us)


def gil_held(story: Story) -> list[float]:
    """A stage holds the GIL for three leases: the widest gap between two beats of its worker."""
    for worker in [story.worker(name, lease_s=test_gil.LEASE_S) for name in ("a", "b")]:
        story.judging(worker)
    [job] = story.enqueue("walk", [{"work": {"hold_gil_s": test_gil.HOLD_S}}])
    story.started(job, "work")
    beats = test_gil.beats_until_the_end(story, job)
    return [max(late - early for early, late in itertools.pairwise(beats)) / 1e6]


def beside_a_pump(story: Story) -> list[float]:
    """Each enqueue of a second process while a pump is at full speed."""
    _, waits = test_writers.enqueued_beside_a_pump(story)
    assert story.states().get("queued"), "the pump was not at full speed to the end"
    return waits


def restarted(mode: Mode, server: Server, rounds: int) -> list[float]:
    """The server is stopped and started under two workers: from its first welcome until both have settled."""
    taken = []
    with told_quietly(server.create_database()) as story:
        for name in ("a", "b"):
            story.worker(name, lease_s=LEASE_S, concurrency=8)
        for number in range(rounds):
            story.enqueue("walk", [{"work": {"sleep_s": 0.1}}] * JOBS_A_RESTART)
            done = number * JOBS_A_RESTART + 50
            until("work flows", partial(test_restart.done_by_now, story, done), within_s=60)
            taken.append(test_restart.restart(server, story, mode))
            until("all is done", lambda: story.states().keys() == {"succeeded"}, within_s=60)
    return taken


def crashed(server: Server, rounds: int) -> list[float]:
    """The server crashes under two clients of the store: until both have been answered."""
    url, chance = server.create_database(), random.Random(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        working(Path(folder), url, 1, task="enqueue") as hands,
    ):
        taken = [test_postgres_crash.crash(server, hands, chance) for _ in range(rounds)]
        hands.finish(within_s=60)
    return taken


def half_open(_: Server, rounds: int) -> list[float]:
    """The network is gone without a word: until each of three connections knows. Needs `unshare` and `ip`."""
    taken: list[float] = []
    for _ in range(rounds):
        ran = subprocess.run(
            [*network(), sys.executable, "-m", "tests.stores.postgres.half_open"],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if ran.returncode:
            print(f"half-open line not measured: {ran.stderr.strip().splitlines()[-1:]}")
            return []
        found = json.loads(ran.stdout)
        taken += [float(found[name] or "inf") for name in ("asleep", "listening", "speaking")]
    return taken


def on_each_store(what: str, limit_s: float, play: Callable[[Story], list[float]]) -> list[Bound]:
    """The same bound on both."""
    return [
        Bound(f"{name}, {what}", limit_s, partial(each_on, name.lower(), play))
        for name in ("SQLite", "PostgreSQL")
    ]


BOUNDS = (
    *on_each_store("child killed, its job claimed again", LEASE_S + 2, child_killed),
    *on_each_store("worker killed, its job claimed again", LEASE_S + 2, worker_killed),
    *on_each_store("widest gap between beats, GIL held", test_gil.LEASE_S, gil_held),
    *on_each_store("enqueue beside a saturated pump", 1.5, beside_a_pump)[:1],
    Bound("PostgreSQL restarted, both workers settle", 2.0, partial(restarted, "fast")),
    Bound("PostgreSQL crashed, both workers settle", 2.0, partial(restarted, "immediate")),
    Bound("PostgreSQL crashed, both clients answered", 2.0, crashed),
    Bound("PostgreSQL, half-open line noticed", 15.0, half_open),
)


def told(found: dict[str, dict[str, Any]]) -> str:
    """A line for each bound: the worst of so many beside the limit."""
    head = ("what", "n", "worst, s", "limit, s", "ratio", "")
    return report.table(head, [(what, *_judged(**one)) for what, one in found.items()])


def _judged(limit_s: float, taken_s: list[float]) -> tuple[str, ...]:
    if not taken_s:
        return "0", "-", f"{limit_s:g}", "-", "not measured"
    worst_s = max(taken_s)
    verdict = "met" if worst_s <= limit_s else "MISSED"
    return (
        str(len(taken_s)), f"{worst_s:.2f}", f"{limit_s:g}", f"{worst_s / limit_s:.2f}", verdict,
    )  # fmt: skip


def main() -> None:
    """Measure, print a table, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--long", action="store_true", help=f"{ROUNDS_LONG} rounds")
    arguments.add_argument("--rounds", type=int, help=f"how often; {ROUNDS} unless told")
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument(
        "--only", metavar="WORD", default="", help="lines that have this in them"
    )
    given = arguments.parse_args()
    rounds = given.rounds or (ROUNDS_LONG if given.long else ROUNDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and stop what we have started
    begun_s, load = time.monotonic(), os.getloadavg()[0]
    found = {}
    with Server() as server:
        about = versions(server)
        for one in BOUNDS:
            if given.only in one.what:
                print(f"measuring: {one.what}", file=sys.stderr, flush=True)
                found[one.what] = {"limit_s": one.limit_s, "taken_s": one.measure(server, rounds)}
    print(told(found))
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(
        f"took {time.monotonic() - begun_s:.0f} s; load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    if given.json:
        given.json.write_text(json.dumps({"versions": about, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
