"""Tallies on PostgreSQL: no row is written by two transactions, however long one stays open."""

from functools import partial

import psycopg
import pytest

from perdure.model.jobs import IfFailed, Receipt
from perdure.model.limits import FINGERPRINT_KEPT_S
from perdure.model.states import State
from perdure.stores.postgres import record
from perdure.testing.store_contract.attempt_ends import failing, success
from tests.stores.postgres.kit import Place, alter, at_once

OWN = "SELECT count(*) FROM perdure_{table} WHERE writer < -4294967296"
TABLES = ("depths", "flows", "owners")


@pytest.fixture
def borrowed(place):
    with psycopg.connect(place.url) as cx:
        yield cx


def test_a_borrowed_transaction_counts_in_rows_of_its_own(place, borrowed):
    place.put(owner="ann")
    place.store.enqueue([place.new(owner="ann")], within=borrowed)
    for table in TABLES:
        assert borrowed.execute(OWN.format(table=table).encode()).fetchone() == (1,), table
    place.put(owner="ann")
    assert place.reader.open_jobs("ann") == 2
    borrowed.commit()
    assert place.reader.open_jobs("ann") == 3
    place.clean()


def test_adding_up_waits_for_no_open_transaction_and_takes_in_its_rows_later(place, borrowed):
    place.store.enqueue([place.new(owner="ann")], within=borrowed)
    place.put_many(2, owner="ann")
    place.control.prune_workers(86_400.0, limit=10)
    assert (place.standing("ready"), place.reader.open_jobs("ann")) == (2, 2)
    borrowed.commit()
    assert (place.standing("ready"), place.reader.open_jobs("ann")) == (3, 3)
    place.control.prune_workers(86_400.0, limit=10)
    for table in TABLES:
        assert place.rows(f"SELECT count(*) FROM perdure_{table} WHERE writer <> 0") == [(0,)]
    assert (place.standing("ready"), place.reader.open_jobs("ann")) == (3, 3)
    place.clean()


def test_successes_are_taken_off_their_owners_once_while_several_add_up(place, open_place):
    """A batch writes the owners of its successes into one row; whoever adds up takes it away."""

    def lives(one: Place) -> None:
        worker = one.hire()
        for _ in range(5):
            one.put_many(3, owner="ann")
            one.settle(*(success(claim, worker) for claim in one.take(worker, 3)), by=worker)
            one.control.prune_workers(86_400.0, limit=10)

    at_once([partial(lives, open_place(place.url, series=n)) for n in range(1, 5)])
    left = place.standing("ready")
    assert place.reader.open_jobs("ann") == left
    place.control.prune_workers(86_400.0, limit=10)
    assert place.rows("SELECT count(*) FROM perdure_owners_ended") == [(0,)]
    assert place.reader.open_jobs("ann") == left
    place.clean()


def lines_left(place: Place, worker: int, batches: int) -> int:
    """How many lines with owners of successes there were at most while so many batches ended, and nobody did the upkeep."""
    most = 0
    for _ in range(batches):
        place.put_many(2, owner="ann")
        place.settle(*(success(claim, worker) for claim in place.take(worker, 2)), by=worker)
        ((lines,),) = place.rows("SELECT count(*) FROM perdure_owners_ended")
        most = max(most, lines)
    return most


def test_a_process_adds_up_the_owners_of_its_successes_before_they_are_many(place, monkeypatch):
    monkeypatch.setattr(record, "OWNER_LINES", 4)
    worker = place.hire()
    assert lines_left(place, worker, batches=9) == 3
    place.put(owner="ann")
    assert place.reader.open_jobs("ann") == 1
    place.clean()


def test_a_process_that_only_the_upkeep_helps_would_be_noticed(place, monkeypatch):
    monkeypatch.setattr(record, "OWNER_LINES", 10**6)
    assert lines_left(place, place.hire(), batches=9) == 9


def test_a_turn_stands_though_owners_cannot_be_added_up_after_it(place, monkeypatch):
    monkeypatch.setattr(record, "OWNER_LINES", 1)
    job, worker = place.put(owner="ann"), place.hire()
    (claim,) = place.take(worker)
    alter(place.url, "ALTER TABLE perdure_owners RENAME TO perdure_owners_away")
    (receipt,) = place.settle(success(claim, worker), by=worker)
    assert isinstance(receipt, Receipt)
    alter(place.url, "ALTER TABLE perdure_owners_away RENAME TO perdure_owners")
    assert place.see(job.id).state is State.SUCCEEDED
    assert place.reader.open_jobs("ann") == 0
    place.clean()


def test_what_is_rolled_back_was_never_counted(place, borrowed):
    place.store.enqueue([place.new(owner="ann")], within=borrowed)
    borrowed.rollback()
    assert (place.standing("ready"), place.reader.open_jobs("ann")) == (0, 0)
    place.clean()


def test_a_new_life_in_a_borrowed_transaction_counts_in_rows_of_its_own(place, borrowed):
    worker = place.hire()
    job = place.dead_letter(worker, owner="ann", key="k")
    again = place.new(owner="ann", key="k", if_failed=IfFailed.RETRY)
    (found,) = place.store.enqueue([again], within=borrowed)
    assert (found.id, found.revived) == (job.id, True)
    for table in (*TABLES, "deaths"):
        (own,) = borrowed.execute(OWN.format(table=table).encode()).fetchone()
        assert own > 0, table
    borrowed.commit()
    assert place.reader.open_jobs("ann") == 1
    place.clean()


def test_what_somebody_writes_at_this_moment_keeps_the_first_time_of_its_letters(clocked):
    """A letter of long ago, one that died since, and the new life of that one: added up without the death, they are none."""
    worker = clocked.hire()
    old = clocked.dead_letter(worker, end=failing_of_f)
    fold(clocked)
    clocked.clock.push(FINGERPRINT_KEPT_S + 60)
    young = clocked.dead_letter(worker, end=failing_of_f)
    clocked.rows("UPDATE perdure_deaths SET writer = -7 WHERE writer <> 0 RETURNING 1")  # another's
    clocked.revive(young)
    with psycopg.connect(clocked.url) as another:
        another.execute("SELECT 1 FROM perdure_deaths WHERE writer = -7 FOR UPDATE")
        for _ in range(2):
            fold(clocked)
            clocked.clean()
    fold(clocked)
    (group,) = clocked.reader.dead_groups()
    assert (group.count, group.first_at) == (1, clocked.see(old.id).finished_at)
    clocked.clean()


def failing_of_f(claim, worker):
    return failing(claim, worker, fingerprint="f")


def fold(place: Place) -> None:
    place.control.prune_workers(10 * FINGERPRINT_KEPT_S, limit=10)
