"""A connection to the server: what it asks for, and what a block of work leaves behind."""

import os
from collections.abc import Callable

import psycopg
import pytest

from perdure.model.errors import ConfigError, StoreBusy, StoreError, WorkerDead
from perdure.stores.postgres import connection as module
from perdure.stores.postgres.connection import PostgresConnection
from tests.stores.postgres.kit import Place, opened, pid_of, sessions, until, with_options

WANTED = {
    "transaction_isolation": "read committed",
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "client_encoding": "UTF8",
}


@pytest.fixture
def connection(database):
    connection = PostgresConnection(database)
    yield connection
    connection.close()


def setting(connection: PostgresConnection, name: str) -> str:
    with connection.autocommit() as cx:
        return cx.execute(f"SHOW {name}").fetchone()[0]


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WANTED)
def test_the_settings_that_we_ask_for_are_in_force(connection, name):
    assert setting(connection, name) == WANTED[name]


def test_a_server_that_was_not_asked_would_be_noticed(database):
    with psycopg.connect(database) as cx:
        found = {name: cx.execute(f"SHOW {name}").fetchone()[0] for name in WANTED}
    assert {name for name in WANTED if found[name] != WANTED[name]} >= {
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "enable_seqscan",
        "enable_hashjoin",
        "enable_mergejoin",
    }


def test_what_the_url_asks_for_beats_our_own_and_leaves_the_rest(database):
    connection = opened(with_options(database, lock_timeout="123ms", work_mem="7MB"))
    assert setting(connection, "lock_timeout") == "123ms"
    assert setting(connection, "work_mem") == "7MB"
    assert setting(connection, "statement_timeout") == "30s"
    assert not connection.pooled
    connection.close()


def test_plans_that_the_url_asks_for_are_not_taken_for_a_pooler(database):
    connection = opened(with_options(database, enable_hashjoin="on"))
    assert setting(connection, "enable_hashjoin") == "on"
    assert not connection.pooled
    connection.close()


def test_the_address_of_the_url_is_kept_and_the_line_is_watched(connection, database):
    with connection.autocommit() as cx:
        given = cx.info.get_parameters()
    assert given["application_name"] == f"perdure {os.getpid()}"
    assert {name: given[name] for name in given if "keepalives_" in name} == {
        "keepalives_idle": "5",
        "keepalives_interval": "3",
        "keepalives_count": "3",
    }
    assert given["tcp_user_timeout"] == "14000"
    named = opened(f"{database}?application_name=mine&connect_timeout=7")
    with named.autocommit() as cx:
        assert cx.info.get_parameters()["application_name"] == "mine"
        assert cx.info.get_parameters()["connect_timeout"] == "7"
    named.close()


def test_a_clients_own_encoding_does_not_hurt(database, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    connection = opened(database)
    with connection.autocommit() as cx:
        assert cx.execute("SELECT %s::text", ("€ 日本 🙂",)).fetchone() == ("€ 日本 🙂",)
    connection.close()


def test_a_server_that_is_too_old_is_refused(database, monkeypatch):
    monkeypatch.setattr(module, "VERSION_MIN", 990000)
    with pytest.raises(ConfigError, match=r"is PostgreSQL 1\d; Perdure needs 99 or newer"):
        PostgresConnection(database)


def test_a_server_that_is_refused_is_not_left_connected(postgres, database, monkeypatch):
    monkeypatch.setattr(module, "VERSION_MIN", 990000)
    with pytest.raises(ConfigError):
        PostgresConnection(database)
    until(lambda: sessions(postgres, database) == [], "nobody is connected")


# -- what a block leaves behind ----------------------------------------------------------------


def test_a_connection_is_used_again(connection):
    assert pid_of(connection) == pid_of(connection)


def test_an_error_in_the_middle_leaves_no_open_transaction(connection):
    before = pid_of(connection)

    def half(rest: Callable[[psycopg.Connection], object]) -> None:
        with connection.transaction() as (cx, _):
            cx.execute("CREATE TABLE halves (n int)")
            rest(cx)

    with pytest.raises(StoreError):
        half(lambda cx: cx.execute("SELECT 1/0"))
    with pytest.raises(ZeroDivisionError):
        half(lambda cx: 1 / 0)
    with connection.autocommit() as cx:
        assert cx.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        assert cx.execute("SELECT to_regclass('halves')").fetchone() == (None,)
    assert pid_of(connection) == before


def test_a_transaction_that_was_left_open_is_never_lent_on(connection, postgres, database):
    before = pid_of(connection)
    with connection.autocommit() as cx:
        cx.execute("BEGIN")
        cx.execute("CREATE TABLE halves (n int)")
    assert pid_of(connection) != before
    with connection.autocommit() as cx:
        assert cx.execute("SELECT to_regclass('halves')").fetchone() == (None,)


def test_an_error_in_a_pipeline_leaves_nothing_of_it(connection):
    with connection.autocommit() as cx:
        cx.execute("CREATE TABLE halves (n int)")

    def both() -> None:
        with connection.autocommit() as cx, cx.pipeline():
            cx.execute("INSERT INTO halves VALUES (1)")
            cx.execute("INSERT INTO halves VALUES (1/0)")

    with pytest.raises(StoreError):
        both()
    with connection.autocommit() as cx:
        assert cx.execute("SELECT count(*) FROM halves").fetchone() == (0,)


def test_work_that_the_server_rolled_back_for_another_is_done_again(connection):
    tries = []

    def work(cx, now):
        tries.append(now)
        if len(tries) < 3:
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return "done"

    assert connection.write(work) == "done"
    assert len(tries) == 3


def test_work_is_not_tried_for_ever_and_another_error_is_not_tried_again(connection):
    tries = []

    def work(error):
        def fail(cx, now):
            tries.append(now)
            raise error

        return fail

    with pytest.raises(StoreBusy):
        connection.write(work(psycopg.errors.SerializationFailure("again")))
    assert len(tries) == 5
    tries.clear()
    with pytest.raises(StoreError):
        connection.write(work(psycopg.errors.CheckViolation("bad row")))
    assert len(tries) == 1


def test_an_error_of_ours_goes_through_untouched(connection):
    with pytest.raises(WorkerDead), connection.transaction():
        raise WorkerDead("no more")


def test_the_store_is_reached_through_a_socket_file_too(postgres, database):
    place = Place(postgres.url(database, through="socket"))
    place.put()
    assert place.reader.books().accepted == 1
    place.close()


# -- reports ---------------------------------------------------------------------------------------


def test_a_report_may_walk_and_take_its_time_and_leaves_nothing_of_that_behind(connection):
    with connection.autocommit() as cx:
        usual_s = cx.answer_s_max
    with connection.walking() as cx:
        assert cx.answer_s_max == 1805
        found = {
            name: cx.execute(f"SHOW {name}").fetchone()[0]
            for name in (
                "enable_seqscan",
                "enable_hashjoin",
                "enable_nestloop",
                "statement_timeout",
            )
        }
        assert cx.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        assert cx.execute("SHOW transaction_read_only").fetchone() == ("on",)
    assert found == {
        "enable_seqscan": "on",
        "enable_hashjoin": "on",
        "enable_nestloop": "off",
        "statement_timeout": "30min",
    }
    with connection.autocommit() as cx:
        assert cx.answer_s_max == usual_s
    for name in ("enable_seqscan", "statement_timeout", "transaction_isolation"):
        assert setting(connection, name) == WANTED[name]
