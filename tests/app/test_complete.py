"""A stage that writes its own rows and its job's record in one transaction of its own: both are there, or neither."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure import (
    Action,
    App,
    Backoff,
    Context,
    Curve,
    JobFailed,
    Kind,
    Policy,
    Rule,
    Snooze,
    Succeeded,
)
from perdure.model.errors import ConfigError, PerdureError
from perdure.model.events import EventName
from perdure.model.states import State
from tests.app.calling.callers import POSTGRES, SQLITE, WAIT_S, Shop, name
from tests.app.worker.working_off import pumped_off
from tests.engine.kit import until
from tests.house.markdown import fences

STORES = ["sqlite", "postgres"]
WAYS = [("sqlite", way) for way in SQLITE] + [("postgres", way) for way in POSTGRES]
every_way = pytest.mark.parametrize(("store", "way"), WAYS, ids=name)
both_stores = pytest.mark.parametrize("store", STORES)

AT_ONCE = Policy(
    "at-once",
    attempts_max=3,
    backoff=Backoff(Curve.FIXED, base_s=0.0),
    rules={Kind.NETWORK: Rule(Action.RETRY)},
)

Own = Callable[[], Any]


@pytest.fixture
def own(shop) -> Own:
    """A connection to the store's own database, as a stage would open one; closed without a commit in the end."""

    @contextmanager
    def opened() -> Iterator[Any]:
        cx = (
            sqlite3.connect(shop.file, timeout=WAIT_S)
            if shop.on_sqlite
            else psycopg.connect(shop.url)
        )
        try:
            yield cx
        finally:
            cx.close()

    return opened


class Ended(Exception):
    """Something that a stage raises."""


def run(shop: Shop, stage: Callable[..., Any], *more: Callable[..., Any], **options: Any) -> Any:
    """One job through these stages, to its end."""
    app = shop.app
    stages = [app.stage(name=f"s{n}", **options)(one) for n, one in enumerate((stage, *more), 1)]
    job = app.pipeline("completing", *stages).enqueue({"n": 7})
    pumped_off(app)
    assert app._session.opened.reader.audit() == []
    return job


def attempts(shop: Shop, job: Any) -> list[tuple[str, str]]:
    return [
        (one.stage, one.status) for one in shop.app._session.opened.reader.attempts(job.view().no)
    ]


def told(shop: Shop, *names: EventName) -> list[Any]:
    return [event for event in shop.events if event.name in names]


# -- both or neither -----------------------------------------------------------------------------


@every_way
def test_the_rows_and_the_record_are_there_together(shop, way):
    def save(item, context):
        with way(shop) as caller:
            caller.order(item["n"])
            context.complete(Succeeded({"rows": 1}, "passed"), within=caller.within)
            caller.commit()

    job = run(shop, save)
    assert job.result() == {"rows": 1}
    assert (job.view().label, shop.orders()) == ("passed", [7])
    assert attempts(shop, job) == [("s1", "success")]
    (event,) = told(shop, EventName.JOB_SUCCEEDED)
    assert event.fields["job_id"] == job.id


@every_way
def test_a_stage_that_raises_before_its_commit_has_left_neither(shop, way):
    ends = ["commit", "rollback"]

    def save(item, context):
        end = ends.pop()
        with way(shop) as caller:
            caller.order(item["n"])
            context.complete("saved", within=caller.within)
            getattr(caller, end)()
        if end == "rollback":
            raise ConnectionError("the line broke")

    job = run(shop, save, policy=AT_ONCE)
    assert (job.result(), shop.orders()) == ("saved", [7])
    assert attempts(shop, job) == [("s1", "retrying"), ("s1", "success")]


