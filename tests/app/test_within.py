"""Jobs that are enqueued within a caller's own transaction come and go with its rows."""

import asyncio
import fcntl
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from perdure import App, CallerError
from perdure.engine.clock import SystemClock
from perdure.model.errors import StoreBusy, StoreError
from perdure.model.jobs import NewJob
from perdure.stores.opening import open_store
from tests.app.callers import (
    POSTGRES,
    SQLITE,
    WAIT_S,
    Caller,
    Shop,
    alchemy_connection,
    alchemy_session,
    psycopg_default,
    sqlite3_by_hand,
    sqlite3_default,
)
from tests.stories.hands import AWAY, now_ns, working
from tests.stories.kit import until

WAYS = [("sqlite", way) for way in SQLITE] + [("postgres", way) for way in POSTGRES]


@pytest.fixture
def shops(request, tmp_path) -> Iterator[dict[str, Shop]]:
    """Shops by store, made when they are asked for."""
    made: dict[str, Shop] = {}

    class Made(dict[str, Shop]):
        def __missing__(self, store: str) -> Shop:
            sqlite = f"sqlite:///{tmp_path / 'work.db'}"
            url = sqlite if store == "sqlite" else request.getfixturevalue("database")
            made[store] = self[store] = Shop(url)
            return made[store]

    yield Made()
    for shop in made.values():
        shop.close()


@pytest.fixture
def shop(shops, store) -> Shop:
    return shops[store]


@pytest.fixture
def caller(shop, way) -> Iterator[Caller]:
    with way(shop) as opened:
        yield opened


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


every_way = pytest.mark.parametrize(("store", "way"), WAYS, ids=name)
on_sqlite = pytest.mark.parametrize("store", ["sqlite"])
both_stores = pytest.mark.parametrize(
    ("store", "way"), [("sqlite", sqlite3_default), ("postgres", psycopg_default)], ids=name
)


# -- with the caller's rows --------------------------------------------------------------


@every_way
def test_a_job_is_there_when_the_caller_commits_and_not_before(shop, caller):
    caller.order(1)
    ref = shop.pipe.enqueue({"n": 1}, within=caller.within)
    assert (shop.orders(), shop.jobs()) == ([], 0)
    caller.commit()
    assert (shop.orders(), shop.jobs()) == ([1], 1)
    assert ref.created
    assert ref.show().payload_json == '{"n":1}'


@every_way
def test_a_job_goes_when_the_caller_rolls_back_and_leaves_nothing_in_the_books(shop, caller):
    caller.order(1)
    shop.pipe.enqueue(1, within=caller.within)
    caller.rollback()
    assert (shop.orders(), shop.jobs()) == ([], 0)


@every_way
def test_an_enqueue_may_be_the_first_thing_in_the_transaction(shop, caller):
    shop.pipe.enqueue(1, within=caller.within)
    assert shop.jobs() == 0
    caller.order(1)
    caller.commit()
    assert (shop.orders(), shop.jobs()) == ([1], 1)


@every_way
def test_an_enqueue_may_be_all_of_the_transaction(shop, caller):
    shop.pipe.enqueue(1, within=caller.within)
    caller.commit()
    assert shop.jobs() == 1


@every_way
def test_what_was_rolled_back_can_be_done_again_with_the_same_key(shop, caller, way):
    first = shop.pipe.enqueue(1, key="k", within=caller.within)
    caller.rollback()
    with way(shop) as again:
        second = shop.pipe.enqueue(1, key="k", within=again.within)
        again.commit()
    assert (first.created, second.created) == (True, True)
    assert shop.jobs() == 1


@every_way
def test_many_items_are_one_with_the_transaction(shop, caller, way):
    caller.order(1)
    refs = shop.pipe.enqueue_many(range(50), within=caller.within)
    assert len(refs) == 50
    caller.rollback()
    assert (shop.orders(), shop.jobs()) == ([], 0)
    with way(shop) as again:
        again.order(2)
        refs = shop.pipe.enqueue_many(range(50), within=again.within)
        again.commit()
    assert (shop.orders(), shop.jobs()) == ([2], 50)
    assert [ref.show().payload_json for ref in refs] == [str(n) for n in range(50)]


