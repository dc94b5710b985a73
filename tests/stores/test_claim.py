"""claim: who gets what, in which order, and how much of it."""

from datetime import timedelta

import pytest

from perdure.model.jobs import Lane
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.model.states import State
from perdure.stores.sqlite import store as sqlite_store
from tests.stores.kit import advance, crash, release, retry, success


def test_a_claim_raises_token_and_starts_and_names_the_holder(place, worker):
    id = place.put(key="k", owner="ann", deadline_s=60).id
    place.clock.push(1)
    (claim,) = place.take(worker)
    now = place.clock.now()
    assert (claim.id, claim.no, claim.token, claim.counters.starts) == (id, 1, 1, 1)
    assert (claim.claimed_at, claim.due_at) == (now, now - timedelta(seconds=1))
    assert (claim.owner, claim.key, claim.stage, claim.life) == ("ann", "k", "one", 1)
    assert claim.deadline_at == now + timedelta(seconds=59)
    job = place.see(id)
    assert (job.state, job.worker, job.token) == (State.PROCESSING, worker, 1)
    assert place.store.held(worker) == {1: 1}
    assert place.store.claims_held(worker) == [claim]


def test_every_further_claim_raises_them_again(place, worker):
    place.put()
    for n in range(1, 5):
        (claim,) = place.take(worker)
        assert (claim.token, claim.counters.starts) == (2 * n - 1, n)
        place.settle(release(claim, worker), by=worker)
    place.clean()


def test_a_claimed_job_is_not_claimed_again(place, worker):
    place.put()
    assert len(place.take(worker, 5)) == 1
    assert place.take(worker, 5) == []
    assert place.take(place.hire(), 5) == []


@pytest.mark.parametrize("slots", [1, 3, 7])
def test_no_more_is_claimed_than_there_are_slots(place, worker, slots):
    place.put_many(5)
    assert len(place.take(worker, slots)) == min(slots, 5)


def test_no_slots_claim_nothing(place, worker):
    place.put()
    assert place.take(worker, 0) == []


def test_a_batch_is_bounded_whatever_is_asked_for(place, worker):
    place.put_many(CLAIM_BATCH_MAX + 1)
    assert len(place.take(worker, 10 * CLAIM_BATCH_MAX)) == CLAIM_BATCH_MAX


def test_only_the_asked_lanes_are_served(place, worker):
    mine = place.put().id
    other = place.store.lanes([Lane("q", "c", "p", "elsewhere")]).popitem()[1]
    place.put(lane=other, stage="elsewhere")
    assert place.taken_ids(worker, 5) == [mine]


def test_the_heads_of_several_lanes_are_merged_by_rank(place, worker):
    ids = []
    for stage in ("one", "two", "two", "one", "two"):
        ids.append(place.put(lane=place.lanes[stage], stage=stage).id)
        place.clock.push(1)
    assert place.taken_ids(worker, 3) == ids[:3]
    assert place.taken_ids(worker, 3) == ids[3:]


def test_one_lane_may_fill_all_the_slots(place, worker):
    ids = [one.id for one in place.put_many(4)]
    place.clock.push(1)
    place.put(lane=place.lanes["two"], stage="two")
    assert place.taken_ids(worker, 4) == ids


# -- retries -----------------------------------------------------------------------------


def test_a_retry_is_claimed_when_it_is_due_and_not_before(place, worker):
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=5.0), by=worker)
    assert place.see(id).shown_state == "retrying"
    place.clock.push(4.999999)
    assert place.take(worker) == []
    place.clock.push(0.000001)
    assert place.taken_ids(worker) == [id]
    place.clean()


def test_an_old_retry_goes_before_a_newer_arrival(place, worker):
    old = place.put().id
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=60.0), by=worker)
    place.clock.push(30)
    newer = place.put().id
    place.clock.push(31)
    assert place.taken_ids(worker, 2) == [old, newer]


def test_a_retry_that_is_not_due_is_passed_over(place, worker):
    place.put()
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=60.0), by=worker)
    newer = place.put().id
    assert place.taken_ids(worker, 2) == [newer]


def test_the_next_stage_keeps_the_rank_of_its_item(place, worker):
    old = place.put().id
    (claim,) = place.take(worker)
    place.clock.push(10)
    newer = place.put().id
    place.settle(advance(claim, worker, place.lanes["two"]), by=worker)
    assert place.taken_ids(worker, 2) == [old, newer]


def test_a_herd_of_due_retries_is_made_ready_in_bounded_steps(place, worker, monkeypatch):
    monkeypatch.setattr(sqlite_store, "PROMOTE_BATCH_MAX", 10)
    place.put_many(25)
    place.settle(
        *(retry(claim, worker, delay_s=5.0) for claim in place.take(worker, 25)), by=worker
    )
    place.clock.push(6)
    ready = "SELECT count(*) FROM perdure_jobs WHERE ready = 1"
    seen = []
    for _ in range(3):
        place.take(worker, 1)
        seen.append(place.rows(ready)[0][0])
    assert seen == [9, 18, 22]
    assert PROMOTE_BATCH_MAX <= 1_000


