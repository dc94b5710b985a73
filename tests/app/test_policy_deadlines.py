"""A policy's total time, however an item comes in; and numbers of a policy that change while jobs are there."""

import sqlite3
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from perdure import App, Backoff, Jitter, JobFailed, Policy, StageError
from perdure.model.nouns import replace
from perdure.model.states import FailedReason, State
from perdure.rules.presets import preset
from tests.app.worker.working_off import worked_off

SLOW = Policy("slow", deadline_s=3600.0, rules={"network": "retry"})
QUICK = replace(SLOW, name="quick", deadline_s=600.0)


@pytest.fixture
def pipe(app):
    @app.stage(policy=SLOW)
    def one(item):
        if item == "broken":
            raise StageError("invalid_request", "no")
        return item

    @app.stage(policy=QUICK)
    def two(item):
        return item

    return app.pipeline("p", one, two)


def given_s(app, ref) -> float:
    """How long this life of a job may take."""
    job = app._session.opened.reader.job(ref.id)
    began_at = job.enqueued_at if job.life == 1 else job.due_at
    return (job.deadline_at - began_at).total_seconds()


def connected(url: str):
    file = url.removeprefix("sqlite:///")
    return closing(psycopg.connect(url) if file == url else sqlite3.connect(file))


def test_every_way_in_gives_the_smallest_total_time_of_the_stages(app, pipe, url):
    app.ready()
    with connected(url) as cx:
        within = pipe.enqueue(1, within=cx)
        cx.commit()
    ways = [pipe.enqueue(1), *pipe.enqueue_many([1, 2]), within, pipe.enqueue(1, deadline_s=None)]
    assert [given_s(app, ref) for ref in ways] == [600.0] * 5
    assert given_s(app, pipe.enqueue(1, deadline_s=5.0)) == 5.0


def test_every_way_in_counts_from_when_the_job_may_begin(app, pipe, url):
    app.ready()
    later = app._session.opened.reader.now() + timedelta(days=2)
    with connected(url) as cx:
        within = [pipe.enqueue(1, run_at=later, deadline_s=own_s, within=cx) for own_s in (None, 5)]
        cx.commit()
    alone = [pipe.enqueue(1, run_at=later, deadline_s=own_s) for own_s in (None, 5)]
    ends = [app._session.opened.reader.job(ref.id).deadline_at for ref in (*within, *alone)]
    assert [(one - later).total_seconds() for one in ends] == [600.0, 5.0] * 2


def test_items_of_a_run_have_it_unless_the_run_brings_its_own(app, pipe):
    for own_s, wanted in ((None, 600.0), (5.0, 5.0)):
        pipe.run([1, 2], name=f"run {own_s}", deadline_s=own_s)
        jobs = app._session.opened.reader.jobs(limit=2)
        assert [given_s(app, job) for job in jobs] == [wanted] * 2


def test_a_call_has_the_smallest_of_its_policy_and_the_stages(app, pipe):
    sync = preset("gateway-sync")
    for own_s, wanted in ((None, 600.0), (900.0, 600.0), (20.0, 20.0)):
        done = pipe.call(1, policy=replace(sync, deadline_s=own_s))
        assert (done.done, given_s(app, done.job)) == (True, wanted)


def test_a_job_whose_call_failed_has_the_stages_time_in_its_next_life(app, pipe):
    brief = replace(preset("gateway-sync"), deadline_s=20.0)
    with pytest.raises(JobFailed):
        pipe.call("broken", policy=brief)
    (job,) = app._session.opened.reader.jobs()
    assert given_s(app, job) == 20.0
    app.job(job.id).retry()
    assert given_s(app, job) == 600.0


def test_each_new_life_has_the_whole_time_again(app, pipe):
    ref = pipe.enqueue("broken", key="k")
    worked_off(app)
    ref.retry()
    assert given_s(app, ref) == 600.0
    worked_off(app)
    pipe.enqueue("broken", key="k", if_failed="retry")
    assert given_s(app, ref) == 600.0
    worked_off(app)
    job = app._session.opened.reader.job(ref.id)
    assert (job.life, job.state) == (3, State.FAILED)


def flaky(app: App, policy: Policy):
    @app.stage(policy=policy)
    def ask(item):
        raise StageError("network", "away")

    return app.pipeline("p", ask)


def test_a_job_in_flight_is_judged_by_the_numbers_of_today_without_a_migration(url):
    """R53: the store holds what has happened; the numbers are in the application alone."""
    before = Policy(
        "mine",
        attempts_max=5,
        rules={"network": "retry"},
        backoff=Backoff("fixed", base_s=0.0),
        jitter=Jitter("none"),
    )
    seen = {}
    for attempts_max in (5, 2):
        app = App(url)
        patient = replace(before, backoff=Backoff("fixed", base_s=3_600.0, cap_s=None))
        pipe = flaky(app, patient)
        ref = pipe.enqueue(1)
        worked_off(app)
        app.close()
        changed = App(url)  # the next release: another number, the same table
        flaky(changed, replace(before, version=2, attempts_max=attempts_max))
        changed.job(ref.id).run_now()
        worked_off(changed)
        job = changed._session.opened.reader.job(ref.id)
        attempts = changed._session.opened.reader.attempts(job.no)
        seen[attempts_max] = (job.failed_reason, len(attempts), {one.policy for one in attempts})
        changed.close()
    assert seen == {
        5: (FailedReason.EXHAUSTED, 5, {"mine/1", "mine/2"}),
        2: (FailedReason.EXHAUSTED, 2, {"mine/1", "mine/2"}),
    }
