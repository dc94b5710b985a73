"""Callers' transactions on SQLite beside our own writers: no line is taken, nobody waits in vain."""

import fcntl
import os
import sqlite3
import statistics
import time

import pytest

from perdure import App
from perdure.engine.clock import SystemClock
from perdure.model.errors import StoreBusy
from perdure.stores.opening import open_store
from tests.app.calling.callers import (
    SQLITE,
    Caller,
    Shop,
    alchemy_session,
    name,
    sqlite3_by_hand,
    sqlite3_default,
)
from tests.stories.hands import AWAY, now_ns, working
from tests.stories.kit import until

on_sqlite = pytest.mark.parametrize("store", ["sqlite"])


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
    caller.order(1)  # who waited in line would be refused as busy
    shop.pipe.enqueue(1, within=caller.within)
    caller.commit()
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
    app._session._opened = open_store(url, SystemClock(), create=True, wait_s_max=0.2)
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
    assert app._session.opened.reader.books().queued == 1
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


def transacted(shop: Shop, caller: Caller, number: int) -> float:
    began_at = time.monotonic()
    shop.pipe.enqueue(number, within=caller.within)
    caller.order(number)
    caller.commit()
    took_s = time.monotonic() - began_at
    caller.begin()
    return took_s
