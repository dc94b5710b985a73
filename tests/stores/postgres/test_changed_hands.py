"""Between two statements a job may change hands: what is read then is nobody else's to settle or to run."""

import threading

import psycopg
import pytest

from perdure.model.errors import StoreBusy
from perdure.model.jobs import Part
from perdure.model.outcomes import Death
from perdure.stores.postgres import enqueue, store as store_module
from perdure.stores.postgres.claim import BOTTOM, ClaimQuestion, claim_parameters
from perdure.stores.postgres.statements import SQL
from tests.stores.kit import crash, release, success
from tests.stores.postgres.kit import SIGNAL_S_MAX, blocked


@pytest.fixture
def hands(furnished, open_place):
    """Two connections to one store."""
    return open_place(furnished), open_place(furnished, series=1)


def between(monkeypatch, change):
    """Do something after the first of the two statements, once."""
    right = store_module.claims_of

    def claims_of(cx, seen):
        monkeypatch.setattr(store_module, "claims_of", right)
        change()
        return right(cx, seen)

    monkeypatch.setattr(store_module, "claims_of", claims_of)


def test_a_job_that_a_living_worker_has_taken_meanwhile_is_not_lost(hands, monkeypatch):
    ours, theirs = hands
    dead, living, sweeper = ours.hire(), ours.hire(), ours.hire()
    ours.put()
    ours.take(dead)
    ours.store.end_worker(dead, Death("silent"))

    def another_sweeper_was_faster() -> None:
        (lost,) = theirs.store.lost_claims(limit=5)
        theirs.settle(crash(lost.claim, sweeper), by=sweeper)
        assert len(theirs.take(living, isolation=1)) == 1

    between(monkeypatch, another_sweeper_was_faster)
    assert ours.store.lost_claims(limit=5) == []
    assert len(theirs.store.tokens_held(living)) == 1


def test_a_claim_that_another_worker_has_by_now_is_not_ours(hands, monkeypatch):
    ours, theirs = hands
    first, second = ours.hire(), ours.hire()
    ours.put()
    (claim,) = ours.take(first)

    def it_is_given_back_and_taken() -> None:
        theirs.settle(release(claim, None), by=None)
        assert len(theirs.take(second)) == 1

    between(monkeypatch, it_is_given_back_and_taken)
    assert ours.store.claims_held(first) == []
    assert len(theirs.store.tokens_held(second)) == 1


def test_what_is_held_is_read_after_a_turn_that_is_still_under_way(hands, furnished, postgres):
    """The line broke, and the server is not through with the turn: its claims will be ours."""
    ours, _ = hands
    worker = ours.hire()
    ours.put()
    order = ours.order(worker)
    asked = ClaimQuestion(Part(order.lanes, 1), [BOTTOM] * len(order.lanes))
    found: list = []
    with psycopg.connect(furnished) as old:
        old.execute(SQL.claim, claim_parameters(order, asked, None))
        asking = threading.Thread(target=lambda: found.extend(ours.store.claims_held(worker)))
        asking.start()
        blocked(postgres, furnished)
        assert found == []
        old.commit()
        asking.join(SIGNAL_S_MAX)
    assert [claim.no for claim in found] == list(ours.store.tokens_held(worker))
    assert len(found) == 1
    ours.settle(success(found[0], worker), by=worker)
    ours.clean()


def test_a_mixed_batch_that_fails_half_way_leaves_nothing(hands, monkeypatch):
    ours, _ = hands
    ours.put(key="k")

    def too_slow(cx, jobs, now, **_):
        cx.execute("SET LOCAL statement_timeout = 1")
        cx.execute("SELECT pg_sleep(1)")

    monkeypatch.setattr(enqueue, "_find", too_slow)
    with pytest.raises(StoreBusy):
        ours.store.enqueue([ours.new(), ours.new(key="k")])
    assert ours.reader.books().accepted == 1
    ours.clean()
