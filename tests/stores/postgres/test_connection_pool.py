"""Connections that are lent: how many, to whom, and what becomes of those that die or fall silent."""

import math
import os
import resource
import signal
import threading
import time

import psycopg
import pytest

from perdure.model.errors import StoreBusy, StoreUnavailable
from perdure.stores.postgres import connection as module, connection_pool
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Lender, _sound
from tests.stores.postgres.kit import (
    at_once,
    opened,
    other,
    pid_of,
    sessions,
    terminate,
    until,
    with_options,
)


def ask(connection: PostgresConnection) -> None:
    """A statement inside a transaction."""
    with connection.autocommit() as cx, cx.transaction():
        cx.execute("SELECT 1")


# -- how many there are ------------------------------------------------------------------------


def test_threads_share_a_bounded_number_of_connections(postgres, database):
    connection = opened(database, size_max=3, wait_s_max=10.0)
    seen: set[int] = set()

    def work() -> None:
        for _ in range(5):
            with connection.autocommit() as cx:
                seen.add(cx.info.backend_pid)
                cx.execute("SELECT pg_sleep(0.002)")

    at_once([work] * 12)
    assert 1 <= len(seen) <= 3
    assert len(sessions(postgres, database)) <= 3
    connection.close()


def test_who_finds_all_connections_in_use_is_told_so_in_time(database):
    connection = opened(database, size_max=2, wait_s_max=2.0)
    with connection.autocommit(), connection.autocommit():
        began = time.monotonic()
        with pytest.raises(StoreBusy) as caught, connection.autocommit():
            pass
        assert time.monotonic() - began >= 2.0
    assert str(caught.value) == (
        "all 2 connections to the store have been in use for 2 s; use fewer threads at once, or "
        "raise PERDURE_CONNECTIONS"
    )
    pid_of(connection)
    connection.close()


def test_a_connection_that_could_not_be_made_takes_no_place(proxy, database):
    connection = opened(proxy.url(database), size_max=1)
    proxy.refuse()
    proxy.reset()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            pid_of(connection)
    proxy.accept()
    pid_of(connection)
    connection.close()


# -- closing and forking -----------------------------------------------------------------------


def test_a_closed_connection_is_closed_for_good(postgres, database):
    connection = opened(database)
    with connection.autocommit() as cx:
        connection.close()
        assert cx.execute("SELECT 1").fetchone() == (1,)  # who has one may finish
    with pytest.raises(StoreUnavailable, match="is closed"):
        pid_of(connection)
    until(lambda: sessions(postgres, database) == [], "nobody is connected")
    connection.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pytest's own threads, and a fork
