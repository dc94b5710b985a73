"""Enqueueing inside the caller's own transaction: the jobs come and go with it."""

from collections.abc import Callable

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import class_row, dict_row, namedtuple_row
from sqlalchemy.orm import Session

from perdure.model.errors import CallerError, StoreBusy
from tests.servers.postgres import Server, name_of
from tests.stores.postgres.kit import Place, other, with_options


@pytest.fixture
def theirs(place):
    """The caller's connection, with a table of the caller's own."""
    with other(place.url) as cx:
        cx.execute("CREATE TABLE orders (n int)")
        cx.commit()
        yield cx


@pytest.fixture
def engine(place):
    url = place.url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url)
    yield engine
    engine.dispose()


def accepted(place: Place) -> int:
    return place.reader.books().accepted


def orders(place: Place) -> int:
    return place.rows("SELECT count(*) FROM orders")[0][0]


def test_jobs_are_there_when_the_caller_commits_and_not_before(place, theirs):
    theirs.execute("INSERT INTO orders VALUES (1)")
    (made,) = place.store.enqueue([place.new(key="k")], within=theirs)
    assert made.created
    assert place.reader.job(made.id) is None
    assert accepted(place) == 0
    theirs.commit()
    assert place.see(made.id).no == made.no
    assert (accepted(place), orders(place)) == (1, 1)
    place.clean()


def test_jobs_are_gone_when_the_caller_rolls_back(place, theirs):
    theirs.execute("INSERT INTO orders VALUES (1)")
    place.store.enqueue([place.new(key="k"), place.new()], within=theirs)
    theirs.rollback()
    assert (accepted(place), orders(place)) == (0, 0)
    (made,) = place.store.enqueue([place.new(key="k")])
    assert made.created
    place.clean()


def test_fair_jobs_of_a_callers_transaction_stand_in_line(place, theirs):
    place.put_many(9, owner="a", fair=True)
    place.store.enqueue([place.new(owner="b", fair=True) for _ in range(3)], within=theirs)
    place.store.enqueue([place.new(owner="b", fair=True)], within=theirs)
    theirs.commit()
    owners = "".join(claim.owner for claim in place.take(place.hire(), 9))
    assert owners == "aabababab"


def test_a_savepoint_takes_its_own_jobs_with_it(place, theirs):
    (kept,) = place.store.enqueue([place.new()], within=theirs)
    with theirs.transaction(force_rollback=True):
        (gone,) = place.store.enqueue([place.new()], within=theirs)
    with theirs.transaction():
        (also,) = place.store.enqueue([place.new()], within=theirs)
    theirs.commit()
    assert accepted(place) == 2
    assert place.reader.job(gone.id) is None
    assert {place.see(one.id).state for one in (kept, also)} == {"queued"}
    place.clean()


def test_an_error_of_the_callers_takes_the_jobs_with_it(place, theirs):
    def fail() -> None:
        with theirs.transaction():
            place.store.enqueue([place.new()], within=theirs)
            theirs.execute("INSERT INTO orders VALUES (1/0)")

    with pytest.raises(psycopg.errors.DivisionByZero):
        fail()
    assert accepted(place) == 0


def test_a_cursor_is_as_good_as_its_connection(place, theirs):
    with theirs.cursor() as cursor:
        place.store.enqueue([place.new()], within=cursor)
    theirs.commit()
    with theirs.cursor(name="of_the_server") as cursor:
        cursor.execute("SELECT 1")
        place.store.enqueue([place.new()], within=cursor)
    theirs.commit()
    assert accepted(place) == 2


def test_a_cursor_class_of_the_callers_own_is_as_good(place, theirs):
    class Loud(psycopg.Cursor):
        pass

    place.store.enqueue([place.new()], within=Loud(theirs))
    theirs.commit()
    assert accepted(place) == 1


def test_a_connection_in_autocommit_commits_each_call(place, theirs):
    theirs.autocommit = True
    (made,) = place.store.enqueue([place.new()], within=theirs)
    assert place.see(made.id).state == "queued"


class Made:
    def __init__(self, **columns: object) -> None:
        self.columns = columns


