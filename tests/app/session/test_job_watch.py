"""Whoever waits for the end of a job in a process is served by one query a look."""

import asyncio
import threading

import pytest

from perdure import App, BugError, CallerError, JobFailed, JobUnfinished, UnknownName
from perdure.app.session import job_watch
from perdure.app.session.job_watch import JobWatch
from perdure.engine.pauses import SHORTEST_S
from perdure.model.errors import StoreDamaged
from perdure.model.nouns import replace

MANY = 40
FAR_S = 60.0


class CountingReader:
    """A reader that counts what is asked, and lets somebody act when a look asks for many jobs."""

    def __init__(self, reader, act) -> None:
        self._reader = reader
        self._act = act
        self.asked: list[str] = []
        self.looks: list[int] = []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._reader, name)

    def jobs_ended(self, ids):
        self.looks.append(len(ids))
        if self.looks.count(MANY) == 3:
            self._act()
        return self._reader.jobs_ended(ids)


@pytest.fixture
def pipe(app):
    return app.pipeline("p", app.stage(name="one")(lambda item: item))


def counting(app: App, refs) -> CountingReader:
    """From now on, what is read is counted; when all have been looked for three times, each job is cancelled."""
    session, plain = app._session, app._session.opened

    def act() -> None:
        with_plain = App(app.url)
        for ref in refs:
            with_plain.job(ref.id).cancel()
        with_plain.close()

    reader = CountingReader(plain.reader, act)
    session._opened = replace(plain, reader=reader)
    return reader


def test_many_that_wait_on_threads_cost_one_query_a_look(app, pipe):
    refs = pipe.enqueue_many(range(MANY))
    reader = counting(app, refs)
    ended = []

    def wait(ref) -> None:
        ended.append(ref.wait(wait_s=FAR_S).state)

    threads = [threading.Thread(target=wait, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAR_S)
    assert ended == ["cancelled"] * MANY
    assert reader.asked == []
    assert reader.looks.count(MANY) == 3
    assert max(reader.looks) == MANY


def test_many_that_wait_on_a_loop_do_too_and_need_no_threads(app, pipe):
    refs = pipe.enqueue_many(range(MANY))
    reader = counting(app, refs)

    async def all_of_them():
        waits = (ref.result_async(wait_s=FAR_S) for ref in refs)
        return await asyncio.gather(*waits, return_exceptions=True)

    assert {type(one) for one in asyncio.run(all_of_them())} == {JobFailed}
    assert reader.asked == []
    assert reader.looks.count(MANY) == 3


def test_who_has_waited_long_enough_is_told_how_the_job_stands(app, pipe):
    ref = pipe.enqueue(1)
    for wait_s in (0, 0.02):
        with pytest.raises(TimeoutError, match=f"still queued after a wait of {wait_s} s"):
            ref.wait(wait_s=wait_s)
        with pytest.raises(JobUnfinished, match=f"still queued after a wait of {wait_s} s"):
            asyncio.run(ref.wait_async(wait_s=wait_s))


def test_a_wait_for_a_job_that_is_not_there_ends_at_once(app, pipe):
    ref = replace(pipe.enqueue(1), id="00000000-0000-7000-8000-ffffffffffff")
    with pytest.raises(UnknownName, match="no longer in the store"):
        ref.wait(wait_s=None)


def test_a_wait_of_another_owner_ends_as_if_the_job_did_not_exist(app, pipe):
    ref = replace(pipe.enqueue(1, owner="ann"), _owner="bob")
    app.job(ref.id).cancel()
    with pytest.raises(UnknownName):
        ref.wait(wait_s=FAR_S)


def test_a_wait_on_a_loop_can_be_cancelled(app, pipe):
    ref = pipe.enqueue(1)

    async def cancelled():
        task = asyncio.create_task(ref.wait_async(wait_s=None))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert app._session.watch._ids_asked() == []  # nobody is left to ask for


def test_closing_the_app_ends_every_wait(app, pipe):
    ref, told = pipe.enqueue(1), []
    reader = counting(app, [])

    def wait() -> None:
        try:
            ref.wait(wait_s=FAR_S)
        except CallerError as error:
            told.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while not reader.looks:
        thread.join(0.005)
    app.close()
    thread.join(FAR_S)
    assert told == ["the app was closed while the end of a job was waited for"]


def watching(*looks) -> JobWatch:
    """A watch whose looks come out so, one after the other; an error is raised."""
    left = iter(looks)

    def look(ids):
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return JobWatch(look)


def test_a_look_that_fails_is_told_to_all_and_the_next_one_may_go_well():
    watch = watching(StoreDamaged("a row cannot be read"), {"b": None})
    with pytest.raises(StoreDamaged):
        watch.wait_for("a").result(FAR_S)
    assert watch.wait_for("b").result(FAR_S) is None
    watch.close()


def see_threads_end() -> None:
    """What a thread dies of is told when it is gone: in this test, which expects it, and in no other."""
    for one in threading.enumerate():
        if one.name == "perdure-results":
            one.join(FAR_S)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_look_that_has_broken_down():
    watch = watching(ZeroDivisionError("a bug"), {"b": None})
    with pytest.raises(BugError, match="has broken down"):
        watch.wait_for("a").result(FAR_S)
    assert watch.wait_for("b").result(FAR_S) is None
    watch.close()
    see_threads_end()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wrong", [StoreDamaged("a row cannot be read"), TypeError("a bug")])
def test_who_waits_looks_for_itself_while_no_look_goes_well(app, pipe, wrong):
    refs, reader = pipe.enqueue_many(range(2)), counting(app, [])

    def fail(ids):
        reader.looks.append(len(ids))
        if len(reader.looks) > 1:  # it has come back
            with_plain = App(app.url)
            for ref in refs:
                if with_plain.job(ref.id).state == "queued":
                    with_plain.job(ref.id).cancel()
            with_plain.close()
        raise wrong

    reader.jobs_ended = fail
    assert refs[0].wait(wait_s=FAR_S).state == "cancelled"
    assert asyncio.run(refs[1].wait_async(wait_s=FAR_S)).state == "cancelled"
    app.close()
    see_threads_end()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wrong", [StoreDamaged("a row cannot be read"), TypeError("a bug")])
def test_pauses_grow_while_looks_fail(wrong):
    def look(ids):
        raise wrong

    watch = JobWatch(look)
    for again in (False, *[True] * 7):
        with pytest.raises((StoreDamaged, BugError)):
            watch.wait_for("a", again=again).result(FAR_S)
    assert watch._pauses.next_s() > 10 * SHORTEST_S
    watch.close()
    see_threads_end()


def test_of_more_than_one_query_takes_all_have_their_turn(monkeypatch):
    monkeypatch.setattr(job_watch, "ASKED_MAX", 3)
    asked, go = [], threading.Event()

    def look(ids):
        go.wait(FAR_S)
        asked.append(tuple(ids))
        return {} if len(asked) < 4 else dict.fromkeys(ids)

    watch = JobWatch(look)
    waits = [watch.wait_for(f"{number}") for number in range(5)]
    go.set()
    assert [wait.result(FAR_S) for wait in waits] == [None] * 5
    assert max(map(len, asked)) == 3
    assert len({id for ids in asked[1:4] for id in ids}) == 5
    watch.close()