def test_a_forked_process_has_its_own_connections_and_does_not_hurt_its_parents(place):
    """Also not by closing what it was given: a goodbye from it would end the parent's session."""
    place.put()
    place.store.has_changed()
    before = pid_of(place.connection)
    with place.connection.autocommit() as lent:
        child = os.fork()
        if child == 0:
            own = pid_of(place.connection)
            place.put()
            place.close()
            os._exit(0 if own != before and place.connection._lender._left else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert lent.info.backend_pid == before
        assert lent.execute("SELECT 1").fetchone() == (1,)
    assert pid_of(place.connection) == before
    place.put_many(2)  # the first has the id of the child's, and is the same
    assert place.reader.books().accepted == 3


# -- lines that die ------------------------------------------------------------------------------


def test_a_fork_at_any_moment_finds_every_connection_with_the_lender(database, monkeypatch):
    """A child lets go of all that are in the lists; of one in neither it would close its parent's line."""
    connection = opened(database, size_max=1, wait_s_max=2.0)
    lender, found = connection._lender, []
    for name in ("_sound", "_outside"):
        right = getattr(connection_pool, name)

        def seen(cx, right=right, name=name):
            found.append((name, cx in (*lender._idle, *lender._lent)))
            return right(cx)

        monkeypatch.setattr(connection_pool, name, seen)
    ask(connection)
    assert found == [("_sound", True), ("_outside", True)]
    assert (len(lender._idle), lender._lent) == (1, [])
    connection.close()


def test_an_idle_connection_that_died_is_not_lent(postgres, database):
    connection = opened(database)
    pid_of(connection)
    for _ in range(3):
        assert terminate(postgres, database) == 1
        pid_of(connection)  # would raise on the dead one
    connection.close()


def test_all_that_lay_idle_are_looked_at(postgres, database):
    connection = opened(database, size_max=4)
    with (
        connection.autocommit(),
        connection.autocommit(),
        connection.autocommit(),
        connection.autocommit(),
    ):
        pass
    assert terminate(postgres, database) == 4
    pid_of(connection)
    assert len(sessions(postgres, database)) == 1
    connection.close()


def test_a_line_that_breaks_in_use_makes_the_others_suspect(proxy, database):
    """They may be as dead, without our end knowing: each would cost a timeout of its own."""
    connection = opened(proxy.url(database), size_max=4)
    with connection.autocommit() as a, connection.autocommit() as b, connection.autocommit() as c:
        before = {one.info.backend_pid for one in (a, b, c)}
    proxy.lose_reply(b"SELECT 1")
    with pytest.raises(StoreUnavailable):
        ask(connection)
    with connection.autocommit() as a, connection.autocommit() as b, connection.autocommit() as c:
        assert not before & {one.info.backend_pid for one in (a, b, c)}
    connection.close()


def test_a_file_number_beyond_what_select_knows_is_no_sign_of_death(database):
    """A process with more than a thousand open files would else connect anew for every call."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    spare = [os.dup(0) for _ in range(1100)]
    try:
        connection = opened(database)
        with connection.autocommit() as cx:
            assert cx.fileno() > 1024
        assert pid_of(connection) == pid_of(connection)
        connection.close()
    finally:
        for one in spare:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_connection_whose_line_holds_something_unread_is_not_sound(postgres, database):
    with psycopg.connect(database, autocommit=True) as cx:
        assert _sound(cx)
        with postgres.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (cx.info.backend_pid,))
        assert not _sound(cx)
        cx.close()
        assert not _sound(cx)


# -- a server that does not answer ---------------------------------------------------------------


def test_the_wait_for_an_answer_is_as_long_as_a_statement_may_take_and_a_little_more(database):
    for options, wanted in [({}, 35.0), ({"statement_timeout": "1500ms"}, 6.5)]:
        connection = opened(with_options(database, **options))
        with connection.autocommit() as cx:
            assert cx.answer_s_max == wanted
        connection.close()


def test_who_has_switched_the_bound_on_statements_off_waits_for_ever(database):
    connection = opened(with_options(database, statement_timeout=0))
    with connection.autocommit() as cx:
        assert cx.answer_s_max == math.inf
    connection.close()


@pytest.fixture
def impatient(monkeypatch):
    """An answer has to come within half a second more than a statement may take."""
    monkeypatch.setattr(module, "ANSWER_MORE_S", 0.5)


def test_a_proxy_whose_server_is_gone_is_given_up(proxy, database, impatient):
    """It acknowledges everything, so keepalives are content."""
    connection = opened(with_options(proxy.url(database), statement_timeout="500ms"))
    pid_of(connection)
    proxy.black_hole()
    with pytest.raises(StoreUnavailable, match="has not answered for 1 s"):
        ask(connection)
    proxy.heal()
    pid_of(connection)
    connection.close()


def test_a_pipeline_to_nowhere_is_given_up_once(proxy, database, impatient):
    connection = opened(with_options(proxy.url(database), statement_timeout="500ms"))

    def both() -> None:
        with connection.autocommit() as cx, cx.pipeline():
            cx.execute("SELECT 1")
            cx.execute("SELECT 2").fetchone()

    both()
    proxy.black_hole()
    with pytest.raises(StoreUnavailable, match="has not answered for 1 s"):
        both()
    proxy.heal()
    connection.close()


def test_a_server_that_is_stopped_is_given_up(postgres, database, impatient):
    """As a virtual machine that is paused: its kernel, or another's, still answers keepalives."""
    connection = opened(with_options(database, statement_timeout="500ms"))
    pid = pid_of(connection)
    os.kill(pid, signal.SIGSTOP)
    try:
        with (
            pytest.raises(StoreUnavailable, match="has not answered"),
            connection.autocommit() as cx,
        ):
            cx.execute("SELECT 1")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert pid_of(connection) != pid
    connection.close()


def test_an_answer_that_takes_its_time_within_the_bound_is_waited_for(database, impatient):
    connection = opened(with_options(database, statement_timeout="3s"))
    with connection.autocommit() as cx:
        assert cx.execute("SELECT pg_sleep(1.2), 5").fetchone() == ("", 5)
    connection.close()


def test_a_statement_that_takes_too_long_is_ended_by_the_server(database):
    connection = opened(with_options(database, statement_timeout="200ms"))
    before = pid_of(connection)
    with pytest.raises(StoreBusy, match="statement timeout"), connection.autocommit() as cx:
        cx.execute("SELECT pg_sleep(20)")
    assert pid_of(connection) == before
    connection.close()


def test_a_transaction_of_a_process_that_has_stopped_does_not_hold_others_up(database):
    connection = opened(with_options(database, idle_in_transaction_session_timeout="200ms"))
    with connection.autocommit() as cx:
        cx.execute("CREATE TABLE rows (n int)")
        cx.execute("INSERT INTO rows VALUES (1)")

    def stand_still(cx: psycopg.Connection, _: int) -> None:
        cx.execute("UPDATE rows SET n = 2")
        with other(database, autocommit=True) as them:
            them.execute("UPDATE rows SET n = 3")  # waits until the server has ended us
        cx.execute("UPDATE rows SET n = 4")

    with pytest.raises(StoreUnavailable):
        connection.write(stand_still)
    with connection.autocommit() as cx:
        assert cx.execute("SELECT n FROM rows").fetchone() == (3,)
    connection.close()


def test_a_lender_gives_to_whoever_waited_when_a_connection_comes_back(database):
    lender = Lender(lambda: psycopg.connect(database, autocommit=True), size_max=1, wait_s_max=10)
    lent = threading.Event()
    seen: list[int] = []

    def wait() -> None:
        with lender.lend() as cx:
            seen.append(cx.info.backend_pid)
            lent.set()

    thread = threading.Thread(target=wait)
    with lender.lend() as cx:
        thread.start()
        assert not lent.wait(0.1)
        first = cx.info.backend_pid
    assert lent.wait(30)
    thread.join(30)
    assert seen == [first]
    lender.close()