@pytest.mark.parametrize("factory", [dict_row, namedtuple_row, class_row(Made)])
def test_the_callers_way_with_rows_and_cursors_is_left_as_it_was(place, theirs, factory):
    theirs.row_factory = factory
    theirs.cursor_factory = psycopg.ClientCursor
    place.store.enqueue([place.new(key="k")], within=theirs)
    (again,) = place.store.enqueue([place.new(key="k")], within=theirs)
    assert not again.created
    assert theirs.row_factory is factory
    assert theirs.cursor_factory is psycopg.ClientCursor
    theirs.commit()
    assert accepted(place) == 1


def test_a_cursor_factory_with_other_placeholders_does_not_hurt(place, theirs):
    theirs.cursor_factory = psycopg.RawCursor
    place.store.enqueue([place.new()], within=theirs)
    theirs.commit()
    assert accepted(place) == 1


@pytest.mark.parametrize("setting", ["TimeZone = 'Asia/Tokyo'", "DateStyle = 'SQL, DMY'"])
def test_how_the_caller_likes_its_dates_does_not_matter(place, theirs, setting):
    theirs.execute(f"SET {setting}")
    place.store.enqueue([place.new()], within=theirs)
    theirs.commit()
    assert accepted(place) == 1


def test_the_same_database_by_another_route_is_the_same(place, postgres, bouncer):
    for url in (postgres.url(place.url, through="socket"), bouncer.url(place.url)):
        with psycopg.connect(url, prepare_threshold=None) as cx:
            place.store.enqueue([place.new()], within=cx)
    assert accepted(place) == 2


def test_a_server_that_was_restarted_is_still_the_same_database():
    """What told it apart before, when it was started, has changed on both ends."""
    with Server(in_memory=True) as own:
        place = Place(own.create_database())
        with psycopg.connect(place.url) as cx:
            place.store.enqueue([place.new()], within=cx)
        own.restart()
        with psycopg.connect(place.url) as cx:
            place.store.enqueue([place.new()], within=cx)
        assert accepted(place) == 2
        place.close()


# -- keys ----------------------------------------------------------------------------------------------


def test_a_key_that_the_store_has_gives_that_job(place, theirs):
    first = place.put(key="k")
    (again,) = place.store.enqueue([place.new(key="k")], within=theirs)
    assert (again.id, again.created) == (first.id, False)
    theirs.commit()
    assert accepted(place) == 1


def test_a_key_that_another_took_since_a_repeatable_read_began_is_a_conflict(place, theirs):
    theirs.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    theirs.execute("SELECT 1 FROM orders")
    place.put(key="k")
    with pytest.raises(StoreBusy, match="could not serialize"):
        place.store.enqueue([place.new(key="k")], within=theirs)
    theirs.rollback()
    (again,) = place.store.enqueue([place.new(key="k")], within=theirs)
    assert not again.created


# -- SQLAlchemy ------------------------------------------------------------------------------------------


def test_a_session_commits_and_rolls_back_with_its_jobs(place, engine):
    with Session(engine) as session:
        place.store.enqueue([place.new()], within=session)
        session.rollback()
    assert accepted(place) == 0
    with Session(engine) as session, session.begin():
        session.execute(sqlalchemy.text("SELECT 1"))
        (made,) = place.store.enqueue([place.new()], within=session)
        assert accepted(place) == 0
    assert place.see(made.id).no == made.no


def test_a_nested_transaction_of_a_session_takes_its_own_jobs_with_it(place, engine):
    with Session(engine) as session, session.begin():
        place.store.enqueue([place.new()], within=session)
        nested = session.begin_nested()
        place.store.enqueue([place.new()], within=session)
        nested.rollback()
    assert accepted(place) == 1


def test_a_connection_of_an_engine_commits_and_rolls_back_with_its_jobs(place, engine):
    with engine.connect() as connection:
        place.store.enqueue([place.new()], within=connection)
        connection.rollback()
        place.store.enqueue([place.new()], within=connection)
        connection.commit()
    with engine.begin() as connection:
        place.store.enqueue([place.new()], within=connection)
    assert accepted(place) == 2
    place.clean()


