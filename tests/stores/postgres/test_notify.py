"""Hints that there is work: soon, seldom, and never worth an error or a wait."""

import threading
import time

import psycopg
import pytest

from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Lane
from perdure.stores.postgres import notify
from tests.servers.postgres import Server
from tests.stores.kit import DEED
from tests.stores.postgres.kit import Place, at_once, sessions, terminate, until

HINT_S_MAX = 30.0  # nobody polls here: it comes as a hint or not at all


@pytest.fixture
def ears(open_place, place) -> Place:
    """Another process that listens."""
    ears = open_place(place.url, series=1)
    ears.store.has_changed()  # begins to listen
    assert not ears.store.has_changed()
    return ears


@pytest.fixture
def counter(place):
    """Counts the notifications of the database."""
    with psycopg.connect(place.url, autocommit=True) as cx:
        cx.execute("LISTEN perdure")
        yield lambda: sum(1 for _ in cx.notifies(timeout=0.3))


def test_an_enqueue_is_heard_of_elsewhere_within_a_second(place, ears):
    for _ in range(3):
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
        assert not ears.store.has_changed()


def test_every_change_of_a_gate_is_heard_of_elsewhere(place, ears):
    place.store.lanes([Lane("q", "c", "p", "one", upstream="vendor")])
    worker = place.hire()
    place.put()
    until(ears.store.has_changed, "the hint of the job")
    for generation, state in enumerate([GateState.FLOWING, GateState.HELD]):
        place.control.change_gate(GateChange("vendor", generation, state), DEED)
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    change = GateChange("vendor", 2, GateState.PROBING)
    assert place.store.probe(place.order(worker), change, DEED) is not None
    until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    assert place.store.probe(place.order(worker), change, DEED) is None
    assert not threading.Event().wait(0.2)
    assert not ears.store.has_changed()


def test_what_is_heard_of_is_there(place, ears):
    """The hint comes after the commit: who looks then finds the job."""
    worker = ears.hire()
    for _ in range(10):
        made = place.put()
        until(ears.store.has_changed, "the hint")
        assert ears.taken_ids(worker, 5) == [made.id]


def test_nothing_is_heard_when_nothing_is_enqueued(place, ears):
    worker = place.hire()
    place.store.beat([worker])
    place.take(worker)
    place.reader.books()
    assert not threading.Event().wait(0.2)
    assert not ears.store.has_changed()


def test_an_enqueue_in_a_callers_transaction_makes_no_hint(place, ears):
    """NOTIFY would take a lock that all committing notifiers share, for as long as the caller likes."""
    with psycopg.connect(place.url) as cx:
        place.store.enqueue([place.new()], within=cx)
    assert not threading.Event().wait(0.2)
    assert not ears.store.has_changed()
    assert ears.store.waiting(ears.order(ears.hire())) == 0.0


def test_five_hundred_enqueues_at_once_make_a_few_dozen_notifications(place, counter):
    for _ in range(500):  # a disk would make them few in a second, and then each may have its own
        place.store._notify_sender.tell()
    assert 1 <= counter() <= 60


def test_an_enqueue_that_comes_alone_is_told_of_by_no_thread(place, ears, monkeypatch):
    monkeypatch.setattr(notify, "_IDLE_S", 0.02)
    for _ in range(3):  # the first on a lent connection; then there is a connection of its own
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
        until(lambda: not notify_threads(), "the thread is gone")
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    for _ in range(5):
        until(place.store._notify_sender._is_free, "the last word was answered")
        until(lambda: place.store._notify_sender._next_at_s < time.monotonic(), "some milliseconds")
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    assert started == []


def test_a_connection_that_breaks_is_made_anew_and_meanwhile_another_is_used(
    place, ears, monkeypatch
):
    monkeypatch.setattr(notify, "_AGAIN_S", 0.0)
    for _ in range(3):
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    own = place.store._notify_sender._own_cx
    assert own is not None
    with psycopg.connect(place.url, autocommit=True) as cx:
        cx.execute("SELECT pg_terminate_backend(%s)", (own.info.backend_pid,))
    until(lambda: not place.store._notify_sender._is_free(), "the broken connection is noticed")
    for _ in range(3):
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    assert place.store._notify_sender._own_cx not in (None, own)


def test_a_process_that_enqueues_once_makes_no_connection_for_it(place, ears):
    place.put()
    until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    assert place.store._notify_sender._own_cx is None


def test_many_threads_make_no_more(place, counter):
    at_once([lambda: [place.put() for _ in range(30)]] * 16)
    assert 1 <= counter() <= 60


def test_the_last_enqueue_is_told_of_too(place, ears):
    """However it falls between two notifications."""
    for pause_s in (0.0, 0.003, 0.006, 0.02, 0.04, 0.06):
        place.put()
        until(ears.store.has_changed, "the first hint", within_s=HINT_S_MAX)
        threading.Event().wait(pause_s)
        place.put()
        until(ears.store.has_changed, "the second hint", within_s=HINT_S_MAX)


