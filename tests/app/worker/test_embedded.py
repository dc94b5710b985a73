"""A worker inside this process: what it does at the edges; its life beside a keeper is told in the stories."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perdure import App, ConfigError, JobFailed, Policy, Rule
from perdure.app.worker import embedded as module
from perdure.model.errors import StoreUnavailable, UnknownName
from perdure.model.events import EventName
from tests.app import acts
from tests.engine.kit import until
from tests.house.markdown import fences


def deaths(app: App) -> list[str | None]:
    rows = app._session.opened.reader.workers()
    return [None if one.death_json is None else json.loads(one.death_json)["why"] for one in rows]


def test_it_works_while_its_block_runs_and_has_ended_its_row_after_it(app):
    pipe = app.pipeline("p", app.stage(name="where")(lambda item: (os.getpid(), item)))
    first = pipe.enqueue(1)
    with app.working(concurrency=2):
        assert first.result(wait_s=20) == [os.getpid(), 1]
        assert deaths(app) == [None]
    assert deaths(app) == ["stopped"]
    assert pipe.enqueue(2).view().shown_state == "queued"


def test_a_stage_that_ends_its_own_process_is_run_again_and_fails_with_the_third_crash(
    app, tmp_path
):
    whole = Policy("whole", scope="job", otherwise=Rule("retry"))
    dying = app.stage(process=True, policy=whole)(acts.ends_at_first)
    pipe = app.pipeline("p", dying, app.stage(name="after", policy=whole)(lambda item: item))
    with app.working(concurrency=2):
        twice, thrice = (pipe.enqueue([n, str(tmp_path / str(n))]) for n in (2, 3))
        assert twice.result(wait_s=120) == 3
        with pytest.raises(JobFailed) as failed:
            thrice.result(wait_s=120)
    assert failed.value.kind == "worker_lost"
    assert (tmp_path / "3").read_text() == "xxx"
    view = thrice.view()
    assert (view.failed_reason, view.isolation, view.counters.crashes) == ("crashed", 0, 3)
    assert [json.loads(one.why_json)["text"] for one in thrice.attempts()] == [
        "retry at once: the process in which the stage ran exited with status 9, crash 1 of 3; it will run in a new process",
        "retry at once: the process in which the stage ran exited with status 9, crash 2 of 3; it will run in a new process",
        "fail: the process in which the stage ran exited with status 9, crash 3 of 3 was the last",
    ]


def test_async_code_has_one_as_well_and_its_loop_goes_on_meanwhile(app):
    loops = []

    @app.stage
    async def look(item):
        loops.append(asyncio.get_running_loop())
        return item

    pipe = app.pipeline("p", look)

    async def main() -> None:
        async with app.working():
            job = await pipe.enqueue_async(1)
            assert await job.result_async(wait_s=20) == 1
        assert loops[0] is not asyncio.get_running_loop()

    asyncio.run(main())
    assert deaths(app) == ["stopped"]


def test_it_serves_the_queues_that_it_is_told_to(app):
    fast = app.pipeline("fast", app.stage(name="a")(lambda item: item), queue="fast")
    slow = app.pipeline("slow", app.stage(name="b")(lambda item: item), queue="slow")
    left, taken = slow.enqueue(1), fast.enqueue(1)
    with app.working(queues=["fast"]):
        assert taken.result(wait_s=20) == 1
    assert left.view().shown_state == "queued"


def test_an_error_in_the_block_closes_it_and_goes_on(app):
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    with pytest.raises(KeyError), app.working():
        raise KeyError("ours")
    assert deaths(app) == ["stopped"]


def test_it_is_started_once(app):
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    worker = app.working()
    with worker, pytest.raises(ConfigError, match="started before"):
        worker.start()
    worker.close()  # a second time is nothing


def test_settings_that_do_not_fit_together_are_refused(app):
    with pytest.raises(ConfigError, match="poll_s is 9"):
        app.working(lease_ttl_s=3, poll_s=9)


def test_without_proc_it_says_what_to_do_instead(app, monkeypatch):
    """As on macOS."""
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    monkeypatch.setattr(module, "has_proc", lambda: False)
    with pytest.raises(ConfigError, match="perdure worker APP"):
        app.working().start()
    assert deaths(app) == []


def test_a_store_that_is_not_there_is_the_callers_to_know(tmp_path):
    app = App("postgresql://nobody@127.0.0.1:1/none")
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    with pytest.raises(StoreUnavailable):
        app.working().start()
    app.close()


def test_a_process_that_was_forked_off_has_no_worker(app):
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    with app.working() as worker:
        child = os.fork()
        if child == 0:
            worker.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert deaths(app) == [None]


def test_slots_that_are_all_lost_are_told_and_filled_again_when_they_come_back(app, told):
    go = threading.Event()

    @app.stage(timeout_s=0.1, policy="datasets-once")
    def deaf(item):
        go.wait(30)

    lost = app.pipeline("deaf", deaf)
    fine = app.pipeline("fine", app.stage(name="a")(lambda item: item))
    with app.working(concurrency=1, grace_s=0.1):
        lost.enqueue(1)
        until(lambda: any(one.name is EventName.SLOTS_LOST for one in told), "the loss is told")
        later = fine.enqueue(2)
        seen_at = time.monotonic()
        until(lambda: time.monotonic() - seen_at > 0.5, "time enough to take it")
        assert later.view().shown_state == "queued"
        go.set()
        assert later.result(wait_s=20) == 2
    assert [one.name for one in told].count(EventName.SLOTS_LOST) == 1


def test_the_program_of_the_page_prints_what_it_should(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "howto-embedding.md"
    (fence,) = [one for one in fences(page.read_text()) if one.language == "python"]
    program = tmp_path / "service.py"
    program.write_text("\n".join(fence.lines))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("Hello, Ada!\n", "")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"queues": ["nope"]}, "this app has no queue 'nope'; it has: fast, slow"),
        ({"categories": ["nope"]}, "this app has no category 'nope'; it has: default, night"),
        (
            {"queues": ["fast"], "categories": ["night"]},
            "no pipeline in such a queue with such a category; it has: fast/default, slow/night",
        ),
    ],
)
def test_what_the_app_does_not_have_cannot_be_served(app, asked, words):
    app.pipeline("fast", app.stage(name="a")(lambda item: item), queue="fast")
    app.pipeline("slow", app.stage(name="b")(lambda item: item), queue="slow", category="night")
    with pytest.raises(UnknownName, match=words):
        app.working(**asked).start()
    assert deaths(app) == []


@pytest.mark.parametrize("what", ["queues", "categories"])
def test_one_name_is_not_taken_for_its_letters(app, what):
    with pytest.raises(
        ConfigError, match=rf"{what} is 'default', which is one name; write \['default'\]"
    ):
        app.working(**{what: "default"})


def test_a_setting_that_does_not_exist_is_refused_with_those_that_do(app):
    with pytest.raises(UnknownName, match=r"no setting 'lease_ttl'; there are: .*lease_ttl_s"):
        app.working(lease_ttl=3)


def test_it_is_one_process_and_more_are_had_from_the_command(app):
    with pytest.raises(ConfigError, match="perdure worker APP --processes N"):
        app.working(processes=2)


def test_an_app_without_a_pipeline_has_nothing_to_work_on(app):
    with pytest.raises(ConfigError, match="declares no pipeline"):
        app.working().start()


def open_files() -> list[str]:
    return sorted(one.name for one in Path("/proc/self/fd").iterdir())


def test_a_worker_that_has_ended_leaves_no_file_open(app):
    pipe = app.pipeline("p", app.stage(name="a")(lambda item: item))
    counts = []
    for _ in range(3):
        with app.working():
            assert pipe.enqueue(1).result(wait_s=20) == 1
        app.close()  # which opens as many connections as it needs, and anew
        counts.append(len(open_files()))
    assert counts == [counts[0]] * 3


def test_one_that_is_cancelled_while_it_starts_is_closed_again(app):
    pipe = app.pipeline("p", app.stage(name="a")(lambda item: item))

    before = set(threading.enumerate())  # a fixture of the whole run may work, too

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), app.working():
                raise AssertionError("a process cannot start in so short a time")
        more = set(threading.enumerate()) - before
        assert not [one for one in more if one.name.startswith("perdure-work")]

    asyncio.run(main())
    assert set(deaths(app)) <= {"stopped"}
    assert pipe.enqueue(1).view().shown_state == "queued"


def test_closing_waits_for_a_start_under_way(app):
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    worker = app.working()
    starting = threading.Thread(target=worker.start)
    starting.start()
    until(
        lambda: not worker._starting.acquire(blocking=False) or worker._starting.release(),
        "it starts",
    )
    worker.close()
    starting.join(20)
    assert deaths(app) == ["stopped"]


def test_it_works_in_a_process_with_more_files_open_than_select_can_name(app, many_files):
    pipe = app.pipeline("p", app.stage(name="a")(lambda item: item))
    with app.working():
        assert pipe.enqueue(1).result(wait_s=20) == 1


def test_a_start_that_fails_leaves_nothing_behind(app, monkeypatch):
    app.pipeline("p", app.stage(name="a")(lambda item: item))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    counts = []
    for _ in range(3):  # SQLite keeps some of the first one's for those that follow
        with pytest.raises(StoreUnavailable, match=r"'/nowhere/python': .*No such file"):
            app.working().start()
        counts.append(len(open_files()))
    assert counts == [counts[0]] * 3
    assert deaths(app) == []


def test_a_program_that_goes_to_another_folder_keeps_its_store(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///work.db")
    pipe = app.pipeline("p", app.stage(name="a")(lambda item: item))
    monkeypatch.chdir(other)
    job = pipe.enqueue(1)
    with app.working():
        assert job.result(wait_s=20) == 1
    app.close()
    assert list(other.iterdir()) == []
    assert (tmp_path / "work.db").exists()