# -- what is refused ---------------------------------------------------------------------------------------


def refused(place: Place, within: object, words: str) -> None:
    """It must be refused with these words, and nothing written."""
    with pytest.raises(CallerError, match=words) as caught:
        place.store.enqueue([place.new()], within=within)
    assert caught.value.exit_code == 2
    assert accepted(place) == 0


def test_another_database_is_refused(place, postgres):
    elsewhere = postgres.create_database()
    with psycopg.connect(elsewhere) as cx:
        refused(place, cx, rf"another database \('{name_of(elsewhere)}'\) than the store")
    postgres.drop_database(elsewhere)


def test_a_database_of_the_same_name_on_another_server_is_refused(place):
    with Server(in_memory=True) as own:
        twin = Place(own.create_database(name_of(place.url)))
        with psycopg.connect(twin.url) as cx:
            refused(place, cx, "another database")
        twin.close()


def test_a_search_path_that_leads_to_other_tables_is_refused(place, theirs):
    theirs.execute("CREATE SCHEMA apart")
    theirs.execute("SET search_path = apart")
    refused(place, theirs, "its search_path leads to other tables")
    theirs.execute("CREATE TABLE apart.perdure_jobs (n int)")
    refused(place, theirs, "its search_path leads to other tables")


def test_the_search_path_of_the_stores_own_url_counts(postgres, database, open_place):
    with psycopg.connect(database, autocommit=True) as cx:
        cx.execute("CREATE SCHEMA apart")
    place = open_place(with_options(database, search_path="apart"))
    with psycopg.connect(database) as cx:
        refused(place, cx, "its search_path leads to other tables")
    with psycopg.connect(with_options(database, search_path="apart,public")) as cx:
        place.store.enqueue([place.new()], within=cx)
    assert accepted(place) == 1


async def asynchronous(url: str, check: Callable[[object], None]) -> None:
    cx = await psycopg.AsyncConnection.connect(url)
    try:
        check(cx)
        check(cx.cursor())
    finally:
        await cx.close()


def test_an_asynchronous_connection_is_refused(place):
    import asyncio

    check = lambda cx: refused(place, cx, "asynchronous psycopg connection; pass a synchronous one")  # noqa: E731
    asyncio.run(asynchronous(place.url, check))


def test_another_kind_of_connection_is_refused_by_its_name(place, engine):
    import sqlite3

    lite = sqlite3.connect(":memory:")
    refused(place, lite, r"within is a sqlite3.Connection; this store is PostgreSQL")
    lite.close()
    refused(place, "postgresql://", r"within is a builtins.str")
    refused(place, engine, r"SQLAlchemy Engine; pass a Session or a Connection")
    other_engine = sqlalchemy.create_engine("sqlite://")
    with other_engine.connect() as connection:
        refused(place, connection, r"within is a sqlite3.Connection")
    other_engine.dispose()


def test_a_transaction_that_has_failed_is_refused_before_it_is_touched(place, theirs):
    with pytest.raises(psycopg.errors.DivisionByZero):
        theirs.execute("SELECT 1/0")
    refused(place, theirs, "an earlier statement of its transaction has failed")
    theirs.rollback()
    place.store.enqueue([place.new()], within=theirs)
    theirs.commit()
    assert accepted(place) == 1


def test_a_closed_connection_is_refused(place, theirs):
    theirs.close()
    refused(place, theirs, "within is closed")


def test_a_pipeline_is_refused(place, theirs):
    with theirs.pipeline():
        refused(place, theirs, "pipeline mode")


def test_a_refusal_leaves_the_callers_transaction_usable(place, theirs):
    theirs.execute("INSERT INTO orders VALUES (1)")
    theirs.execute("SET LOCAL search_path = nowhere, public")
    theirs.execute("CREATE TABLE pg_temp.perdure_jobs (n int)")
    refused(place, theirs, "search_path")
    theirs.execute("INSERT INTO orders VALUES (2)")
    theirs.commit()
    assert orders(place) == 2
