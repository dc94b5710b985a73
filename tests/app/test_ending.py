"""How a worker inside a program ends, when the program does not end it: told by whole programs."""

import asyncio
import subprocess
import sys
import threading

from perdure import App
from perdure.model.events import EventName
from perdure.model.outcomes import Death
from tests.engine.kit import until

HEAD = """
import asyncio, sys, threading, time
from perdure import App

app = App(sys.argv[1])
begun, gate = threading.Event(), threading.Event()

@app.stage
def work(item):
    if item == "long":
        begun.set()
        gate.wait()
    return item

@app.stage(timeout_s=0.3, policy="datasets-once")
def deaf(item):
    threading.Event().wait()

pipe = app.pipeline("p", work)
"""


def ran(tmp_path, url: str, body: str) -> str:
    """What a program prints; it must end by itself."""
    program = tmp_path / "program.py"
    program.write_text(f"{HEAD}\n{body}\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


def counted(url: str) -> list[tuple[str, int, int]]:
    app = App(url)
    jobs = app._session.opened.reader.jobs()
    assert app._session.opened.reader.audit() == []
    app.close()
    return sorted((job.state.value, job.counters.failures, job.counters.crashes) for job in jobs)


def test_a_program_that_ends_without_a_word_gives_all_back_at_once_and_nothing_fails(tmp_path, url):
    body = """
app.working(concurrency=2, grace_s=600).start()
pipe.enqueue("long")
begun.wait()
for n in range(20):
    pipe.enqueue(n)
"""
    ran(tmp_path, url, body)
    jobs = counted(url)
    assert len(jobs) == 21
    assert {(failures, crashes) for _, failures, crashes in jobs} == {(0, 0)}
    assert {state for state, _, _ in jobs} <= {"queued", "succeeded"}
    assert "queued" in {state for state, _, _ in jobs}


def test_a_stage_that_never_ends_does_not_keep_a_program_that_has_closed_everything(tmp_path, url):
    body = """
pipe = app.pipeline("deaf", deaf)
with app.working(concurrency=2, grace_s=0.2):
    job = pipe.enqueue(1)
    while job.view().shown_state in ("queued", "processing"):
        time.sleep(0.01)
app.close()
"""
    ran(tmp_path, url, body)
    assert counted(url) == [("failed", 1, 0)]


def test_when_the_main_thread_ends_running_stages_finish_and_no_more_are_taken(tmp_path, url):
    """The program lives on in a thread; executors refuse from then on, so stages would fail for nothing."""
    body = """
worker = app.working(concurrency=2, grace_s=600)
worker.start()
running = pipe.enqueue("long")
begun.wait()

def serve():
    threading.main_thread().join()
    late = pipe.enqueue("late")
    gate.set()
    print(running.result(wait_s=30))
    print(pipe.call("called", wait_s=30).value)
    worker.close()
    print(late.view().shown_state)
    app.close()

threading.Thread(target=serve).start()
"""
    said = ran(tmp_path, url, body)
    assert said.splitlines() == ["long", "called", "queued"]
    assert [job[1:] for job in counted(url)] == [(0, 0)] * 3


def test_one_that_is_declared_dead_begins_anew_while_its_old_stages_still_run(url):
    told, begun, gate = [], threading.Event(), threading.Event()
    app = App(url, observers=[told.append])

    @app.stage
    async def stubborn(item):
        if item == "old":
            begun.set()
            while not gate.is_set():
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    continue
        return item

    pipe = app.pipeline("p", stubborn)
    try:
        with app.working(concurrency=2):
            pipe.enqueue("old")
            assert begun.wait(30)
            (row,) = [one for one in app._session.opened.reader.workers() if one.dead_at is None]
            app._session.opened.store.end_worker(row.no, Death("silent"))
            assert pipe.enqueue("new").result(wait_s=30) == "new"
            assert not gate.is_set()
            started = [one for one in told if one.name is EventName.WORKER_STARTED]
            assert len(started) == 2
            gate.set()
    finally:
        gate.set()
        app.close()


def test_a_blocked_event_loop_in_a_program_is_told_of_and_works_again_when_it_turns(url):
    told, gate = [], threading.Event()
    app = App(url, observers=[told.append])

    @app.stage
    async def blocks(item):
        if item == "blocks":
            gate.wait(60)
        return item

    pipe = app.pipeline("p", blocks)
    try:
        with app.working(concurrency=2, grace_s=0.1, poll_s=0.1):
            pipe.enqueue("blocks")
            until(lambda: any(one.name is EventName.JOB_CLAIMED for one in told), "it is claimed")
            other = pipe.enqueue("other")
            until(lambda: any(one.name is EventName.LOOP_BLOCKED for one in told), "it is told")
            until(lambda: other.view().shown_state == "queued", "the other is given back")
            gate.set()
            assert other.result(wait_s=30) == "other"
        assert other.view().counters.failures == 0
    finally:
        gate.set()
        app.close()