@both_stores
def test_more_items_than_a_batch_of_ours_are_still_one_transaction(shop, caller):
    shop.pipe.enqueue_many(range(10_500), within=caller.within)
    assert shop.jobs() == 0
    caller.rollback()
    assert shop.jobs() == 0


@every_way
def test_a_key_finds_a_job_of_the_same_transaction(shop, caller):
    first = shop.pipe.enqueue(1, key="k", within=caller.within)
    second = shop.pipe.enqueue(1, key="k", within=caller.within)
    caller.commit()
    assert (first.id, second.created) == (second.id, False)
    assert shop.jobs() == 1


@both_stores
def test_a_savepoint_takes_its_jobs_back_alone(shop, caller):
    shop.pipe.enqueue(1, within=caller.within)
    caller.execute("SAVEPOINT mine")
    shop.pipe.enqueue(2, within=caller.within)
    caller.execute("ROLLBACK TO SAVEPOINT mine")
    caller.commit()
    assert shop.jobs() == 1


@both_stores
def test_a_connection_that_is_closed_without_a_commit_takes_its_jobs_along(shop, way):
    with way(shop) as opened:
        shop.pipe.enqueue(1, within=opened.within)
    assert shop.jobs() == 0


# -- told to nobody ----------------------------------------------------------------------


@every_way
def test_nobody_is_told_of_what_may_never_be(shop, caller):
    shop.pipe.enqueue(1, within=caller.within)
    shop.pipe.enqueue_many([2, 3], within=caller.within)
    caller.rollback()
    assert shop.events == []
    shop.pipe.enqueue(4)
    assert len(shop.events) == 1


# -- without a transaction ---------------------------------------------------------------


@contextmanager
def committing(shop: Shop) -> Iterator[object]:
    """A connection that commits each statement by itself."""
    with shop.look() as cx:
        yield cx


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_connection_that_commits_by_itself_has_its_jobs_at_once_and_whole(shop):
    with committing(shop) as cx:
        shop.pipe.enqueue_many([1, 2], within=cx)
        assert shop.jobs() == 2
        cx.execute("INSERT INTO orders VALUES (1)")
    assert shop.orders() == [1]


class Modern(sqlite3.Connection):
    """What Python 3.12 has, for those before it: ``autocommit``, which beats ``isolation_level``."""

    autocommit: bool | int = True


def modern(file: str, *, autocommit: bool) -> sqlite3.Connection:
    if sys.version_info >= (3, 12):
        return sqlite3.connect(file, autocommit=autocommit)
    cx = sqlite3.connect(file, factory=Modern)
    cx.autocommit = autocommit
    if not autocommit:
        cx.execute("BEGIN")  # there, a transaction is open always
    return cx


@on_sqlite
@pytest.mark.parametrize("autocommit", [True, False])
def test_autocommit_of_later_pythons_is_heeded(shop, autocommit):
    cx = modern(shop.file, autocommit=autocommit)
    shop.pipe.enqueue(1, within=cx)
    assert cx.in_transaction is not autocommit
    assert shop.jobs() == int(autocommit)
    cx.commit()
    cx.close()
    assert shop.jobs() == 1


# -- all or none -------------------------------------------------------------------------


def broken(shop: Shop) -> list[NewJob]:
    """Two good jobs, and one that the tables refuse."""
    lane = shop.pipe._line.lane_nos["one"]
    good = [NewJob(f"00000000-0000-7000-8000-{n:012x}", "p", lane, "one", "{}") for n in range(2)]
    return [*good, NewJob("00000000-0000-7000-8000-0000000000ff", "p", lane, "one", None)]


@on_sqlite
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("way", [sqlite3_default, sqlite3_by_hand, alchemy_connection], ids=name)
def test_an_enqueue_that_fails_leaves_nothing_of_it_in_the_transaction(shop, caller, begun):
    if begun:
        caller.order(1)
    with pytest.raises(StoreError, match="NOT NULL"):
        shop.app.opened.store.enqueue(broken(shop), within=caller.within)
    caller.order(2)
    caller.commit()
    assert shop.orders() == ([1, 2] if begun else [2])
    assert shop.jobs() == 0


