"""The reference model: what fails leaves nothing behind, and a connection sees what another has written."""

import pytest

from perdure.model.errors import CallerError, StoreError
from perdure.model.jobs import RecordRefused
from perdure.model.nouns import replace
from perdure.ports import Control, Reader, Store
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import advance, retry
from perdure.testing.store_contract.fresh_store import Place
from tests.stores.reference import open_model


@pytest.fixture
def place():
    clock = VirtualClock()
    model = open_model(clock)
    place = Place(model, clock)
    place.model = model
    return place


def test_the_model_has_every_side_of_a_store(place):
    for side, port in ((place.store, Store), (place.control, Control), (place.reader, Reader)):
        missing = [
            name for name in vars(port) if not name.startswith("_") and not hasattr(side, name)
        ]
        assert missing == []


def test_an_operation_that_fails_has_not_happened(place):
    before = place.everything()
    with pytest.raises(StoreError):
        place.store.enqueue([place.new(), place.new(owner=5)])
    assert place.everything() == before


def test_a_record_that_is_refused_half_way_leaves_nothing(place):
    """The job's row is written before its attempt turns out to be unwritable."""
    worker = place.hire()
    place.put()
    (claim,) = place.take(worker)
    before = place.everything()
    record = retry(claim, worker)
    bad = replace(record, attempt=replace(record.attempt, message="half \ud800"))
    (answer,) = place.settle(bad, by=worker)
    assert isinstance(answer, RecordRefused)
    assert place.everything() == before


def test_a_store_notices_what_others_write_and_not_what_it_writes_itself(place):
    other = place.model.again()
    for store in (place.store, other.store):
        assert store.has_changed()
        assert not store.has_changed()
    place.put()
    assert other.store.has_changed()
    assert not other.store.has_changed()
    assert not place.store.has_changed()


def test_there_is_no_transaction_to_join(place):
    with pytest.raises(CallerError, match="no database"):
        place.store.enqueue([place.new()], within=object())


def test_a_job_whose_input_is_gone_is_claimed_as_damaged(place):
    worker = place.hire()
    place.put()
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    place.model.tables.checkpoints.clear()
    (after,) = place.take(worker)
    assert after.damage == "the result of the stage before is gone"
    assert after.input_json == "null"
