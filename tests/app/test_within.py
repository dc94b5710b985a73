"""Jobs that are enqueued within a caller's own transaction come and go with its rows."""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from perdure import App, CallerError
from perdure.model.errors import ConfigError, StoreError
from perdure.model.jobs import NewJob
from tests.app.calling.callers import (
    POSTGRES,
    SQLITE,
    Shop,
    alchemy_connection,
    alchemy_session,
    name,
    psycopg_default,
    sqlite3_by_hand,
    sqlite3_default,
)

WAYS = [("sqlite", way) for way in SQLITE] + [("postgres", way) for way in POSTGRES]


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
    assert ref.view().payload_json == '{"n":1}'


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
    assert [ref.view().payload_json for ref in refs] == [str(n) for n in range(50)]


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
    lane = shop.pipe._laid.lane_nos["one"]
    good = [NewJob(f"00000000-0000-7000-8000-{n:012x}", "p", lane, "one", "{}") for n in range(2)]
    return [*good, NewJob("00000000-0000-7000-8000-0000000000ff", "p", lane, "one", None)]


@on_sqlite
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("way", [sqlite3_default, sqlite3_by_hand, alchemy_connection], ids=name)
def test_an_enqueue_that_fails_leaves_nothing_of_it_in_the_transaction(shop, caller, begun):
    if begun:
        caller.order(1)
    with pytest.raises(StoreError, match="NOT NULL"):
        shop.app._session.opened.store.enqueue(broken(shop), within=caller.within)
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


@pytest.mark.parametrize("path", [":memory:", "file:x?mode=memory", "file:work.db"])
def test_a_store_that_may_be_in_memory_is_refused(path):
    with pytest.raises(ConfigError, match="lost with its process"):
        App(f"sqlite:///{path}")


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
