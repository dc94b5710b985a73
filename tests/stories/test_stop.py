"""SIGSTOP: a process that does nothing for a while, and then goes on as if nothing had happened."""

import fcntl
import os
import signal
import time

import pytest

from tests.stories.kit import Seen, Story, WorkerProcess, on_both_long, process, until

pytestmark = pytest.mark.story

LEASE_S = 1.5


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(f"process {pid} has stopped", lambda: _state(pid) == "T", within_s=30)


def _state(pid: int) -> str | None:
    seen = process(pid)
    return None if seen is None else seen.state


def two_workers_and_a_job_in_hand(story: Story) -> tuple[WorkerProcess, WorkerProcess, str]:
    """The first worker is in the middle of the job; the second may take it over."""
    first = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    second = story.worker("b", lease_s=LEASE_S)
    story.judging(second)
    return first, second, job


def taken_over(story: Story, job: str) -> None:
    story.started(job, "work", times=2)
    story.open_gate("go")
    until("the job is done", lambda: story.job(job)["state"] == "succeeded", within_s=30)


def assert_done_once(story: Story, job: str) -> None:
    assert [(one["stage"], one["status"], one["counted"]) for one in story.attempts(job)] == [
        ("prepare", "success", None),
        ("work", "interrupted", "crashes"),
        ("work", "success", None),
        ("finish", "success", None),
    ]
    ledger = story.ledger()
    assert len(ledger.pids(job, "prepare")) == len(ledger.pids(job, "finish")) == 1
    print(f"FIGURE zombie effects: {len(ledger.of(job, 'work', 'end')) - 1}, zombie commits: 0")
    story.assert_audit_is_clean()


def assert_works_again(story: Story, worker: WorkerProcess, other: WorkerProcess) -> None:
    other.kill(signal.SIGTERM)
    assert other.exit_status(within_s=30) == 0
    [job] = story.enqueue("walk", [{"work": {}}])
    until("the job is done", lambda: story.job(job)["state"] == "succeeded", within_s=30)
    assert story.ledger().pids(job, "work") == [worker.child("main").pid]


@on_both_long
def test_a_process_stopped_beyond_its_lease_loses_its_job_and_cannot_commit_it(story):
    first, second, job = two_workers_and_a_job_in_hand(story)
    zombie = first.child("main")
    stopped(zombie.pid)
    taken_over(story, job)
    os.kill(zombie.pid, signal.SIGCONT)
    until("the zombie has ended", lambda: process(zombie.pid) is None, within_s=30)
    assert_works_again(story, first, second)
    assert_done_once(story, job)


@on_both_long
def test_a_process_stopped_with_its_supervisor_finds_out_by_itself_that_it_is_dead(story):
    first, second, job = two_workers_and_a_job_in_hand(story)
    zombie = first.child("main")
    stopped(first.pid)  # or it would kill the zombie before it can say a word
    stopped(zombie.pid)
    taken_over(story, job)
    os.kill(zombie.pid, signal.SIGCONT)
    until("the zombie has ended", lambda: process(zombie.pid) is None, within_s=30)
    os.kill(first.pid, signal.SIGCONT)
    assert_works_again(story, first, second)
    assert "worker_lost worker=1 exit=17 role=main" in first.log.read_text()  # declared dead
    assert_done_once(story, job)


@on_both_long
def test_a_process_stopped_for_less_than_its_lease_goes_on(story):
    first, second, job = two_workers_and_a_job_in_hand(story)
    child = first.child("main")
    stopped_at = time.monotonic()
    stopped(child.pid)
    until(
        "the fault has lasted", lambda: time.monotonic() - stopped_at > LEASE_S * 0.9, within_s=30
    )
    os.kill(child.pid, signal.SIGCONT)
    went_on_us = time.time_ns() // 1000
    until(
        "the other worker has had a whole lease to find fault",
        lambda: story.rows(
            "SELECT 1 FROM perdure_workers WHERE no = ? AND beat_at - ttl_us > ?",
            second.child("main").worker,
            went_on_us,
        ),
        within_s=30,
    )
    story.open_gate("go")
    story.all_ended(within_s=30)
    assert story.ledger().pids(job, "work") == [child.pid]
    assert [one["counted"] for one in story.attempts(job)] == [None, None, None]
    assert not story.rows("SELECT 1 FROM perdure_workers WHERE dead_at IS NOT NULL")
    story.assert_audit_is_clean()


def stopped_in_the_line(story: Story, child: Seen) -> None:
    """Stop the child while it holds the line of the store's writers; try until that succeeds."""
    lock = os.open(f"{story.file}-lock", os.O_RDWR)

    def caught() -> bool:
        stopped(child.pid)
        if all(not _free(lock) for _ in range(5)):
            return True
        os.kill(child.pid, signal.SIGCONT)
        return False

    until("the child is stopped while it holds the line", caught, within_s=60)
    os.close(lock)


def _free(lock: int) -> bool:
    time.sleep(0.02)  # longer than any other writer's turn, which is a beat
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def test_a_process_stopped_while_it_keeps_the_store_from_being_written_is_killed(story):
    worker = story.worker("a", lease_s=LEASE_S, concurrency=50)
    story.enqueue("walk", [{"work": {}}] * 4_000)
    child = worker.child("main")
    until("the pump is at work", lambda: story.states().get("succeeded", 0) > 100, within_s=30)
    stopped_in_the_line(story, child)
    stopped_at = time.monotonic()
    story.enqueue("walk", [{"work": {}}])
    waited_s = time.monotonic() - stopped_at
    print(f"FIGURE enqueue beside a stopped writer: {waited_s:.2f} s")
    assert process(child.pid) is None
    assert story.all_ended(within_s=60) == {"succeeded": 4_001}
    story.assert_audit_is_clean()


@pytest.mark.long
def test_a_process_killed_in_the_line_does_not_leave_the_line_to_what_it_has_forked(story):
    worker = story.worker("a", lease_s=LEASE_S, concurrency=50)
    [forking] = story.enqueue("walk_sync", [{"work": {"fork_s": 60.0}}])
    until("it has forked", lambda: story.job(forking)["state"] == "succeeded", within_s=30)
    story.enqueue("walk", [{"work": {}}] * 10_000)
    child = worker.child("main")
    until("the pump is at work", lambda: story.states().get("succeeded", 0) > 100, within_s=30)
    stopped_in_the_line(story, child)
    os.kill(child.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    story.enqueue("walk", [{"work": {}}])
    print(f"FIGURE enqueue after a kill in the line: {time.monotonic() - killed_at:.2f} s")
    assert story.all_ended(within_s=60) == {"succeeded": 10_002}
    story.assert_audit_is_clean()