def test_a_thread_that_has_rested_tells_again(place, ears, monkeypatch):
    monkeypatch.setattr(notify, "_IDLE_S", 0.02)
    for _ in range(20):
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
        until(lambda: not notify_threads(), "the thread is gone")
    assert not notify_threads()


def test_news_that_come_as_the_thread_goes_to_rest_are_told(place, ears, monkeypatch):
    """It looks again, under the lock, before it goes."""
    monkeypatch.setattr(notify, "_IDLE_S", 0.001)
    monkeypatch.setattr(notify, "_APART_S", 0.0)
    for _ in range(300):
        place.put()
        until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)


def notify_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "perdure-notify"]


def test_what_is_enqueued_last_is_told_before_the_store_is_closed(place, ears, open_place):
    leaving = Place(place.url, series=2)
    leaving.put()
    leaving.close()
    until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)
    assert not notify_threads()


@pytest.fixture
def eager(monkeypatch):
    """Whoever lost its connection listens again at once."""
    monkeypatch.setattr(notify, "_AGAIN_S", 0.0)


def test_a_listener_that_is_killed_notices_counts_it_as_a_change_and_listens_again(
    eager, place, ears, postgres
):
    terminate(postgres, place.url)
    until(ears.store.has_changed, "it may have missed one", within_s=HINT_S_MAX)
    assert ears.store.has_changed()  # and again when it has begun anew: nobody listened in between
    assert not ears.store.has_changed()
    place.put()
    until(ears.store.has_changed, "the hint", within_s=HINT_S_MAX)


def test_a_listener_does_not_try_again_in_a_hurry(place, ears, proxy, open_place, monkeypatch):
    monkeypatch.setattr(notify, "_AGAIN_S", 3600.0)  # however slow the machine is
    far = open_place(proxy.url(place.url), series=3)
    far.store.has_changed()
    proxy.refuse()
    proxy.reset()
    until(far.store.has_changed, "the broken connection is noticed")
    proxy.heal()  # and again is not yet: who tried would say that it may have missed one
    for _ in range(100):
        assert not far.store.has_changed()


def test_a_listener_that_cannot_be_had_costs_nothing_but_hints(eager, place, proxy, open_place):
    far = open_place(proxy.url(place.url), series=3)
    worker = far.hire()
    proxy.refuse()  # those who are connected stay
    assert not far.store.has_changed()
    place.put()
    assert not far.store.has_changed()
    assert len(far.take(worker)) == 1


def test_a_server_without_a_connection_to_spare_costs_nothing_but_hints():
    with Server(settings={"max_connections": 8}, in_memory=True) as own:
        place = Place(own.create_database(), size_max=1)
        worker = place.hire()
        held = []
        try:
            while True:
                held.append(psycopg.connect(own.url()))
        except psycopg.OperationalError:
            pass
        place.put()
        assert not place.store.has_changed()
        assert len(place.take(worker)) == 1
        for one in held:
            one.close()
        place.close()


def test_an_enqueue_does_not_wait_for_a_notification(place, proxy, open_place):
    """The notification is stuck until we let it go; enqueues go on before."""
    far = open_place(proxy.url(place.url), series=3)
    far.put()
    trap = proxy.hold(b"NOTIFY perdure")
    far.put()
    assert trap.sprung.wait(30)
    for _ in range(10):
        far.put()
    trap.released.set()


def test_a_notification_that_fails_hurts_nobody(place, proxy, open_place, ears):
    far = open_place(proxy.url(place.url), series=3)
    trap = proxy.lose_reply(b"NOTIFY perdure")
    far.put()
    assert trap.sprung.wait(30)
    until(ears.store.has_changed, "the hint, whose sender never knew")
    far.put()
    until(ears.store.has_changed, "the next hint", within_s=HINT_S_MAX)


def test_one_connection_is_for_listening_and_is_closed_with_the_store(place, postgres):
    near = Place(place.url, series=4)
    before = len(sessions(postgres, place.url))
    near.store.has_changed()
    near.store.has_changed()
    assert len(sessions(postgres, place.url)) == before + 1
    near.close()
    until(lambda: len(sessions(postgres, place.url)) == 1, "all of it is closed")


def test_whoever_learns_that_a_pooler_stands_between_stops_listening(place, ears):
    """A connection with something to read, that nobody reads any more, would never let anybody rest."""
    assert ears.store.wake_fd() is not None
    ears.store._notify_listener._connection.pooled = True
    with psycopg.connect(place.url, autocommit=True) as cx:
        cx.execute("NOTIFY perdure")
    assert ears.store.wake_fd() is None
    assert not ears.store.has_changed()
    assert ears.store._notify_listener._listening is None
