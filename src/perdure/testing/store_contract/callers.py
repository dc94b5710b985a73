"""Jobs that their callers run, and what has taken too long: begin, overrun, expired."""

from perdure.model.errors import WorkerDead
from perdure.model.jobs import Claim, Enqueued, OnLost
from perdure.model.nouns import replace
from perdure.model.operations import LaneScope
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.model.workers import Role
from perdure.testing.store_contract.attempt_ends import advance, release, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises

YEARS_S = 10 * 366 * 86_400.0


class CallersContract(OnAFreshStore):
    """What a caller does, and what is found when it does not come back."""

    def caller(self) -> int:
        """A worker of the caller's own, for which nobody beats."""
        return self.place.hire(role=Role.CALLER, ttl_s=YEARS_S)

    def _begin_call(self, worker: int, *, hard_s: float = 10.0, **changes: object) -> Claim:
        """A job in its caller's hands."""
        claim = self.place.store.begin(
            self.place.new(**changes), worker=worker, hard_s=hard_s, on_lost=OnLost.DROP
        )
        assert isinstance(claim, Claim)
        return claim

    def test_a_begun_job_is_in_its_callers_hands_from_the_first_moment(self) -> None:
        worker = self.caller()
        claim = self._begin_call(worker)
        job = self.place.see(claim.id)
        assert (job.state, job.worker, job.token, job.counters.starts) == (
            State.PROCESSING,
            worker,
            1,
            1,
        )
        assert claim.claimed_at == self.place.clock.now()
        assert self.place.store.tokens_held(worker) == {claim.no: 1}
        assert self.place.taken_ids(self.place.hire(), 5) == []
        assert self.place.reader.books().processing == 1
        self.place.clean()

    def test_a_begin_that_is_sent_again_is_the_same_claim(self) -> None:
        worker, new = self.caller(), self.place.new()
        answers = [
            self.place.store.begin(new, worker=worker, hard_s=10.0, on_lost=OnLost.DROP)
            for _ in range(2)
        ]
        assert answers[0] == answers[1]
        assert self.place.reader.books().accepted == 1

    def test_a_taken_key_gives_the_job_that_has_it(self) -> None:
        before = self.place.put(key="k")
        new = self.place.new(key="k")
        answer = self.place.store.begin(new, worker=self.caller(), hard_s=10.0, on_lost=OnLost.DROP)
        assert answer == Enqueued(before.id, before.no, created=False)
        assert self.place.reader.books().accepted == 1

    def test_in_a_closed_lane_the_job_is_queued_instead(self) -> None:
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        new = self.place.new()
        answer = self.place.store.begin(new, worker=self.caller(), hard_s=10.0, on_lost=OnLost.DROP)
        assert isinstance(answer, Enqueued)
        assert (answer.id, answer.created) == (new.id, True)
        assert self.place.see(new.id).state is State.QUEUED
        self.place.clean()

    def test_a_dead_caller_begins_nothing(self) -> None:
        worker = self.caller()
        self.place.store.end_worker(worker, Death("exited", exit_status=0))
        with raises(WorkerDead):
            self._begin_call(worker)
        assert self.place.reader.books().accepted == 0

    def test_a_caller_is_not_taken_for_dead_however_silent_it_is(self) -> None:
        worker = self.caller()
        self._begin_call(worker)
        judge = self.place.hire()
        for _ in range(100):
            self.place.clock.push(5)
            self.place.store.beat([judge])
        assert self.place.store.mark_dead(by=judge) == ()

    def test_what_a_caller_holds_beyond_its_own_limit_is_overrun(self) -> None:
        worker = self.caller()
        claim = self._begin_call(worker, hard_s=10.0)
        limits_s = {claim.lane: 1_000.0}
        self.place.clock.push(10)
        assert self.place.store.overrun(limits_s, limit=9) == []
        self.place.clock.push(0.001)
        (found,) = self.place.store.overrun(limits_s, limit=9)
        assert (found.claim, found.worker, found.on_lost) == (claim, worker, OnLost.DROP)
        assert found.seen_at == self.place.clock.now()

    def test_what_a_worker_holds_beyond_its_lanes_limit_is_overrun(self) -> None:
        self.place.put_many(2)
        worker = self.place.hire()
        first, second = self.place.take(worker, 2)
        limits_s = {first.lane: 5.0}
        self.place.clock.push(5.001)
        found = self.place.store.overrun(limits_s, limit=9)
        assert [(one.claim, one.worker, one.on_lost) for one in found] == [
            (first, worker, None),
            (second, worker, None),
        ]
        assert len(self.place.store.overrun(limits_s, limit=1)) == 1
        assert self.place.store.overrun({}, limit=9) == []

    def test_what_a_dead_worker_holds_is_lost_and_not_overrun(self) -> None:
        worker = self.caller()
        claim = self._begin_call(worker, hard_s=1.0)
        self.place.store.end_worker(worker, Death("exited", exit_status=1))
        self.place.clock.push(5)
        assert self.place.store.overrun({claim.lane: 1.0}, limit=9) == []
        (lost,) = self.place.store.lost_claims(limit=9)
        assert (lost.claim, lost.on_lost) == (claim, OnLost.DROP)

    def test_limit_and_wish_stay_through_a_reclaim_and_end_with_the_claim(self) -> None:
        worker = self.caller()
        first = self._begin_call(worker, hard_s=10.0)
        two = self.place.lanes["two"]
        (receipt,) = self.place.settle(advance(first, worker, two, reclaim=True), by=worker)
        claim = receipt.claim  # type: ignore[union-attr]
        assert claim is not None
        self.place.clock.push(11)
        (found,) = self.place.store.overrun({two: 1_000.0}, limit=9)
        assert (found.claim, found.on_lost) == (claim, OnLost.DROP)
        self.place.settle(release(claim, worker), by=worker)
        (again,) = self.place.take(self.place.hire())
        self.place.clock.push(11)
        assert self.place.store.overrun({two: 1_000.0}, limit=9) == []
        (found,) = self.place.store.overrun({two: 1.0}, limit=9)
        assert (found.claim, found.on_lost) == (again, None)

    def test_a_caller_ends_its_job_like_any_other(self) -> None:
        worker = self.caller()
        claim = self._begin_call(worker)
        self.place.settle(success(claim, worker), by=worker)
        assert self.place.see(claim.id).state is State.SUCCEEDED
        self.place.clean()

    def test_waiting_jobs_past_their_deadline_are_expired_in_closed_lanes_too(self) -> None:
        late = self.place.put(deadline_s=10.0)
        later = self.place.put(deadline_s=20.0)
        self.place.put()
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        self.place.clock.push(9.999)
        assert self.place.store.expired_jobs(limit=9) == []
        self.place.clock.push(0.001)
        assert [one.id for one in self.place.store.expired_jobs(limit=9)] == [late.id]
        self.place.clock.push(10)
        assert [one.id for one in self.place.store.expired_jobs(limit=9)] == [late.id, later.id]
        assert [one.id for one in self.place.store.expired_jobs(limit=1)] == [late.id]

    def test_what_expired_is_told_as_it_stands(self) -> None:
        self.place.put(deadline_s=10.0)
        worker = self.place.hire()
        (claim,) = self.place.take(worker)
        self.place.settle(replace(retry(claim, worker, delay_s=60.0), isolation=1), by=worker)
        self.place.clock.push(11)
        (found,) = self.place.store.expired_jobs(limit=9)
        job = self.place.see(claim.id)
        assert (found.no, found.token, found.lane, found.pipeline, found.stage) == (
            job.no,
            job.token,
            job.lane,
            job.pipeline,
            job.stage,
        )
        assert (found.counters, found.past, found.isolation) == (job.counters, job.past, 1)

    def test_a_job_in_work_or_at_its_end_does_not_expire(self) -> None:
        self.place.put_many(2, deadline_s=10.0)
        worker = self.place.hire()
        first, _ = self.place.take(worker, 2)
        self.place.settle(success(first, worker), by=worker)
        self.place.clock.push(100)
        assert self.place.store.expired_jobs(limit=9) == []
