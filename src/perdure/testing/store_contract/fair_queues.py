"""Fair queues: owners take turns, however many jobs each has; neither age nor priority counts."""

from collections import Counter
from datetime import timedelta
from typing import Any

from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import Claim, IfFailed, Lane, OnLost
from perdure.testing.store_contract.attempt_ends import advance, failure, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore


class FairnessContract(OnAFreshStore):
    """Jobs of several owners in lanes of one queue."""

    def _put(self, owner: str, count: int = 1, **changes: Any) -> list[str]:
        made = self.place.put_many(count, owner=owner, fair=True, **changes)
        return [one.id for one in made]

    def _owners(self, slots: int) -> str:
        """Whose jobs are next."""
        return "".join(claim.owner for claim in self.place.take(self.worker, slots))

    def _retry_now(self, claim: Claim) -> None:
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)

    def test_ten_jobs_do_not_wait_for_a_thousand_of_somebody_else(self) -> None:
        self._put("a", 1000)
        self._put("b", 10)
        owners = self._owners(30)
        assert owners.count("b") == 10
        assert owners.rindex("b") <= 21

    def test_three_owners_share_evenly_whatever_each_has(self) -> None:
        for owner, count in (("a", 300), ("b", 40), ("c", 120)):
            self._put(owner, count)
        assert all(9 <= count <= 11 for count in Counter(self._owners(30)).values())

    def test_owners_take_turns_whether_their_jobs_came_at_once_or_one_by_one(self) -> None:
        for _ in range(8):
            self._put("a")
            self.clock.push(0.5)
        self._put("b", 4)
        self._put("b", 4)
        owners = self._owners(16)
        assert all(abs(owners[:n].count("a") - n / 2) <= 1 for n in range(17))

    def test_owners_of_one_call_take_turns(self) -> None:
        jobs = [self.place.new(owner=owner, fair=True) for owner in "aaabbb"]
        self.place.store.enqueue(jobs)
        assert self._owners(6) == "ababab"

    def test_an_owner_that_was_idle_has_no_credit_for_it(self) -> None:
        self._put("b")
        self._put("a", 120)
        for claim in self.place.take(self.worker, 101):
            self.place.settle(success(claim, self.worker), by=self.worker)
        self.clock.push(3600)
        self._put("b", 20)
        assert 9 <= self._owners(20).count("b") <= 11

    def test_when_nothing_waits_the_line_starts_at_this_moment(self) -> None:
        first = self.place.put(owner="a").id
        self.clock.push(1)
        (second,) = self._put("b")
        self.clock.push(1)
        third = self.place.put(owner="c").id
        assert self.place.taken_ids(self.worker, 3) == [first, second, third]

    def test_old_ranks_behind_a_held_gate_do_not_matter_to_the_others(self) -> None:
        lane = Lane("q", "c", "p", "held", upstream="vendor")
        held = self.place.store.lanes([lane])[lane]
        self._put("x", 3, lane=held)
        self.place.control.change_gate(GateChange("vendor", 0, GateState.HELD), DEED)
        self.clock.push(10)
        plain = self.place.put(owner="n").id
        self.clock.push(10)
        (fair,) = self._put("a")
        assert self.place.taken_ids(self.worker, 3) == [plain, fair]

    def test_a_queue_knows_nothing_of_another_queue(self) -> None:
        lane = Lane("q2", "c", "p", "one")
        self.place.lanes["elsewhere"] = elsewhere = self.place.store.lanes([lane])[lane]
        first = self._put("a", 100)[0]
        self.clock.push(0.00001)
        (second,) = self._put("a", lane=elsewhere)
        self.clock.push(0.00004)
        third = self.place.put(owner="n", lane=elsewhere).id
        self.place.lanes = {"elsewhere": elsewhere}
        assert self.place.taken_ids(self.worker, 9) == [second, third]
        assert self.place.see(first).ready

    def test_lanes_of_one_queue_are_one_line(self) -> None:
        two = self.place.lanes["two"]
        self._put("a", 4)
        self._put("a", 4, lane=two)
        self._put("b", 4, lane=two)
        owners = self._owners(9)
        assert (owners.count("a"), owners.count("b")) == (5, 4)

    def test_priority_does_not_count(self) -> None:
        self._put("a", 3, priority=-5)
        self._put("b", 3, priority=5)
        assert self._owners(6) == "aababb"

    def test_a_retry_keeps_its_place(self) -> None:
        first = self._put("a", 3)[0]
        (claim,) = self.place.take(self.worker)
        self.clock.push(60)
        self._put("b", 3)
        self._retry_now(claim)
        assert self.place.taken_ids(self.worker) == [first]

    def test_a_job_keeps_its_place_through_its_stages(self) -> None:
        first = self._put("a", 3)[0]
        (claim,) = self.place.take(self.worker)
        self._put("b", 3)
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (again,) = self.place.take(self.worker)
        assert (again.id, again.stage) == (first, "two")

    def test_a_job_for_later_has_the_place_that_it_was_given_when_it_came(self) -> None:
        (later,) = self._put("a", run_at=self.clock.now() + timedelta(seconds=5))
        self._put("b", 3)
        self.clock.push(10)
        assert self.place.taken_ids(self.worker) == [later]

    def test_what_is_to_come_later_counts_for_its_owner(self) -> None:
        self._put("a", 9, run_at=self.clock.now() + timedelta(seconds=5))
        self._put("b", 5)
        (last,) = self._put("a")
        assert self.place.taken_ids(self.worker, 9)[-1] == last

    def test_a_new_life_stands_at_the_end_of_its_owners_line(self) -> None:
        self._put("a", 3)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        self._put("b", 4)
        self.clock.push(60)
        self.place.revive(self.place.see(claim.id))
        taken = self.place.take(self.worker, 9)
        owners = "".join(one.owner for one in taken)
        assert [one.id for one in taken if one.owner == "a"][-1] == claim.id
        assert owners.rindex("a") <= 6
        assert (owners.count("a"), owners.count("b")) == (3, 4)

    def test_new_lives_of_several_owners_take_turns(self) -> None:
        self._put("a", 3)
        self._put("b", 3)
        for claim in self.place.take(self.worker, 6):
            self.place.settle(failure(claim, self.worker), by=self.worker)
        dead = sorted(self.place.every_job(), key=lambda job: (job.owner, job.no))
        for job in dead:
            self.clock.push(1)
            self.place.revive(job)
        owners = self._owners(6)
        assert all(abs(owners[:n].count("a") - n / 2) <= 1 for n in range(7))

    def test_a_new_life_by_its_key_stands_there_too(self) -> None:
        dead = self.place.dead_letter(self.worker, owner="a", key="k", fair=True)
        self._put("a", 2)
        self._put("b", 2)
        again = self.place.new(owner="a", key="k", fair=True, if_failed=IfFailed.RETRY)
        (found,) = self.place.store.enqueue([again])
        assert (found.id, found.revived) == (dead.id, True)
        taken = self.place.take(self.worker, 9)
        assert [one.id for one in taken if one.owner == "a"][-1] == dead.id

    def test_a_job_that_its_caller_began_has_a_place_in_line_for_its_retry(self) -> None:
        self._put("a", 3)
        self.clock.push(10)
        job = self.place.new(owner="b", fair=True)
        claim = self.place.store.begin(
            job, worker=self.worker, hard_s=60.0, on_lost=OnLost.HAND_OVER
        )
        assert isinstance(claim, Claim)
        self._retry_now(claim)
        assert "b" in self._owners(3)

    def test_what_is_not_fair_is_ranked_as_ever(self) -> None:
        self._put("a", 5)
        self.clock.push(1)
        plain = self.place.put(owner="b", priority=1).id
        assert self.place.taken_ids(self.worker) == [plain]
        self.place.clean()