@both_stores
def test_what_a_stage_raises_or_returns_after_its_commit_changes_nothing(shop, own):
    ends: list[object] = [Ended("too late"), Snooze(1000), KeyboardInterrupt(), object()]

    def save(item, context):
        with own() as cx:
            cx.execute(f"INSERT INTO orders VALUES ({len(ends)})")
            context.complete("saved", within=cx)
            cx.commit()
        end = ends.pop()
        if isinstance(end, BaseException):
            raise end
        return end

    stage = shop.app.stage(name="s1")(save)
    pipe = shop.app.pipeline("completing", stage)
    jobs = [pipe.enqueue(n) for n in range(len(ends))]
    pumped_off(shop.app)
    assert [job.result() for job in jobs] == ["saved"] * 4
    assert shop.orders() == [1, 2, 3, 4]
    assert [attempts(shop, job) for job in jobs] == [[("s1", "success")]] * 4
    assert len(told(shop, EventName.JOB_SUCCEEDED)) == 4
    assert told(shop, EventName.JOB_FAILED, EventName.JOB_RETRIED, EventName.RESULT_REFUSED) == []


@both_stores
def test_a_next_stage_is_queued_and_gets_the_value(shop, own):
    def save(item, context):
        with own() as cx:
            context.complete({"saved": item["n"]}, within=cx)
            cx.commit()

    job = run(shop, save, lambda item: item)
    assert job.result() == {"saved": 7}
    names = (EventName.JOB_CLAIMED, EventName.JOB_ADVANCED, EventName.JOB_SUCCEEDED)
    assert [one.name for one in told(shop, *names)] == [names[0], names[1], names[0], names[2]]


@both_stores
def test_a_next_stage_may_begin_before_the_first_has_returned(shop, own):
    begun, freed = threading.Event(), threading.Event()

    def save(item, context):
        with own() as cx:
            context.complete(item, within=cx)
            cx.commit()
        assert begun.wait(30)
        freed.set()
        return "nobody hears this"

    def following(item):
        begun.set()
        assert freed.wait(30)
        return item

    stages = [shop.app.stage(name=f"s{n}")(one) for n, one in enumerate((save, following), 1)]
    job = shop.app.pipeline("completing", *stages).enqueue({"n": 7})
    with shop.app.working(concurrency=2, poll_s=0.2):
        assert job.result(wait_s=30) == {"n": 7}
    assert attempts(shop, job) == [("s1", "success"), ("s2", "success")]
    assert len(told(shop, EventName.JOB_ADVANCED)) == 1


@both_stores
def test_usage_and_captures_that_came_before_are_stored_with_it(shop, own):
    def save(item, context):
        context.usage(tokens_in=3, tokens_out=4, cost_usd=0.5)
        context.capture("raw words")
        with own() as cx:
            context.complete(None, within=cx)
            cx.commit()

    job = run(shop, save)
    (attempt,) = shop.app._session.opened.reader.attempts(job.view().no)
    assert (attempt.tokens_in, attempt.tokens_out) == (3, 4)
    assert [shop.app.read_capture(one.id) for one in job.captures()] == [b"raw words"]


@both_stores
def test_an_async_stage_does_it_in_a_thread(shop, own):
    async def save(item, context):
        def transaction():
            with own() as cx:
                cx.execute("INSERT INTO orders VALUES (1)")
                context.complete("saved", within=cx)
                cx.commit()

        await asyncio.to_thread(transaction)

    assert run(shop, save).result() == "saved"
    assert shop.orders() == [1]


# -- without a commit ----------------------------------------------------------------------------


@both_stores
@pytest.mark.parametrize("preset", ["standard", "gateway-worker", "converter"])
def test_a_plain_return_without_a_commit_is_a_failure_that_says_so_and_no_policy_repeats_it(
    shop, own, preset
):
    calls: list[object] = []

    def save(item, context):
        calls.append(item)
        with own() as cx:
            cx.execute("INSERT INTO orders VALUES (1)")
            context.complete("saved", within=cx)
        return "saved"

    job = run(shop, save, policy=preset)
    shown = job.view()
    assert (shown.state, shown.error_kind, len(calls)) == (State.FAILED, "internal", 1)
    assert "its transaction was not committed" in shown.error_detail
    assert "commit before you return" in shown.error_detail
    assert shop.orders() == []


@both_stores
def test_a_stage_that_swallows_a_refusal_and_returns_has_failed(shop, own):
    def save(item, context):
        with own() as cx, suppress(PerdureError):
            context.complete(object(), within=cx)
        return "saved"

    assert run(shop, save).view().state is State.FAILED


