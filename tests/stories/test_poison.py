"""A job that kills its process is tried three times and failed; its neighbours never notice."""

import itertools
import json

import pytest

from tests.stories.kit import Story, WorkerProcess, on_both_long, until
from tests.stories.looking import Row

pytestmark = pytest.mark.story

LEASE_S = 2.0


class Counting:
    """How many children of each role a worker was ever seen to have at once."""

    def __init__(self, *workers: WorkerProcess) -> None:
        self._workers = workers
        self.most: dict[str, int] = {}
        self.isolated_most = 0

    def look(self) -> None:
        for worker in self._workers:
            roles = [child.role for child in worker.children()]
            for role in roles:
                self.most[role] = max(self.most.get(role, 0), roles.count(role))
            apart = sum(1 for role in roles if role != "main")
            self.isolated_most = max(self.isolated_most, apart)


def ended(story: Story, counting: Counting, *, within_s: float) -> dict[str, int]:
    def question() -> bool:
        counting.look()
        return story.states().keys() <= {"succeeded", "failed"}

    until("every job has ended", question, within_s=within_s)
    return story.states()


def assert_poisoned(story: Story, job: str, death: dict[str, object]) -> None:
    """Three starts: among all, among suspects, alone; each with the same evidence."""
    row = story.job(job)
    assert (row["state"], row["failed_reason"], row["error_kind"]) == (
        "failed",
        "crashed",
        "worker_lost",
    )
    assert (row["starts"], row["crashes"], row["failures"]) == (3, 3, 0)
    tries = [one for one in story.attempts(job) if one["stage"] == "work"]
    assert [one["status"] for one in tries] == ["interrupted", "interrupted", "failed"]
    assert [json.loads(one["evidence"]) for one in tries] == [death] * 3
    assert [role_of(story, one) for one in tries] == ["main", "suspects", "alone"]
    assert len(story.ledger().pids(job, "work")) == 3
    assert not story.ledger().of(job, "work", "end")


def role_of(story: Story, attempt: Row) -> str:
    return story.rows("SELECT role FROM perdure_workers WHERE no = ?", attempt["worker"])[0][0]


def neighbours_and(poison: list[dict[str, object]]) -> list[dict[str, object]]:
    """60 slow neighbours, with the poison in the middle of the first batch."""
    slow = [{"work": {"sleep_s": 0.2}}] * 60
    return [*slow[:10], *({"work": one} for one in poison), *slow[10:]]


@on_both_long
def test_a_job_that_exits_its_process_fails_at_the_limit_and_its_neighbours_finish(story):
    worker = story.worker("a", lease_s=LEASE_S, concurrency=32)
    jobs = story.enqueue("walk", neighbours_and([{"exit": 3}]))
    counting = Counting(worker)
    assert ended(story, counting, within_s=90) == {"succeeded": 60, "failed": 1}
    assert_poisoned(story, jobs[10], {"why": "exited", "exit_status": 3, "signal": None})
    assert counting.isolated_most <= 2
    assert counting.most == {"main": 1, "suspects": 1, "alone": 1}
    crashes = story.rows("SELECT count(*) FROM perdure_attempts WHERE counted = 'crashes'")[0][0]
    print(f"FIGURE crashes counted on 60 neighbours of one poison job: {crashes - 3}")
    assert worker.popen.poll() is None
    story.assert_audit_is_clean()


@on_both_long
@pytest.mark.parametrize("status", [2, pytest.param(0, marks=pytest.mark.long)])
def test_a_job_that_exits_with_a_status_of_our_own_does_not_end_the_worker(story, status):
    worker = story.worker("a", lease_s=LEASE_S)
    jobs = story.enqueue("walk", neighbours_and([{"exit": status}])[8:13])
    assert ended(story, Counting(worker), within_s=90) == {"succeeded": 4, "failed": 1}
    assert_poisoned(story, jobs[2], {"why": "exited", "exit_status": status, "signal": None})
    assert worker.popen.poll() is None
    story.assert_audit_is_clean()


@on_both_long
def test_a_job_that_crashes_the_interpreter_is_named_by_its_signal(story):
    worker = story.worker("a", lease_s=LEASE_S)
    jobs = story.enqueue("walk_sync", neighbours_and([{"segfault": True}])[8:13])
    assert ended(story, Counting(worker), within_s=90) == {"succeeded": 4, "failed": 1}
    assert_poisoned(story, jobs[2], {"why": "exited", "exit_status": None, "signal": "SIGSEGV"})
    story.assert_audit_is_clean()


@on_both_long
@pytest.mark.long
def test_many_poison_jobs_in_two_workers_fail_and_no_neighbour_does(story):
    workers = [story.worker(name, lease_s=LEASE_S, concurrency=16) for name in ("a", "b")]
    files = {worker: worker.child("main") and worker.open_files() for worker in workers}
    jobs = story.enqueue("walk", neighbours_and([{"exit": 9}] * 5))
    counting = Counting(*workers)
    assert ended(story, counting, within_s=110) == {"succeeded": 60, "failed": 5}
    failed = [row[0] for row in story.rows("SELECT id FROM perdure_jobs WHERE state = 'failed'")]
    assert sorted(failed) == sorted(jobs[10:15])
    for job in failed:  # poison may die of other poison before it has begun, but not when alone
        assert story.job(job)["starts"] == 3
        last = story.attempts(job)[-1]
        assert role_of(story, last) == "alone"
        assert last["token"] in [one.token for one in story.ledger().of(job, "work", "start")]
    assert counting.isolated_most <= 2
    for worker in workers:  # a child that has ended leaves nothing open in its supervisor
        assert worker.open_files() <= files[worker] + 2
    alone = story.rows(
        "SELECT a.worker, a.claimed_at, a.settled_at FROM perdure_attempts AS a "
        "JOIN perdure_workers AS w ON w.no = a.worker WHERE w.role = 'alone' "
        "ORDER BY a.worker, a.claimed_at"
    )
    for early, late in itertools.pairwise(alone):  # one at a time in each of these processes
        assert early["worker"] != late["worker"] or early["settled_at"] <= late["claimed_at"]
    story.assert_audit_is_clean()
