"""SIGTERM: what can be finished is finished, the rest is given back, and nothing is counted for it."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure import App
from perdure.engine.clock import SystemClock
from perdure.engine.observe import Observers
from perdure.engine.worker.loop import Wakeup
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from tests.servers.proxy import Proxy
from tests.stories.kit import CLI, Story, on_both, on_both_long, played, until

pytestmark = pytest.mark.story

LEASE_S = 1.5


def beaten_again(story: Story, worker: int) -> None:
    """Wait for two more beats; whatever a signal sets off has long arrived by then."""
    (before,) = story.rows("SELECT beat_at FROM perdure_workers WHERE no = ?", worker)[0]
    until(
        f"worker {worker} is still beaten for",
        lambda: story.rows(
            "SELECT 1 FROM perdure_workers WHERE no = ? AND beat_at > ? + ttl_us / 2",
            worker,
            before,
        ),
        within_s=30,
    )


def given_back(story: Story, job: str) -> None:
    """The job is as good as new, and its history says why."""
    row = story.job(job)
    assert (row["state"], row["releases"], row["failures"], row["crashes"]) == ("queued", 1, 0, 0)
    last = story.attempts(job)[-1]
    assert (last["stage"], last["status"], last["counted"]) == ("work", "interrupted", "releases")


def finished_by_another(story: Story, jobs: list[str]) -> None:
    story.open_gate("go")
    story.worker("b", lease_s=LEASE_S)
    assert story.all_ended(within_s=60) == {"succeeded": len(jobs)}
    ledger = story.ledger()
    assert all(len(ledger.pids(job, "prepare")) == 1 for job in jobs)
    story.assert_audit_is_clean()


@on_both
def test_a_stage_shorter_than_the_grace_is_finished_and_nothing_new_is_begun(story):
    worker = story.worker("a", lease_s=LEASE_S, grace_s=60, concurrency=1)
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}] * 2)
    story.started(jobs[0], "work")
    child = worker.child("main")
    worker.kill(signal.SIGTERM)
    beaten_again(story, child.worker)
    story.open_gate("go")
    assert worker.exit_status(within_s=30) == 0
    first, second = story.job(jobs[0]), story.job(jobs[1])
    assert (first["state"], first["stage"], first["releases"]) == ("queued", "finish", 0)
    assert [one["status"] for one in story.attempts(jobs[0])] == ["success", "success"]
    assert (second["state"], second["starts"]) == ("queued", 0)
    assert {one.job for one in story.ledger().entries} == {jobs[0]}
    finished_by_another(story, jobs)


@on_both_long
@pytest.mark.parametrize(
    ("pipeline", "work"),
    [
        ("walk", {"until": "go"}),
        ("walk_sync", {"until": "go"}),
        ("walk", {"block_until": "go"}),
        ("walk_sync", {"hold_gil_s": 60.0}),
    ],
    ids=["async", "sync", "blocking the event loop", "holding the GIL"],
)
def test_a_stage_longer_than_the_grace_is_given_back_and_counts_nothing(story, pipeline, work):
    worker = story.worker("a", lease_s=LEASE_S, grace_s=0.5)
    [job] = story.enqueue(pipeline, [{"work": work}])
    story.started(job, "work")
    told_at = time.monotonic()
    worker.kill(signal.SIGTERM)
    assert worker.exit_status(within_s=20) == 0
    print(f"FIGURE SIGTERM to exit with a grace of 0.5 s: {time.monotonic() - told_at:.2f} s")
    if "hold_gil_s" in work:  # it could not say a word; its supervisor said that it was our doing
        other = story.worker("b", lease_s=LEASE_S)
        until(
            "the job is run again", lambda: len(story.ledger().pids(job, "work")) == 2, within_s=30
        )
        row = story.job(job)
        assert (row["releases"], row["failures"], row["crashes"]) == (1, 0, 0)
        other.kill(signal.SIGKILL)
        story.assert_audit_is_clean()
        return
    given_back(story, job)
    finished_by_another(story, [job])


@on_both_long
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_worker_fast_and_counts_nothing(story, second):
    worker = story.worker("a", lease_s=LEASE_S, grace_s=600)
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}] * 5)
    for job in jobs:
        story.started(job, "work")
    child = worker.child("main")
    worker.kill(signal.SIGTERM)
    if second is signal.SIGTERM:  # two equal signals at once may arrive as one
        beaten_again(story, child.worker)
    worker.kill(second)
    assert worker.exit_status(within_s=30) == 0
    for job in jobs:
        given_back(story, job)
    finished_by_another(story, jobs)


def test_an_order_that_arrives_in_the_middle_of_a_wake_up_does_not_hang(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'story.db'}")
    worker = Worker(
        app._session.opened.store,
        app._session.catalogue,
        WorkerIdentity(1, 0, 1),
        WorkerSettings(1, 1.0, 1.0, 0.01),
        clock=SystemClock(),
        chance=None,
        observers=Observers(),
    )
    bell = worker._loop._wakeup = Wakeup()
    for _ in range(10_000):  # rung more often than anybody listens
        bell.ring()
    order = threading.Thread(target=worker.drain, daemon=True)
    order.start()
    order.join(30)
    assert not order.is_alive()
    assert worker._shutdown._orders == 1
    assert bell.rest(0.0)
    bell.close()
    app.close()


def cancel(story: Story, job: str) -> None:
    script = f"import work; work.app.job({job!r}).cancel()"
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=story.folder,
        env=story.environment(),
        check=True,
        timeout=60,
    )


@on_both_long
def test_a_job_cancelled_before_its_first_step_leaves_its_slot_free(story):
    worker = story.worker("a", lease_s=LEASE_S, concurrency=2)
    [blocking] = story.enqueue("walk", [{"work": {"block_until": "free"}}])
    story.started(blocking, "work")
    [late] = story.enqueue("walk", [{"work": {}}])
    until("it is claimed", lambda: story.job(late)["state"] == "processing", within_s=30)
    cancel(story, late)
    beaten_again(story, worker.child("main").worker)  # its pump has looked by now
    assert not story.ledger().pids(late, "prepare")
    story.open_gate("free")
    until("the event loop is free", lambda: story.job(blocking)["finished_at"], within_s=30)
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}] * 2)
    for job in jobs:
        story.started(job, "work")  # both at once: both slots are free
    story.open_gate("go")
    assert story.all_ended(within_s=30) == {"succeeded": 3, "cancelled": 1}
    assert worker.popen.poll() is None
    story.assert_audit_is_clean()


# -- the store is away, and does not come back -----------------------------------------------


class CutOff:
    """A story whose store can be taken away for good."""

    def __init__(self, story: Story, proxy: Proxy | None) -> None:
        self.story = story
        self._proxy = proxy
        self._undo = ExitStack()

    def take_away(self, how: str) -> None:
        if self._proxy is None:
            lock = os.open(f"{self.story.file}-lock", os.O_RDWR)
            self._undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif how == "silent":
            self._proxy.black_hole()
        else:
            self._proxy.refuse()
            self._proxy.reset()

    def give_back(self) -> None:
        self._undo.close()
        if self._proxy is not None:
            self._proxy.heal()

    def command(self, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a command; it ends with the story."""
        log = self.story.folder / f"{words[0]}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*CLI, *words],
                cwd=self.story.folder,
                env=self.story.environment(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return popen, log


@pytest.fixture
def cut_off(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CutOff]:
    with ExitStack() as stack:
        url, proxy = None, None
        if request.param != "sqlite":
            database = request.getfixturevalue("furnished")
            proxy = stack.enter_context(Proxy(urlsplit(database).port or 5432))
            url = proxy.url(database)
        cut_off = CutOff(stack.enter_context(played(tmp_path, url)), proxy)
        stack.callback(cut_off.give_back)
        yield cut_off


away_for_good = pytest.mark.parametrize(
    ("cut_off", "how"),
    [("sqlite", "locked"), ("postgres", "refused"), ("postgres", "silent")],
    indirect=["cut_off"],
)


@away_for_good
@pytest.mark.parametrize("work", ["in hand", "none"])
def test_a_worker_whose_store_is_away_for_good_ends_when_it_is_told_to(cut_off, how, work):
    story = cut_off.story
    number = signal.SIGTERM if work == "in hand" else signal.SIGINT
    worker = story.worker("a", lease_s=LEASE_S, grace_s=1.0)
    child = worker.child("main")
    jobs = story.enqueue("walk", [{"work": {"until": "go"}}]) if work == "in hand" else []
    for job in jobs:
        story.started(job, "work")
    cut_off.take_away(how)
    if how != "silent":
        until("it is noticed", lambda: "store_away" in worker.log.read_text(), within_s=60)
    worker.kill(number)
    assert worker.exit_status(within_s=30) == 11
    assert not worker.children()
    last = worker.log.read_text().splitlines()[-1]
    assert f"does not know that worker {child.worker} was stopped" in last
    assert "lease runs out by itself" in last
    cut_off.give_back()


def test_a_worker_whose_file_has_vanished_ends_when_it_is_told_to(story):
    worker = story.worker("a", lease_s=LEASE_S, grace_s=1.0)
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    for file in story.folder.glob("story.db*"):
        file.unlink()
    worker.kill(signal.SIGTERM)
    worker.exit_status(within_s=30)
    assert not worker.children()


@away_for_good
def test_a_server_with_a_worker_whose_store_is_away_for_good_ends_when_it_is_told_to(cut_off, how):
    story = cut_off.story
    story.settings["PERDURE_GRACE_S"] = "1"
    serving, log = cut_off.command("serve", "work:app", "--port", "0", "--worker")
    [job] = story.enqueue("walk", [{"work": {"until": "go"}}])
    story.started(job, "work")
    cut_off.take_away(how)
    serving.send_signal(signal.SIGTERM)
    until("it ends", lambda: serving.poll() is not None, within_s=45)
    assert serving.returncode == 11, log.read_text()
    assert "was away to the end" in log.read_text().splitlines()[-1]
    cut_off.give_back()


@pytest.mark.parametrize(
    ("cut_off", "how", "number", "status"),
    [
        ("sqlite", "locked", signal.SIGTERM, 130),  # its files can be read all the same
        ("postgres", "refused", signal.SIGINT, 11),
        pytest.param("postgres", "silent", signal.SIGTERM, 11, marks=pytest.mark.long),
    ],
    indirect=["cut_off"],
)
def test_a_run_whose_store_is_away_for_good_ends_when_it_is_told_to(cut_off, how, number, status):
    """Of a server that is silent, an answer is waited for as long as a statement may take: 35 s."""
    story = cut_off.story
    story.settings["PERDURE_GRACE_S"] = "1"
    (story.folder / "items.jsonl").write_text('{"work": {"until": "go"}}\n')
    run, log = cut_off.command("run", "work:app:walk", "items.jsonl", "-o", "out.jsonl")
    until("its stage has begun", lambda: story.ledger().entries, within_s=60)
    cut_off.take_away(how)
    run.send_signal(number)
    until("it ends", lambda: run.poll() is not None, within_s=120 if how == "silent" else 30)
    assert run.returncode == status, log.read_text()
    assert "o on with: perdure run work:app:walk items.jsonl" in log.read_text().splitlines()[-1]
    cut_off.give_back()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_whose_words_nobody_reads_can_be_ended(story, number):
    """Its summary is written to the end, unless it is told to stop for the third time."""
    (story.folder / "items.jsonl").write_text('{"work": {}}\n')
    nobody, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while os.write(full, b"." * 65_536):
            pass
    os.set_blocking(full, True)
    run = subprocess.Popen(
        [*CLI, "run", "work:app:walk", "items.jsonl"],
        cwd=story.folder,
        env=story.environment(),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=full,
    )
    try:
        until("its item is done", lambda: story.ledger().entries, within_s=60)

        def ended() -> bool:
            run.send_signal(number)
            return run.poll() is not None

        until("it ends", ended, within_s=60)
        assert run.returncode != 0  # 130; more signals may come on its way out
    finally:
        os.close(full)
        os.close(nobody)
