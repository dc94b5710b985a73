"""PostgreSQL is restarted under the workers: they go on by themselves, and nobody pays for it."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from tests.servers import programs
from tests.servers.postgres import Mode, Server
from tests.stories.kit import Story, WorkerProcess, played, until

pytestmark = pytest.mark.story

LEASE_S = 2.0
JOBS = 800


@pytest.fixture
def server(missing: Callable[[str], NoReturn]) -> Iterator[Server]:
    """One that this story may stop."""
    try:
        own = Server()
    except programs.MissingPart as part:
        missing(str(part))
    with own:
        yield own


@pytest.fixture
def story(server: Server, tmp_path: Path) -> Iterator[Story]:
    with played(tmp_path, server.create_database()) as one:
        yield one


def accepting(url: str) -> bool:
    """Whether the server lets a stranger in."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def restart(server: Server, story: Story, mode: Mode = "immediate") -> float:
    """Stop the server, with a crash unless told, and start it again; how long from its first welcome until both have settled."""
    server.stop(mode)
    server.start()
    until("it accepts connections", lambda: accepting(story.url), within_s=30)
    back_us = time.time_ns() // 1000

    def settled() -> list[int]:
        rows = story.rows(
            "SELECT min(settled_at) FROM perdure_attempts WHERE settled_at > ? GROUP BY worker",
            back_us,
        )
        return [at_us for (at_us,) in rows] if len(rows) == 2 else []

    return (max(until("work flows in both", settled, within_s=60)) - back_us) / 1e6


def done_by_now(story: Story, wanted: int) -> bool:
    return story.states().get("succeeded", 0) >= wanted


def assert_no_attempt_was_burnt(story: Story) -> None:
    (failures, crashes) = story.rows("SELECT sum(failures), sum(crashes) FROM perdure_jobs")[0]
    assert (failures, crashes) == (0, 0)
    statuses = story.rows("SELECT DISTINCT status FROM perdure_attempts")
    assert [one["status"] for one in statuses] == ["success"]
    assert not story.rows("SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL")


def test_work_flows_again_from_a_restarted_server_and_no_attempt_is_burnt(server, story):
    workers = [story.worker(name, lease_s=LEASE_S, concurrency=8) for name in ("a", "b")]
    story.enqueue("walk", [{"work": {"sleep_s": 0.1}}] * JOBS)
    children = [worker.child("main").pid for worker in workers]
    recoveries_s = []
    for done in (50, 300):
        reached = partial(done_by_now, story, done)
        until(f"{done} are done", reached, within_s=60)
        recoveries_s.append(restart(server, story))
        assert story.states()["queued"] > 0  # else there was no load
    assert story.all_ended(within_s=90) == {"succeeded": JOBS}
    print(f"FIGURE welcome to work, in s: {', '.join(f'{one:.2f}' for one in recoveries_s)}")
    assert [worker.child("main").pid for worker in workers] == children
    assert_no_attempt_was_burnt(story)
    ledger = story.ledger()
    starts = [(one.job, one.stage) for one in ledger.entries if one.event == "start"]
    assert len(starts) == len(set(starts)) == 3 * JOBS
    story.assert_audit_is_clean()


def test_a_server_that_is_away_for_three_leases_makes_nobody_dead(server, story):
    workers = [story.worker(name, lease_s=1.0, concurrency=4) for name in ("a", "b")]
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}] * 6)
    for job in jobs:
        story.started(job, "work")
    children = [worker.child("main").pid for worker in workers]
    server.stop("immediate")
    story.open_gate("go")  # all of them finish while nobody can be told
    until(
        "the stages have finished",
        lambda: all(story.ledger().of(job, "work", "end") for job in jobs),
        within_s=30,
    )
    gone_at = time.monotonic()
    until("three leases have passed", lambda: time.monotonic() - gone_at > 3.0, within_s=30)
    server.start()
    assert story.all_ended(within_s=60) == {"succeeded": 6}
    assert [worker.child("main").pid for worker in workers] == children
    assert_no_attempt_was_burnt(story)
    for job in jobs:
        assert len(story.ledger().pids(job, "work")) == 1
    story.assert_audit_is_clean()
    for worker in workers:
        assert_outage_is_told_once_by_each_process(worker)


def assert_outage_is_told_once_by_each_process(worker: WorkerProcess) -> None:
    """A supervisor and its child write into one log."""
    told = [line.split()[2] for line in worker.log.read_text().splitlines() if "store_" in line]
    print(f"FIGURE told of an outage of three leases: {len(told)} lines of two processes")
    assert sorted(told) == ["store_away"] * 2 + ["store_back"] * 2
