"""Which records take the short way: those of which nothing but a result and a bare attempt is to be kept."""

import pytest

from perdure.model.jobs import Capture, Claim, Counters
from perdure.model.nouns import replace
from perdure.stores.columns import COUNTED
from perdure.stores.plain_success import is_plain
from perdure.testing.store_contract.shortcuts import by_the_long_way
from tests.stores.kit import MEMORY, Place, success

CAPTURE = Capture("00000000-0000-7000-8000-00000000000a", "raw", "text/plain", b"{", 1, None)

MORE_OF_THE_RECORD = {
    "captures": {"captures": (CAPTURE,)},
    "a code": {"error_code": "bad_gateway"},
    "a detail": {"error_detail": "502 from upstream"},
    "a fingerprint": {"fingerprint": "f"},
    "a kind": {"error_kind": "network"},
    **{f"{one} before": {"counters": Counters(starts=2, **{one: 1})} for one in COUNTED},
}
MORE_OF_THE_ATTEMPT = {
    "a code": {"code": "ok"},
    "tokens in": {"tokens_in": 1},
    "tokens out": {"tokens_out": 1},
    "a cost": {"cost_nusd": 1},
}


@pytest.fixture
def place():
    place = Place(MEMORY)
    yield place
    place.close()


@pytest.fixture
def worker(place):
    return place.hire()


@pytest.fixture
def claim(place, worker) -> Claim:
    place.put()
    return place.take(worker, 1)[0]


def test_a_first_success_is_plain_with_a_label_or_without(claim, worker):
    record = success(claim, worker)
    assert is_plain(record, worker)
    assert is_plain(replace(record, label="passed"), worker)


@pytest.mark.parametrize("more", MORE_OF_THE_RECORD.values(), ids=MORE_OF_THE_RECORD)
def test_a_record_with_more_to_keep_is_not_plain(claim, worker, more):
    assert not is_plain(replace(success(claim, worker), **more), worker)


@pytest.mark.parametrize("more", MORE_OF_THE_ATTEMPT.values(), ids=MORE_OF_THE_ATTEMPT)
def test_an_attempt_with_more_to_keep_is_not_plain_and_all_of_it_is_kept(
    place, claim, worker, more
):
    record = success(claim, worker)
    richer = replace(record, attempt=replace(record.attempt, **more))
    assert not is_plain(richer, worker)
    place.settle(richer, by=worker)
    (seen,) = place.reader.attempts(claim.no)
    assert {name: getattr(seen, name) for name in more} == more


def test_a_success_clears_what_an_earlier_failure_left(place, claim, worker):
    """Though none should be there at a first attempt: the short way writes as much as the long one."""
    place.damage("UPDATE perdure_jobs SET error_code = 'c', error_detail = 'd', fingerprint = 'f'")
    place.settle(success(claim, worker), by=worker)
    job = place.reader.job(claim.id)
    assert (job.error_code, job.error_detail, job.fingerprint) == (None, None, None)


def test_the_twin_that_the_contract_sends_the_long_way_goes_there(claim, worker):
    record = success(claim, worker)
    assert by_the_long_way(record) == record
    assert not is_plain(by_the_long_way(record), worker)
