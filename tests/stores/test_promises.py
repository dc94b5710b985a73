"""Each promise that the differential checks can be broken, and is then called by its name."""

import pytest

from perdure.model.jobs import Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import Place
from tests.stores.kit import crash, failure, retry
from tests.stores.promises import Promises
from tests.stores.reference import open_model
from tests.stores.sides import Side, dump


@pytest.fixture
def place():
    clock = VirtualClock()
    place = Place(open_model(clock), clock)
    place.worker_no = place.hire()
    place.put_many(3)
    one, two, _ = place.take(place.worker_no, 3)
    place.settle(failure(one, place.worker_no), crash(two, place.worker_no), by=place.worker_no)
    return place


@pytest.fixture
def promises(place):
    promises = Promises(place.clock)
    promises.accepted(job.id for job in place.every_job())
    promises.heard("w", 15.0)
    return promises


def seen(place, **changes):
    """All that can be read, with the oldest job (the failed one) changed."""
    side = Side("model", place)
    everything = dump(side)
    *others, oldest = everything["jobs"]
    return {**everything, "jobs": [*others, replace(oldest, **changes)]}


def test_a_store_that_keeps_its_promises_passes(place, promises):
    promises.check(seen(place))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "another"}, "S1"),
        ({"state": State.QUEUED, "failed_reason": None}, "S2"),
        ({"life": 2}, "S2"),
        ({"token": 1}, "S3"),
    ],
)
def test_a_job_that_is_not_what_its_attempts_say_is_named(place, promises, changes, named):
    everything = seen(place, **changes)
    if "id" in changes:
        everything["attempts"]["another"] = []
    with pytest.raises(AssertionError, match=named):
        promises.check(everything)


@pytest.mark.parametrize("counter", ["starts", "failures", "crashes", "snoozes", "releases"])
def test_a_counter_that_its_attempts_do_not_show_is_named(place, promises, counter):
    (job,) = [one for one in seen(place)["jobs"] if one.state is State.FAILED]
    counters = replace(job.counters, **{counter: 7})
    with pytest.raises(AssertionError, match="S7"):
        promises.check(seen(place, counters=counters))


def test_a_job_that_is_gone_is_missed_unless_it_was_pruned(place, promises):
    everything = seen(place)
    fewer = {**everything, "jobs": everything["jobs"][1:]}
    with pytest.raises(AssertionError, match="S1"):
        promises.check(fewer)
    books = replace(everything["books"], pruned=1, queued=everything["books"].queued - 1)
    promises.check({**fewer, "books": books})


def test_books_that_do_not_balance_are_named(place, promises):
    everything = seen(place)
    with pytest.raises(AssertionError, match="S15"):
        promises.check({**everything, "books": replace(everything["books"], succeeded=9)})


def test_who_was_declared_dead_is_not_heard(promises):
    promises.died("w")
    with pytest.raises(AssertionError, match="S4"):
        promises.heard("w")


def test_nobody_is_declared_silent_within_his_lease(place, promises):
    place.clock.push(15)
    with pytest.raises(AssertionError, match="S6"):
        promises.died("w", silent=True)
    place.clock.push(0.000001)
    promises.died("w", silent=True)


def test_nothing_begins_before_its_time(place, promises):
    (claim,) = place.store.claims_held(place.worker_no)
    promises.claimed(claim)
    place.settle(retry(claim, place.worker_no), by=place.worker_no)
    with pytest.raises(AssertionError, match="S9"):
        promises.claimed(replace(claim, due_at=place.see(claim.id).due_at))


def test_what_is_written_shows_the_token_of_that_instant_and_once(promises):
    receipt = Receipt(1, "a", 3, State.SUCCEEDED, None)
    promises.settled([replace(receipt, repeated=True), Stale(1, "a", 1)], {"a": 9})
    with pytest.raises(AssertionError, match="S3"):
        promises.settled([receipt], {"a": 4})
    promises.settled([receipt], {"a": 3})
    with pytest.raises(AssertionError, match="S3"):
        promises.settled([receipt], {"a": 3})
