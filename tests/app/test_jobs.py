"""Jobs through the App: cancelled, run now and retried, one by one and by filter, each by its owner."""

import asyncio
import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from perdure import (
    App,
    CallerError,
    ConfigError,
    JobFailed,
    JobRef,
    PayloadRefused,
    StageError,
    Succeeded,
)
from perdure.model.errors import NotCancellable, NotChangeable, NotRetriable, UnknownName
from perdure.model.gates import GateChange, GateState
from perdure.model.operations import BulkStatus, Deed
from perdure.model.states import State
from tests.engine.kit import until


class Row(msgspec.Struct):
    """A typed item."""

    n: int


class Works:
    """A pipeline that refuses rows below zero."""

    def __init__(self, app: App) -> None:
        @app.stage(policy="datasets-once")
        def read(item: Row):
            return {"n": item.n}

        @app.stage(policy="datasets-once")
        def ask(item):
            if item["n"] < 0:
                raise StageError("input_invalid", f"row {item['n']}")
            return item["n"]

        self.app = app
        self.pipe = app.pipeline("p", read, ask)

    def dead(self, *numbers: int, **options):
        """Jobs that have failed, by number."""
        refs = [self.pipe.enqueue(Row(n), key=f"k{n}", **options) for n in numbers]
        self.work()
        return refs

    def work(self) -> None:
        """Until nothing waits any more."""
        waiting = [job.id for job in self.app.jobs.list(state="queued") if job.ready]
        with self.app.working(concurrency=2, poll_s=0.02):
            for id in waiting:
                with suppress(JobFailed):
                    self.app.job(id).result(wait_s=30)


@pytest.fixture
def works(app) -> Works:
    return Works(app)


def later():
    return datetime.now(UTC) + timedelta(hours=1)


def deeds(app):
    return [(one.by_whom, one.verb, one.reason) for one in app._session.opened.reader.deeds()]


# -- one ---------------------------------------------------------------------------------


def test_a_job_is_found_by_id_or_number_and_by_its_owner(app, works):
    ref = works.pipe.enqueue(Row(1), owner="ann")
    no = ref.view().no
    assert app.job(ref.id).view() == app.job(str(no), owner="ann").view() == ref.view()
    assert app.job(no).id == ref.id
    for wrong in (None, 1.5, True, b"1"):
        with pytest.raises(CallerError, match=f"the id of a job is {wrong!r}; give"):
            app.job(wrong)
    for owner in ("bob", ""):
        with pytest.raises(UnknownName) as refused:
            app.job(ref.id, owner=owner)
        with pytest.raises(UnknownName) as unknown:
            app.job("nobody", owner=owner)
        assert str(refused.value).replace(ref.id, "nobody") == str(unknown.value)


def test_a_job_is_found_by_its_key_and_owner(app, works):
    plain = works.pipe.enqueue(Row(1), key="k")
    of_ann = works.pipe.enqueue(Row(1), key="k", owner="ann")
    assert [one.id for one in app.jobs.list(key="k")] == [plain.id]
    assert [one.id for one in app.jobs.list(key="k", owner="ann")] == [of_ann.id]
    assert app.jobs.list(key="k", owner="bob") == []
    with pytest.raises(CallerError, match="key ''"):
        app.jobs.list(key="")


def test_a_reference_shows_its_id_and_is_the_same_wherever_it_comes_from(app, works, url):
    ref, other = works.pipe.enqueue(Row(1)), works.pipe.enqueue(Row(2))
    assert repr(ref) == f"JobRef(id={ref.id!r}, created=True)"
    assert repr(app.job(ref.id)) == f"JobRef(id={ref.id!r}, created=False)"
    assert {app.job(ref.id), ref, other} == {ref, other}
    elsewhere = App(url)
    assert elsewhere.job(ref.id) != ref
    elsewhere.close()
    assert ref != ref.id


def test_pipelines_and_bulk_operations_show_what_they_are(app, works):
    works.pipe.enqueue(Row(1))
    done = app.jobs.cancel(every=True)
    assert repr(done) == f"<bulk cancel {done.id}, {done.view().status.value}>"
    assert {app.dead.get_redrive(done.id)} == {done}
    assert repr(works.pipe) == f"<Pipeline {works.pipe.name!r}>"


def test_all_that_a_reference_reads_or_does_can_be_awaited(app, works):
    ref = works.pipe.enqueue(Row(1))
    plain = {name for name in dir(JobRef) if not name.startswith("_")} - {"id", "created"}
    assert {name for name in plain if not name.endswith("_async")} == {
        name.removesuffix("_async") for name in plain if name.endswith("_async")
    }

    async def read():
        return await ref.state_async(), await ref.captures_async(), await ref.payloads_async()

    assert asyncio.run(read()) == (State.QUEUED, [], [])