# -- the wrong connection ----------------------------------------------------------------


@on_sqlite
def test_a_connection_to_another_file_is_refused(shop, tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(CallerError, match=r"other\.db.*the store's own file"):
        shop.pipe.enqueue(1, within=other)
    other.close()
    assert shop.jobs() == 0


@on_sqlite
def test_a_link_to_the_same_file_is_the_same_file(shop, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(shop.file)
    cx = sqlite3.connect(link)
    shop.pipe.enqueue(1, within=cx)
    cx.commit()
    cx.close()
    assert shop.jobs() == 1


@on_sqlite
def test_a_connection_to_memory_is_refused(shop):
    memory = sqlite3.connect(":memory:")
    with pytest.raises(CallerError, match="a database in memory"):
        shop.pipe.enqueue(1, within=memory)
    memory.close()


def test_a_store_in_memory_cannot_be_joined():
    app = App("sqlite:///:memory:")
    pipe = app.pipeline("p", app.stage(name="one")(lambda item: item))
    memory = sqlite3.connect(":memory:")
    with pytest.raises(CallerError, match=":memory:"):
        pipe.enqueue(1, within=memory)
    memory.close()
    app.close()


def test_a_connection_to_another_database_is_refused(shops, postgres):
    shop, other = shops["postgres"], postgres.create_database()
    with psycopg.connect(other) as cx, pytest.raises(CallerError, match="another database"):
        shop.pipe.enqueue(1, within=cx)
    postgres.drop_database(other)
    assert shop.jobs() == 0


def test_a_connection_of_the_other_driver_is_refused_and_named(shops, tmp_path):
    small, large = shops["sqlite"], shops["postgres"]
    with small.look() as cx, pytest.raises(CallerError, match=r"sqlite3\.Connection.*psycopg"):
        large.pipe.enqueue(1, within=cx)
    with large.look() as cx, pytest.raises(CallerError, match=r"psycopg.*sqlite3"):
        small.pipe.enqueue(1, within=cx)
    assert small.jobs() == large.jobs() == 0


@pytest.mark.parametrize("wrong", [5, "sqlite", object()], ids=["number", "text", "object"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_is_no_connection_is_refused_and_named(shop, wrong):
    with pytest.raises(CallerError, match=f"{type(wrong).__name__}; this store is"):
        shop.pipe.enqueue(1, within=wrong)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_engine_is_no_connection(shop):
    engine = shop.alchemy
    with pytest.raises(CallerError, match="Engine; pass a Session or a Connection"):
        shop.pipe.enqueue(1, within=engine)
    engine.dispose()


@pytest.mark.parametrize("kind", ["AsyncSession", "AsyncConnection", "async_scoped_session"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_asynchronous_one_is_refused_with_the_words_that_help(shop, kind):
    """It is known by its name, as SQLAlchemy's asyncio wants a library that we do not need."""
    within = type(kind, (), {"__module__": "sqlalchemy.ext.asyncio.session"})()
    with pytest.raises(
        CallerError, match=rf"{kind}, which is asynchronous.*synchronous Session in"
    ):
        shop.pipe.enqueue(1, within=within)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_whole_transaction_in_a_thread_is_what_helps(shop):
    def transaction() -> None:
        with alchemy_session(shop) as caller:
            caller.order(1)
            shop.pipe.enqueue(1, within=caller.within)
            caller.commit()

    asyncio.run(asyncio.to_thread(transaction))
    assert (shop.orders(), shop.jobs()) == ([1], 1)


def test_an_asynchronous_psycopg_connection_is_refused(shops):
    shop = shops["postgres"]
    within = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(CallerError, match="asynchronous psycopg connection; pass a synchronous"):
        shop.pipe.enqueue(1, within=within)


# -- beside our own writers, on SQLite ---------------------------------------------------


@on_sqlite
@pytest.mark.parametrize("way", [sqlite3_default, alchemy_session], ids=name)
def test_the_callers_connection_no_longer_moves_the_log_by_itself(shop, caller):
    raw = caller.within if isinstance(caller.within, sqlite3.Connection) else None
    raw = raw or caller.within.connection().connection.driver_connection
    assert raw.execute("PRAGMA wal_autocheckpoint").fetchone() == (1000,)
    shop.pipe.enqueue(1, within=caller.within)
    caller.commit()
    assert raw.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


@on_sqlite
@pytest.mark.parametrize("way", SQLITE, ids=name)
def test_the_writers_line_is_never_taken(shop, caller):
    locks = [os.open(f"{shop.file}{ending}", os.O_RDWR) for ending in ("-next", "-lock")]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    began_at = time.monotonic()
    caller.order(1)
    shop.pipe.enqueue(1, within=caller.within)
    caller.commit()
    assert time.monotonic() - began_at < 5  # the bound of a wait in line is 10
    for lock in locks:
        os.close(lock)
    assert shop.jobs() == 1


@on_sqlite
def test_a_transaction_that_read_before_others_wrote_is_told_to_begin_anew(shop):
    cx = sqlite3.connect(shop.file, isolation_level=None)
    cx.execute("BEGIN")
    cx.execute("SELECT count(*) FROM orders").fetchone()
    shop.pipe.enqueue(1)
    with pytest.raises(StoreBusy, match="roll back, and begin with BEGIN IMMEDIATE"):
        shop.pipe.enqueue(2, within=cx)
    cx.execute("ROLLBACK")
    cx.execute("BEGIN IMMEDIATE")
    cx.execute("SELECT count(*) FROM orders").fetchone()
    shop.pipe.enqueue(2, within=cx)
    cx.execute("COMMIT")
    cx.close()
    assert shop.jobs() == 2


def test_lanes_that_are_missing_while_the_caller_holds_the_store_are_explained(tmp_path):
    url = f"sqlite:///{tmp_path / 'work.db'}"
    app = App(url)
    pipe = app.pipeline("late", app.stage(name="one")(lambda item: item))
    app._opened = open_store(url, SystemClock(), create=True, wait_s_max=0.2)
    cx = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
    cx.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match=r"call App\.ready before it begins"):
        pipe.enqueue(1, within=cx)
    cx.execute("ROLLBACK")
    app.ready()
    cx.execute("BEGIN IMMEDIATE")
    pipe.enqueue(1, within=cx)
    cx.execute("COMMIT")
    cx.close()
    assert app.opened.reader.books().queued == 1
    app.close()


TRANSACTIONS = 40


@on_sqlite
@pytest.mark.parametrize("way", [sqlite3_default, sqlite3_by_hand, alchemy_session], ids=name)
def test_a_caller_and_a_pump_that_write_at_the_same_time_never_wait_for_each_other_in_vain(
    shop, caller, tmp_path
):
    """The pump is another process at full speed; the caller holds the store while it enqueues."""
    with working(tmp_path, shop.url, 1, task="enqueue", count=1) as hands:
        began_ns = now_ns()
        until("the pump is at work", lambda: len(hands.heard(began_ns)[0]) > 100, within_s=30)
        took_s = [transacted(shop, caller, number) for number in range(TRANSACTIONS)]
        ended_ns = now_ns()
        until("the pump goes on", lambda: len(hands.heard(ended_ns)[0]) > 100, within_s=30)
        meanwhile = len(hands.heard(began_ns)[0]) - len(hands.heard(ended_ns)[0])
        hands.finish(within_s=30)
        assert not [line for line in hands.lines() if line.word == AWAY]
    shown = f"p50 {statistics.median(took_s):.3f}, max {max(took_s):.3f} s"
    print(f"FIGURE transactions beside a pump: {shown}; lines of the pump meanwhile: {meanwhile}")
    assert shop.orders() == list(range(TRANSACTIONS))
    assert meanwhile > 0
    assert max(took_s) < WAIT_S - 5  # else somebody has waited in vain


def transacted(shop: Shop, caller: Caller, number: int) -> float:
    began_at = time.monotonic()
    shop.pipe.enqueue(number, within=caller.within)
    caller.order(number)
    caller.commit()
    took_s = time.monotonic() - began_at
    caller.begin()
    return took_s
