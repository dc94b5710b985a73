"""What only SQLite's own tables show: numbers without gaps, rows that no view has, and marks of writes."""

import pytest

from perdure.model.errors import StoreError
from perdure.model.jobs import Stale
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.stores.sqlite.connection import SqliteConnection
from tests.stores.kit import ENDINGS, Place, advance, crash, file_in, retry, success

EXITED = Death("exited", exit_status=0)


@pytest.fixture
def claim(place, worker):
    """One job in the hands of the worker."""
    place.put()
    return place.take(worker)[0]


# -- numbers -----------------------------------------------------------------------------


def test_taken_keys_leave_no_gap_in_the_numbers(place):
    place.put(key="k")
    place.store.enqueue([place.new(key="k"), place.new(key="j"), place.new(key="k")])
    place.put(key="k")
    assert place.put().no == 3
    place.put(key="j")
    place.clean()


def test_a_refused_batch_leaves_no_gap_in_the_numbers(place):
    before = place.everything()
    with pytest.raises(StoreError):
        place.store.enqueue([place.new(), place.new(payload_json=None), place.new()])
    assert place.everything() == before
    assert place.put().no == 1
    place.clean()


# -- nothing is written ------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDINGS)
@pytest.mark.parametrize("off_by", [-1, 1, 1000])
def test_a_record_with_another_token_leaves_every_row_as_it_was(place, worker, claim, end, off_by):
    before = place.everything()
    stale = replace(end(claim, worker), token=claim.token + off_by)
    assert place.settle(stale, by=worker) == (Stale(claim.no, claim.id, stale.token),)
    assert place.everything() == before


def test_a_stale_advance_leaves_every_row_as_it_was(place, worker, claim):
    before = place.everything()
    stale = replace(advance(claim, worker, place.lanes["two"], reclaim=True), token=claim.token + 1)
    assert place.settle(stale, by=worker) == (Stale(claim.no, claim.id, stale.token),)
    assert place.everything() == before


@pytest.mark.parametrize("end", ENDINGS)
def test_a_record_that_is_sent_again_leaves_every_row_as_it_was(place, worker, claim, end):
    record = end(claim, worker)
    place.settle(record, by=worker)
    before = place.everything()
    place.clock.push(60)
    place.settle(record, by=worker)
    assert place.everything() == before


def test_without_the_guard_a_late_writer_would_be_caught_by_the_audit(place, worker, claim):
    """The broken twin: the same late word, let in by hand."""
    place.settle(success(claim, worker), by=worker)
    place.damage("UPDATE perdure_jobs SET state = 'failed', failed_reason = 'fatal'")
    assert "failure_without_attempt" in {finding.check for finding in place.reader.audit()}


def test_a_sweep_with_nothing_to_do_writes_nothing(file_place):
    judge = file_place.hire()
    watching = SqliteConnection(file_place.path, file_place.clock)
    before = watching.write_mark()
    file_place.store.mark_dead(by=judge)
    assert file_place.store.lost_claims(limit=10) == []
    assert watching.write_mark() == before
    watching.close()


# -- workers that are done with ----------------------------------------------------------


def test_a_dead_worker_is_done_with_when_all_it_held_is_settled(place):
    judge, dead = place.hire(), place.hire()
    place.put_many(2)
    first, second = place.take(dead, 2)
    place.store.end_worker(dead, EXITED)
    settled_at = "SELECT settled_at IS NOT NULL FROM perdure_workers WHERE no = ?"
    for claim in (first, second):
        place.store.mark_dead(by=judge)
        assert place.rows(settled_at, dead) == [(0,)]
        place.settle(crash(claim, dead), by=judge)
    place.store.mark_dead(by=judge)
    assert place.rows(settled_at, dead) == [(1,)]
    place.clean()


def test_a_worker_that_held_nothing_is_done_with_at_once(place):
    judge, dead = place.hire(), place.hire()
    place.store.end_worker(dead, EXITED)
    place.store.mark_dead(by=judge)
    assert place.rows("SELECT no FROM perdure_workers WHERE settled_at IS NOT NULL") == [(dead,)]


# -- the file ----------------------------------------------------------------------------


def test_everything_survives_that_the_file_is_closed_and_opened_again(tmp_path):
    place = Place(file_in(tmp_path))
    worker = place.hire()
    place.put(key="k", owner="ann", priority=2, deadline_s=50, run=place.begin_run().no)
    (claim,) = place.take(worker)
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    (second,) = place.take(worker)
    place.settle(retry(second, worker), by=worker)
    seen, rows = place.see(claim.id), place.everything()
    place.close()
    again = Place(file_in(tmp_path), clock=place.clock)
    assert again.see(claim.id) == seen
    assert again.everything() == rows
    again.clean()
    again.close()