@pytest.mark.parametrize("wait_s", ["5", float("nan"), True])
def test_what_is_no_length_of_a_wait_is_named(works, wait_s):
    ref, run = works.pipe.enqueue(Row(1)), works.pipe.run([Row(2)])
    for wait in (ref.wait, ref.result, run.wait):
        with pytest.raises(CallerError, match=f"wait_s is {wait_s!r}; give a number of seconds"):
            wait(wait_s=wait_s)
    for later in (ref.wait_async, ref.result_async, run.wait_async):
        with pytest.raises(CallerError, match=f"wait_s is {wait_s!r}; give a number of seconds"):
            asyncio.run(later(wait_s=wait_s))


def test_a_wait_longer_than_a_thread_can_wait_is_one_without_end(app, works):
    ref = works.pipe.enqueue(Row(1))
    ref.cancel()
    for wait_s in (1e300, float("inf")):
        assert ref.wait(wait_s=wait_s).state is State.CANCELLED
        assert asyncio.run(ref.wait_async(wait_s=wait_s)).state is State.CANCELLED


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}, 5, None], ids=repr)
def test_what_is_no_row_of_items_is_refused_and_nothing_is_enqueued(app, works, items):
    with pytest.raises(CallerError, match=f"items are {re.escape(repr(items))}, of type"):
        works.pipe.enqueue_many(items)
    assert app.jobs.list() == []


def test_a_process_that_kept_an_id_has_all_that_the_one_that_enqueued_has(app, works, url):
    done, dead = works.pipe.enqueue(Row(3), owner="ann"), works.dead(-1)[0]
    other = App(url)
    found = other.job(done.id)
    assert (found.state, found.result(), found.wait().label) == (State.SUCCEEDED, 3, None)
    assert [one.stage for one in found.attempts()] == ["read", "ask"]
    assert other.job(dead.id).state is State.FAILED
    with pytest.raises(JobFailed, match="fatal"):
        other.job(dead.id).result()
    other.close()

    async def same():
        ref = await app.job_async(done.id, owner="ann")
        assert (await ref.view_async()).state is State.SUCCEEDED
        assert len(await ref.attempts_async()) == 2
        assert [one.event for one in await ref.history_async()] == [
            "enqueued",
            "success",
            "success",
            "succeeded",
        ]
        again = await app.job_async(dead.id)
        assert await again.retry_async(dry_run=True) == "ask"
        await again.retry_async()
        await again.cancel_async(reason="enough", by="ann")
        scheduled = await works.pipe.enqueue_async(Row(4), run_at=later())
        await scheduled.run_now_async()
        return again, scheduled

    again, scheduled = asyncio.run(same())
    assert again.state is State.CANCELLED
    assert scheduled.view().ready


def test_a_dry_run_of_a_retry_says_where_it_would_begin_or_why_it_cannot(app, works):
    (ref,) = works.dead(-1)
    before = ref.view()
    assert ref.retry(dry_run=True) == "ask"
    assert ref.retry(from_start=True, dry_run=True) == "read"
    assert ref.retry(payload={"n": 1}, dry_run=True) == "read"
    with pytest.raises(PayloadRefused):
        ref.retry(payload={"n": "x"}, dry_run=True)
    rival = works.pipe.enqueue(Row(-1), key="k-1", if_failed="keep")
    assert (rival.id, ref.view(), deeds(app)) == (ref.id, before, [])
    assert ref.retry() == "ask"
    with pytest.raises(NotRetriable, match="is queued"):
        ref.retry(dry_run=True)


def test_the_history_of_a_job_has_its_attempts_and_what_people_did(app, works):
    (ref,) = works.dead(-1)
    ref.retry(reason="again", by="ann")
    works.work()
    seen = ref.history()
    assert [(one.event, one.stage, one.by) for one in seen] == [
        ("enqueued", None, None),
        ("success", "read", None),
        ("failed", "ask", None),
        ("revive job", None, "ann"),
        ("failed", "ask", None),
        ("failed", "ask", None),
    ]
    assert "row -1" in seen[2].text or "input_invalid" in seen[2].text
    assert seen[3].text == "revive job by ann: again"
    assert [one.at for one in seen] == sorted(one.at for one in seen)


def test_who_cancels_a_job_and_why_is_kept(app, works):
    ref = works.pipe.enqueue(Row(1))
    ref.cancel(reason="wrong file", by="ann")
    assert ref.view().state is State.CANCELLED
    assert deeds(app) == [("ann", "cancel job", "wrong file")]
    with pytest.raises(NotCancellable):
        ref.cancel()


def test_a_scheduled_job_is_run_now(app, works):
    ref = works.pipe.enqueue(Row(1), run_at=later())
    ref.run_now(reason="it is urgent", by="ann")
    assert deeds(app) == [("ann", "run job now", "it is urgent")]
    with pytest.raises(NotChangeable, match="it is due already"):
        ref.run_now()
    with app.working(concurrency=1):
        assert ref.result(wait_s=30) == 1


