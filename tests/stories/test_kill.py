"""SIGKILL in the middle of a stage: found, counted, run again, and nothing finished is repeated."""

import json
import os
import signal
import time

import pytest

from perdure.simulate.upstream import UpstreamModel
from tests.stories.ailing import Ailing, Call
from tests.stories.kit import Story, WorkerProcess, on_both_long, until
from tests.stories.looking import Row
from tests.stories.nemesis import unjust

pytestmark = pytest.mark.story

LEASE_S = 2.0


def kill_child(worker: WorkerProcess) -> int:
    """The process that works; when it was killed, in microseconds."""
    child = worker.child("main")
    killed_us = time.time_ns() // 1000
    os.kill(child.pid, signal.SIGKILL)
    return killed_us


def kill_all(worker: WorkerProcess) -> int:
    """The process that works and its supervisor, as when a machine is gone; when, in microseconds."""
    child = worker.child("main")
    killed_us = time.time_ns() // 1000
    os.kill(child.pid, signal.SIGSTOP)  # or it might give its job back between the two kills
    worker.kill(signal.SIGKILL)
    os.kill(child.pid, signal.SIGKILL)
    return killed_us


def ran_again(story: Story, job: str, after_us: int) -> Row:
    """The claim after the kill, and the row of the worker that made it."""
    return until(
        f"job {job} has been claimed again",
        lambda: story.rows(
            "SELECT j.claimed_at, w.* FROM perdure_jobs AS j JOIN perdure_workers AS w "
            "ON w.no = j.worker WHERE j.id = ? AND j.stage = 'work' AND j.claimed_at > ?",
            job,
            after_us,
        ),
        within_s=60,
    )[0]


def show_time(killed_us: int, claim: Row, *, judge_heard_us: int = 0) -> None:
    """Kill to next claim, by the store's times: the lease and two seconds, where nobody else keeps the machine busy.

    Told apart is the start of a Python process: a crashed job runs in a child of its own, and from
    the row that announces the child to its claim passes the machine's time, not ours. A judge that
    the machine has not let beat may not judge yet, so its lease begins when it is heard again.
    """
    took_s = (claim["claimed_at"] - killed_us) / 1e6
    start_s = (claim["claimed_at"] - max(claim["started_at"], killed_us)) / 1e6
    deaf_s = max(0, judge_heard_us - killed_us) / 1e6
    print(
        f"FIGURE killed to claimed again: {took_s:.2f} s, {start_s:.2f} s of it process start, "
        f"{deaf_s:.2f} s of it no judge"
    )


def assert_one_crash(story: Story, job: str, death: dict[str, object]) -> None:
    assert [(one["stage"], one["status"], one["counted"]) for one in story.attempts(job)] == [
        ("prepare", "success", None),
        ("work", "interrupted", "crashes"),
        ("work", "success", None),
        ("finish", "success", None),
    ]
    assert json.loads(story.attempts(job)[1]["evidence"]) == death
    assert story.job(job)["state"] == "succeeded"


def assert_finished_stages_ran_once(story: Story, job: str) -> None:
    ledger = story.ledger()
    assert len(ledger.pids(job, "prepare")) == 1
    assert len(ledger.pids(job, "finish")) == 1
    first, second = ledger.pids(job, "work")
    assert first != second
    assert [one.pid for one in ledger.of(job, "work", "end")] == [second]


@on_both_long
@pytest.mark.parametrize("pipeline", ["walk", "walk_sync"])
def test_a_job_whose_process_is_killed_runs_again_and_repeats_no_finished_stage(story, pipeline):
    worker = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue(pipeline, [{"work": {"until": "go"}}])
    story.started(job, "work")
    killed_us = kill_child(worker)
    claim = ran_again(story, job, killed_us)
    assert claim["role"] == "suspects"
    story.started(job, "work", times=2)
    story.open_gate("go")
    story.all_ended(within_s=30)
    show_time(killed_us, claim)
    assert_one_crash(story, job, {"why": "exited", "exit_status": None, "signal": "SIGKILL"})
    assert_finished_stages_ran_once(story, job)
    story.assert_audit_is_clean()


