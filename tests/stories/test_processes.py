"""One worker of three processes: what kills one of them is the other two's to hear of, and nothing else."""

import os
import signal

import pytest

from tests.stories.kit import Story, WorkerProcess, on_both, on_both_long, until

pytestmark = pytest.mark.story

LEASE_S = 2.0
GATED = {"work": {"until": "go"}}


def three_of(story: Story) -> WorkerProcess:
    """A worker with three processes of one slot each; all of them are there."""
    worker = story.worker(
        "a", lease_s=LEASE_S, grace_s=60, concurrency=1, options=["--processes", "3"]
    )
    until("three children", lambda: len(worker.children("main")) == 3, within_s=60)
    return worker


def holders(story: Story, jobs: list[str]) -> dict[str, int]:
    """The worker that has each job, as soon as all of them are at work."""
    for job in jobs:
        story.started(job, "work")
    return {job: story.job(job)["worker"] for job in jobs}


def at_work(story: Story, jobs: list[str]) -> list[str]:
    return [job for job in jobs if story.ledger().of(job, "work", "start")]


@on_both
def test_one_of_three_is_killed_and_the_others_never_stop(story):
    worker = three_of(story)
    jobs = story.enqueue("walk", [GATED] * 3)
    held = holders(story, jobs)
    before = {child.worker: child for child in worker.children("main")}
    assert set(held.values()) == set(before)  # one each

    struck, *spared = jobs
    os.kill(before[held[struck]].pid, signal.SIGKILL)
    story.started(struck, "work", times=2)  # in the child for suspects
    until("a third child again", lambda: len(worker.children("main")) == 3, within_s=30)

    now = {child.pid for child in worker.children("main")}
    assert {before[held[job]].pid for job in spared} < now
    assert before[held[struck]].pid not in now
    assert [story.job(job)["crashes"] for job in jobs] == [1, 0, 0]
    assert {job: story.job(job)["worker"] for job in spared} == {job: held[job] for job in spared}
    assert all(len(story.ledger().pids(job, "work")) == 1 for job in spared)

    story.open_gate("go")
    assert story.all_ended(within_s=60) == {"succeeded": 3}
    worker.kill(signal.SIGTERM)
    assert worker.exit_status(within_s=60) == 0
    story.assert_audit_is_clean()


@on_both_long
def test_a_signal_lets_all_of_them_finish_and_leaves_no_row_alive(story):
    worker = three_of(story)
    jobs = story.enqueue("walk", [GATED] * 5)
    until("each has a job", lambda: len(at_work(story, jobs)) == 3, within_s=60)
    worker.kill(signal.SIGTERM)
    story.open_gate("go")
    assert worker.exit_status(within_s=60) == 0
    assert worker.children() == []
    assert story.rows("SELECT no FROM perdure_workers WHERE dead_at IS NULL") == []
    rows = [story.job(job) for job in jobs]
    assert sum(row["crashes"] + row["failures"] + row["releases"] for row in rows) == 0
    assert {row["state"] for row in rows} <= {"queued", "succeeded"}
    assert all(story.ledger().of(job, "work", "end") for job in at_work(story, jobs))
    story.assert_audit_is_clean()
