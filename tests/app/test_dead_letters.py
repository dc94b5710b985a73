"""Dead letters through the App: grouped, previewed, driven again by a worker, discarded, exported."""

import json
from functools import partial

import pytest

from perdure import App, CallerError, StageError
from perdure.model.errors import NotRetriable, UnknownName
from perdure.model.operations import BulkStatus
from perdure.model.runs import RunStatus
from perdure.model.states import State


class Works:
    """A stage that fails on what is broken, and a check that knows what is gone."""

    def __init__(self, app: App) -> None:
        self.broken: set[int] = set()
        self.gone: set[int] = set()

        @app.stage(policy="datasets-once")
        def read(item):
            return item

        @app.stage(policy="datasets-once")
        def ask(item):
            if item["n"] in self.broken:
                what = "odd" if item["n"] % 2 else "even"
                raise StageError("invalid_request", f"row {item['n']} is {what}")
            return item["n"]

        def source_exists(item):
            if item["n"] in self.gone:
                return False
            if item["n"] < 0:
                raise OSError("the disk is away")
            return True

        self.pipe = app.pipeline("p", read, ask, source_exists=source_exists)


@pytest.fixture
def works(app) -> Works:
    return Works(app)


def failed_run(app, works, count=20, broken=range(6)):
    works.broken = set(broken)
    with app.working(concurrency=4):
        run = works.pipe.run(({"n": n} for n in range(count)), name="batch", failure_budget=1.0)
        run.wait(wait_s=30)
    return run


def test_dead_letters_fall_into_groups_by_what_went_wrong(app, works):
    run = failed_run(app, works)
    groups = app.dead.groups(run="batch")
    assert [(one.kind, one.stage, one.count) for one in groups] == [
        ("invalid_request", "ask", 3),
        ("invalid_request", "ask", 3),
    ]
    assert {one.example.split()[-1] for one in groups} == {"odd", "even"}
    odd = next(one for one in groups if one.example.endswith("odd"))
    listed = app.dead.list(fingerprint=odd.fingerprint)
    assert {json.loads(one.payload_json)["n"] for one in listed} == {1, 3, 5}
    assert len(app.dead.list(text="EVEN")) == 3
    assert app.dead.list(older_than="1h") == []
    assert len(app.dead.list(newer_than="1h", kind="invalid_request", run=run.id)) == 6


WRONG = [
    ({"reason_failed": "typo"}, "reason_failed is 'typo'; one of: "),
    ({"reason_failed": "exhaust"}, "did you mean 'exhausted'? One of: "),
    ({"kind": "typo"}, "kind is 'typo'; one of: "),
    ({"kind": 5}, "kind is 5; one of: "),
    ({"kind": ""}, "kind is ''; one of: "),
    ({"run": 1.5}, "run is 1.5; give a run's id, number or name"),
    ({"run": True}, "run is True; give a run's id, number or name"),
    ({"run": 1 << 70}, "; give a run's id, number or name"),
    ({"older_than": float("nan")}, "older_than is nan; write a duration"),
    ({"older_than": float("inf")}, "older_than is inf, which is longer ago than the year 1"),
    ({"newer_than": 1e300}, "newer_than is 1e+300, which is longer ago"),
    ({"older_than": 10**400}, "which is longer ago"),
    ({"older_than": "99999999999d"}, "older_than is '99999999999d', which is longer ago"),
    ({"older_than": "9" * 400 + "d"}, "which is longer ago"),
    ({"older_than": True}, "older_than is True; write a duration"),
    ({"owner": 5}, "owner is 5; give a text"),
    ({"discarded": "no"}, "discarded is 'no'; give true or false"),
    ({"colour": "red"}, "dead letters have no filter 'colour'; "),
    ({"older_than": "soon"}, "older_than is 'soon'; write a duration"),
    ({"newer_than": -5}, "newer_than is -5"),
    ({"pipelin": None}, "dead letters have no filter 'pipelin'; did you mean 'pipeline'?"),
    ({"pipeline": "wrks"}, "this store has no pipeline 'wrks'; one of: p"),
    ({"stage": "aks"}, "this store has no stage 'aks'; did you mean 'ask'? One of: ask, read"),
    ({"queue": "defualt"}, "no queue 'defualt'; did you mean 'default'?"),
    ({"category": "x"}, "no category 'x'; one of: default"),
]