@on_both_long
def test_a_job_whose_whole_worker_is_killed_is_found_by_its_lease(story):
    doomed = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    other = story.worker("b", lease_s=LEASE_S, poll_s=1.0)  # the default, which is the slowest
    story.judging(other)
    judge = other.child("main").worker
    killed_us = kill_all(doomed)
    claim = ran_again(story, job, killed_us)
    assert claim["name"].endswith(f":{other.pid}")
    story.started(job, "work", times=2)
    story.open_gate("go")
    story.all_ended(within_s=30)
    heard = story.rows("SELECT steady_at FROM perdure_workers WHERE no = ?", judge)[0][0]
    show_time(killed_us, claim, judge_heard_us=heard)
    assert_one_crash(story, job, {"why": "silent", "exit_status": None, "signal": None})
    assert_finished_stages_ran_once(story, job)
    story.assert_audit_is_clean()


@on_both_long
def test_the_survivor_of_two_workers_goes_on_with_the_whole_limit_of_their_upstream(story):
    with Ailing(UpstreamModel(rate_per_s=None, latency_s=0.2)) as upstream:
        story.settings["STORY_UPSTREAM"] = upstream.url
        story.enqueue("limited", [{"n": n} for n in range(100)], module="calls")
        doomed = story.worker("a", lease_s=1.0, concurrency=8, module="calls")
        until("it has the whole limit", lambda: most_at_once(upstream.calls) == 6, within_s=60)
        number = doomed.child().worker
        story.worker("b", lease_s=1.0, concurrency=8, module="calls").child()
        killed_us = kill_all(doomed)
        dead = "SELECT dead_at FROM perdure_workers WHERE no = ? AND dead_at IS NOT NULL"
        ((dead_us,),) = until("it is dead", lambda: story.rows(dead, number), within_s=60)
        before = len(upstream.calls)
        story.enqueue("limited", [{"n": n} for n in range(30)], module="calls")
        assert story.all_ended(within_s=60) == {"succeeded": 130}
    idle_s = upstream.calls[before].at_s - dead_us / 1e6
    print(
        f"FIGURE dead {(dead_us - killed_us) / 1e6:.1f} s after the kill, a call {idle_s:.1f} s later"
    )
    assert most_at_once(upstream.calls[before:]) == 6
    assert most_at_once(upstream.calls) == 6  # never more, whoever made them
    story.assert_audit_is_clean()


def most_at_once(calls: list[Call]) -> int:
    return max((call.at_once for call in calls), default=0)


@on_both_long
def test_a_job_whose_supervisor_alone_is_killed_is_given_back_and_counts_nothing(story):
    doomed = story.worker("a", lease_s=LEASE_S)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    child = doomed.child("main")
    doomed.kill(signal.SIGKILL)
    until(
        "the child gives back what it held",
        lambda: story.job(job)["state"] == "queued",
        within_s=20,
    )
    story.worker("b", lease_s=LEASE_S)
    story.started(job, "work", times=2)
    story.open_gate("go")
    story.all_ended(within_s=30)
    interrupted = story.attempts(job)[1]
    assert (interrupted["status"], interrupted["counted"]) == ("interrupted", "releases")
    assert child.pid == story.ledger().pids(job, "work")[0]
    story.assert_audit_is_clean()


@on_both_long
def test_a_job_killed_three_times_fails_as_crashed_the_third_time_alone(story):
    worker = story.worker("a", lease_s=LEASE_S)
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}] * 3)
    killed = set()
    for times, role in enumerate(("main", "suspects"), start=1):
        for job in jobs:
            story.started(job, "work", times=times)
        child = worker.child(role)
        killed.add(child.worker)
        os.kill(child.pid, signal.SIGKILL)
    until("one of them runs alone", lambda: worker.children("alone"), within_s=30)
    alone = worker.child("alone")
    [victim] = until(
        "it has a job",
        lambda: story.rows("SELECT id FROM perdure_jobs WHERE worker = ?", alone.worker),
        within_s=30,
    )
    story.started(victim["id"], "work", times=3)
    os.kill(alone.pid, signal.SIGKILL)
    story.open_gate("go")
    assert story.all_ended(within_s=60) == {"failed": 1, "succeeded": 2}
    row = story.job(victim["id"])
    assert (row["failed_reason"], row["starts"], row["crashes"]) == ("crashed", 3, 3)
    assert unjust(story, killed | {alone.worker}) == []
    story.assert_audit_is_clean()