@both_stores
def test_a_stage_that_snoozes_after_a_rollback_snoozes(shop, own):
    tried: list[object] = []

    def save(item, context):
        tried.append(item)
        with own() as cx:
            context.complete("saved", within=cx)
            if len(tried) == 1:
                cx.rollback()
                return Snooze(0)
            cx.commit()
        return None

    job = run(shop, save)
    assert attempts(shop, job) == [("s1", "waiting"), ("s1", "success")]


# -- called wrongly ------------------------------------------------------------------------------


def refused_in_a_stage(shop: Shop, call: Callable[[Context], None]) -> PerdureError:
    """What is raised in a stage that calls this."""
    said: list[PerdureError] = []

    def save(item, context):
        try:
            call(context)
        except PerdureError as error:
            said.append(error)
            raise

    job = run(shop, save, policy=Policy("once", attempts_max=1))
    assert job.view().state is State.FAILED
    return said[0]


@both_stores
def test_a_value_that_cannot_be_stored_is_refused_and_nothing_is_written(shop, own):
    def call(context):
        with own() as cx:
            context.complete({"x": float("nan")}, within=cx)

    error = refused_in_a_stage(shop, call)
    assert (error.code, "the result.x is nan" in str(error)) == ("payload_refused", True)


@both_stores
def test_a_signal_is_no_value(shop, own):
    def call(context):
        with own() as cx:
            context.complete(Snooze(1), within=cx)

    assert "value is a Snooze" in str(refused_in_a_stage(shop, call))


@both_stores
def test_a_second_call_in_one_transaction_is_refused(shop, own):
    def call(context):
        with own() as cx:
            context.complete(1, within=cx)
            context.complete(2, within=cx)

    error = refused_in_a_stage(shop, call)
    assert (error.code, "has its record already" in str(error)) == ("not_completable", True)


@both_stores
def test_a_second_call_after_the_commit_is_refused_and_the_first_stands(shop, own):
    said: list[str] = []

    def save(item, context):
        with own() as cx:
            context.complete(1, within=cx)
            cx.commit()
            try:
                context.complete(2, within=cx)
            except PerdureError as error:
                said.append(error.code)

    assert run(shop, save).result() == 1
    assert said == ["not_completable"]


@pytest.mark.parametrize("store", ["postgres"])
def test_a_second_transaction_does_not_wait_for_the_first(shop, own):
    def call(context):
        with own() as one, own() as two:
            context.complete(1, within=one)
            context.complete(1, within=two)

    assert refused_in_a_stage(shop, call).code == "store_busy"


@both_stores
def test_a_job_that_was_cancelled_meanwhile_is_not_completed(shop, own):
    said: list[PerdureError] = []
    reader, jobs = shop.app._session.opened.reader, []

    def save(item, context):
        until(lambda: jobs, "the job is known")
        jobs[0].cancel()
        with own() as cx:
            cx.execute("INSERT INTO orders VALUES (1)")
            try:
                context.complete(1, within=cx)
            except PerdureError as error:
                said.append(error)
                cx.rollback()

    pipe = shop.app.pipeline("completing", shop.app.stage(name="s1")(save))
    jobs.append(pipe.enqueue(1))
    with shop.app.working(concurrency=1):
        until(lambda: said, "the stage has been refused")
    assert (said[0].code, jobs[0].view().state) == ("not_completable", State.CANCELLED)
    assert shop.orders() == []
    assert reader.audit() == []


@both_stores
def test_a_stage_whose_time_is_over_completes_nothing(shop, own):
    late, said = threading.Event(), []

    def save(item, context):
        late.wait(30)
        with own() as cx:
            try:
                context.complete(1, within=cx)
            except PerdureError as error:
                said.append(error)

    stage = shop.app.stage(name="s1", timeout_s=0.2, policy=Policy("once", attempts_max=1))(save)
    job = shop.app.pipeline("completing", stage).enqueue(1)
    with shop.app.working(concurrency=1):
        until(lambda: job.view().state is State.FAILED, "its time is over")
        late.set()
        until(lambda: said, "the stage has been refused")
    assert said[0].code == "not_completable"
    assert "the attempt is over" in str(said[0])


