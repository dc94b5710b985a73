"""The lease: beaten every third, at once when asked, and never silent by accident."""

import pytest

from perdure.engine.supervise.lease import Lease
from perdure.model.errors import StoreUnavailable
from perdure.model.outcomes import Death
from tests.engine.kit import Unreliable
from tests.stores.kit import TTL_S


@pytest.fixture
def worker(place):
    return place.hire()


@pytest.fixture
def store(place):
    return Unreliable(place.store)


@pytest.fixture
def lease(place, store):
    return Lease(store, place.clock, ttl_s=TTL_S)


def beat_at(place, worker):
    (seen,) = [one for one in place.reader.workers() if one.no == worker]
    return seen.beat_at


def test_a_beat_is_sent_every_third_of_the_lease(place, lease, worker):
    beats = set()
    for _ in range(30):
        assert lease.once([worker]) == frozenset()
        beats.add(beat_at(place, worker))
        place.clock.push(0.5)
    assert len(beats) == 3
    gaps = [(b - a).total_seconds() for a, b in zip(sorted(beats), sorted(beats)[1:], strict=False)]
    assert gaps == [TTL_S / 3] * 2


def test_a_refused_worker_is_named(place, lease, worker):
    other = place.hire()
    place.store.end_worker(worker, Death("silent"))
    assert lease.once([worker, other]) == {worker}


def test_a_beat_that_cannot_be_sent_is_tried_again_soon_and_counts_as_silence(
    place, lease, store, worker
):
    lease.once([worker])
    place.clock.push(TTL_S / 3)
    store.away = True
    with pytest.raises(StoreUnavailable):
        lease.once([worker])
    assert lease.once([worker]) == frozenset()  # not yet again
    place.clock.push(0.25)
    with pytest.raises(StoreUnavailable):
        lease.once([worker])
    assert lease.silent_s == pytest.approx(TTL_S / 3 + 0.25)
    store.away = False
    place.clock.push(0.25)
    lease.once([worker])
    assert lease.silent_s == 0.0
    assert beat_at(place, worker) == place.clock.now()


def test_a_beat_can_be_asked_for_at_once(place, lease, worker):
    lease.once([worker])
    place.clock.push(0.1)
    lease.once([worker])
    assert beat_at(place, worker) != place.clock.now()
    lease.once([worker], at_once=True)
    assert beat_at(place, worker) == place.clock.now()


def test_with_nobody_to_beat_for_there_is_no_silence(place, lease, store):
    store.away = True
    place.clock.push(100)
    assert lease.once([]) == frozenset()
    assert lease.silent_s == 0.0


def test_beating_for_nobody_shows_whether_the_store_can_be_written(place, lease, store):
    assert lease.once([], for_nobody=True) == frozenset()
    place.clock.push(TTL_S / 3)
    store.away = True
    with pytest.raises(StoreUnavailable):
        lease.once([], for_nobody=True)
    place.clock.push(1)
    assert lease.silent_s == pytest.approx(TTL_S / 3 + 1)