def test_a_job_is_retried_with_a_corrected_payload(app, works):
    (ref,) = works.dead(-1)
    with pytest.raises(PayloadRefused, match="does not fit stage 'read'"):
        ref.retry(payload={"n": "one"})
    with pytest.raises(PayloadRefused):
        ref.retry(payload=None)
    assert ref.view().state is State.FAILED
    ref.retry(payload={"n": 1}, reason="the sign was wrong", by="ann")
    works.work()
    job = ref.view()
    assert (job.state, job.key, job.payload_json) == (State.SUCCEEDED, "k-1", '{"n":1}')
    assert [(one.life, json.loads(one.payload_json)) for one in ref.payloads()] == [(1, {"n": -1})]
    assert deeds(app) == [("ann", "revive job", "the sign was wrong")]
    assert app._session.opened.reader.audit() == []


# -- many --------------------------------------------------------------------------------


def test_open_jobs_are_cancelled_by_filter(app, works):
    mine = [works.pipe.enqueue(Row(n), owner="ann") for n in range(3)]
    other = works.pipe.enqueue(Row(9), owner="bob")
    assert app.jobs.count("cancel", owner="ann").count == 3
    bulk = app.jobs.cancel(owner="ann", reason="enough", by="bob").view()
    assert (bulk.status, bulk.done, bulk.begun_by, bulk.reason) == (
        BulkStatus.DONE,
        3,
        "bob",
        "enough",
    )
    assert {ref.view().state for ref in mine} == {State.CANCELLED}
    assert other.view().state is State.QUEUED
    assert app.jobs.list(state="cancelled", limit=2)[0].id == mine[-1].id


def test_jobs_that_wait_are_run_now_by_filter(app, works):
    refs = [works.pipe.enqueue(Row(n), run_at=later()) for n in range(3)]
    ready = works.pipe.enqueue(Row(9))
    assert app.jobs.count("run now", pipeline="p").count == 3
    assert app.jobs.run_now(pipeline="p").wait(wait_s=30).done == 3
    assert all(ref.view().ready for ref in (*refs, ready))


def test_jobs_are_listed_cancelled_and_counted_by_the_states_that_are_shown(app):
    @app.stage(upstream=app.upstream("model"))
    def ask(item):
        if item == "weak":
            raise StageError("network", "gone", wait_s=3_600)
        return Succeeded(item, label="fine")

    pipe = app.pipeline("asking", ask)
    fine = pipe.enqueue("fine")
    with app.working(concurrency=2, poll_s=0.02):
        fine.result(wait_s=30)
        weak = pipe.enqueue("weak")
        until(lambda: bool(weak.attempts()), "the first attempt")
    late = pipe.enqueue("late", run_at=later())

    def found(**chosen):
        return [job.id for job in app.jobs.list(**chosen)]

    assert found(state="retrying") == [weak.id]
    assert found(state="scheduled") == [late.id]
    assert found(state="queued") == [late.id, weak.id]
    assert found(state=["succeeded", State.QUEUED]) == [late.id, weak.id, fine.id]
    assert (found(label="fine"), found(label="other")) == ([fine.id], [])
    control = app._session.opened.control
    row = app._session.opened.reader.gate("model")
    control.change_gate(GateChange("model", row.generation, GateState.HELD, None), Deed("t", ""))
    assert found(state="held") == [late.id, weak.id]
    assert app.jobs.count("run now", state="retrying").count == 1
    assert app.jobs.cancel(state="scheduled").wait(wait_s=30).done == 1
    assert (late.state, weak.state) == (State.CANCELLED, State.QUEUED)


def test_dead_letters_are_retried_by_filter_with_payloads_by_key(app, works, tmp_path):
    refs = works.dead(-1, -2, -3)
    works.dead(-1, owner="ann")  # has the same key, and is somebody else's
    file = tmp_path / "fixed.jsonl"
    file.write_text(
        '{"key": "k-1", "payload": {"n": 1}}\n\n{"key": "k-2", "payload": {"n": 2}}\n'
        '{"key": "k-7", "payload": {"n": 7}}\n'
    )
    found = app.jobs.preview_retry(pipeline="p", payloads=file)
    assert (found.count, found.eligible, found.keys_unknown) == (2, 2, ("k-7",))
    bulk = app.jobs.retry(pipeline="p", payloads=file, reason="fixed").wait(wait_s=30)
    assert (bulk.status, bulk.done) == (BulkStatus.DONE, 2)
    works.work()
    assert [ref.view().state for ref in refs] == [State.SUCCEEDED, State.SUCCEEDED, State.FAILED]
    assert [job.owner for job in app.dead.list()] == ["ann", ""]
    bulk = app.jobs.retry(pipeline="p", payloads={"k-1": Row(5)}, owner="ann").wait(wait_s=30)
    assert bulk.done == 1
    assert app._session.opened.reader.audit() == []


