"""Calls as a caller makes them, on both stores: what comes back, and what is in the store afterwards."""

import asyncio
import contextvars
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from perdure import (
    App,
    CallerError,
    ConfigError,
    JobFailed,
    Kind,
    Policy,
    Profile,
    Snooze,
    StageError,
    Succeeded,
)
from perdure.app.calling import calls, own_loop as loops
from perdure.app.calling.own_loop import OwnLoop
from perdure.app.job_refs import Called
from perdure.engine.attempt.threads import Threads
from perdure.model.errors import StoreError, StoreUnavailable
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, State
from perdure.model.workers import Role
from perdure.rules.policy import FAIL, RETRY
from tests.app.worker.working_off import worked_off
from tests.engine import plays
from tests.engine.kit import Unreliable
from tests.house.markdown import fences
from tests.servers.postgres import Server
from tests.servers.programs import MissingPart

LONG_S = 30.0  # a wait that no test uses up
SHORT_S = 1.0  # one that a test uses up; a busy machine begins a job within it


def piped(app: App, *functions, **options):
    """A pipeline of these functions."""
    stages = [app.stage(name=f"stage-{n}", **options)(one) for n, one in enumerate(functions)]
    return app.pipeline("p", *stages)


def paused(app: App) -> list[float]:
    """The pauses between two tries, which take no time from now on."""
    pauses: list[float] = []

    async def pause(wait_s: float) -> None:
        pauses.append(wait_s)

    app._session.calls.pause = pause
    return pauses


def statuses(called_or_ref) -> list[str]:
    ref = called_or_ref.job if isinstance(called_or_ref, Called) else called_or_ref
    attempts = ref._session.opened.reader.attempts(ref.view().no)
    return [one.status.value for one in attempts]


def only_job(app: App):
    (job,) = app._session.opened.reader.jobs()
    return job


def clean(app: App) -> None:
    assert app._session.opened.reader.audit() == []
    assert app._session.opened.reader.books().balanced


def unreliable(app: App) -> Unreliable:
    """Put a line that breaks between the app and its store."""
    store = Unreliable(app._session.opened.store)
    app._session._opened = replace(app._session.opened, store=store)
    return store


