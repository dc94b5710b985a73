"""An App that only reads: it sees everything, and whatever would write is refused, whatever rights there are."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure import App, JobFailed, Policy, State, StoreReadOnly, StoreUnavailable, UnknownName
from tests.app.worker.working_off import worked_off


@pytest.fixture
def kept(url):
    """A store with a job that succeeded, one that failed and one that waits: their ids."""
    app = App(url)

    @app.stage(policy=Policy("once", attempts_max=1))
    def halve(number):
        return 2 // number

    pipe = app.pipeline("halves", halve)
    done = [pipe.enqueue(number).id for number in (1, 0)]
    worked_off(app)
    yield [*done, pipe.enqueue(2, run_at=datetime.now(UTC) + timedelta(days=1)).id]
    app.close()


@pytest.fixture
def app(kept, url):
    """An App that only reads it."""
    app = App(url, read_only=True)
    app.pipeline("halves", app.stage(name="halve")(lambda number: number))
    yield app
    app.close()


def test_everything_can_be_read(kept, app):
    app.ready()
    succeeded, failed, waits = (app.job(id) for id in kept)
    assert succeeded.result() == 2
    assert [one.status for one in succeeded.attempts()] == ["success"]
    with pytest.raises(JobFailed):
        failed.result()
    assert waits.state is State.QUEUED
    assert app.jobs.count().count == 3
    assert len(app.jobs.list(pipeline="halves")) == 3
    with pytest.raises(UnknownName, match="one of: halves"):
        app.jobs.list(pipeline="quarters")
    assert [one.id for one in app.dead.list()] == [failed.id]
    assert len(app.dead.groups()) == 1
    assert app.runs() == []


WRITES = {
    "enqueue": lambda app, pipe, job: pipe.enqueue(3),
    "enqueue many": lambda app, pipe, job: pipe.enqueue_many([3]),
    "call": lambda app, pipe, job: pipe.call(3),
    "run": lambda app, pipe, job: pipe.run([3]),
    "cancel": lambda app, pipe, job: job.cancel(),
    "run now": lambda app, pipe, job: job.run_now(),
    "bulk": lambda app, pipe, job: app.jobs.cancel(pipeline="halves"),
    "redrive": lambda app, pipe, job: app.dead.redrive(pipeline="halves"),
    "work": lambda app, pipe, job: app.working().start(),
}


def test_whatever_writes_is_refused(kept, app):
    pipe = app.get_pipeline("halves")
    for write in WRITES.values():
        with pytest.raises(StoreReadOnly, match=r"opened for reading only \(read_only=True\)"):
            write(app, pipe, app.job(kept[2]))
    assert app.job(kept[2]).state is State.QUEUED
    assert app.jobs.count().count == 3


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(StoreUnavailable, match="does not exist"):
        App(f"sqlite:///{tmp_path}/none.db", read_only=True).ready()
    assert list(Path(tmp_path).iterdir()) == []