@pytest.mark.parametrize(("chosen", "words"), WRONG, ids=[str(one) for one, _ in WRONG])
def test_a_filter_that_cannot_be_meant_is_refused_with_what_there_is(app, works, chosen, words):
    works.pipe.enqueue({"n": 1})
    for ask in (app.dead.list, app.dead.groups, app.dead.count, app.dead.preview):
        with pytest.raises(CallerError) as refused:
            ask(**chosen)
        assert words in str(refused.value)
    for act in (app.dead.redrive, partial(app.dead.discard, reason="x"), app.dead.letters):
        with pytest.raises(CallerError):
            list(act(**chosen))
    assert list(app.dead.redrives()) == []


@pytest.mark.parametrize("given", [{"limit": "x"}, {"limit": True}, {"limit": -1}, {"before": "x"}])
def test_a_page_that_cannot_be_meant_is_refused(app, works, given):
    ((name, value),) = given.items()
    with pytest.raises(CallerError, match=f"{name} is {value!r}; give a whole number"):
        app.dead.list(**given)


def test_a_stage_of_another_pipeline_is_refused_with_where_it_is(app, works):
    @app.stage
    def elsewhere(item):
        return item

    other = app.pipeline("other", elsewhere)
    for pipe in (works.pipe, other):
        pipe.enqueue({"n": 1})
    with pytest.raises(CallerError) as refused:
        app.dead.list(pipeline=works.pipe.name, stage="elsewhere")
    where = f"this store has no stage 'elsewhere' in pipeline {works.pipe.name!r} (but pipeline other has it); "
    assert where in str(refused.value)


def test_a_filter_that_finds_nothing_is_no_mistake(app, works):
    """What the app has declared is known before the first item; an empty store knows nothing to compare with."""
    for chosen in (
        {"pipeline": works.pipe.name},
        {"stage": "ask"},
        {"kind": "billing"},
        {"reason_failed": "crashed"},
    ):
        assert app.dead.list(**chosen) == []


def test_one_dead_letter_is_shown_with_its_attempts(app, works):
    failed_run(app, works, broken=[2])
    (job,) = app.dead.list()
    shown, attempts = app.dead.get_letter(job.id)
    assert (shown.id, [one.stage for one in attempts]) == (job.id, ["read", "ask"])
    with pytest.raises(UnknownName):
        app.dead.get_letter("nobody")
    done = next(iter(app.get_run("batch").results()))
    with pytest.raises(NotRetriable, match="is succeeded, and no dead letter"):
        app.dead.get_letter(done.job_id)


def test_a_redrive_is_done_by_a_worker_and_the_parent_recomputed(app, works):
    run = failed_run(app, works, count=10)
    assert run.status is RunStatus.FAILED
    works.broken, works.gone = {0}, {1, 2}
    seen = app.dead.preview(run="batch")
    assert (seen.count, seen.eligible) == (6, 4)
    assert [(one.why, one.count) for one in seen.refused] == [("its source is gone", 2)]
    with app.working(concurrency=4):
        redrive = app.dead.redrive(run="batch", reason="the key is new")
        over = redrive.wait(wait_s=30)
        assert (over.status, over.done, over.refused) == (BulkStatus.DONE, 4, 2)
        child = redrive.run.wait(wait_s=30)
        assert (child.counts.total, child.counts.succeeded, child.counts.failed) == (4, 3, 1)
        assert run.wait(wait_s=30).status is RunStatus.PARTIAL_SUCCESS
    assert {one.why for one in redrive.refusals()} == {"its source is gone"}
    assert [one.value for one in redrive.run.results(failed=False)] == [3, 4, 5]
    assert [one.id for one in app.dead.redrives()] == [redrive.id]
    assert app.dead.get_redrive(redrive.id).view().done == 4
    assert app._session.opened.reader.audit() == []
    job = app._session.opened.reader.job(app.dead.list(fingerprint=None, limit=1)[0].id)
    assert job is not None


def test_a_canary_that_fails_again_saves_the_others(app, works):
    failed_run(app, works, count=12, broken=range(12))
    with app.working(concurrency=4):
        redrive = app.dead.redrive(run="batch", canary=3)
        over = redrive.wait(wait_s=30)
        assert (over.status, over.done) == (BulkStatus.STOPPED, 3)
        assert over.why == "of the canary of 3, 0 succeeded; at least 90 % must"
        works.broken = set()
        redrive.resume()
        assert redrive.wait(wait_s=30).done == 12 - 0 - 3 + 3
        assert redrive.run.wait(wait_s=30).counts.succeeded == 9


