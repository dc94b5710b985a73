"""The server crashes and comes back: calls fail clearly, nothing is lost, and work flows at once."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from perdure.model.errors import StoreUnavailable
from perdure.model.jobs import Claim, NewJob, Receipt
from tests.servers.postgres import Server
from tests.stores.kit import success
from tests.stores.postgres.kit import Place, at_once, terminate, until


@pytest.fixture(scope="module")
def own():
    """A server on disk that a test may crash."""
    with Server() as server:
        yield server


@pytest.fixture
def place(own, open_place) -> Place:
    return open_place(own.create_database(), wait_s_max=5.0)


def test_reads_enqueues_and_turns_go_on_at_the_first_call_after_a_crash(own, place):
    worker = place.hire()
    first = place.put_many(5)
    held = place.take(worker, 2)
    own.stop("immediate")
    calls: list[Callable[[], object]] = [
        place.reader.books,
        place.put,
        lambda: place.take(worker),
        lambda: place.store.beat([worker]),
        lambda: place.settle(success(held[0], worker), by=worker),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()
    own.start()
    assert place.reader.books().accepted == 5
    new = place.put()
    (claim,) = place.take(worker)
    (receipt,) = place.settle(success(claim, worker), by=worker)
    assert isinstance(receipt, Receipt)
    assert claim.id in {one.id for one in first}
    assert place.see(new.id).state == "queued"
    assert place.store.beat([worker]) == {worker}
    place.clean()


def test_all_threads_are_back_at_their_first_call(own, place):
    """Connections that lay idle through the crash do not cost a failure each."""
    at_once([place.put] * 8)
    own.restart("immediate")
    at_once([place.put] * 8)
    assert place.reader.books().accepted == 16


def test_what_was_acknowledged_before_a_crash_is_there_after_it(own, place):
    """Two clients enqueue and a worker works while the server crashes twice."""
    crashes, done = 2, threading.Event()
    acknowledged: list[list[str]] = [[], []]
    settled: dict[str, Claim] = {}
    worker = place.hire(ttl_s=600)

    def again(call: Callable[[], object]) -> object:
        """As the engine does: the same call, until it is answered."""
        while True:
            try:
                return call()
            except StoreUnavailable:
                threading.Event().wait(0.02)

    def client(number: int) -> None:
        mine = Place(place.url, series=number + 1)
        while not done.is_set():
            job: NewJob = mine.new()
            (answer,) = again(partial(mine.store.enqueue, [job]))
            assert answer.id == job.id
            assert answer.created
            acknowledged[number].append(job.id)
        mine.close()

    def work() -> None:
        records: list = []
        while True:
            turn = again(partial(place.turn, records, worker, 20))
            for one in turn.settled:
                assert isinstance(one, Receipt), one
                settled[one.id] = one
            held = again(lambda: place.store.claims_held(worker))
            records = [success(claim, worker) for claim in held]
            if done.is_set() and not held and not turn.claims:
                return

    def nemesis() -> None:
        for _ in range(crashes):
            until(partial(grown, len(acknowledged[0]) + 50), "work flows")
            own.restart("immediate")
        until(partial(grown, len(acknowledged[0]) + 50), "work flows again")
        done.set()

    def grown(count: int) -> bool:
        return len(acknowledged[0]) > count

    at_once([lambda: client(0), lambda: client(1), work, nemesis])
    everything = {*acknowledged[0], *acknowledged[1]}
    assert len(everything) == len(acknowledged[0]) + len(acknowledged[1])
    while left := place.take(worker, 100):
        for one in place.settle(*(success(claim, worker) for claim in left), by=worker):
            settled[one.id] = one
    assert set(settled) == everything
    assert place.reader.books().succeeded == len(everything)
    place.clean()


def test_sessions_that_an_operator_ends_cost_nobody_an_error_while_they_lie_idle(own, place):
    worker = place.hire()
    for _ in range(5):
        assert terminate(own, place.url) >= 1
        place.put()
        assert terminate(own, place.url) >= 1
        (claim,) = place.take(worker)
        assert terminate(own, place.url) >= 1
        place.settle(success(claim, worker), by=worker)
    assert place.reader.books().succeeded == 5
    place.clean()
