"""Somebody holds a row or a table for a minute: who needs it is told in time, everybody else goes on."""

from functools import partial

import pytest

from perdure.model.errors import StoreBusy
from perdure.model.jobs import Receipt
from perdure.model.outcomes import Death
from tests.stores.kit import crash, success
from tests.stores.postgres.kit import Place, at_once, other, with_options

BOUND_S = 0.4


@pytest.fixture
def place(furnished, open_place) -> Place:
    """A store that waits for a lock for less than half a second, instead of five."""
    return open_place(with_options(furnished, lock_timeout=f"{int(BOUND_S * 1000)}ms"))


def busy(call) -> None:
    """The call must fail as busy while the others are still in the way."""
    with pytest.raises(StoreBusy, match="others were in the way; try again"):
        call()


def test_a_record_of_a_row_that_is_held_is_refused_in_time_and_accepted_later(place, worker):
    place.put()
    (claim,) = place.take(worker)
    record = success(claim, worker)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claim.no,))
        busy(partial(place.settle, record, by=worker))
    (receipt,) = place.settle(record, by=worker)
    assert isinstance(receipt, Receipt)
    assert not receipt.repeated
    place.clean()


def test_other_jobs_go_on_while_one_row_is_held(place, worker):
    """They are claimed, settled, enqueued and looked at; the held one keeps its place.

    Who waited for it would be refused as busy.
    """
    jobs = place.put_many(20)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (jobs[0].no,))
        done = 0
        while claims := place.take(worker, 5):
            answers = place.settle(*(success(one, worker) for one in claims), by=worker)
            done += sum(isinstance(one, Receipt) for one in answers)
        place.put()
        assert len(place.take(worker, 5)) == 1
        assert place.store.beat([worker]) == {worker}
        assert place.reader.books().accepted == 21
    assert done == 19
    assert place.taken_ids(worker, 5) == [jobs[0].id]


def test_a_claim_that_finds_nothing_locks_nothing_and_one_that_does_holds_its_worker(place, worker):
    """A lock on a row is a write, and its commit waits for the disk; idle workers are told of every job."""

    def lockers() -> str:
        with other(place.url) as cx:
            ((last,),) = cx.execute("SELECT xmax::text FROM perdure_workers").fetchall()
        return str(last)

    for _ in range(3):
        assert place.take(worker) == []
    assert lockers() == "0"
    place.put()
    assert len(place.take(worker)) == 1
    assert lockers() != "0"


def test_neighbours_in_the_same_batch_are_settled_while_one_row_is_held(place, worker):
    """One row that is held by another may cost its own record a wait, not everybody's."""
    place.put_many(10)
    claims = place.take(worker, 10)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claims[4].no,))
        with pytest.raises(StoreBusy):
            place.settle(*(success(one, worker) for one in claims), by=worker)
        others = [one for one in claims if one is not claims[4]]
        answers = place.settle(*(success(one, worker) for one in others), by=worker)
        assert all(isinstance(one, Receipt) for one in answers)
    answers = place.settle(*(success(one, worker) for one in claims), by=worker)
    assert [one.repeated for one in answers] == [one is not claims[4] for one in claims]
    place.clean()


def test_a_sweeper_that_meets_a_held_row_comes_back_in_time(place, worker):
    silent = place.hire()
    place.put_many(2)
    claims = place.take(silent, 2)
    place.store.end_worker(silent, Death("exited", 9))
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claims[0].no,))
        lost = place.store.lost_claims(limit=5)
        assert len(lost) == 2
        busy(partial(place.settle, *(crash(one.claim, silent) for one in lost), by=worker))
        place.settle(crash(lost[1].claim, silent), by=worker)
        place.store.mark_dead(by=worker)
    assert [one.claim.no for one in place.store.lost_claims(limit=5)] == [claims[0].no]
    place.clean()


@pytest.mark.parametrize(
    "table", ["perdure_jobs", "perdure_workers", "perdure_attempts", "perdure_lanes"]
)
def test_a_table_that_is_held_makes_everybody_wait_no_longer_than_the_bound(place, worker, table):
    place.put_many(3)
    (claim,) = place.take(worker)
    record = success(claim, worker)
    with other(place.url) as cx:
        cx.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        busy(partial(place.turn, [record], worker, 2))
    turn = place.turn([record], worker, 2)
    assert isinstance(turn.settled[0], Receipt)
    assert len(turn.claims) == 2
    place.clean()


def test_all_calls_are_bounded_while_the_tables_are_held(place, worker):
    with other(place.url) as cx:
        cx.execute(
            "LOCK TABLE perdure_jobs, perdure_workers, perdure_flows IN ACCESS EXCLUSIVE MODE"
        )
        calls = [
            place.put,
            place.hire,
            partial(place.take, worker),
            partial(place.store.beat, [worker]),
            partial(place.store.mark_dead, by=worker),
            partial(place.store.lost_claims, limit=5),
            partial(place.store.tokens_held, worker),
            place.reader.books,
            place.store.suspects,
        ]
        at_once([partial(busy, call) for call in calls[:8]])
        busy(calls[8])
    place.put()
    place.clean()


def test_a_statement_that_takes_too_long_costs_its_turn_and_not_the_next(furnished, open_place):
    """Such as a claim while the server has other things to do; the pump then records alone."""
    place = open_place(with_options(furnished, statement_timeout="300ms", lock_timeout=0))
    worker = place.hire()
    place.put_many(2)
    (claim,) = place.take(worker)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claim.no,))
        with pytest.raises(StoreBusy, match="statement timeout"):
            place.turn([success(claim, worker)], worker, 1)
        assert len(place.take(worker)) == 1
    (receipt,) = place.settle(success(claim, worker), by=worker)
    assert isinstance(receipt, Receipt)
    place.clean()


def test_nothing_of_a_turn_that_failed_has_happened(place, worker):
    """Neither the records before the one that is held, nor the claims after it."""
    place.put_many(4)
    claims = place.take(worker, 2)
    with other(place.url) as cx:
        cx.execute("SELECT 1 FROM perdure_jobs WHERE no = %s FOR UPDATE", (claims[1].no,))
        before = place.everything()
        busy(partial(place.turn, [success(one, worker) for one in claims], worker, 2))
        assert place.everything() == before


def test_an_operators_ddl_that_waits_does_not_stop_workers_for_long(place, worker):
    """An ALTER TABLE that waits for a report stops whoever comes after it: no longer than the bound."""
    place.put_many(3)
    with other(place.url) as report, other(place.url, autocommit=True) as operator:
        report.execute("SELECT 1 FROM perdure_jobs")
        operator.execute("SET lock_timeout = '1200ms'")

        def alter() -> str:
            try:
                operator.execute("ALTER TABLE perdure_jobs ADD COLUMN colour text")
            except Exception as error:
                return type(error).__name__
            return "done"

        def work() -> int:
            tries = 0
            while True:
                tries += 1
                try:
                    return len(place.take(worker, 3)) and tries
                except StoreBusy:
                    continue

        altered, tries = at_once([alter, work])
    assert altered == "LockNotAvailable"
    assert 1 <= tries <= 6
