"""Whose code raised a failure, and where in it, is stored with the attempt and told to operators, on both stores."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from perdure.model.errors import JobFailed, StageError, UnknownName
from perdure.model.events import EventName
from perdure.model.states import State
from perdure.rules.presets import preset
from perdure.surfaces.cli.root import cli
from tests.app import acts
from tests.app.worker.working_off import worked_off


@pytest.mark.parametrize("process", [False, True])
def test_a_defect_of_the_stage_is_kept_and_told_as_own_code(app, url, process):
    ref = app.pipeline("p", app.stage(process=process)(acts.looks_up)).enqueue("lost")
    worked_off(app)
    job = ref.view()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert (job.state, attempt.kind) == (State.QUEUED, "unknown")
    assert json.loads(attempt.evidence_json)["origin"] == "own code"
    told = CliRunner().invoke(cli, ["jobs", "show", ref.id, "--store", url]).output
    assert "nobody has named yet; own code: KeyError); attempt 1 of 2 failed" in told


async def awaits(item):
    """Has the same defect, on an event loop."""
    return acts.looks_up(item)


PLACE = f"KeyError at tests.app.acts:{acts.looks_up.__code__.co_firstlineno + 2}"


@pytest.mark.parametrize(
    ("call", "process"), [(acts.looks_up, False), (awaits, False), (acts.looks_up, True)]
)
def test_what_was_raised_and_where_is_told_to_operators_and_to_nobody_else(
    app, url, told, call, process
):
    once = preset("datasets-once")
    ref = app.pipeline("p", app.stage(process=process, policy=once)(call)).enqueue("nope")
    with app.working(), pytest.raises(JobFailed) as failed:
        ref.result(wait_s=20)
    invoke = CliRunner().invoke
    for arguments in (["jobs", "show", ref.id], ["dead", "show", ref.id]):
        assert f"saw: {PLACE}: 'nope'" in invoke(cli, [*arguments, "--store", url]).output
    for arguments in (["dead", "groups"], ["dead", "list"]):
        assert f"{PLACE}: 'nope'" in invoke(cli, [*arguments, "--store", url]).output
    (event,) = [one for one in told if one.name is EventName.JOB_FAILED]
    assert event.fields["raised"] == PLACE
    job = ref.view()
    assert job.error_detail == f"{PLACE}: 'nope'"
    for public in (str(failed.value), job.error_message):
        assert "acts" not in public
        assert "KeyError" not in public


async def groups(item):
    """Two tasks fail at once: one met a limit, the other has the defect."""

    async def meets(error):
        raise error

    async def defect():
        return acts.looks_up("nope")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(meets(StageError("rate_limited", "slow down", wait_s=9)))
        tasks.create_task(defect())


def test_a_task_group_is_judged_by_its_worst_member_and_that_is_where_it_happened(app):
    once = preset("datasets-once")
    ref = app.pipeline("p", app.stage(policy=once)(groups)).enqueue(1)
    worked_off(app)
    job = ref.view()
    assert (job.error_kind, job.error_detail) == ("unknown", f"{PLACE}: in a group: 'nope'")


def test_a_failure_that_moved_to_another_line_is_still_the_same_failure(app):
    def before(item):
        return {}["a"]

    def after(item):
        return {}["a"]

    stage = app.stage(name="ask", policy=preset("datasets-once"))
    refs = [app.pipeline(one.__name__, stage(one)).enqueue(1) for one in (before, after)]
    worked_off(app)
    one, other = (ref.view() for ref in refs)
    assert one.error_detail != other.error_detail
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("process", [False, True])
def test_a_traceback_is_put_aside_where_that_is_asked_for(app, url, process):
    once = preset("datasets-once")
    pipe = app.pipeline("p", app.stage(process=process, policy=once)(acts.looks_up))
    silent = pipe.enqueue("nope")
    with app.working(), pytest.raises(JobFailed):
        silent.result(wait_s=20)
    assert silent.captures() == []
    ref = pipe.enqueue("nope", owner="ann")
    with app.working(capture_tracebacks="on"), pytest.raises(JobFailed):
        ref.result(wait_s=20)
    (one,) = ref.captures()
    text = app.read_capture(one.id).decode()
    assert one.kind == "traceback"
    assert "looks_up" in text
    assert text.rstrip().endswith("KeyError: 'nope'")
    assert 'File "tests/app/acts.py", line' in text
    with pytest.raises(UnknownName):
        app.read_capture(one.id, owner="ann")