@both_stores
def test_another_database_is_refused(shop, tmp_path, request):
    def call(context):
        if shop.on_sqlite:
            cx: Any = sqlite3.connect(tmp_path / "other.db")
        else:
            cx = psycopg.connect(other)
        try:
            context.complete(1, within=cx)
        finally:
            cx.close()

    postgres = None if shop.on_sqlite else request.getfixturevalue("postgres")
    other = "" if postgres is None else postgres.create_database()
    error = refused_in_a_stage(shop, call)
    assert (error.code, "connect to the store's own" in str(error)) == ("caller_error", True)
    if postgres is not None:
        postgres.drop_database(other)


@pytest.mark.parametrize("store", ["postgres"])
def test_an_asynchronous_connection_is_refused(shop):
    def call(context):
        context.complete(1, within=psycopg.AsyncConnection.__new__(psycopg.AsyncConnection))

    assert "asynchronous psycopg connection" in str(refused_in_a_stage(shop, call))


# -- by a caller that waits ----------------------------------------------------------------------


@both_stores
def test_a_call_has_the_result_that_its_stage_has_stored(shop, own):
    def save(item, context):
        with own() as cx:
            cx.execute("INSERT INTO orders VALUES (1)")
            context.complete({"saved": item}, within=cx)
            cx.commit()
        raise Ended("too late")

    called = shop.app.pipeline("completing", shop.app.stage(name="s1")(save)).call(7, wait_s=30)
    assert (called.done, called.value) == (True, {"saved": 7})
    assert shop.orders() == [1]
    assert len(told(shop, EventName.JOB_SUCCEEDED)) == 1
    assert shop.app._session.opened.reader.audit() == []


@both_stores
def test_a_call_whose_stage_is_not_the_last_leaves_the_next_to_a_worker(shop, own):
    def save(item, context):
        with own() as cx:
            context.complete(item, within=cx)
            cx.commit()

    stages = [shop.app.stage(name="s1")(save), shop.app.stage(name="s2")(lambda item: item)]
    called = shop.app.pipeline("completing", *stages).call(7, wait_s=30)
    assert (called.done, called.handed_over) == (False, True)
    assert "a worker goes on with stage 's2'" in called.why


@both_stores
def test_a_call_whose_stage_returns_without_a_commit_has_failed(shop, own):
    def save(item, context):
        with own() as cx:
            cx.execute("INSERT INTO orders VALUES (1)")
            context.complete(item, within=cx)
        return item

    pipe = shop.app.pipeline("completing", shop.app.stage(name="s1")(save))
    with pytest.raises(JobFailed):
        pipe.call(7, wait_s=30)
    assert shop.orders() == []
    assert shop.app._session.opened.reader.audit() == []


# -- in a process of its own ---------------------------------------------------------------------


def saves_apart(item, context):
    def transaction(cx):
        context.complete(item, within=cx)

    with sqlite3.connect("work.db") as cx:
        transaction(cx)


def completes_elsewhere(item, context):
    return saves_apart(item, context)


def test_a_stage_with_a_process_of_its_own_is_refused_where_it_is_declared():
    app = App("sqlite:///work.db")
    with pytest.raises(ConfigError, match=r"process=True and calls complete\(within="):
        app.stage(process=True)(saves_apart)
    app.stage(process=False, name="here")(saves_apart)
    app.stage(process=True)(completes_elsewhere)


def test_a_context_without_a_worker_has_no_way_to_the_store():
    context = Context("j", "p", "s", "", None, 1, 2, 3, "k", None)
    with pytest.raises(PerdureError, match="no way from here to the store"):
        context.complete(1, within=None)


# -- the page ------------------------------------------------------------------------------------


def test_the_program_of_the_page_saves_what_it_says(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "howto-transactions.md"
    programs = [one for one in fences(page.read_text()) if one.lines[0] == "# shop.py"]
    program = tmp_path / "shop.py"
    program.write_text("\n".join(programs[0].lines))
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as cx:
        cx.execute("CREATE TABLE invoices (customer)")
        done = subprocess.run(
            [sys.executable, "-W", "error", str(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("{'saved': 'Ada'}\n", "")
        assert cx.execute("SELECT customer FROM invoices").fetchall() == [("Ada",)]
