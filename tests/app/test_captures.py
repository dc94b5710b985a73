"""Raw output as a caller meets it: put aside by stages, read by its owner, and nowhere else to be seen."""

import asyncio
import logging
import threading
import time
from datetime import timedelta

import pytest

from perdure import App, StageError, checks
from perdure.model.errors import UnknownName
from perdure.model.limits import CAPTURE_BYTES_MAX
from perdure.model.nouns import replace
from perdure.model.states import AttemptStatus
from perdure.rules.presets import preset
from tests.app import acts
from tests.engine.kit import until

SECRET = "the customer's own words"
QUICK = replace(
    preset("standard"), name="quick", backoff=replace(preset("standard").backoff, base_s=0.01)
)
ONE_TRY = replace(preset("gateway-sync"), name="one-try", attempts_max=1)


def unfit(raw: str | bytes) -> StageError:
    """An error of ours that has the output with it."""
    error = StageError("invalid_output", "no total")
    error.raw = raw  # type: ignore[attr-defined]
    return error


def contents(app, ref) -> list[tuple[int, str, bytes]]:
    """What a job has left: token, kind, and the output."""
    return [(one.token, one.kind, app.read_capture(one.id)) for one in ref.captures()]


def ended(ref) -> None:
    until(lambda: ref.view().finished_at is not None, "the job has ended")


def tokens(app, ref) -> list[int]:
    return [one.token for one in app._session.opened.reader.attempts(ref.view().no)]


def test_each_attempt_keeps_its_own(app):
    @app.stage(policy=QUICK)
    def flaky(item, context):
        context.capture(f"answer {context.attempt}", kind="answer")
        if context.attempt < 3:
            raise unfit(f"bad {context.attempt}")
        return "done"

    pipe = app.pipeline("p", flaky)
    with app.working():
        ref = pipe.enqueue(1)
        assert ref.result(wait_s=20) == "done"
    first, second, third = tokens(app, ref)
    assert contents(app, ref) == [
        (first, "answer", b"answer 1"),
        (first, "invalid_output", b"bad 1"),
        (second, "answer", b"answer 2"),
        (second, "invalid_output", b"bad 2"),
        (third, "answer", b"answer 3"),
    ]
    assert app._session.opened.reader.audit() == []


def test_output_that_fails_a_check_is_kept_without_being_asked_for(app, told):
    @app.stage(policy="datasets-once")
    def reads(item):
        return checks.check(item, dict[str, int])

    pipe = app.pipeline("p", reads)
    with app.working():
        bad, good = pipe.enqueue(f'{{"total": "{SECRET}"}}'), pipe.enqueue('{"total": 3}')
        assert good.result(wait_s=20) == {"total": 3}
        ended(bad)
    ((_, kind, raw),) = contents(app, bad)
    assert (kind, raw) == ("invalid_output", f'{{"total": "{SECRET}"}}'.encode())
    assert bad.view().error_kind == "invalid_output"
    (attempt,) = app._session.opened.reader.attempts(bad.view().no)
    assert SECRET not in repr((told, attempt))
    assert good.captures() == []


