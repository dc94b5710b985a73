"""The store's clock decides: on a server, no worker's own clock is ever compared with a stored moment."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.stores.opening import Opened, open_store
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place
from tests.stores.kit import retry

AHEAD = datetime(2050, 1, 1, tzinfo=UTC)
BEHIND = datetime(2000, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def two_workers(database):
    """Two connections to one server, of machines whose clocks are half a century apart."""
    opened: list[Opened] = []

    def make(*, trusting: bool) -> list[Place]:
        places = []
        for series, start in enumerate((AHEAD, BEHIND)):
            clock = VirtualClock(start)
            one = open_store(database, clock, create=True, wait_s_max=10.0, injected=trusting)
            opened.append(one)
            places.append(Place(one, clock, series=series))
        return places

    yield make
    for one in opened:
        one.close()


def moments_are_the_servers(places: list[Place], postgres) -> None:
    for place in places:
        before = server_time(postgres)
        worker = place.hire(ttl_s=60.0)
        job = place.see(place.put(deadline_s=60.0).id)
        assert before <= job.enqueued_at <= server_time(postgres)
        assert job.deadline_at - job.enqueued_at == MINUTE
        (claim,) = place.take(worker)
        assert before <= claim.claimed_at <= server_time(postgres)
        (receipt,) = place.settle(retry(claim, worker, delay_s=3600.0), by=worker)
        assert before <= receipt.due_at - timedelta(hours=1) <= server_time(postgres)
        assert place.take(worker) == []
        assert before <= place.worker(worker).beat_at <= server_time(postgres)


def nobody_is_buried_alive(places: list[Place]) -> None:
    ahead, behind = places
    judge, alive = ahead.hire(ttl_s=60.0), behind.hire(ttl_s=60.0)
    for place in places:
        place.store.beat([judge, alive])
    assert ahead.store.mark_dead(by=judge) == ()
    assert behind.store.mark_dead(by=alive) == ()
    for one in (judge, alive):
        assert ahead.worker(one).steady_at == ahead.worker(one).started_at


def test_every_moment_is_the_servers_whatever_a_worker_thinks(two_workers, postgres):
    moments_are_the_servers(two_workers(trusting=False), postgres)


def test_a_worker_whose_clock_is_wrong_buries_nobody(two_workers):
    nobody_is_buried_alive(two_workers(trusting=False))


def test_a_store_that_trusted_its_workers_clocks_would_be_caught(two_workers, postgres):
    """The broken twins: the same, where each worker's own clock is taken for the store's."""
    places = two_workers(trusting=True)
    with pytest.raises(AssertionError):
        moments_are_the_servers(places, postgres)
    with pytest.raises(AssertionError):
        nobody_is_buried_alive(places)


def server_time(postgres) -> datetime:
    with postgres.admin() as cx:
        ((now,),) = cx.execute("SELECT clock_timestamp()").fetchall()
    return now