def test_the_longest_due_are_made_ready_first(place, worker, monkeypatch):
    monkeypatch.setattr(sqlite_store, "PROMOTE_BATCH_MAX", 1)
    place.put_many(2)
    early, late = place.take(worker, 2)
    place.settle(retry(early, worker, delay_s=20.0), retry(late, worker, delay_s=10.0), by=worker)
    place.clock.push(30)
    assert place.taken_ids(worker, 1) == [late.id]


# -- isolation ---------------------------------------------------------------------------


def test_suspects_are_claimed_only_at_their_own_level(place, worker):
    place.put_many(2)
    one, _ = place.take(worker, 2)
    place.settle(crash(one, worker), by=worker)
    assert place.take(worker, 9) == []
    assert place.take(worker, 9, isolation=2) == []
    (again,) = place.take(worker, 9, isolation=1)
    assert (again.id, again.isolation, again.counters.crashes) == (one.id, 1, 1)
    place.settle(crash(again, worker), by=worker)
    assert place.take(worker, 9, isolation=1) == []
    assert place.taken_ids(worker, 9, isolation=2) == [one.id]
    place.clean()


def test_the_store_says_at_which_levels_suspects_wait(place, worker):
    assert place.store.suspects() == frozenset()
    place.put_many(2)
    first, second = place.take(worker, 2)
    place.settle(crash(first, worker), by=worker)
    assert place.store.suspects() == {1}
    (again,) = place.take(worker, isolation=1)
    assert place.store.suspects() == frozenset()
    place.settle(crash(again, worker), crash(second, worker), by=worker)
    assert place.store.suspects() == {1, 2}


def test_a_suspect_that_waits_for_its_time_asks_for_no_process_yet(place, worker):
    place.put()
    (claim,) = place.take(worker)
    place.settle(crash(claim, worker), by=worker)
    (claim,) = place.take(worker, isolation=1)
    place.settle(retry(claim, worker, delay_s=30.0), by=worker)
    assert place.store.suspects() == frozenset()
    place.clock.push(30)
    assert place.store.suspects() == {1}


# -- waiting -----------------------------------------------------------------------------


def test_waiting_says_when_the_order_could_be_served(place, worker):
    order = place.order(worker, 1)
    assert place.store.waiting(order) is None
    place.put(run_at=place.clock.now() + timedelta(seconds=30))
    assert place.store.waiting(order) == 30.0
    place.put(
        run_at=place.clock.now() + timedelta(seconds=20), lane=place.lanes["two"], stage="two"
    )
    assert place.store.waiting(order) == 20.0
    place.clock.push(25)
    assert place.store.waiting(order) == 0.0
    place.take(worker)
    assert place.store.waiting(order) == 5.0
    place.put()
    assert place.store.waiting(order) == 0.0


def test_waiting_looks_only_at_its_own_level_and_lanes(place, worker):
    place.put()
    assert place.store.waiting(place.order(worker, 1, isolation=1)) is None


def test_waiting_writes_nothing(place, worker):
    place.put(run_at=place.clock.now() + timedelta(seconds=30))
    place.clock.push(31)
    before = place.everything()
    place.store.waiting(place.order(worker, 1))
    assert place.everything() == before


def test_a_turn_says_when_the_next_job_falls_due_unless_it_filled_its_slots(place, worker):
    place.put(run_at=place.clock.now() + timedelta(seconds=30))
    assert place.turn([], worker, 1).next_due_s == 30.0
    place.put()
    assert place.turn([], worker, 1).next_due_s is None
    place.put()
    assert place.turn([], worker, 2).next_due_s == 30.0


def test_a_finished_job_is_never_claimed_again(place, worker):
    place.put()
    (claim,) = place.take(worker)
    place.settle(success(claim, worker), by=worker)
    place.clock.push(10**6)
    assert place.take(worker, 5) == []
    assert place.store.waiting(place.order(worker, 5)) is None


# -- lanes -------------------------------------------------------------------------------


def test_a_lane_has_one_number_however_often_it_is_asked_for(place):
    lanes = [Lane("q", "c", "x", stage) for stage in ("a", "b", "a")]
    first = place.store.lanes(lanes)
    assert set(first) == set(lanes)
    assert len(set(first.values())) == 2
    assert place.store.lanes(lanes) == first


def test_lanes_differ_in_every_part(place):
    lanes = [
        Lane("q", "c", "x", "s"), Lane("q2", "c", "x", "s"), Lane("q", "c2", "x", "s"),
        Lane("q", "c", "x2", "s"), Lane("q", "c", "x", "s2"),
    ]  # fmt: skip
    assert len(set(place.store.lanes(lanes).values())) == 5


def test_known_lanes_are_only_read(place):
    before = place.everything()
    place.store.lanes([Lane("q", "c", "p", "one")])
    assert place.everything() == before