def test_a_budget_that_makes_no_sense_is_the_callers(app, works):
    with pytest.raises(
        CallerError, match=r"^failure_budget is 3; it must be a number between 0 and 1$"
    ):
        app.dead.redrive(pipeline="p", failure_budget=3)
    with pytest.raises(
        CallerError, match=r"^failure_budget is 3; it must be a number between 0 and 1$"
    ):
        works.pipe.run([], failure_budget=3)
    assert app.runs() == []


def test_a_redrive_is_stopped_in_the_middle_and_goes_on(app, works):
    failed_run(app, works, count=30, broken=range(30))
    works.broken = set()
    with app.working(concurrency=4):
        redrive = app.dead.redrive(run="batch", rate="60/min")
        assert redrive.view().status is BulkStatus.RUNNING
        stopped = redrive.stop(reason="wait")
        assert stopped.status is BulkStatus.STOPPED
        assert stopped.done < 30
    again = app.dead.get_redrive(redrive.id)
    assert again.resume().status is BulkStatus.RUNNING


def test_a_single_job_is_retried_where_its_source_exists(app, works):
    failed_run(app, works, broken=[2])
    (job,) = app.dead.list()

    ref = app.job(job.id)
    works.gone = {2}
    with pytest.raises(NotRetriable, match="cannot be retried: its source is gone"):
        ref.retry()
    works.gone = set()
    ref.retry(from_start=True, reason="mended")
    assert (ref.view().state, ref.view().stage, ref.view().retries_manual) == (
        State.QUEUED,
        "read",
        1,
    )


def test_a_check_that_raises_refuses_and_says_what(app, works):
    works.broken = {-1}
    with app.working(concurrency=2):
        works.pipe.run([{"n": -1}], name="batch", failure_budget=1.0).wait(wait_s=30)
    (refused,) = app.dead.preview().refused
    assert refused.why.startswith("whether its source exists could not be told (")
    assert "the disk" not in refused.why


def test_dead_letters_are_discarded(app, works):
    failed_run(app, works)
    bulk = app.dead.discard(run="batch", text="odd", reason="no use")
    assert (bulk.status, bulk.done) == (BulkStatus.DONE, 3)
    assert len(app.dead.list()) == 3
    assert len(app.dead.list(discarded=True)) == 3
    assert app._session.opened.reader.books().failed == 6


def test_without_a_filter_dead_letters_are_discarded_only_where_every_one_is_meant(app, works):
    failed_run(app, works)
    for chosen in ({}, {"pipeline": None}):
        with pytest.raises(CallerError, match=r"means every dead letter of this store.*every=True"):
            app.dead.discard(reason="no use", **chosen)
    assert len(app.dead.list()) == 6
    bulk = app.dead.discard(every=True, reason="no use")
    assert (bulk.status, bulk.done) == (BulkStatus.DONE, 6)
    assert app.dead.list() == []


def test_one_dead_letter_is_found_driven_and_discarded_by_its_key(app, works):
    works.broken = {1, 2, 3}
    with app.working(concurrency=4):
        for n, owner in ((1, ""), (2, ""), (3, "ann")):
            works.pipe.enqueue({"n": n}, key=f"row-{min(n, 2)}", owner=owner).wait()
    items = {
        owner: app.dead.list(key="row-2", owner=owner)[0].payload_json for owner in ("", "ann")
    }
    assert items == {"": '{"n":2}', "ann": '{"n":3}'}
    assert len(app.dead.list(key="row-2")) == 1  # without an owner, that of nobody
    assert [one.count for one in app.dead.groups(key="row-1")] == [1]
    assert app.dead.preview(key="row-1").eligible == 1
    bulk = app.dead.discard(pipeline="p", key="row-2", reason="no use")
    assert (bulk.status, bulk.done) == (BulkStatus.DONE, 1)
    assert sorted(one.payload_json for one in app.dead.list()) == ['{"n":1}', '{"n":3}']
    assert app.dead.list(key="row-9") == []


def test_dead_letters_are_exported_with_their_attempts(app, works, tmp_path):
    failed_run(app, works)
    path = tmp_path / "dead.jsonl"
    assert app.dead.export(path, run="batch") == 6
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert {one["item"]["n"] for one in letters} == set(range(6))
    one = letters[0]
    assert (one["state"], one["error_kind"], one["failed_reason"]) == (
        "failed",
        "invalid_request",
        "fatal",
    )
    assert [at["status"] for at in one["attempts"]] == ["success", "failed"]
    assert one["attempts"][1]["why"]["policy"].startswith("datasets-once")
    assert one["attempts"][1]["evidence"]["kind"] == "invalid_request"
