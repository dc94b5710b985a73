"""Following what happens, as a caller sees it: `app.follow`."""

import queue
import sqlite3
import threading

import psycopg
import pytest

from perdure import App, CallerError, ChangeKind, CursorTooOld, StoreError, StoreUnavailable
from perdure.engine.operate.feed_listeners import ChangeFeed

WAIT_S = 20.0  # far away; no test waits for so long


@pytest.fixture
def pipe(app, monkeypatch):
    monkeypatch.setenv("PERDURE_POLL_S", "0.01")

    @app.stage
    def one(item):
        return item

    return app.pipeline("p", one)


def readers() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "perdure changes"]


def raising(error: Exception):
    def raises(*_):
        raise error

    return raises


def test_a_job_is_heard_of_from_its_acceptance_to_its_end(app, pipe):
    with app.follow() as listener:
        called = pipe.call(1, owner="ann")
        found = []
        while not found or found[-1].kind is not ChangeKind.JOB_ENDED:
            page = listener.take(WAIT_S)
            assert page.entries, "nothing was heard"
            found += page.entries
    mine = [(one.kind, one.owner, one.state) for one in found if one.id == called.job.id]
    assert mine == [
        (ChangeKind.JOB_ACCEPTED, "ann", "processing"),
        (ChangeKind.JOB_ENDED, "ann", "succeeded"),
    ]


def test_many_share_one_thread_which_ends_with_the_last_of_them(app, pipe):
    with app.follow() as one, app.follow(owner="ann") as two:
        assert readers() == ["perdure changes"]
        id = pipe.enqueue(1, owner="ann").id
        assert [entry.id for entry in one.take(WAIT_S).entries] == [id]
        assert [entry.id for entry in two.take(WAIT_S).entries] == [id]
    assert readers() == []
    with app.follow() as again:
        id = pipe.enqueue(2).id
        assert [entry.id for entry in again.take(WAIT_S).entries] == [id]


def test_what_came_while_nobody_listened_is_heard_after_the_cursor(app, pipe):
    with app.follow() as listener:
        cursor = listener.take().cursor
    ids = {pipe.enqueue(n).id for n in range(3)}
    found = set()
    with app.follow(after=cursor) as listener:
        while found < ids:
            page = listener.take(WAIT_S)
            assert page.entries, "nothing was heard"
            found |= {one.id for one in page.entries}
    assert found == ids


def test_a_job_of_a_callers_transaction_is_heard_of_when_that_commits(app, pipe):
    if app.url.startswith("sqlite"):
        cx = sqlite3.connect(app.url.removeprefix("sqlite:///"))
    else:
        cx = psycopg.connect(app.url)
    app.ready()
    with app.follow() as listener:
        lost = pipe.enqueue(1, within=cx)
        cx.rollback()
        kept = pipe.enqueue(2, within=cx)
        cx.commit()
        cx.close()
        assert [one.id for one in listener.take(WAIT_S).entries] == [kept.id]
    assert lost.id != kept.id


def test_what_is_no_cursor_is_refused_at_once(app, pipe):
    app.ready()
    with pytest.raises(CallerError, match="is not a cursor"), app.follow(after="yesterday"):
        pass
    assert readers() == []


def test_a_store_that_cannot_be_read_is_told_to_who_listens(app, pipe, monkeypatch):
    app.ready()
    with app.follow() as listener:

        def once(self):
            raise StoreError("not ours any more")

        monkeypatch.setattr(ChangeFeed, "once", once)
        with pytest.raises(StoreError, match="not ours"):
            listener.take(WAIT_S)


@pytest.mark.parametrize("error", [StoreError("not ours"), CallerError("no cursor")])
def test_who_listens_after_an_error_is_served_again(app, pipe, monkeypatch, error):
    app.ready()
    with app.follow() as failed:
        with monkeypatch.context() as patch:
            patch.setattr(ChangeFeed, "_next_page", raising(error))
            with pytest.raises(type(error)):
                failed.take(WAIT_S)
        with app.follow() as listener:
            id = pipe.enqueue(1).id
            assert [one.id for one in listener.take(WAIT_S).entries] == [id]
    assert readers() == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_replaced_for_the_next_who_listens(app, pipe, monkeypatch):
    app.ready()
    with app.follow() as first:
        with monkeypatch.context() as patch:
            patch.setattr(ChangeFeed, "_next_page", raising(ZeroDivisionError()))
            for thread in threading.enumerate():
                if thread.name == "perdure changes":
                    thread.join()
        with app.follow() as second:
            id = pipe.enqueue(1).id
            assert [one.id for one in first.take(WAIT_S).entries] == [id]
            assert [one.id for one in second.take(WAIT_S).entries] == [id]


def test_closing_the_app_ends_the_thread(url, monkeypatch):
    app = App(url)
    with app.follow():
        app.close()
        assert readers() == []


# -- a table that goes after the jobs -----------------------------------------------------------


class Table:
    """What a follower has written: how often it began, and the jobs that it heard of."""

    def __init__(self, *failures: Exception) -> None:
        self.begun, self.heard, self.failures = 0, queue.Queue(), list(failures)

    def begin(self) -> None:
        self.begun += 1
        self.heard.put("begun")

    def changed(self, entries) -> None:
        if self.failures:
            raise self.failures.pop(0)
        for one in entries:
            self.heard.put(one.id)


def test_a_table_looks_first_and_then_hears_what_happens_until_the_block_ends(app, pipe):
    table = Table()
    with app.following(table.changed, begin=table.begin) as is_well:
        assert table.heard.get(timeout=WAIT_S) == "begun"
        id = pipe.enqueue(1).id
        assert table.heard.get(timeout=WAIT_S) == id
        assert is_well()
    assert not is_well()
    assert readers() == []


def test_after_what_may_pass_it_begins_anew(app, pipe, monkeypatch):
    monkeypatch.setattr("perdure.app.following._REST_S", 0.01)
    table = Table(StoreUnavailable("away"), CursorTooOld("too old"), OSError("the table is away"))
    with app.following(table.changed, begin=table.begin, away=(OSError,)) as is_well:
        for _ in range(3):
            assert table.heard.get(timeout=WAIT_S) == "begun"
            pipe.enqueue(1)
        assert table.heard.get(timeout=WAIT_S) == "begun"
        id = pipe.enqueue(2).id
        assert table.heard.get(timeout=WAIT_S) == id
        assert is_well()
    assert table.begun == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_anything_else_ends_it_and_silence_is_noticed(app, pipe, monkeypatch):
    table = Table(ZeroDivisionError("a defect"))
    with app.following(table.changed, begin=table.begin) as is_well:
        assert table.heard.get(timeout=WAIT_S) == "begun"
        monkeypatch.setattr("perdure.app.following.SILENCE_S_MAX", 0.0)
        assert not is_well()
        monkeypatch.undo()
        pipe.enqueue(1)
        (thread,) = [one for one in threading.enumerate() if one.name == "perdure following"]
        thread.join(WAIT_S)
        assert not is_well()
