"""Whose request a job is: given by its caller or the job's own id, in every event, and for its stages to hand on."""

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

from perdure import StageError
from perdure.observers.log import log_event
from tests.app.test_policy_deadlines import connected
from tests.app.worker.working_off import worked_off


@pytest.fixture
def pipe(app):
    @app.stage
    def ask(item, context):
        if item == "broken":
            raise StageError("invalid_request", "no")
        return [context.request_id, context.attempt_id]

    return app.pipeline("p", ask)


def seen(app, ref):
    return app._session.opened.reader.job(ref.id)


def test_every_way_in_takes_a_request_id_and_else_the_jobs_id_serves(app, pipe, url):
    app.ready()
    with connected(url) as cx:
        within = pipe.enqueue(1, request_id="req-7", within=cx)
        cx.commit()
    called = pipe.call(1, request_id="req-7").job
    given = [pipe.enqueue(1, request_id="req-7"), *pipe.enqueue_many([1, 2], request_id="req-7")]
    assert {seen(app, ref).request_id for ref in (within, called, *given)} == {"req-7"}
    for ref in (pipe.enqueue(1), *pipe.enqueue_many([1]), pipe.call(1).job):
        assert seen(app, ref).request_id == ref.id
    pipe.run([{"trace": "req-8"}], request_id="trace")
    assert app._session.opened.reader.jobs(limit=1)[0].request_id == "req-8"


def test_every_way_in_takes_a_place_in_line(app, pipe):
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    refs = [pipe.enqueue(1, ordered_at=long_ago), *pipe.enqueue_many([1], ordered_at=long_ago)]
    assert [seen(app, ref).ordered_at for ref in refs] == [long_ago] * 2


def test_a_stage_is_given_the_request_of_its_job_and_an_id_of_its_attempt(app, pipe):
    called = pipe.call(1, request_id="req-7")
    assert called.value == ["req-7", f"{called.job.id}:1"]
    ref = pipe.enqueue(1)
    worked_off(app)
    assert ref.result(wait_s=0) == [ref.id, f"{ref.id}:1"]


def test_every_event_of_a_job_says_whose_request_it_is(app, pipe, told):
    pipe.call(1, request_id="req-7")
    pipe.enqueue(1, request_id="req-7").cancel()
    later = datetime.now(UTC) + timedelta(hours=1)
    pipe.enqueue(1, request_id="req-7", run_at=later).run_now()
    ref = pipe.enqueue("broken", request_id="req-7")
    worked_off(app)
    ref.retry()
    worked_off(app)
    app.dead.discard(every=True, reason="no")
    of_jobs = [event for event in told if "job_id" in event.fields]
    assert {event.name.value for event in of_jobs} == {
        "job_enqueued",
        "job_claimed",
        "job_succeeded",
        "job_cancelled",
        "job_revived",
        "job_discarded",
        "job_brought_forward",
    }
    assert {event.fields["request_id"] for event in of_jobs} == {"req-7"}


def test_a_log_line_has_both_the_jobs_id_and_the_requests(app, pipe, told, caplog):
    """C22."""
    pipe.call(1, request_id="req-7")
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        for event in told:
            log_event(event)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    (job,) = app._session.opened.reader.jobs()
    assert all(f" job_id={job.id} request_id=req-7 " in line for line in lines)
    assert json.loads(json.dumps(caplog.records[0].perdure))["request_id"] == "req-7"
