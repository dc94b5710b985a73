"""claim: who gets what, in which order, and how much of it."""

from datetime import timedelta

from perdure.model.jobs import ClaimOrder, Lane
from perdure.model.limits import CLAIM_BATCH_MAX, PROMOTE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import advance, crash, release, retry, success
from perdure.testing.store_contract.fresh_store import OnAFreshStore


class ClaimContract(OnAFreshStore):
    """What a worker is handed."""

    def test_a_claim_raises_token_and_starts_and_names_the_holder(self) -> None:
        made = self.place.put(key="k", owner="ann", deadline_s=60)
        self.clock.push(1)
        (claim,) = self.place.take(self.worker)
        now = self.clock.now()
        assert (claim.id, claim.no, claim.token) == (made.id, made.no, 1)
        assert (claim.counters.starts, claim.life, claim.isolation) == (1, 1, 0)
        assert (claim.claimed_at, claim.due_at) == (now, now - timedelta(seconds=1))
        assert (claim.owner, claim.key, claim.pipeline, claim.stage) == ("ann", "k", "p", "one")
        assert (claim.lane, claim.run, claim.damage) == (self.place.lanes["one"], None, None)
        assert claim.deadline_at == now + timedelta(seconds=59)
        job = self.place.see(made.id)
        assert (job.state, job.worker, job.token) == (State.PROCESSING, self.worker, 1)
        assert (job.claimed_at, job.ready) == (now, False)
        assert self.place.store.tokens_held(self.worker) == {made.no: 1}
        assert self.place.store.claims_held(self.worker) == [claim]

    def test_every_further_claim_raises_them_again(self) -> None:
        self.place.put()
        for n in range(1, 5):
            (claim,) = self.place.take(self.worker)
            assert (claim.token, claim.counters.starts) == (2 * n - 1, n)
            self.place.settle(release(claim, self.worker), by=self.worker)
        self.place.clean()

    def test_a_claimed_job_is_not_claimed_again(self) -> None:
        self.place.put()
        assert len(self.place.take(self.worker, 5)) == 1
        assert self.place.take(self.worker, 5) == []
        assert self.place.take(self.place.hire(), 5) == []

    def test_no_more_is_claimed_than_there_are_slots(self) -> None:
        self.place.put_many(9)
        assert [len(self.place.take(self.worker, slots)) for slots in (1, 3, 7)] == [1, 3, 5]

    def test_no_slots_claim_nothing(self) -> None:
        self.place.put()
        assert self.place.take(self.worker, 0) == []
        assert self.place.take(self.worker, -1) == []

    def test_a_batch_is_bounded_whatever_is_asked_for(self) -> None:
        self.place.put_many(CLAIM_BATCH_MAX + 1)
        assert len(self.place.take(self.worker, 10 * CLAIM_BATCH_MAX)) == CLAIM_BATCH_MAX

    def test_only_the_asked_lanes_are_served(self) -> None:
        mine = self.place.put().id
        other = self.place.store.lanes([Lane("q", "c", "p", "elsewhere")]).popitem()[1]
        self.place.put(lane=other, stage="elsewhere")
        assert self.place.taken_ids(self.worker, 5) == [mine]

    def test_an_order_of_no_lanes_or_of_unknown_ones_claims_nothing(self) -> None:
        self.place.put()
        for lanes in ((), (987654,)):
            turn = self.place.store.turn([], ClaimOrder(self.worker, 5, lanes), by=self.worker)
            assert (turn.claims, turn.next_due_s) == ((), None)
            assert self.place.store.waiting(ClaimOrder(self.worker, 5, lanes)) is None

    def test_a_lane_that_is_named_twice_is_served_once(self) -> None:
        ids = [one.id for one in self.place.put_many(3)]
        lanes = (self.place.lanes["one"],) * 2
        turn = self.place.store.turn([], ClaimOrder(self.worker, 2, lanes), by=self.worker)
        assert [claim.id for claim in turn.claims] == ids[:2]

    def test_the_heads_of_several_lanes_are_merged_by_rank(self) -> None:
        ids = []
        for stage in ("one", "two", "two", "one", "two"):
            ids.append(self.place.put(lane=self.place.lanes[stage], stage=stage).id)
            self.clock.push(1)
        assert self.place.taken_ids(self.worker, 3) == ids[:3]
        assert self.place.taken_ids(self.worker, 3) == ids[3:]

    def test_one_lane_may_fill_all_the_slots(self) -> None:
        ids = [one.id for one in self.place.put_many(4)]
        self.clock.push(1)
        self.place.put(lane=self.place.lanes["two"], stage="two")
        assert self.place.taken_ids(self.worker, 4) == ids

    def test_a_finished_job_is_never_claimed_again(self) -> None:
        claim = self.one_claim()
        self.place.settle(success(claim, self.worker), by=self.worker)
        self.clock.push(10**6)
        assert self.place.take(self.worker, 5) == []
        assert self.place.store.waiting(self.place.order(self.worker, 5)) is None

    # -- retries -----------------------------------------------------------------------------

    def test_a_retry_is_claimed_when_it_is_due_and_not_before(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=5.0), by=self.worker)
        assert self.place.see(claim.id).shown_state == "retrying"
        self.clock.push(4.999999)
        assert self.place.take(self.worker) == []
        self.clock.push(0.000001)
        assert self.place.taken_ids(self.worker) == [claim.id]
        self.place.clean()

    def test_an_old_retry_goes_before_a_newer_arrival(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=60.0), by=self.worker)
        self.clock.push(30)
        newer = self.place.put().id
        self.clock.push(31)
        assert self.place.taken_ids(self.worker, 2) == [claim.id, newer]

    def test_a_retry_that_is_not_due_is_passed_over(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=60.0), by=self.worker)
        newer = self.place.put().id
        assert self.place.taken_ids(self.worker, 2) == [newer]

    def test_the_next_stage_keeps_the_rank_of_its_item(self) -> None:
        claim = self.one_claim()
        self.clock.push(10)
        newer = self.place.put().id
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        assert self.place.taken_ids(self.worker, 2) == [claim.id, newer]

    def test_a_herd_of_due_retries_is_made_ready_in_bounded_steps(self) -> None:
        more = 7
        later = self.clock.now() + timedelta(seconds=5)
        self.place.put_many(PROMOTE_BATCH_MAX + more, run_at=later)
        self.clock.push(6)
        seen = []
        for _ in range(3):
            assert len(self.place.take(self.worker, 1)) == 1
            seen.append((self.place.standing("ready"), self.place.standing("waiting")))
        assert seen == [
            (PROMOTE_BATCH_MAX - 1, more),
            (PROMOTE_BATCH_MAX + more - 2, 0),
            (PROMOTE_BATCH_MAX + more - 3, 0),
        ]

    def test_a_herd_in_many_lanes_is_bounded_in_each_turn_and_served_in_equal_parts(self) -> None:
        later = self.clock.now() + timedelta(seconds=5)
        for stage in ("one", "two"):
            lane = self.place.lanes[stage]
            self.place.put_many(PROMOTE_BATCH_MAX, run_at=later, lane=lane, stage=stage)
        self.clock.push(6)
        assert len(self.place.take(self.worker, 1)) == 1
        assert self.place.standing("ready") == PROMOTE_BATCH_MAX - 1
        assert self.place.standing("waiting") == PROMOTE_BATCH_MAX
        waiting = {one.no: one.later for one in self.place.reader.lanes()}
        assert set(waiting.values()) == {PROMOTE_BATCH_MAX // 2}

    def test_the_longest_due_are_made_ready_first(self) -> None:
        later = self.clock.now() + timedelta(seconds=10)
        urgent = self.place.put(priority=9, run_at=later + timedelta(seconds=10)).id
        self.place.put_many(PROMOTE_BATCH_MAX, run_at=later)
        self.clock.push(30)
        assert self.place.taken_ids(self.worker, 1) != [urgent]
        assert self.place.taken_ids(self.worker, 1) == [urgent]

    # -- isolation ---------------------------------------------------------------------------

    def test_suspects_are_claimed_only_at_their_own_level(self) -> None:
        self.place.put_many(2)
        one, _ = self.place.take(self.worker, 2)
        self.place.settle(crash(one, self.worker), by=self.worker)
        assert self.place.take(self.worker, 9) == []
        assert self.place.take(self.worker, 9, isolation=2) == []
        (again,) = self.place.take(self.worker, 9, isolation=1)
        assert (again.id, again.isolation, again.counters.crashes) == (one.id, 1, 1)
        self.place.settle(crash(again, self.worker), by=self.worker)
        assert self.place.take(self.worker, 9, isolation=1) == []
        assert self.place.taken_ids(self.worker, 9, isolation=2) == [one.id]
        self.place.clean()

    def test_levels_at_which_jobs_wait_are_told(self) -> None:
        suspects = self.place.store.suspects
        assert suspects() == frozenset()
        self.place.put_many(2)
        assert suspects() == frozenset()
        first, second = self.place.take(self.worker, 2)
        self.place.settle(crash(first, self.worker), by=self.worker)
        assert suspects() == {1}
        (again,) = self.place.take(self.worker, 9, isolation=1)
        assert suspects() == frozenset()
        self.place.settle(crash(again, self.worker), crash(second, self.worker), by=self.worker)
        assert suspects() == {1, 2}

    def test_a_suspect_that_waits_for_its_time_asks_for_no_process_yet(self) -> None:
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        (claim,) = self.place.take(self.worker, isolation=1)
        self.place.settle(retry(claim, self.worker, delay_s=30.0), by=self.worker)
        assert self.place.store.suspects() == frozenset()
        self.clock.push(30)
        assert self.place.store.suspects() == {1}

    def test_suspects_can_be_asked_for_by_lane(self) -> None:
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        suspects, one, two = self.place.store.suspects, *self.place.lanes.values()
        assert suspects([two]) == suspects([]) == frozenset()
        assert suspects([one]) == suspects([two, one]) == suspects() == {1}

    # -- waiting -----------------------------------------------------------------------------

    def test_waiting_says_when_the_order_could_be_served(self) -> None:
        order = self.place.order(self.worker, 1)
        waiting = self.place.store.waiting
        assert waiting(order) is None
        self.place.put(run_at=self.clock.now() + timedelta(seconds=30))
        assert waiting(order) == 30.0
        sooner = self.place.new(run_at=self.clock.now() + timedelta(seconds=20))
        self.place.store.enqueue([replace(sooner, lane=self.place.lanes["two"], stage="two")])
        assert waiting(order) == 20.0
        self.clock.push(25)
        assert waiting(order) == 0.0
        self.place.take(self.worker)
        assert waiting(order) == 5.0
        self.place.put()
        assert waiting(order) == 0.0

    def test_waiting_looks_only_at_its_own_level_and_lanes(self) -> None:
        self.place.put()
        assert self.place.store.waiting(self.place.order(self.worker, 1, isolation=1)) is None
        elsewhere = ClaimOrder(self.worker, 1, (self.place.lanes["two"],))
        assert self.place.store.waiting(elsewhere) is None

    def test_waiting_writes_nothing(self) -> None:
        self.place.put(run_at=self.clock.now() + timedelta(seconds=30))
        self.clock.push(31)
        order = self.place.order(self.worker, 1)
        before = self.place.everything()
        assert self.place.store.waiting(order) == 0.0
        assert self.place.everything() == before

    def test_a_turn_says_when_the_next_job_falls_due_unless_it_filled_its_slots(self) -> None:
        self.place.put(run_at=self.clock.now() + timedelta(seconds=30))
        assert self.place.turn([], self.worker, 1).next_due_s == 30.0
        self.place.put()
        assert self.place.turn([], self.worker, 1).next_due_s is None
        self.place.put()
        assert self.place.turn([], self.worker, 2).next_due_s == 30.0

    # -- lanes -------------------------------------------------------------------------------

    def test_a_lane_has_one_number_however_often_it_is_asked_for(self) -> None:
        lanes = [Lane("q", "c", "x", stage) for stage in ("a", "b", "a")]
        first = self.place.store.lanes(lanes)
        assert set(first) == set(lanes)
        assert len(set(first.values())) == 2
        assert self.place.store.lanes(lanes) == first

    def test_lanes_differ_in_every_part(self) -> None:
        run = self.place.begin_run().no
        lanes = [
            Lane("q", "c", "x", "s"),
            Lane("q2", "c", "x", "s"),
            Lane("q", "c2", "x", "s"),
            Lane("q", "c", "x2", "s"),
            Lane("q", "c", "x", "s2"),
            Lane("q", "c", "x", "s", run),
        ]
        assert len(set(self.place.store.lanes(lanes).values())) == 6

    def test_a_lane_that_changes_its_upstream_keeps_its_number(self) -> None:
        plain = Lane("q", "c", "x", "s")
        no = self.place.store.lanes([plain])[plain]
        for upstream in ("vendor", "other", None):
            lane = replace(plain, upstream=upstream)
            assert self.place.store.lanes([lane]) == {lane: no}
            (seen,) = [one for one in self.place.reader.lanes() if one.no == no]
            assert seen.lane == lane

    def test_known_lanes_are_only_read(self) -> None:
        before = self.place.everything()
        self.place.store.lanes([Lane("q", "c", "p", "one")])
        assert self.place.everything() == before
