"""What calls of one App share: child processes for stages that want one, and the ears for what stages say."""

import asyncio
import os
from pathlib import Path

import pytest

from perdure import CallerError, JobFailed
from perdure.app import open_store
from perdure.model.events import EventName
from tests.app import acts
from tests.engine.kit import until


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_calls_of_one_app_share_a_child_whatever_loop_they_come_from(app):
    pipe = app.pipeline("p", app.stage(process=True)(acts.where))

    async def twice() -> list[int]:
        return [(await pipe.call_async(1)).value for _ in range(2)]

    pids = {*asyncio.run(twice()), *asyncio.run(twice()), pipe.call(1).value}
    assert len(pids) == 1
    (pid,) = pids
    assert pid != os.getpid()
    assert runs(pid)
    app.close()
    assert not runs(pid)
    assert pipe.call(1).value != pid  # the app can be used again


def test_calls_at_once_have_a_child_each(app):
    pipe = app.pipeline("p", app.stage(process=True)(acts.where))

    async def together() -> set[int]:
        return {one.value for one in await asyncio.gather(*(pipe.call_async(n) for n in range(3)))}

    first = asyncio.run(together())
    assert asyncio.run(together()) <= first


def test_a_child_that_dies_is_not_the_caller_and_the_next_call_has_another(app):
    pipe = app.pipeline("p", app.stage(process=True)(acts.ends))
    other = app.pipeline("other", app.stage(process=True)(acts.where))
    with pytest.raises(JobFailed, match="crashed"):
        pipe.call(1)
    (job,) = app._session.opened.reader.jobs()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert "the process in which the stage ran exited with status 7" in attempt.why_json
    assert other.call(1).done


def test_a_caller_that_leaves_takes_the_child_of_its_stage_with_it(app, tmp_path):
    pipe = app.pipeline("p", app.stage(process=True)(acts.writes_and_waits))
    file = tmp_path / "pid"

    async def leave() -> int:
        task = asyncio.create_task(pipe.call_async(str(file)))
        while not (file.exists() and file.read_text()):  # noqa: ASYNC110 - the sign is a file
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return int(file.read_text())

    pid = asyncio.run(leave())
    until(lambda: not runs(pid), "the child has ended")


@pytest.mark.parametrize("process", [False, True])
def test_what_a_stage_says_of_its_progress_is_told(app, told, process):
    pipe = app.pipeline("p", app.stage(process=process)(acts.counts))
    called = pipe.call(1)
    assert called.value == "counted"
    said = [one.fields for one in told if one.name is EventName.JOB_PROGRESSED]
    assert said
    assert {one["job_id"] for one in said} == {called.job.id}
    assert said[0]["note"].startswith("page ")
    names = [one.name for one in told]
    assert names.index(EventName.JOB_SUCCEEDED) > names.index(EventName.JOB_PROGRESSED)


def test_a_job_that_is_handed_over_wakes_the_workers(app, url):
    @app.stage
    async def hangs(item):
        await asyncio.Event().wait()

    pipe = app.pipeline("p", hangs)
    app.ready()
    ear = open_store(url)
    until(lambda: not ear.store.has_changed(), "nothing is new")
    assert pipe.call(1, wait_s=0.1).handed_over  # due at once: nothing has failed
    until(ear.store.has_changed, "the hint has come", within_s=30)
    ear.close()


def test_a_stage_that_gives_up_in_a_child_fails_the_call(app):
    pipe = app.pipeline("p", app.stage(process=True)(acts.refuses))
    with pytest.raises(JobFailed):
        pipe.call(1)


def test_a_call_that_blocks_a_loop_is_still_refused(app):
    pipe = app.pipeline("p", app.stage(process=True)(acts.where))

    async def wrong() -> None:
        pipe.call(1)

    with pytest.raises(CallerError):
        asyncio.run(wrong())
