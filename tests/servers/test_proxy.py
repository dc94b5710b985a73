"""The faulty line: what it does to bytes is what it says, and nothing when it is left alone."""

import socket
import threading
import time

import psycopg
import pytest

from tests.servers.postgres import HOST
from tests.servers.proxy import Proxy, _whole

ANSWER_S_MAX = 60


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def table(database):
    """A database with a table of numbers."""
    with psycopg.connect(database, autocommit=True) as cx:
        cx.execute("CREATE TABLE numbers (n bigint)")
    return database


def numbers(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as cx:
        return [n for (n,) in cx.execute("SELECT n FROM numbers ORDER BY n").fetchall()]


def test_a_line_that_is_left_alone_changes_nothing(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as cx:
        text = "x" * 1_000_000
        assert cx.execute("SELECT %s", (text,)).fetchone() == (text,)


def test_a_line_that_refuses_takes_nobody_new_and_then_does_again(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as old:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(proxy.url(table))
        assert old.execute("SELECT 1").fetchone() == (1,)
        proxy.accept()
        psycopg.connect(proxy.url(table)).close()


def test_a_reset_is_noticed_at_once(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as cx:
        proxy.reset()
        with pytest.raises(psycopg.OperationalError):
            cx.execute("SELECT 1")


def test_who_comes_while_it_closes_is_cut_like_the_others(postgres, monkeypatch):
    """The line has taken a client, and reaches the server only when it is being closed."""
    connect, taken, links = socket.create_connection, threading.Event(), []

    def slow(address):
        taken.set()
        while proxy._listener is not None:
            time.sleep(0.01)
        time.sleep(0.2)  # long enough to cut every link that is there by now
        links.append(connect(address))
        return links[-1]

    with Proxy(postgres.port) as proxy:
        monkeypatch.setattr(socket, "create_connection", slow)
        client = connect((HOST, proxy.port))
        assert taken.wait(ANSWER_S_MAX)
    client.close()
    assert [link.fileno() for link in links] == [-1]


def test_a_black_hole_keeps_what_was_said_until_it_heals(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as cx:
        proxy.black_hole()
        asked = threading.Thread(target=cx.execute, args=("INSERT INTO numbers VALUES (1)",))
        asked.start()
        asked.join(0.3)
        assert asked.is_alive()
        assert numbers(table) == []
        proxy.heal()
        asked.join(ANSWER_S_MAX)
    assert numbers(table) == [1]


def test_latency_is_had_in_both_directions(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as cx:
        proxy.latency(0.1)
        began = time.monotonic()
        cx.execute("SELECT 1")
        assert time.monotonic() - began >= 0.2


def test_a_lost_reply_is_lost_after_the_commit(proxy, table):
    cx = psycopg.connect(proxy.url(table), autocommit=True)
    trap = proxy.lose_reply()
    with pytest.raises(psycopg.OperationalError):
        cx.execute("INSERT INTO numbers VALUES (1)")
    assert trap.sprung.wait(ANSWER_S_MAX)
    cx.close()
    assert numbers(table) == [1]


def test_a_trap_waits_for_its_words_and_is_sprung_once(proxy, table):
    trap = proxy.lose_reply(b"COMMIT")
    cx = psycopg.connect(proxy.url(table))
    cx.execute("INSERT INTO numbers VALUES (2)")
    assert not trap.sprung.is_set()
    with pytest.raises(psycopg.OperationalError):
        cx.commit()
    cx.close()
    with psycopg.connect(proxy.url(table)) as cx:
        cx.execute("INSERT INTO numbers VALUES (3)")
    assert numbers(table) == [2, 3]


def test_a_message_that_is_held_is_not_seen_by_the_server_before_its_release(proxy, table):
    with psycopg.connect(proxy.url(table), autocommit=True) as cx:
        trap = proxy.hold(b"VALUES (4)")
        asked = threading.Thread(target=cx.execute, args=("INSERT INTO numbers VALUES (4)",))
        asked.start()
        assert trap.sprung.wait(ANSWER_S_MAX)
        assert numbers(table) == []
        trap.released.set()
        asked.join(ANSWER_S_MAX)
    assert numbers(table) == [4]


def test_an_answer_is_whole_at_its_ready_for_query_and_not_before():
    complete, ready = b"C\x00\x00\x00\x0fINSERT 0 1\x00", b"Z\x00\x00\x00\x05I"
    assert _whole(complete + ready)
    for cut in range(len(complete + ready)):
        assert not _whole((complete + ready)[:cut])
    assert not _whole(
        b"D\x00\x00\x00\x0aZ\x00\x00\x00\x05I" + b"C\x00"
    )  # a row that looks like one