class Faults:
    """A stage that raises what it is given, one after the other, and then returns its item."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.calls = 0

    def __call__(self, item):
        self.calls += 1
        if self.faults:
            raise self.faults.pop(0)
        return item


# -- done -----------------------------------------------------------------------------------------


def test_async_stages_run_on_the_caller_s_loop_and_sync_ones_on_a_thread(app):
    seen = {}

    async def one(item):
        seen["loop"] = asyncio.get_running_loop()
        return {**item, "one": 1}

    def two(item, context):
        seen["thread"] = threading.current_thread()
        context.usage(tokens_in=3)
        return Succeeded({**item, "two": 2}, label="passed")

    pipe = piped(app, one, two)

    async def calling():
        return await pipe.call_async({"n": 1}, owner="ann"), asyncio.get_running_loop()

    called, loop = asyncio.run(calling())
    assert (called.done, called.value, called.handed_over) == (
        True,
        {"n": 1, "one": 1, "two": 2},
        False,
    )
    assert seen["loop"] is loop
    assert seen["thread"] is not threading.main_thread()
    job = called.job.view()
    assert (job.state, job.owner, job.label) == (State.SUCCEEDED, "ann", "passed")
    assert called.job.result() == called.value
    assert statuses(called) == ["success", "success"]
    attempt = app._session.opened.reader.attempts(job.no)[1]
    assert '"tokens_in":3' in attempt.why_json
    clean(app)


def test_a_caller_without_a_loop_calls_just_so(app):
    local = contextvars.ContextVar("local")
    local.set("mine")

    async def one(item):
        return {**item, "context": local.get()}

    pipe = piped(app, one, lambda item: {**item, "thread": True})
    called = pipe.call({"n": 1}, key="k")
    assert called.value == {"n": 1, "context": "mine", "thread": True}
    assert called.done
    clean(app)


def test_blocking_calls_share_one_loop_so_that_a_stage_may_keep_its_client(app):
    loops = set()

    async def one(item):
        loops.add(asyncio.get_running_loop())
        return item

    pipe = piped(app, one)
    with_threads = [threading.Thread(target=pipe.call, args=(n,)) for n in range(4)]
    for thread in with_threads:
        thread.start()
    for thread in with_threads:
        thread.join(30)
    assert len(loops) == 1
    assert app._session.opened.reader.books().succeeded == 4


def test_a_blocking_call_on_an_event_loop_is_refused(app):
    pipe = piped(app, lambda item: item)

    async def wrong():
        pipe.call(1)

    with pytest.raises(CallerError, match=r"await pipe\.call_async"):
        asyncio.run(wrong())


def test_many_calls_at_once_share_one_row(app):
    async def one(item):
        await asyncio.sleep(0)
        return item

    pipe = piped(app, one, lambda item: item)

    async def many():
        return await asyncio.gather(*(pipe.call_async(n, wait_s=LONG_S) for n in range(40)))

    assert [one.value for one in asyncio.run(many())] == list(range(40))
    (row,) = app._session.opened.reader.workers()
    assert row.role is Role.CALLER
    clean(app)


# -- once more ------------------------------------------------------------------------------------


def test_one_retry_after_300_to_800_ms(app):
    pauses = paused(app)
    stage = Faults(StageError("timeout", "slow"))
    called = asyncio.run(piped(app, stage).call_async(1))
    assert (called.done, called.value, stage.calls) == (True, 1, 2)
    (pause_s,) = pauses
    assert 0.3 <= pause_s <= 0.8
    assert statuses(called) == ["retrying", "success"]
    clean(app)


def test_the_pause_is_waited_for_in_earnest(app):
    moments = []

    def one(item):
        moments.append(time.monotonic())
        if len(moments) == 1:
            raise ConnectionResetError("gone")
        return item

    assert asyncio.run(piped(app, one).call_async(1)).done
    first, second = moments
    assert second - first >= 0.3


def test_a_handed_over_job_goes_on_under_the_stage_s_own_policy_where_it_stands(app):
    paused(app)
    first, second = Faults(), Faults(*(StageError("timeout", "slow") for _ in range(2)))
    pipe = piped(app, first, second, policy=Policy("own", attempts_max=2))
    called = asyncio.run(pipe.call_async({"n": 1}))
    assert (called.done, called.handed_over) == (False, True)
    assert 0.3 <= called.due_in_s <= 0.8
    called.job.run_now(reason="nobody waits in a test")
    worked_off(app)
    assert called.job.result(wait_s=0) == {"n": 1}
    assert (first.calls, second.calls) == (1, 3)
    attempts = app._session.opened.reader.attempts(called.job.view().no)
    assert [one.policy for one in attempts] == ["gateway-sync/1"] * 3 + ["own/1"]
    clean(app)


# -- handed over, or failed -------------------------------------------------------------------------


def test_a_rate_limit_is_handed_over_with_its_hint_and_not_tried_again(app):
    stage = Faults(StageError("rate_limited", "slow down", wait_s=0.2))
    called = asyncio.run(piped(app, stage).call_async(1))
    assert (called.done, called.value, called.handed_over, called.due_in_s) == (
        False,
        None,
        True,
        0.2,
    )
    assert "rate_limited" in called.why
    assert stage.calls == 1
    job = called.job.view()
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert (attempt.status, attempt.due_at) == (AttemptStatus.HANDED_OVER, job.due_at)
    assert (job.due_at - attempt.settled_at).total_seconds() == 0.2
    clean(app)


def test_a_snooze_is_handed_over(app):
    called = asyncio.run(piped(app, lambda _: Snooze(60.0)).call_async(1))
    assert (called.handed_over, called.due_in_s) == (True, 60.0)
    clean(app)


def test_a_failure_is_raised_with_the_public_message_and_kept_as_a_dead_letter(app):
    stage = Faults(StageError("invalid_request", "secret detail"))
    with pytest.raises(
        JobFailed, match=r"with INVALID_REQUEST \(fatal, invalid_request\): The upstream says"
    ) as caught:
        asyncio.run(piped(app, stage).call_async(1))
    assert "secret" not in str(caught.value)
    job = only_job(app)
    assert (job.state, job.error_kind) == (State.FAILED, "invalid_request")
    told = job.error_message.rstrip(".")
    assert str(caught.value) == (
        f"job {job.id} failed with INVALID_REQUEST (fatal, invalid_request): {told}; "
        f"see: perdure jobs show {job.id}"
    )
    clean(app)


def test_a_failure_has_what_an_endpoint_tells_its_users_from_a_call_and_from_a_job(app):
    words = {"public_code": "no_total", "public_message": "The bill has no total."}
    pipe = piped(app, Faults(StageError("invalid_request", "secret detail", **words)))
    for ask in (lambda: pipe.call(1, key="k"), lambda: app.job(only_job(app).id).result(wait_s=0)):
        with pytest.raises(JobFailed) as caught:
            ask()
        error = caught.value
        assert (error.job_id, error.kind) == (only_job(app).id, "invalid_request")
        assert (error.public_code, error.public_message) == ("no_total", "The bill has no total.")
        assert str(error) == (
            f"job {error.job_id} failed with no_total (fatal, invalid_request): The bill has no total; "
            f"see: perdure jobs show {error.job_id}"
        )
    with pytest.raises(JobFailed) as caught:
        pipe.call(1, key="k")  # the key belongs to that job
    assert (error.kind, error.public_code) == (caught.value.kind, caught.value.public_code)
    clean(app)


# -- the wait ---------------------------------------------------------------------------------------


def test_an_async_stage_is_stopped_when_the_wait_is_over(app):
    ended = []

    async def one(item):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    pipe = piped(app, one)
    app.ready()  # opening a store takes a part of the wait, too
    called = asyncio.run(asyncio.wait_for(pipe.call_async(1, wait_s=SHORT_S), LONG_S))
    assert (called.done, called.handed_over) == (False, True)
    assert "wait of 1 s is over" in called.why
    assert ended == [1]
    assert statuses(called) == ["handed_over"]
    clean(app)


def test_a_thread_is_given_up_when_the_wait_is_over_and_what_it_says_later_counts_for_nothing(app):
    let_go, left = threading.Event(), threading.Event()
    seen = []

    def one(item, context):
        let_go.wait(30)
        seen.append(context.cancelled)
        left.set()
        return "late"

    pipe = piped(app, one)
    app.ready()
    called = asyncio.run(pipe.call_async(1, wait_s=SHORT_S))
    assert called.handed_over
    let_go.set()
    assert left.wait(30)
    assert seen == [True]
    assert (called.job.view().state, called.job.view().result_json) == (State.QUEUED, None)
    assert statuses(called) == ["handed_over"]
    clean(app)


def test_a_stage_that_does_not_stop_when_told_to_keeps_nobody_waiting(app):
    async def calling():
        let_go, begun = asyncio.Event(), asyncio.Event()

        async def one(item):
            begun.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            return "late"

        pipe = piped(app, one)
        app.ready()
        called = await pipe.call_async(1, wait_s=SHORT_S)
        assert begun.is_set()
        (stubborn,) = app._session.calls.unheard
        let_go.set()
        await asyncio.wait([stubborn], timeout=30)
        return called

    called = asyncio.run(calling())
    assert called.handed_over
    assert app._session.calls.unheard == set()
    assert statuses(called) == ["handed_over"]
    clean(app)


# -- callers that go --------------------------------------------------------------------------------


def cancelled_midway(app: App, **options):
    """Cancel a call while its stage runs."""

    async def calling():
        begun = asyncio.Event()

        async def one(item):
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(piped(app, one).call_async(1, **options))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel("client gone")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(calling())
    return only_job(app)


@pytest.mark.parametrize(
    ("wish", "state", "status"),
    [("hand_over", State.QUEUED, "handed_over"), ("drop", State.CANCELLED, "cancelled")],
)
def test_a_cancelled_caller_s_job_ends_as_was_asked_before_the_caller_is_let_go(
    app, wish, state, status
):
    job = cancelled_midway(app, on_lost=wish)
    assert job.state is state
    (attempt,) = app._session.opened.reader.attempts(job.no)
    assert attempt.status.value == status
    clean(app)


def test_a_timeout_of_the_caller_s_own_is_a_caller_that_goes(app):
    async def one(item):
        await asyncio.Event().wait()

    pipe = piped(app, one)

    async def calling():
        async with asyncio.timeout(0.2):
            await pipe.call_async(1)

    with pytest.raises(TimeoutError):
        asyncio.run(calling())
    assert only_job(app).state is State.QUEUED
    clean(app)


def test_a_caller_that_goes_while_its_job_is_being_accepted_leaves_none_in_work(app):
    pipe = piped(app, lambda item: item)
    accepting, go_on = threading.Event(), threading.Event()
    begin = app._session.opened.store.begin

    def slow(*arguments, **options):
        accepting.set()
        go_on.wait(30)
        return begin(*arguments, **options)

    unreliable(app).begin = slow

    async def calling():
        task = asyncio.create_task(pipe.call_async(1))
        await asyncio.to_thread(accepting.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # impatient ones say so again
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(calling())
    assert only_job(app).state is State.QUEUED
    clean(app)


def test_a_result_that_comes_as_the_caller_goes_is_kept(app):
    async def calling():
        async def one(item):
            task.cancel()  # the caller goes, and the stage does not wait for anything any more
            return {"paid": item}

        task = asyncio.create_task(piped(app, one).call_async(1, on_lost="drop"))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(calling())
    assert (only_job(app).state, only_job(app).result_json) == (State.SUCCEEDED, '{"paid":1}')
    clean(app)


def test_a_caller_that_goes_during_the_pause_is_not_kept(app):
    async def calling():
        pausing = asyncio.Event()

        async def pause(wait_s):
            pausing.set()
            await asyncio.Event().wait()

        app._session.calls.pause = pause
        stage = Faults(StageError("timeout", "slow"))
        task = asyncio.create_task(piped(app, stage).call_async(1))
        await asyncio.wait_for(pausing.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stage.calls == 1

    asyncio.run(calling())
    job = only_job(app)
    assert job.state is State.QUEUED
    assert [one.status.value for one in app._session.opened.reader.attempts(job.no)] == [
        "retrying",
        "handed_over",
    ]
    clean(app)


def test_an_interrupted_blocking_caller_hands_its_job_over(app):
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.fail("the test needs Python's own SIGINT")

    async def one(item):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.Event().wait()

    pipe = piped(app, one)
    with pytest.raises(KeyboardInterrupt):
        pipe.call(1)
    assert only_job(app).state is State.QUEUED
    clean(app)


def test_a_loop_that_ends_with_calls_under_way_hands_them_over(app):
    async def calling():
        begun = asyncio.Event()

        async def one(item):
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(piped(app, one).call_async(1))
        await asyncio.wait_for(begun.wait(), 30)
        return task

    assert asyncio.run(calling()).cancelled()
    assert only_job(app).state is State.QUEUED
    clean(app)


def test_an_app_that_is_closed_lets_blocking_callers_go(app, url):
    begun = threading.Event()

    async def one(item):
        begun.set()
        await asyncio.Event().wait()

    pipe = piped(app, one)
    ended: list[BaseException] = []

    def caller():
        try:
            pipe.call(1)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=caller)
    thread.start()
    assert begun.wait(30)
    app.close()
    thread.join(30)
    (error,) = ended
    job = only_job(app)
    assert isinstance(error, CallerError)
    assert f"the app was closed while the call of job {job.id} waited" in str(error)
    assert job.state is State.QUEUED
    clean(app)


@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
def test_no_blocking_caller_is_left_waiting_whenever_the_app_is_closed(app):
    """Closed again and again under callers that go on calling; each of them hears something in the end."""

    async def one(item):
        return item

    pipe, over = piped(app, one), threading.Event()
    wrong: list[BaseException] = []

    def caller():
        while not over.is_set():
            try:
                pipe.call(1, wait_s=5)
            except (CallerError, StoreError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=caller, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        app.close()
    over.set()
    for thread in threads:
        thread.join(60)
    assert [thread.is_alive() for thread in threads] == [False] * 3
    assert wrong == []


def test_what_runs_on_a_loop_that_ends_is_answered_even_if_it_will_not_end(monkeypatch):
    loop, begun, gate = OwnLoop("own"), threading.Event(), threading.Event()

    async def deaf():
        begun.set()
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    ended = []

    def caller():
        try:
            loop.run(deaf())
        except CallerError as error:
            ended.append(str(error))

    thread = threading.Thread(target=caller)
    thread.start()
    assert begun.wait(20)
    monkeypatch.setattr(loops, "SEE_TO_S", 0.1)
    loop.close()
    thread.join(20)
    assert ended == ["the app was closed meanwhile"]


# -- keys ---------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_same_job_and_its_result(app):
    stage = Faults()
    pipe = piped(app, stage)
    first = pipe.call({"n": 1}, key="k")
    again = pipe.call({"n": 1}, key="k")
    assert (again.job.id, again.job.created, again.done, again.value) == (
        first.job.id,
        False,
        True,
        {"n": 1},
    )
    assert stage.calls == 1
    clean(app)


def test_a_key_whose_job_still_waits_gives_that_job(app):
    stage = Faults()
    pipe = piped(app, stage)
    ref = pipe.enqueue(1, key="k")
    called = pipe.call(1, key="k")
    assert (called.job.id, called.done, called.handed_over, called.value) == (
        ref.id,
        False,
        False,
        None,
    )
    assert stage.calls == 0


def test_a_key_whose_job_has_failed_fails_again(app):
    pipe = piped(app, Faults(StageError("invalid_request", "no")))
    for _ in range(2):
        with pytest.raises(JobFailed, match="The upstream says"):
            pipe.call(1, key="k")
    assert app._session.opened.reader.books().accepted == 1


# -- the store ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "away", ["sqlite:////nowhere/at/all/work.db", "postgresql://nobody@127.0.0.1:1/none"]
)
def test_nothing_runs_when_the_store_is_away(away):
    app = App(away)
    stage = Faults()
    pipe = piped(app, stage)
    with pytest.raises(StoreUnavailable):
        asyncio.run(pipe.call_async(1))
    assert stage.calls == 0
    app.close()


def test_a_result_is_sent_again_until_it_is_recorded(app):
    stage = Faults()
    pipe = piped(app, stage)
    app.ready()
    unreliable(app).breaks = ["before", "after", "before"]
    called = asyncio.run(pipe.call_async(1))
    assert (called.done, stage.calls) == (True, 1)
    assert statuses(called) == ["success"]
    clean(app)


def test_a_caller_is_told_when_it_is_not_known_whether_its_result_is_recorded(app, monkeypatch):
    monkeypatch.setattr(calls, "ANSWER_S", 0.3)
    stage = Faults()
    pipe = piped(app, stage)
    app.ready()
    unreliable(app).breaks = ["before"] * 100
    with pytest.raises(StoreUnavailable, match="is not known") as caught:
        asyncio.run(pipe.call_async(1, wait_s=SHORT_S))
    job = only_job(app)
    assert job.id in str(caught.value)
    assert (job.state, job.worker is not None, stage.calls) == (State.PROCESSING, True, 1)


def test_a_store_that_does_not_answer_keeps_nobody_for_longer_than_the_wait(app, monkeypatch):
    monkeypatch.setattr(calls, "ANSWER_S", 0.1)
    pipe = piped(app, Faults())
    app.ready()
    go_on, over = threading.Event(), threading.Event()
    begin = app._session.opened.store.begin

    def slow(*arguments, **options):
        try:
            go_on.wait(30)
            return begin(*arguments, **options)
        finally:
            over.set()

    unreliable(app).begin = slow
    with pytest.raises(StoreUnavailable, match="has not answered in time"):
        asyncio.run(_bounded(pipe.call_async(1, wait_s=0.1), go_on))
    assert over.wait(30)


async def _bounded(calling, go_on):
    """Await a call; let the store answer when the caller has its answer."""
    try:
        return await asyncio.wait_for(calling, 20)
    finally:
        go_on.set()


@pytest.fixture
def own_server(missing):
    """A PostgreSQL that a test may stop."""
    try:
        with Server(in_memory=True) as server:
            yield server
    except MissingPart as part:
        missing(str(part))


def test_a_server_that_dies_under_a_stage_is_not_taken_for_a_result(own_server, monkeypatch):
    monkeypatch.setattr(calls, "ANSWER_S", 0.3)
    app = App(own_server.create_database())
    pipe = piped(app, lambda _: own_server.stop("immediate"))
    app.ready()
    with pytest.raises(StoreUnavailable, match="whether that is recorded is not known"):
        pipe.call(1, wait_s=2.0)
    own_server.start()
    job = only_job(app)
    assert (job.state, app._session.opened.reader.attempts(job.no)) == (State.PROCESSING, [])
    clean(app)
    app.close()


def test_a_server_that_comes_back_within_the_wait_gets_the_result(own_server):
    app = App(own_server.create_database())
    pipe = piped(app, lambda _: own_server.restart("immediate"))
    app.ready()
    called = pipe.call(1, wait_s=LONG_S)
    assert called.done
    assert statuses(called) == ["success"]
    clean(app)
    app.close()


# -- the caller's row ----------------------------------------------------------------------------------


def test_closing_the_app_ends_its_row_and_the_next_call_has_a_new_one(app):
    pipe = piped(app, Faults())
    pipe.call(1)
    app.close()
    (row,) = app._session.opened.reader.workers()
    assert row.dead_at is not None
    assert '"stopped"' in row.death_json
    pipe.call(2)
    assert len(app._session.opened.reader.workers()) == 2
    clean(app)


def test_a_row_that_was_declared_dead_is_replaced(app):
    pipe = piped(app, Faults())
    pipe.call(1)
    (row,) = app._session.opened.reader.workers()
    app._session.opened.store.end_worker(row.no, Death("silent"))
    assert pipe.call(2).done
    alive = [one for one in app._session.opened.reader.workers() if one.dead_at is None]
    assert [one.role for one in alive] == [Role.CALLER]


def test_the_row_is_replaced_long_before_its_lease_runs_out(app):
    class Later:
        ahead_s = 0.0

        def now(self):
            raise AssertionError("a caller's clock is not asked for the time of day")

        def monotonic(self):
            return time.monotonic() + self.ahead_s

    clock = Later()
    seat = calls.CallerRow(clock)
    first = seat.no(app._session.opened.store)
    clock.ahead_s = calls.LEASE_S / 2 - 5
    assert seat.no(app._session.opened.store) == first
    clock.ahead_s = calls.LEASE_S / 2
    assert seat.no(app._session.opened.store) != first
    assert calls.LEASE_S / 2 > calls.WAIT_S_MAX + calls.ANSWER_S
    seat.end()


SCRIPT = """
import sys
from perdure import App

