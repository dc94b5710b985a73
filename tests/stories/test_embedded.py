"""A worker inside somebody else's process: its keeper beats for it, tells of its end, and leaves it alone."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.stories.kit import (
    Seen,
    Story,
    WorkerProcess,
    on_both,
    on_both_long,
    process,
    processes,
    until,
)
from tests.stories.test_gil import beats_until_the_end

pytestmark = pytest.mark.story

LEASE_S = 1.5
FOREVER_S = 600.0  # a lease for which no story waits


def host(story: Story, name: str, *, lease_s: float = FOREVER_S, **tuning: float) -> WorkerProcess:
    """A program with a worker inside, as soon as that works."""
    chosen = {"lease_ttl_s": lease_s, "poll_s": 0.2, "grace_s": 10.0, "concurrency": 8, **tuning}
    log = story.folder / f"host-{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [sys.executable, "host.py", json.dumps(chosen), f"host-{name}"],
            cwd=story.folder,
            env=story.environment(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    story.workers.append(WorkerProcess(name, popen, log))
    until("the host works", (story.folder / f"host-{name}").exists, within_s=30)
    return story.workers[-1]


def keepers(story: Story) -> list[Seen]:
    return [
        one
        for one in processes()
        if "perdure.app.worker.keeper_main" in one.command and story.is_ours(one.pid)
    ]


def no_keeper_is_left(story: Story) -> None:
    until("every keeper has ended", lambda: not keepers(story), within_s=30)


def statuses(story: Story, job: str) -> list[tuple[str, str, str | None]]:
    return [(one["stage"], one["status"], one["counted"]) for one in story.attempts(job)]


@on_both
def test_a_job_whose_host_is_killed_is_found_at_once_whatever_the_lease(story):
    doomed = host(story, "a")
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    story.worker("b", lease_s=FOREVER_S).child("main")
    killed_at = time.monotonic()
    doomed.kill(signal.SIGKILL)
    until("it is taken from the dead", lambda: story.job(job)["crashes"] == 1, within_s=30)
    print(f"FIGURE host killed to job found: {time.monotonic() - killed_at:.2f} s")
    story.started(job, "work", times=2)
    story.open_gate("go")
    story.all_ended(within_s=30)
    assert statuses(story, job) == [
        ("prepare", "success", None),
        ("work", "interrupted", "crashes"),
        ("work", "success", None),
        ("finish", "success", None),
    ]
    assert json.loads(story.attempts(job)[1]["evidence"]) == {
        "why": "exited",
        "exit_status": None,
        "signal": "SIGKILL",
    }
    assert (
        '"worker_lost", "worker": 1, "why": "exited", "exit": "SIGKILL"' in doomed.log.read_text()
    )
    no_keeper_is_left(story)
    story.assert_audit_is_clean()


@on_both_long
def test_a_host_stopped_beyond_its_lease_is_refused_and_begins_anew(story):
    first = host(story, "a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    second = story.worker("b", lease_s=LEASE_S)
    story.judging(second)
    os.kill(first.pid, signal.SIGSTOP)
    story.started(job, "work", times=2)
    story.open_gate("go")
    until("the job is done", lambda: story.job(job)["state"] == "succeeded", within_s=30)
    assert process(first.pid).state == "T"  # nobody has killed it, or let it go on
    os.kill(first.pid, signal.SIGCONT)
    until(
        "the host works under another row",
        lambda: story.rows(
            "SELECT 1 FROM perdure_workers WHERE name LIKE ? AND dead_at IS NULL", f"%:{first.pid}"
        ),
        within_s=30,
    )
    second.kill(signal.SIGTERM)
    assert second.exit_status(within_s=30) == 0
    [after] = story.enqueue("walk", [{"work": {}}])
    until("the host works again", lambda: story.job(after)["finished_at"], within_s=30)
    assert story.ledger().pids(after, "work") == [first.pid]
    assert statuses(story, job)[1:] == [
        ("work", "interrupted", "crashes"),
        ("work", "success", None),
        ("finish", "success", None),
    ]
    assert len(story.ledger().pids(job, "finish")) == 1
    story.assert_audit_is_clean()


@on_both_long
def test_a_host_whose_interpreter_is_held_for_three_leases_keeps_its_job(story):
    judge = story.worker("b", lease_s=1.0, concurrency=1)
    [kept] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(kept, "work")  # so the judge has no slot for what follows
    one = host(story, "a", lease_s=1.0)
    story.judging(judge)
    [job] = story.enqueue("walk_sync", [{"work": {"hold_gil_s": 3.3}}])
    story.started(job, "work")
    beats = beats_until_the_end(story, job)
    gap_s = max(late - early for early, late in itertools.pairwise(beats)) / 1e6
    print(f"FIGURE widest gap between beats: {gap_s:.2f} s, lease 1 s")
    assert len(beats) >= 3  # it was heard while its interpreter was held
    assert [counted for _, _, counted in statuses(story, job)] == [None] * 3
    assert story.ledger().pids(job, "work") == [one.pid]
    assert not story.rows("SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL")


@on_both
def test_closing_lets_stages_finish_and_ends_the_row_and_the_keeper(story):
    one = host(story, "a")
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    story.open_gate("stop")
    until("it has heard", lambda: "worker_draining" in one.log.read_text(), within_s=30)
    [late] = story.enqueue("walk", [{"work": {}}])
    assert keepers(story)  # it still beats
    story.open_gate("go")
    assert one.exit_status(within_s=30) == 0
    assert statuses(story, job)[1] == ("work", "success", None)
    assert story.job(job)["state"] == "queued"  # at the next stage: a closing worker claims no more
    assert story.job(late)["state"] == "queued"
    [row] = story.rows("SELECT * FROM perdure_workers")
    assert json.loads(row["death"])["why"] == "stopped"
    no_keeper_is_left(story)
    story.assert_audit_is_clean()


@on_both_long
def test_closing_gives_back_what_does_not_finish_within_the_grace_and_counts_nothing(story):
    one = host(story, "a", grace_s=0.3)
    jobs = story.enqueue("walk", [{"work": {"until": "never"}}] * 3)
    for job in jobs:
        story.started(job, "work")
    story.open_gate("stop")
    assert one.exit_status(within_s=30) == 0
    for job in jobs:
        assert statuses(story, job)[-1] == ("work", "interrupted", "releases")
        assert story.job(job)["state"] == "queued"
    no_keeper_is_left(story)
    story.assert_audit_is_clean()


@on_both_long
def test_a_keeper_that_is_killed_is_replaced_and_nobody_notices(story):
    one = host(story, "a", lease_s=3.0)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    [first] = keepers(story)
    os.kill(first.pid, signal.SIGKILL)
    another = lambda: [two for two in keepers(story) if two.pid != first.pid]  # noqa: E731
    until("there is another keeper", another, within_s=30)
    killed_us = time.time_ns() // 1000
    until(
        "it beats",
        lambda: story.rows("SELECT 1 FROM perdure_workers WHERE beat_at > ?", killed_us),
        within_s=30,
    )
    story.open_gate("go")
    assert story.all_ended(within_s=30) == {"succeeded": 1}
    assert story.ledger().pids(job, "work") == [one.pid]
    assert not story.rows("SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL")


@on_both_long
def test_a_suspect_is_not_run_inside_a_host_and_waits_for_a_worker_of_its_own(story):
    doomed = host(story, "a")
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    other = host(story, "b", lease_s=LEASE_S)
    doomed.kill(signal.SIGKILL)
    until("it is a suspect", lambda: story.job(job)["isolation"] == 1, within_s=30)
    until("the host says so", lambda: "suspects_left" in other.log.read_text(), within_s=60)
    assert story.job(job)["state"] == "queued"
    assert len(story.ledger().pids(job, "work")) == 1
    story.open_gate("go")
    story.worker("c", lease_s=LEASE_S)
    assert story.all_ended(within_s=60) == {"succeeded": 1}
    with suppress(ProcessLookupError):
        other.kill(signal.SIGKILL)