def test_what_was_exported_is_retried_with_its_items_corrected(app, works, tmp_path):
    refs = works.dead(-1, -2)
    file = tmp_path / "dead.jsonl"
    assert app.dead.export(file) == 2
    file.write_text(file.read_text().replace('"item":{"n":-', '"item":{"n":'))
    assert app.jobs.retry(pipeline="p", payloads=file).wait(wait_s=30).done == 2
    works.work()
    assert [ref.view().state for ref in refs] == [State.SUCCEEDED, State.SUCCEEDED]


def test_dead_letters_are_retried_where_they_stand_and_in_no_run(app, works):
    works.dead(-1, -2)
    bulk = app.jobs.retry(from_start=True, by="ann").wait(wait_s=30)
    assert (bulk.done, bulk.run, bulk.begun_by) == (2, None, "ann")
    assert [(job.stage, job.life) for job in app.jobs.list()] == [("read", 2), ("read", 2)]


WRONG_FILES = [
    ("nonsense\n", "line 1 is no JSON value"),
    ("[1]\n", "payload 1 is no "),
    ('{"key": 1, "payload": 1}\n', "payload 1 is no "),
    ('{"key": "a"}\n', "payload 1 is no "),
    ('{"key": "a", "item": {"n": 1}, "payload": {"n": 1}}\n', "payload 1 is no "),
    ('{"id": "01a", "key": null, "item": {"n": 1}}\n', "payload 1 is of a letter without a key; correct that one by its id: perdure jobs retry 01a "),
    ('{"key": "a", "payload": {"n": 1}, "more": 1}\n', "payload 1 is no "),
    ('{"key": "a", "payload": {"n": 1}}\n{"key": "a", "payload": {"n": 2}}\n', "the key 'a' once more"),
    ('{"key": "a", "payload": {"n": "x"}}\n', "the payload of key 'a' is refused: the item does not fit"),
    ("", "there are no payloads"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG_FILES, ids=[words for _, words in WRONG_FILES])
def test_a_file_of_payloads_that_is_wrong_is_refused_before_anything_is_done(
    app, works, tmp_path, text, words
):
    works.pipe.enqueue(Row(1))
    file = tmp_path / "fixed.jsonl"
    file.write_text(text)
    with pytest.raises(CallerError, match=words):
        app.jobs.retry(pipeline="p", payloads=str(file))
    assert app._session.opened.reader.bulks() == []


WRONG = [
    (lambda jobs: jobs.cancel(colour="red"), CallerError, "jobs have no filter 'colour'"),
    (lambda jobs: jobs.cancel(state="failed"), NotCancellable, "only queued and processing"),
    (lambda jobs: jobs.cancel(state="done"), CallerError, "state is 'done'"),
    (lambda jobs: jobs.list(state="retryin"), CallerError, "state is 'retryin'; did you mean 'retrying'"),
    (lambda jobs: jobs.list(state=5), CallerError, "state is 5; one of: cancelled, failed, held"),
    (lambda jobs: jobs.list(state=["held", "failed"]), CallerError, "'held' is a view of queued"),
    (lambda jobs: jobs.run_now(state="processing"), NotChangeable, "only queued ones wait"),
    (lambda jobs: jobs.run_now(rate="soon", pipeline="p"), ConfigError, "rate is 'soon'"),
    (lambda jobs: jobs.cancel(), CallerError, "means every open job of this store; give one"),
    (lambda jobs: jobs.cancel(owner=None), CallerError, "or say every=True"),
    (lambda jobs: jobs.run_now(), CallerError, "means every job that waits"),
    (lambda jobs: jobs.list(foo=1), CallerError, "have no filter 'foo'; one of: .*key"),
    (lambda jobs: jobs.cancel(pipeline="q"), UnknownName, "this store has no pipeline 'q'"),
    (lambda jobs: jobs.retry(payloads={"k-1": {"n": 1}}), CallerError, "name it"),
    (lambda jobs: jobs.retry(from_start=True, from_stage="ask"), CallerError, "not both"),
    (lambda jobs: jobs.retry(state="failed"), CallerError, "dead letters have no filter 'state'"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "kind", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_cannot_be_is_refused_with_a_reason(app, works, act, kind, words):
    works.pipe.enqueue(Row(1))
    with pytest.raises(kind, match=words):
        act(app.jobs)
    assert app._session.opened.reader.bulks() == []


def test_a_job_that_has_not_failed_is_not_given_another_payload(app, works):
    ref = works.pipe.enqueue(Row(1))
    with pytest.raises(NotRetriable, match="is queued"):
        ref.retry(payload={"n": 2})
    assert ref.payloads() == []