app = App(sys.argv[1])


@app.stage
async def one(item):
    return item


pipe = app.pipeline("p", one)
assert pipe.call(1).done
"""


def test_a_process_that_exits_without_closing_ends_its_row(app, url, tmp_path):
    script = tmp_path / "caller.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), url],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = app._session.opened.reader.workers()
    assert (row.role, row.dead_at is None) == (Role.CALLER, False)


def test_what_a_process_of_its_own_runs_is_called_too(app):
    pipe = app.pipeline("p", app.stage(process=True)(textwrap.dedent))
    called = pipe.call("  text", wait_s=LONG_S)
    assert (called.done, called.value) == (True, "text")


def test_a_process_of_its_own_is_ended_at_the_stage_s_timeout(app, tmp_path):
    paused(app)
    pipe = app.pipeline("p", app.stage(process=True, timeout_s=0.5)(plays.waits))
    item = {"file": str(tmp_path / "pid"), "until": str(tmp_path / "never")}
    called = asyncio.run(pipe.call_async(item, wait_s=LONG_S))
    assert (called.done, called.handed_over) == (False, True)
    assert statuses(called) == ["retrying", "handed_over"]
    kinds = [one.kind for one in app._session.opened.reader.attempts(called.job.view().no)]
    assert kinds == ["timeout", "timeout"]


def test_a_call_that_waits_for_a_thread_has_not_begun_its_time(app):
    app._session.calls.threads = Threads(1)
    begun, gate = threading.Event(), threading.Event()

    def one(item):
        if item == "first":
            begun.set()
            gate.wait(30)
        return item

    pipe = piped(app, one, timeout_s=0.3)

    async def both():
        first = asyncio.create_task(pipe.call_async("first", wait_s=LONG_S))
        await asyncio.to_thread(begun.wait, 30)
        late = asyncio.create_task(pipe.call_async("late", wait_s=LONG_S))
        await asyncio.wait([late], timeout=1.0)  # it would have ended in that, by its own time
        assert not late.done()
        gate.set()
        return await late, await first

    late, _ = asyncio.run(both())
    assert (late.done, late.value, statuses(late)) == (True, "late", ["success"])
    clean(app)


# -- what is refused -----------------------------------------------------------------------------------

WRONG = [
    ({"policy": "standard"}, "not for callers that wait"),
    ({"policy": "nope"}, "no policy .nope.; one of: converter"),
    ({"policy": "standart"}, "no policy .standart.; did you mean .standard."),
    ({"wait_s": 0}, "wait_s"),
    ({"wait_s": float("nan")}, "wait_s"),
    ({"wait_s": 1e9}, "wait_s"),
    ({"wait_s": "5"}, "wait_s"),
    ({"wait_s": True}, "wait_s"),
    ({"on_lost": "retry"}, "on_lost"),
    ({"key": ""}, "key"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=str)
def test_a_wrong_argument_is_named(tmp_path, options, words):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    pipe = piped(app, Faults())
    with pytest.raises(CallerError, match=words):
        pipe.call(1, **options)
    app.close()


def test_what_is_no_policy_is_refused(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    with pytest.raises(ConfigError, match="policy"):
        asyncio.run(piped(app, Faults()).call_async(1, policy=3))
    app.close()


def test_a_policy_of_one_s_own_judges_the_call(app):
    strict = Policy("strict", profile=Profile.SYNC, rules={Kind.TIMEOUT: FAIL}, otherwise=RETRY)
    with pytest.raises(JobFailed, match="within the time allowed"):
        asyncio.run(piped(app, Faults(StageError("timeout", "slow"))).call_async(1, policy=strict))
    (attempt,) = app._session.opened.reader.attempts(only_job(app).no)
    assert attempt.policy == "strict/1"
    clean(app)


def test_the_example_of_the_how_to_says_what_happens(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "howto-calls.md"
    (example,) = [one for one in fences(page.read_text()) if one.language == "python"]
    (tmp_path / "gateway.py").write_text("\n".join(example.lines))
    done = subprocess.run(
        [sys.executable, "gateway.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
