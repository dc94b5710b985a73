"""A stage's own transaction holds its job's row, and nothing else of ours: nobody waits for it, and its worker may die."""

from random import Random

import pytest

from perdure.engine.observe import Observers
from perdure.engine.operate.bulks import Bulks
from perdure.engine.operate.single_jobs import cancel, cancel_records
from perdure.engine.record import cancel_record
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.lost_workers import LostJobs, SilentWorkers
from perdure.engine.upkeep.overrun_attempts import OverrunAttempts
from perdure.model.errors import StoreBusy
from perdure.model.filters import EVERY_JOB
from perdure.model.jobs import Busy, Claim, Receipt, Stale
from perdure.model.operations import BulkStatus, BulkVerb, Retention
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, State
from perdure.stores.postgres.statements import SQL
from perdure.testing import VirtualClock
from perdure.testing.store_contract.fresh_store import uuid_of
from tests.engine.kit import line_on, stage
from tests.stores.kit import DEED, TTL_S, crash, success
from tests.stores.postgres.kit import Place, other, with_options

NOBODY = Observers()
OWN_ROWS = -(2**32)  # below it are those of single transactions


@pytest.fixture
def place(furnished, open_place):
    """A store whose statements fail when they have to wait for a lock."""
    return open_place(with_options(furnished, lock_timeout=1), VirtualClock(), series=9)


@pytest.fixture
def worker(place) -> int:
    return place.hire()


@pytest.fixture
def catalogue(place) -> Catalogue:
    return Catalogue([line_on(place, stage("one"), stage("two"))])


@pytest.fixture
def own(furnished):
    """The stage's connection."""
    with other(furnished) as cx:
        yield cx


def claimed(place: Place, worker: int, **changes: object) -> Claim:
    place.put(**changes)
    (claim,) = place.take(worker)
    return claim


def complete(place: Place, claim: Claim, worker: int, own: object) -> None:
    answer = place.store.complete(success(claim, worker), by=worker, within=own)
    assert isinstance(answer, Receipt)


def test_the_row_of_an_open_transaction_is_busy_and_its_neighbours_are_settled(place, worker, own):
    held, free = claimed(place, worker), claimed(place, worker)
    complete(place, held, worker, own)
    answers = place.store.settle([crash(held, worker), crash(free, worker)], by=None)
    kinds = {one.no: type(one) for one in answers}
    assert kinds == {held.no: Busy, free.no: Receipt}
    own.commit()
    (late,) = place.store.settle([crash(held, worker)], by=None)
    assert isinstance(late, Stale)
    assert place.see(held.id).state is State.SUCCEEDED
    place.clean()


def test_a_turn_of_the_same_worker_goes_on_beside_it(place, worker, own):
    held, free = claimed(place, worker), claimed(place, worker)
    complete(place, held, worker, own)
    place.put()
    turn = place.turn([success(free, worker)], worker, 5)
    assert (len(turn.settled), len(turn.claims)) == (1, 1)
    assert place.store.tokens_held(worker).keys() == {held.no, turn.claims[0].no}
    assert len(place.store.claims_held(worker)) == 2
    assert place.store.beat([worker]) == {worker}
    place.control.prune(Retention(succeeded_s=0.0), limit=100)
    own.commit()
    place.clean()


def test_a_worker_that_is_stopped_before_its_commit_is_declared_dead_and_a_rollback_frees_the_job(
    place, worker, own, catalogue
):
    claim, judge = claimed(place, worker), place.hire()
    complete(place, claim, worker, own)
    place.live([judge], 2 * TTL_S + 1)
    SilentWorkers(place.store, judge, observers=NOBODY).once()
    assert place.worker(worker).dead_at is not None
    lost = LostJobs(place.store, catalogue, judge, chance=Random(1), observers=NOBODY)
    assert lost.once().jobs == 0  # it comes back
    own.rollback()
    assert lost.once().jobs == 1
    assert [one.status for one in place.reader.attempts(claim.no)] == [AttemptStatus.INTERRUPTED]
    place.clean()


def test_a_worker_that_was_declared_dead_before_its_commit_has_completed_its_job(
    place, worker, own, catalogue
):
    claim, judge = claimed(place, worker), place.hire()
    complete(place, claim, worker, own)
    assert place.store.end_worker(worker, Death("exited"))
    lost = LostJobs(place.store, catalogue, judge, chance=Random(1), observers=NOBODY)
    assert lost.once().jobs == 0
    own.commit()
    assert lost.once().jobs == 0
    assert [one.status for one in place.reader.attempts(claim.no)] == [AttemptStatus.SUCCESS]
    place.clean()


def test_who_ends_what_hangs_comes_back(place, worker, own, catalogue):
    claim = claimed(place, worker)
    complete(place, claim, worker, own)
    overruns = OverrunAttempts(
        place.store,
        catalogue,
        place.hire(),
        margin_s=0.0,
        patience_s=0.0,
        clock=place.clock,
        chance=Random(1),
        observers=NOBODY,
    )
    place.clock.push(100_000)
    overruns.once()
    place.clock.push(100)
    assert overruns.once().jobs == 0
    own.rollback()
    place.clock.push(100)
    assert overruns.once().jobs == 1
    assert [one.kind for one in place.reader.attempts(claim.no)] == ["timeout"]
    place.clean()


