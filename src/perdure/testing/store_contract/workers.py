"""Workers: who is alive, who may say that another is not, and what the dead leave behind."""

import msgspec

from perdure.model.errors import WorkerDead
from perdure.model.jobs import Lane
from perdure.model.outcomes import Death
from perdure.model.workers import NewWorker, Role
from perdure.testing.store_contract.attempt_ends import crash, release, success
from perdure.testing.store_contract.fresh_store import TTL_S, OnAFreshStore, raises

EXITED = Death("exited", exit_status=1)


class WorkersContract(OnAFreshStore):
    """Leases are the worker's."""

    def test_a_new_worker_is_alive_and_steady_from_now(self) -> None:
        self.clock.push(7)
        worker = self.place.hire(role=Role.SUSPECTS, ttl_s=4.5)
        seen, now = self.place.worker(worker), self.clock.now()
        assert (seen.role, seen.ttl_s, seen.name) == (Role.SUSPECTS, 4.5, "host:1")
        assert (seen.started_at, seen.beat_at, seen.steady_at) == (now, now, now)
        assert (seen.dead_at, seen.death_json) == (None, None)

    def test_workers_have_numbers_that_are_never_given_again(self) -> None:
        first = self.place.hire()
        self.place.store.end_worker(first, EXITED)
        assert self.place.hire() > first

    def test_a_worker_that_is_registered_again_is_the_same_one(self) -> None:
        new = NewWorker("the-same-boot", "host:1", Role.MAIN, 4.5)
        first = self.place.store.add_worker(new)
        self.clock.push(1)
        assert self.place.store.add_worker(new) == first
        assert len(self.place.reader.workers()) == 1

    # -- beats -------------------------------------------------------------------------------

    def test_a_beat_renews_the_lease(self) -> None:
        worker = self.place.hire()
        self.clock.push(5)
        assert self.place.store.beat([worker]) == {worker}
        assert self.place.worker(worker).beat_at == self.clock.now()

    def test_a_late_beat_is_accepted_as_long_as_nobody_has_declared_death(self) -> None:
        worker = self.place.hire()
        self.clock.push(100 * TTL_S)
        assert self.place.store.beat([worker]) == {worker}

    def test_a_beat_of_a_dead_worker_is_refused_and_changes_nothing(self) -> None:
        worker, other = self.place.hire(), self.place.hire()
        self.place.store.end_worker(worker, EXITED)
        before = self.place.worker(worker)
        self.clock.push(1)
        assert self.place.store.beat([worker, other]) == {other}
        assert self.place.worker(worker) == before

    def test_a_beat_for_nobody_is_nothing(self) -> None:
        assert self.place.store.beat([]) == frozenset()
        assert self.place.store.beat([999_999]) == frozenset()

    def test_a_gap_of_half_a_lease_is_none_and_a_longer_one_is(self) -> None:
        worker = self.place.hire()
        self.clock.push(TTL_S / 2)
        self.place.store.beat([worker])
        seen = self.place.worker(worker)
        assert seen.steady_at == seen.started_at
        self.clock.push(TTL_S / 2 + 0.000001)
        self.place.store.beat([worker])
        assert self.place.worker(worker).steady_at == self.clock.now()

    # -- deaths ------------------------------------------------------------------------------

    def test_a_silent_worker_is_declared_dead_after_its_lease_and_not_before(self) -> None:
        judge, silent = self.place.hire(), self.place.hire()
        self.place.live([judge], TTL_S)
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.live([judge], 0.000001)
        assert self.place.store.mark_dead(by=judge) == (silent,)
        seen = self.place.worker(silent)
        assert seen.dead_at == self.clock.now()
        assert msgspec.json.decode(seen.death_json or "")["why"] == "silent"

    def test_a_death_is_declared_once(self) -> None:
        judge, silent = self.place.hire(), self.place.hire()
        self.place.live([judge], TTL_S + 1)
        assert self.place.store.mark_dead(by=judge) == (silent,)
        dead_at = self.place.worker(silent).dead_at
        self.place.live([judge], 5)
        assert self.place.store.mark_dead(by=judge) == ()
        assert self.place.worker(silent).dead_at == dead_at

    def test_all_that_are_silent_are_declared_dead_together(self) -> None:
        judge, *silent = (self.place.hire() for _ in range(4))
        self.place.live([judge], TTL_S + 1)
        assert set(self.place.store.mark_dead(by=judge)) == set(silent)

    def test_nobody_declares_himself_dead(self) -> None:
        judge = self.place.hire()
        self.clock.push(10 * TTL_S)
        assert self.place.store.mark_dead(by=judge) == ()
        assert self.place.worker(judge).dead_at is None

    def test_a_judge_that_has_just_started_waits_a_whole_lease(self) -> None:
        silent = self.place.hire()
        self.clock.push(TTL_S + 1)
        judge = self.place.hire()
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.live([judge], TTL_S - 0.001)
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.live([judge], 0.001)
        assert self.place.store.mark_dead(by=judge) == (silent,)

    def test_after_the_store_was_away_nobody_is_declared_dead_at_once(self) -> None:
        """Every beat failed for a minute; the first two to come back must not bury the rest."""
        workers = [self.place.hire() for _ in range(4)]
        self.place.live(workers, TTL_S * 2)
        self.clock.push(60)
        for judge in workers[:2]:
            self.place.store.beat([judge])
            assert self.place.store.mark_dead(by=judge) == ()
        self.place.live(workers[:3], TTL_S - 0.001)
        assert self.place.store.mark_dead(by=workers[0]) == ()
        self.place.live(workers[:3], 0.002)
        assert self.place.store.mark_dead(by=workers[0]) == (workers[3],)

    def test_a_judge_that_has_itself_gone_quiet_may_not_judge(self) -> None:
        judge, silent = self.place.hire(), self.place.hire()
        self.place.live([judge], TTL_S + 1)
        self.clock.push(TTL_S / 2 + 0.001)
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.store.beat([judge])
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.live([judge], TTL_S)
        assert self.place.store.mark_dead(by=judge) == (silent,)

    def test_the_dead_and_the_unknown_may_not_judge(self) -> None:
        judge, _ = self.place.hire(), self.place.hire()
        self.place.live([judge], TTL_S + 1)
        self.place.store.end_worker(judge, EXITED)
        assert self.place.store.mark_dead(by=judge) == ()
        assert self.place.store.mark_dead(by=999_999) == ()

    def test_a_worker_is_judged_by_the_longer_lease_of_the_two(self) -> None:
        judge = self.place.hire(ttl_s=10)
        short, long = self.place.hire(ttl_s=1), self.place.hire(ttl_s=100)
        self.place.live([judge], 9.5, every_s=0.5)
        assert self.place.store.mark_dead(by=judge) == ()
        self.place.live([judge], 1, every_s=0.5)
        assert self.place.store.mark_dead(by=judge) == (short,)
        self.place.live([judge], 90, every_s=3)
        assert self.place.store.mark_dead(by=judge) == (long,)

    def test_a_worker_that_beats_is_never_declared_dead(self) -> None:
        judge, alive = self.place.hire(), self.place.hire()
        self.place.put()
        (claim,) = self.place.take(alive)
        for _ in range(6):
            self.place.live([judge, alive], TTL_S / 2)
            assert self.place.store.mark_dead(by=judge) == ()
        assert self.place.store.tokens_held(alive) == {claim.no: claim.token}
        assert self.place.store.lost_claims(limit=9) == []

    def test_the_end_of_a_worker_is_told_once(self) -> None:
        worker = self.place.hire()
        assert self.place.store.end_worker(worker, Death("exited", signal="SIGKILL"))
        seen = self.place.worker(worker)
        assert seen.dead_at == self.clock.now()
        self.clock.push(5)
        assert not self.place.store.end_worker(worker, EXITED)
        assert not self.place.store.end_worker(999_999, EXITED)
        assert self.place.worker(worker) == seen
        assert msgspec.json.decode(seen.death_json or "")["signal"] == "SIGKILL"

    def test_a_worker_that_was_declared_dead_stays_dead(self) -> None:
        judge, silent = self.place.hire(), self.place.hire()
        self.place.live([judge], TTL_S + 1)
        self.place.store.mark_dead(by=judge)
        assert self.place.store.beat([silent]) == frozenset()
        assert not self.place.store.end_worker(silent, EXITED)
        with raises(WorkerDead):
            self.place.take(silent)

    # -- what they leave ---------------------------------------------------------------------

    def test_only_claims_of_dead_workers_are_lost(self) -> None:
        dead, alive = self.place.hire(), self.place.hire()
        self.place.put_many(4)
        theirs = self.place.take(dead, 2)
        self.place.take(alive, 1)
        assert self.place.store.lost_claims(limit=10) == []
        self.place.store.end_worker(dead, Death("exited", signal="SIGSEGV"))
        self.clock.push(3)
        lost = self.place.store.lost_claims(limit=10)
        assert [one.claim for one in lost] == theirs
        assert {(one.worker, one.death, one.seen_at) for one in lost} == {
            (dead, Death("exited", signal="SIGSEGV"), self.clock.now())
        }

    def test_lost_claims_come_in_bounded_batches(self) -> None:
        worker = self.place.hire()
        self.place.put_many(5)
        self.place.take(worker, 5)
        self.place.store.end_worker(worker, EXITED)
        seen: set[int] = set()
        while lost := self.place.store.lost_claims(limit=2):
            assert len(lost) <= 2
            assert seen.isdisjoint(one.claim.no for one in lost)
            seen |= {one.claim.no for one in lost}
            self.place.settle(*(crash(one.claim, worker) for one in lost), by=None)
        assert len(seen) == 5
        self.place.clean()

    def test_lost_claims_can_be_asked_for_by_lane(self) -> None:
        worker = self.place.hire()
        stranger = self.place.store.lanes([Lane("q", "c", "p", "elsewhere")]).popitem()[1]
        self.place.put(lane=stranger, stage="elsewhere")
        self.place.lanes["elsewhere"] = stranger
        mine = self.place.put().id
        self.place.take(worker, 2)
        self.place.store.end_worker(worker, EXITED)
        lost = self.place.store.lost_claims
        known = [self.place.lanes["one"], self.place.lanes["two"]]
        assert [one.claim.id for one in lost(limit=9, lanes=known)] == [mine]
        assert lost(limit=9, lanes=[]) == []
        assert len(lost(limit=9)) == 2

    def test_what_was_settled_is_no_longer_lost(self) -> None:
        worker = self.place.hire()
        self.place.put()
        (claim,) = self.place.take(worker)
        self.place.store.end_worker(worker, EXITED)
        self.place.settle(crash(claim, worker), by=None)
        assert self.place.store.lost_claims(limit=10) == []

    def test_a_dead_workers_jobs_are_found_sweep_after_sweep_until_they_are_settled(self) -> None:
        judge, dead = self.place.hire(), self.place.hire()
        self.place.put_many(2)
        claims = self.place.take(dead, 2)
        self.place.store.end_worker(dead, EXITED)
        for left in (2, 1):
            self.place.store.mark_dead(by=judge)
            lost = self.place.store.lost_claims(limit=9)
            assert len(lost) == left
            self.place.settle(crash(claims.pop(), dead), by=judge)
        self.place.store.mark_dead(by=judge)
        assert self.place.store.lost_claims(limit=9) == []
        self.place.clean()

    def test_what_a_worker_holds_is_told_by_number_and_token(self) -> None:
        mine, other = self.place.hire(), self.place.hire()
        self.place.put_many(3)
        claims = self.place.take(mine, 2)
        self.place.take(other, 1)
        assert self.place.store.tokens_held(mine) == {claim.no: claim.token for claim in claims}
        assert self.place.store.claims_held(mine) == claims
        self.place.settle(success(claims[0], mine), release(claims[1], mine), by=mine)
        assert self.place.store.tokens_held(mine) == {}
        assert self.place.store.claims_held(mine) == []

    def test_the_living_are_listed_first(self) -> None:
        first, second, third = (self.place.hire() for _ in range(3))
        self.place.store.end_worker(second, EXITED)
        listed = [one.no for one in self.place.reader.workers()]
        assert listed == [third, first, second]

    def test_a_sweep_with_nothing_to_do_changes_nothing(self) -> None:
        judge = self.place.hire()
        self.place.store.mark_dead(by=judge)
        before = self.place.everything()
        self.place.store.mark_dead(by=judge)
        assert self.place.store.lost_claims(limit=10) == []
        assert self.place.everything() == before
