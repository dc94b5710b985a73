"""What a caller says of a job: whose request it is, and by which moment it stands in line."""

from datetime import datetime, timedelta

from perdure.model.jobs import Claim, Enqueued, IfFailed, OnLost
from perdure.model.limits import AGEING_S
from perdure.model.operations import LaneScope
from perdure.model.outcomes import Death
from perdure.model.workers import Role
from perdure.testing.store_contract.attempt_ends import advance, failure, retry
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore

DAY = timedelta(days=1)


class RequestIdsContract(OnAFreshStore):
    """It stays with the job, whatever becomes of that."""

    def _ago(self, seconds: float) -> datetime:
        return self.clock.now() - timedelta(seconds=seconds)

    def _begin(self, **changes: object) -> Claim | Enqueued:
        """A job that its caller runs at once, where its lane is open."""
        caller = self.place.hire(role=Role.CALLER)
        new = self.place.new(**changes)
        return self.place.store.begin(new, worker=caller, hard_s=10.0, on_lost=OnLost.DROP)

    # -- whose request -----------------------------------------------------------------------

    def test_a_request_id_is_kept_with_the_job_and_one_without_is_known_by_its_own_id(self) -> None:
        jobs = [self.place.new(request_id="req-7"), self.place.new(), self.place.new(tokens=5)]
        self.place.store.enqueue(jobs)
        wanted = ["req-7", jobs[1].id, jobs[2].id]
        assert [self.place.see(job.id).request_id for job in jobs] == wanted
        page = {job.id: job.request_id for job in self.place.reader.jobs()}
        assert [page[job.id] for job in jobs] == wanted
        assert [claim.request_id for claim in self.place.take(self.worker, 3)] == wanted

    def test_two_jobs_may_be_of_one_request(self) -> None:
        ids = [one.id for one in self.place.put_many(2, request_id="req-7")]
        assert [self.place.see(id).request_id for id in ids] == ["req-7"] * 2

    def test_a_retry_a_next_stage_and_a_new_life_are_of_the_same_request(self) -> None:
        first = self.one_claim(request_id="req-7")
        self.place.settle(retry(first, self.worker, delay_s=0.0), by=self.worker)
        (again,) = self.place.take(self.worker)
        lane = self.place.lanes["two"]
        carried = advance(again, self.worker, lane, reclaim=True)
        (receipt,) = self.place.settle(carried, by=self.worker)
        following = getattr(receipt, "claim", None)
        assert isinstance(following, Claim)
        self.place.settle(failure(following, self.worker), by=self.worker)
        self.place.revive(self.place.see(first.id))
        (anew,) = self.place.take(self.worker)
        assert [one.request_id for one in (first, again, following, anew)] == ["req-7"] * 4
        assert anew.life == 2

    def test_a_lost_an_overrun_and_an_expired_job_say_whose_they_are(self) -> None:
        given = self.place.put(request_id="req-7", owner="ann", deadline_s=10).id
        own = self.place.put(deadline_s=20).id
        self.clock.push(30)
        found = self.place.store.expired_jobs(limit=9)
        assert [(one.request_id, one.owner) for one in found] == [("req-7", "ann"), (own, "")]
        claims = self.place.take(self.worker, 2)
        self.clock.push(1)
        limits_s = {claims[0].lane: 0.5}
        overrun = self.place.store.overrun(limits_s, limit=9)
        assert [one.claim.request_id for one in overrun] == ["req-7", own]
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        lost = self.place.store.lost_claims(limit=9)
        assert {one.claim.id: one.claim.request_id for one in lost} == {given: "req-7", own: own}

    def test_a_begun_job_is_of_its_callers_request_in_a_closed_lane_too(self) -> None:
        claim = self._begin(request_id="req-7")
        assert isinstance(claim, Claim)
        assert (claim.request_id, self.place.see(claim.id).request_id) == ("req-7", "req-7")
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        queued = self._begin(request_id="req-8")
        assert isinstance(queued, Enqueued)
        assert self.place.see(queued.id).request_id == "req-8"

    def test_the_job_of_a_key_keeps_the_request_and_the_place_of_the_first_call(self) -> None:
        first = {"request_id": "req-1", "ordered_at": self._ago(60)}
        again = {"request_id": "req-2", "ordered_at": self._ago(90), "if_failed": IfFailed.RETRY}
        made = self.place.put(key="k", **first)
        self.place.put(key="k", **again)
        self._begin(key="k", **again)
        job = self.place.see(made.id)
        assert (job.request_id, job.ordered_at) == ("req-1", self._ago(60))
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        assert self.place.put(key="k", **again).revived
        job = self.place.see(made.id)
        assert (job.request_id, job.ordered_at) == ("req-1", self.clock.now())

    # -- its place in line -------------------------------------------------------------------

    def test_jobs_stand_in_line_by_the_moments_they_were_ordered_at(self) -> None:
        plain = self.place.put().id
        late, early = (self.place.put(ordered_at=self._ago(ago)).id for ago in (10, 20))
        assert self.place.see(early).ordered_at == self._ago(20)
        assert self.place.see(plain).ordered_at == self.clock.now()
        assert self.place.taken_ids(self.worker, 9) == [early, late, plain]

    def test_a_moment_that_is_still_to_come_counts_as_now(self) -> None:
        first = self.place.put().id
        ahead = self.place.put(ordered_at=self.clock.now() + DAY).id
        job, now = self.place.see(ahead), self.clock.now()
        assert (job.ordered_at, job.due_at, job.ready) == (now, now, True)
        self.clock.push(1)
        after = self.place.put().id
        assert self.place.taken_ids(self.worker, 9) == [first, ahead, after]

    def test_priority_shifts_a_job_from_the_moment_it_was_ordered_at(self) -> None:
        old = self.place.put(ordered_at=self._ago(2 * AGEING_S)).id
        urgent = self.place.put(priority=1).id
        both = self.place.put(priority=1, ordered_at=self._ago(1.5 * AGEING_S)).id
        assert self.place.taken_ids(self.worker, 9) == [both, old, urgent]

    def test_a_job_for_later_stands_where_it_was_ordered_once_it_may_begin(self) -> None:
        ordered = self._ago(100)
        later = self.place.put(ordered_at=ordered, run_at=self.clock.now() + DAY).id
        waiting = self.place.put().id
        job = self.place.see(later)
        assert (job.ordered_at, job.ready) == (ordered, False)
        self.clock.push(DAY.total_seconds())
        assert self.place.taken_ids(self.worker, 9) == [later, waiting]

    def test_a_retry_and_a_next_stage_keep_the_place_and_a_new_life_does_not(self) -> None:
        ordered = self._ago(100)
        claim = self.one_claim(ordered_at=ordered)
        waiting = self.place.put().id
        self.place.settle(retry(claim, self.worker, delay_s=5.0), by=self.worker)
        self.clock.push(5)
        (again,) = self.place.take(self.worker)
        self.place.settle(advance(again, self.worker, self.place.lanes["two"]), by=self.worker)
        assert self.place.see(claim.id).ordered_at == ordered
        (second,) = self.place.take(self.worker)
        assert second.id == claim.id
        self.place.settle(failure(second, self.worker), by=self.worker)
        self.place.revive(self.place.see(claim.id))
        assert self.place.see(claim.id).ordered_at == self.clock.now()
        assert self.place.taken_ids(self.worker, 9) == [waiting, claim.id]

    def test_no_deadline_counts_from_the_moment_a_job_was_ordered_at(self) -> None:
        now = self.clock.now()
        for run_at, begins_at in ((None, now), (now + DAY, now + DAY)):
            for length in ({"deadline_s": 90}, {"policies_s": 90}):
                id = self.place.put(ordered_at=self._ago(3600), run_at=run_at, **length).id
                assert self.place.see(id).deadline_at == begins_at + timedelta(seconds=90)
        self.clock.push(89)
        assert self.place.store.expired_jobs(limit=9) == []

    def test_a_begun_job_that_goes_to_a_worker_stands_where_it_was_ordered(self) -> None:
        ordered = self._ago(100)
        claim = self._begin(ordered_at=ordered, deadline_s=90)
        assert isinstance(claim, Claim)
        job = self.place.see(claim.id)
        assert (job.ordered_at, job.enqueued_at) == (ordered, self.clock.now())
        assert job.deadline_at == self.clock.now() + timedelta(seconds=90)
        waiting = self.place.put().id
        self.place.settle(retry(claim, job.worker, delay_s=0.0), by=job.worker)
        assert self.place.taken_ids(self.worker, 9) == [claim.id, waiting]

    def test_in_a_fair_queue_owners_take_turns_whenever_their_jobs_were_ordered(self) -> None:
        jobs = [
            self.place.new(owner=owner, fair=True, ordered_at=self._ago(ago))
            for owner, ago in (("a", 10), ("a", 20), ("b", 90), ("b", 80))
        ]
        self.place.store.enqueue(jobs)
        assert self.place.see(jobs[2].id).ordered_at == self._ago(90)
        claims = self.place.take(self.worker, 4)
        assert [claim.owner for claim in claims] == ["a", "b", "a", "b"]