def test_what_is_long_is_cut_and_bytes_stay_bytes(app):
    @app.stage
    def one(item, context):
        context.capture(bytes(range(256)) * 4096, media_type="image/png")
        context.capture("")

    ref = app.pipeline("p", one).enqueue(1)
    with app.working():
        ref.result(wait_s=20)
    cut, empty = ref.captures()
    assert (cut.bytes_kept, cut.bytes_whole) == (CAPTURE_BYTES_MAX, 256 * 4096)
    assert (cut.media_type, cut.stage) == ("image/png", "one")
    assert app.read_capture(cut.id) == bytes(range(256)) * (CAPTURE_BYTES_MAX // 256)
    assert (empty.bytes_kept, app.read_capture(empty.id)) == (0, b"")


def test_a_stage_in_a_process_of_its_own_has_them_too(app):
    once = preset("datasets-once")
    pipe = app.pipeline("p", app.stage(process=True, policy=once)(acts.takes))
    with app.working():
        refs = {how: pipe.enqueue(how) for how in ("return", "unfit", "die")}
        for ref in refs.values():
            ref.wait(wait_s=120)
    kept = {how: [found[1:] for found in contents(app, ref)] for how, ref in refs.items()}
    assert kept["return"] == [("raw", b"taken")]
    assert kept["unfit"] == [("raw", b"taken"), ("invalid_output", b"\xff{")]
    assert kept["die"] == [("raw", b"taken")] * 3, "each of its crashes"


@pytest.mark.parametrize("process", [False, True])
def test_a_timeout_keeps_what_was_taken_before_it(app, process):
    once = preset("datasets-once")
    pipe = app.pipeline("p", app.stage(process=process, policy=once, timeout_s=1.0)(acts.lingers))
    ref = pipe.enqueue(1)
    with app.working(grace_s=0.5):
        ended(ref)
        assert [found[1:] for found in contents(app, ref)] == [("raw", b"taken")]
    assert ref.view().error_kind == "timeout"


def test_what_is_given_back_leaves_nothing(app):
    began = threading.Event()

    @app.stage
    async def slow(item, context):
        context.capture("half done")
        began.set()
        await asyncio.sleep(60)

    ref = app.pipeline("p", slow).enqueue(1)
    with app.working(grace_s=0.0):
        assert began.wait(20)
    (attempt,) = app._session.opened.reader.attempts(ref.view().no)
    assert attempt.status is AttemptStatus.INTERRUPTED
    assert ref.captures() == []


# -- calls -------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [False, True])
def test_a_call_keeps_what_its_stages_take(app, process):
    pipe = app.pipeline("p", app.stage(process=process)(acts.takes))
    done = pipe.call("return")
    assert [found[1:] for found in contents(app, done.job)] == [("raw", b"taken")]


def test_a_call_that_is_handed_over_keeps_what_did_not_pass(app):
    pipe = app.pipeline("p", app.stage(acts.takes))
    called = pipe.call("unfit", policy=ONE_TRY)
    assert called.handed_over
    assert [one.kind for one in called.job.captures()] == ["raw", "invalid_output"]


def test_a_call_whose_wait_is_over_keeps_what_was_taken(app):
    pipe = app.pipeline("p", app.stage(acts.lingers))
    called = pipe.call(1, wait_s=2.0)
    assert called.handed_over
    assert [found[1:] for found in contents(app, called.job)] == [("raw", b"taken")]


def test_a_caller_that_has_gone_leaves_nothing(app):
    began = threading.Event()

    @app.stage
    async def slow(item, context):
        context.capture("half done")
        began.set()
        await asyncio.sleep(60)

    pipe = app.pipeline("p", slow)

    async def leave() -> None:
        task = asyncio.create_task(pipe.call_async(1))
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    (job,) = app._session.opened.reader.jobs()
    assert len(app._session.opened.reader.attempts(job.no)) == 1
    assert app._session.opened.reader.captures(job.no) == []


# -- reading -----------------------------------------------------------------------------


def test_an_owner_reads_its_own_and_cannot_tell_anothers_from_none(app):
    pipe = app.pipeline("p", app.stage(acts.takes))
    with app.working():
        hers, nobodys = pipe.enqueue("return", owner="ann"), pipe.enqueue("return")
        hers.result(wait_s=20)
        nobodys.result(wait_s=20)
    (one,), (free,) = hers.captures(), nobodys.captures()
    assert app.read_capture(one.id) == app.read_capture(one.id, owner="ann") == b"taken"
    assert app.read_capture(free.id, owner="") == b"taken"
    said = []
    for id, owner in (
        (one.id, "bob"),
        (one.id, ""),
        (free.id, "ann"),
        ("none", "ann"),
        ("none", None),
    ):
        with pytest.raises(UnknownName) as unknown:
            app.read_capture(id, owner=owner)
        said.append(str(unknown.value).replace(id, "…"))
    assert len(set(said)) == 1


def test_a_job_that_is_gone_has_none_to_show(app):
    pipe = app.pipeline("p", app.stage(acts.takes))
    ref = pipe.enqueue(1)
    assert ref.captures() == []
    with pytest.raises(UnknownName, match="no longer in the store"):
        replace_id(ref).captures()


def replace_id(ref):
    return replace(ref, id="00000000-0000-7000-8000-000000000000")


# -- keeping -----------------------------------------------------------------------------


def kept_for(ref) -> timedelta | None:
    (one,) = ref.captures()
    return None if one.expires_at is None else one.expires_at - one.saved_at


@pytest.mark.parametrize(
    ("setting", "kept"),
    [(None, timedelta(days=7)), (60, timedelta(minutes=1)), ("forever", None)],
)
def test_the_setting_says_for_how_long(app, monkeypatch, setting, kept):
    pipe = app.pipeline("p", app.stage(acts.takes))
    ref = pipe.enqueue("return")
    with app.working(capture_kept_s=setting):
        ref.result(wait_s=20)
    assert kept_for(ref) == kept
    if setting is not None:
        monkeypatch.setenv("PERDURE_CAPTURE_KEPT_S", str(setting))
    later = App(app.url)  # settings are read when an app is made
    called = later.pipeline("p", later.stage(acts.takes)).call("return")
    assert kept_for(called.job) == kept
    later.close()


def test_a_worker_lets_go_of_what_has_been_kept_for_long_enough(app):
    pipe = app.pipeline("p", app.stage(acts.takes))
    ref = pipe.enqueue("return")
    with app.working(capture_kept_s=0):
        ref.result(wait_s=20)
    with app.working():
        until(lambda: ref.captures() == [], "it is gone")
    assert ref.result(wait_s=0) == "done"


# -- nowhere else ------------------------------------------------------------------------


def everything_said(app, told, caplog) -> str:
    """What logs, events, jobs and attempts say."""
    reader = app._session.opened.reader
    jobs = reader.jobs(limit=100)
    attempts = [reader.attempts(job.no) for job in jobs]
    logs = [(record.getMessage(), record.__dict__) for record in caplog.records]
    return repr((told, jobs, attempts, logs, caplog.text, reader.deeds()))


def suffer(app, stage) -> None:
    """Have a stage fail, be called, time out and be stopped, with everything logged."""
    pipe = app.pipeline("p", stage)
    refs = [pipe.enqueue(how) for how in ("unfit", "wrapped", "slow", "return")]
    with app.working(grace_s=0.0):
        for ref in refs:
            ended(ref)
    assert pipe.call("unfit", policy=ONE_TRY).handed_over


@pytest.mark.parametrize("leaks", [False, True])
def test_it_is_told_to_nobody(app, told, caplog, leaks):
    """The twin that puts it into its message is found out: the test looks where it would be."""
    caplog.set_level(logging.DEBUG)
    once = preset("datasets-once")

    @app.stage(policy=once, timeout_s=1.0)
    def takes(item, context):
        context.capture(SECRET)
        context.capture(SECRET.encode(), kind="bytes")
        if leaks and item == "unfit":
            raise StageError("invalid_output", SECRET)
        if item == "unfit":
            raise unfit(SECRET)
        if item == "wrapped":
            raise ValueError("not of use") from unfit(SECRET)
        while item == "slow" and not context.cancelled:
            time.sleep(0.01)  # until its time is over
        return "done"

    suffer(app, takes)
    reader = app._session.opened.reader
    kept = [reader.captures(job.no) for job in reader.jobs()]
    assert all(len(found) >= 2 for found in kept)
    assert (SECRET in everything_said(app, told, caplog)) is leaks
