"""Stages in processes of their own, threads that do not come back, and workers of some queues only."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.stories.kit import Story, WorkerProcess, on_both, on_both_long, process, processes, until

pytestmark = pytest.mark.story

LEASE_S = 2.0
APART = {"of": "stage process"}

WORK = """
import ctypes
import os
import resource
import signal
import time
from pathlib import Path

import perdure

app = perdure.App()
quick = perdure.Policy(
    "quick", attempts_max=2, backoff=perdure.Backoff("fixed", base_s=0.1),
    otherwise=perdure.Rule("retry"),
)


@app.stage(process=True, policy=quick, timeout_s=20)
def apart(item: dict):
    match item:
        case {"exit": status}:
            os._exit(status)
        case {"segfault": True}:
            ctypes.string_at(0)
        case {"killed": True}:  # as the kernel does when the machine has no memory left
            os.kill(os.getpid(), signal.SIGKILL)
        case {"eat": True}:
            eat()
        case {"stuck": file}:
            Path(file).write_text(str(os.getpid()))
            ctypes.PyDLL(None).usleep(60_000_000)
    return os.getpid()


def eat():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    room = pages * resource.getpagesize() + 200_000_000
    resource.setrlimit(resource.RLIMIT_AS, (room, most))
    try:
        eaten = []
        while True:
            eaten.append(bytearray(10_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


@app.stage(policy=quick, timeout_s=0.2)
def deaf(item: str):
    while not Path(item).exists():
        time.sleep(0.02)


@app.stage(process=True, policy=quick, timeout_s=0.5)
def deaf_apart(item: str):
    Path(item).write_text(str(os.getpid()))
    ctypes.PyDLL(None).usleep(60_000_000)


@app.stage
def where(item):
    return os.getpid()


children = app.pipeline("children", apart)
deafness = app.pipeline("deafness", deaf)
timed = app.pipeline("timed", deaf_apart)
fast = app.pipeline("fast", where, queue="fast", category="x")
slow = app.pipeline("slow", where, queue="slow")
"""


@pytest.fixture
def told(story):
    (story.folder / "work.py").write_text(WORK)
    return story


def stagehands(worker: WorkerProcess) -> list[int]:
    """Processes in which stages of a worker run."""
    parents = {one.pid for one in worker.children()}
    return [
        one.pid
        for one in processes()
        if one.parent in parents and "perdure.engine.attempt.stage_process_main" in one.command
    ]


@on_both_long
@pytest.mark.parametrize(
    ("poison", "death"),
    [
        pytest.param(
            {"exit": 3},
            {"why": "exited", "exit_status": 3, "signal": None} | APART,
            marks=pytest.mark.long,
        ),
        ({"segfault": True}, {"why": "exited", "exit_status": None, "signal": "SIGSEGV"} | APART),
        pytest.param(
            {"killed": True},
            {"why": "exited", "exit_status": None, "signal": "SIGKILL"} | APART,
            marks=pytest.mark.long,
        ),
    ],
)
def test_poison_in_a_process_of_its_own_fails_alone_and_costs_no_worker(told, poison, death):
    worker = told.worker("a", lease_s=LEASE_S, concurrency=3)
    first = worker.child("main")
    jobs = told.enqueue("children", [{}, poison, {}, {}])
    assert told.all_ended(within_s=60) == {"succeeded": 3, "failed": 1}
    row = told.job(jobs[1])
    assert (row["failed_reason"], row["error_kind"]) == ("crashed", "worker_lost")
    assert (row["starts"], row["crashes"], row["failures"]) == (3, 3, 0)
    tries = told.attempts(jobs[1])
    assert [json.loads(one["evidence"]) for one in tries] == [death] * 3
    assert all("the process in which the stage ran" in one["why"] for one in tries)
    for job in (jobs[0], *jobs[2:]):
        assert told.job(job)["crashes"] == 0
    assert worker.child("main").pid == first.pid
    told.assert_audit_is_clean()


@on_both_long
def test_a_stage_that_runs_out_of_memory_is_tried_as_often_as_its_policy_says_and_harms_nobody(
    told,
):
    worker = told.worker("a", lease_s=LEASE_S, concurrency=3)
    first = worker.child("main")
    jobs = told.enqueue("children", [{}, {"eat": True}, {}])
    assert told.all_ended(within_s=60) == {"succeeded": 2, "failed": 1}
    row = told.job(jobs[1])
    assert (row["failed_reason"], row["error_kind"]) == ("exhausted", "resource_exhausted")
    assert (row["failures"], row["crashes"]) == (2, 0)
    assert worker.child("main").pid == first.pid
    told.assert_audit_is_clean()


@on_both
def test_a_killed_worker_takes_its_stages_processes_with_it(told):
    worker = told.worker("a", lease_s=LEASE_S, concurrency=2)
    file = told.folder / "pid"
    [job] = told.enqueue("children", [{"stuck": str(file)}])
    until("the stage has begun", lambda: file.exists() and file.read_text(), within_s=30)
    stuck = int(file.read_text())
    assert stuck in stagehands(worker)
    os.kill(worker.child("main").pid, signal.SIGKILL)
    until("the stage's process has ended", lambda: process(stuck) is None, within_s=30)
    until("the crash is counted", lambda: told.job(job)["crashes"] == 1, within_s=20)


@on_both_long
def test_a_stage_that_holds_the_interpreter_ends_at_its_timeout(told):
    worker = told.worker("a", lease_s=LEASE_S, concurrency=1)
    first = worker.child("main")
    file = told.folder / "pid"
    [job] = told.enqueue("timed", [str(file)])
    assert told.all_ended(within_s=40) == {"failed": 1}
    row = told.job(job)
    assert (row["error_kind"], row["failures"], row["crashes"]) == ("timeout", 2, 0)
    stuck = int(file.read_text())  # killed, which the system may still be about
    until("the stage's process has ended", lambda: process(stuck) is None, within_s=30)
    assert worker.child("main").pid == first.pid
    told.assert_audit_is_clean()


@on_both_long
def test_a_worker_whose_threads_do_not_come_back_is_replaced_and_nothing_is_counted(told):
    worker = told.worker("a", lease_s=LEASE_S, concurrency=1)
    first = worker.child("main")
    go = told.folder / "go"
    [job] = told.enqueue("deafness", [str(go)])
    until(
        "another process is in its place",
        lambda: [one for one in worker.children("main") if one.pid != first.pid],
        within_s=30,
    )
    go.touch()
    assert told.all_ended(within_s=30) == {"succeeded": 1}
    row = told.job(job)
    assert (row["failures"], row["crashes"], row["releases"]) == (1, 0, 0)
    log = worker.log.read_text()
    assert f"worker_recycled worker={first.worker} lost=1 concurrency=1" in log
    assert "worker_lost" not in log
    told.assert_audit_is_clean()


@on_both_long
def test_a_worker_serves_only_the_queues_it_is_told_to(told):
    worker = told.worker("a", lease_s=LEASE_S, options=["--queue", "slow"])
    fast = told.enqueue("fast", [1, 2])
    slow = told.enqueue("slow", [1, 2])
    until(
        "the slow ones are done",
        lambda: all(told.job(one)["state"] == "succeeded" for one in slow),
        within_s=30,
    )
    assert [told.job(one)["state"] for one in fast] == ["queued"] * 2
    assert "stage_unknown" not in worker.log.read_text()
    told.worker("b", lease_s=LEASE_S, options=["--queue", "fast", "--category", "x"])
    assert told.all_ended(within_s=30) == {"succeeded": 4}
    told.assert_audit_is_clean()


@on_both_long
def test_jobs_of_a_pipeline_that_is_gone_wait_and_the_worker_says_so(told: Story):
    [job] = told.enqueue("fast", [1])
    code = Path(told.folder / "work.py")
    code.write_text(WORK.replace('app.pipeline("fast", where', 'app.pipeline("faster", where'))
    worker = told.worker("a", lease_s=LEASE_S)
    until("it is said", lambda: "stage_unknown" in worker.log.read_text(), within_s=30)
    [other] = told.enqueue("slow", [1])
    until("others are done", lambda: told.job(other)["state"] == "succeeded", within_s=30)
    assert told.job(job)["state"] == "queued"
    assert "pipeline=fast stage=where queue=fast" in worker.log.read_text()
    code.write_text(WORK)
    told.worker("b", lease_s=LEASE_S)
    assert told.all_ended(within_s=30) == {"succeeded": 2}
    told.assert_audit_is_clean()