def test_a_cancel_says_that_the_job_is_busy(place, worker, own, catalogue):
    claim = claimed(place, worker)
    complete(place, claim, worker, own)
    with pytest.raises(StoreBusy, match="being completed in a transaction of its stage's own"):
        cancel(place.control, place.reader, catalogue, claim.id, deed=DEED)
    own.rollback()
    cancel(place.control, place.reader, catalogue, claim.id, deed=DEED)
    assert place.see(claim.id).state is State.CANCELLED
    place.clean()


def test_counts_of_a_run_stand_in_rows_of_the_stages_connection(place, worker, own, furnished):
    run = place.begin_run()
    claims = [claimed(place, worker, run=run.no) for _ in range(3)]
    with other(furnished) as second:
        complete(place, claims[0], worker, own)
        complete(place, claims[1], worker, second)
        assert isinstance(place.settle(success(claims[2], worker), by=worker)[0], Receipt)
        second.commit()
    own.commit()
    rows = place.rows("SELECT writer, succeeded FROM perdure_run_counts WHERE succeeded > 0")
    borrowed = [writer for writer, _ in rows if writer < OWN_ROWS]
    assert len(set(borrowed)) == 2
    assert {writer for writer, _ in rows} == {worker, *borrowed}
    assert place.see_run(run).counts.succeeded == 3
    place.clean()


def is_free(furnished: str, worker: int) -> bool:
    """Whether a worker's row can be locked now."""
    with other(furnished) as cx:
        found = cx.execute("SELECT no FROM perdure_workers FOR UPDATE SKIP LOCKED").fetchall()
    return (worker,) in found


def test_the_row_of_the_worker_is_not_locked(place, worker, own, furnished):
    complete(place, claimed(place, worker), worker, own)
    assert is_free(furnished, worker)
    own.commit()


def test_a_statement_that_locks_the_row_of_the_worker_is_found(
    place, worker, own, furnished, monkeypatch
):
    guard = "AND NOT %(lent)s::boolean"
    assert guard in SQL.record
    monkeypatch.setattr(SQL, "record", SQL.record.replace(guard, ""))
    complete(place, claimed(place, worker), worker, own)
    assert not is_free(furnished, worker)
    own.commit()


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_stage_may_choose_its_isolation(place, worker, furnished, isolation):
    claim = claimed(place, worker)
    with other(furnished) as cx:
        cx.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        complete(place, claim, worker, cx)
        cx.commit()
    assert place.see(claim.id).state is State.SUCCEEDED


def test_a_wait_that_was_claimed_and_is_being_completed_is_waited_for_by_no_batch(
    place, worker, own
):
    """Whoever settles it has seen it wait: his token is an old one."""
    seen = [place.see(place.put().id) for _ in range(2)]
    (claim,) = place.take(worker, 1)
    assert claim.id == seen[0].id
    complete(place, claim, worker, own)
    stale, done = place.store.settle(
        [cancel_record(one, "nobody wants it") for one in seen], by=None
    )
    assert (type(stale), type(done)) == (Stale, Receipt)
    own.commit()
    assert [place.see(one.id).state for one in seen] == [State.SUCCEEDED, State.CANCELLED]
    place.clean()


def test_jobs_that_another_transaction_holds_are_cancelled_in_bulk_when_it_has_ended(
    place, worker, own, catalogue
):
    claim = claimed(place, worker)
    other_job = place.put().id
    complete(place, claim, worker, own)
    bulks = Bulks(place.store, place.control, place.reader, catalogue, NOBODY)
    bulk = bulks.begin(BulkVerb.CANCEL, EVERY_JOB, deed=DEED, bulk_id=uuid_of(1, 7))
    for _ in range(3):
        bulk = bulks.once(bulk) or bulk
    assert (bulk.status, bulk.done, bulk.refused) == (BulkStatus.RUNNING, 1, 0)
    own.rollback()
    while bulk.status is BulkStatus.RUNNING:
        bulk = bulks.once(bulk) or bulk
    assert (bulk.done, bulk.refused) == (2, 0)
    assert {place.see(id).state for id in (claim.id, other_job)} == {State.CANCELLED}
    place.clean()


def test_a_bulk_cancel_writes_down_what_its_stage_does_not_let_go(place, worker, own, catalogue):
    claim = claimed(place, worker)
    complete(place, claim, worker, own)
    bulks = Bulks(place.store, place.control, place.reader, catalogue, NOBODY)
    bulk = bulks.begin(BulkVerb.CANCEL, EVERY_JOB, deed=DEED, bulk_id=uuid_of(1, 7))
    while bulk.status is BulkStatus.RUNNING:
        bulk = bulks.once(bulk) or bulk
    (left,) = place.reader.refusals(bulk.no)
    assert left.why == "was being completed in a transaction of its stage's own"
    own.commit()
    assert place.see(claim.id).state is State.SUCCEEDED


def test_another_owners_job_is_not_even_called_busy(place, worker, own, catalogue):
    claim = claimed(place, worker, owner="ann")
    complete(place, claim, worker, own)
    (record,) = cancel_records([place.see(claim.id)], catalogue, "", place.reader.now())
    (answer,) = place.control.cancel([record], DEED, owner="bob")
    assert isinstance(answer, Stale)
    own.rollback()
