"""enqueue: order, keys, repeats, times and ranks."""

from datetime import timedelta

from perdure.model.errors import StoreError
from perdure.model.jobs import ZERO, Enqueued, IfFailed
from perdure.model.limits import AGEING_S
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import advance, failure, success
from perdure.testing.store_contract.fresh_store import OnAFreshStore, raises


class EnqueueContract(OnAFreshStore):
    """What comes in, and under which name."""

    def test_jobs_are_numbered_in_the_order_in_which_they_are_given(self) -> None:
        jobs = [self.place.new() for _ in range(5)]
        done = self.place.store.enqueue(jobs)
        numbers = [one.no for one in done]
        assert numbers == sorted(set(numbers))
        assert [one.id for one in done] == [job.id for job in jobs]
        assert all(one.created and not one.revived for one in done)

    def test_a_new_job_is_queued_and_due_at_the_stores_time(self) -> None:
        new = self.place.new(owner="ann", priority=3)
        (made,) = self.place.store.enqueue([new])
        job, now = self.place.see(new.id), self.clock.now()
        assert (job.no, job.state, job.shown_state) == (made.no, State.QUEUED, "queued")
        assert (job.stage, job.owner, job.queue, job.category) == ("one", "ann", "q", "c")
        assert (job.enqueued_at, job.due_at, job.deadline_at) == (now, now, None)
        assert (job.token, job.life, job.worker, job.priority) == (0, 1, None, 3)
        assert (job.claimed_at, job.finished_at, job.discarded_at) == (None, None, None)
        assert (job.counters, job.past, job.isolation, job.retries_manual) == (ZERO, ZERO, 0, 0)
        assert (job.key, job.run, job.redrive_run, job.input_from) == (None, None, None, None)
        assert job.payload_json == job.input_json == new.payload_json

    def test_nothing_to_enqueue_is_nothing(self) -> None:
        before = self.place.everything()
        assert self.place.store.enqueue([]) == []
        assert self.place.everything() == before

    def test_the_books_count_what_was_accepted(self) -> None:
        self.place.put_many(3)
        self.place.put(key="a")
        self.place.put(key="a")
        books = self.place.reader.books()
        assert (books.accepted, books.queued) == (4, 4)

    def test_a_batch_with_an_impossible_row_is_refused_whole(self) -> None:
        before = self.place.everything()
        new = self.place.new
        with raises(StoreError):
            self.place.store.enqueue([new(key="k"), new(payload_json=None), new()])
        assert self.place.everything() == before
        assert self.place.put(key="k").created
        self.place.clean()

    # -- keys --------------------------------------------------------------------------------

    def test_a_job_for_a_lane_that_does_not_exist_is_refused_with_its_batch(self) -> None:
        with raises(StoreError):
            self.place.store.enqueue([self.place.new(), self.place.new(lane=999)])
        assert self.place.reader.books().accepted == 0
        self.place.clean()

    def test_the_same_key_is_the_same_job(self) -> None:
        first = self.place.put(key="invoice-7")
        again = self.place.put(key="invoice-7")
        assert again == Enqueued(first.id, first.no, created=False)
        assert len(self.place.reader.jobs()) == 1

    def test_the_same_key_is_the_same_job_after_it_has_ended(self) -> None:
        for end in (success, failure):
            claim = self.one_claim(key=end.__name__)
            self.place.settle(end(claim, self.worker), by=self.worker)
            again = self.place.put(key=end.__name__)
            assert again == Enqueued(claim.id, claim.no, created=False)

    def test_the_same_key_of_another_owner_is_another_job(self) -> None:
        ids = {self.place.put(key="k", owner=owner).id for owner in ("", "ann", "bob")}
        assert len(ids) == 3

    def test_the_same_key_in_another_pipeline_is_another_job(self) -> None:
        assert self.place.put(key="k").created
        assert self.place.put(key="k", pipeline="other").created

    def test_the_same_key_in_another_run_is_another_job(self) -> None:
        one, two = self.place.begin_run("one"), self.place.begin_run("two")
        ids = {self.place.put(key="k", run=run).id for run in (None, one.no, two.no)}
        assert len(ids) == 3
        assert not self.place.put(key="k", run=two.no).created
        assert not self.place.put(key="k").created

    def test_jobs_without_a_key_are_all_different(self) -> None:
        assert all(one.created for one in self.place.put_many(3, key=None))

    def test_a_key_that_comes_twice_in_one_batch_is_one_job(self) -> None:
        new = self.place.new
        first, other, again = self.place.store.enqueue([new(key="k"), new(key="j"), new(key="k")])
        assert again == Enqueued(first.id, first.no, created=False)
        assert other.created
        assert self.place.reader.books().accepted == 2
        self.place.clean()

    def test_keys_are_compared_letter_by_letter(self) -> None:
        keys = ("k", "K", "k ", " k", "ķ", "k%", "k_", "ｋ", "k\u0327")
        assert all(self.place.put(key=key).created for key in keys)
        assert not any(self.place.put(key=key).created for key in keys)

    # -- a key whose job has failed ------------------------------------------------------------

    def test_the_key_of_a_failed_job_gives_that_job_as_it_is(self) -> None:
        job = self.place.dead_letter(self.worker, key="k")
        again = self.place.put(key="k", if_failed=IfFailed.KEEP)
        assert again == Enqueued(job.id, job.no, created=False, revived=False)
        assert self.place.see(job.id) == job

    def test_the_key_of_a_failed_job_can_ask_for_a_new_life(self) -> None:
        job = self.place.dead_letter(self.worker, key="k", priority=2, deadline_s=100)
        self.clock.push(30)
        again = self.place.put(key="k", if_failed=IfFailed.RETRY)
        assert again == Enqueued(job.id, job.no, created=False, revived=True)
        seen = self.place.see(job.id)
        assert (seen.state, seen.life, seen.retries_manual) == (State.QUEUED, 2, 1)
        assert (seen.token, seen.counters, seen.error_kind) == (job.token + 1, ZERO, None)
        assert (seen.due_at, seen.payload_json) == (self.clock.now(), job.payload_json)
        assert seen.deadline_at == self.clock.now() + timedelta(seconds=100)
        assert self.place.reader.books().accepted == 1
        self.place.clean()

    def test_a_new_life_by_key_has_the_time_of_the_policies_and_not_of_the_new_call(self) -> None:
        for had_s, given_s in ((None, None), (None, 60.0), (50.0, 60.0), (50.0, None)):
            key = f"k {had_s} {given_s}"
            job = self.place.dead_letter(self.worker, key=key, policies_s=had_s)
            later = self.clock.now() + timedelta(days=1)
            again = {"deadline_s": 5, "run_at": later, "policies_s": given_s}
            self.place.put(key=job.key, if_failed=IfFailed.RETRY, **again)
            wanted = given_s and self.clock.now() + timedelta(seconds=given_s)
            assert self.place.see(job.id).deadline_at == wanted
            self.place.take(self.worker)

    def test_a_key_revives_its_job_once(self) -> None:
        job = self.place.dead_letter(self.worker, key="k")
        new = self.place.new
        retry = IfFailed.RETRY
        first, second = self.place.store.enqueue(
            [new(key="k", if_failed=retry), new(key="k", if_failed=retry)]
        )
        assert (first.revived, second.revived) == (True, False)
        assert not self.place.put(key="k", if_failed=retry).revived
        assert self.place.see(job.id).life == 2

    def test_the_very_same_job_brought_twice_revives_a_dead_one_once(self) -> None:
        self.place.dead_letter(self.worker, key="k")
        again = self.place.new(key="k", if_failed=IfFailed.RETRY)
        done = self.place.store.enqueue([again, again])
        assert [one.revived for one in done] == [True, False]

    def test_a_job_that_has_not_failed_is_not_revived_by_its_key(self) -> None:
        for place, end in enumerate((None, success)):
            claim = self.one_claim(key=f"k{place}")
            if end is not None:
                self.place.settle(end(claim, self.worker), by=self.worker)
            before = self.place.see(claim.id)
            again = self.place.put(key=f"k{place}", if_failed=IfFailed.RETRY)
            assert again == Enqueued(claim.id, claim.no, created=False, revived=False)
            assert self.place.see(claim.id) == before

    def test_a_job_revived_by_its_key_goes_on_where_it_failed(self) -> None:
        claim = self.one_claim(key="k")
        lane = self.place.lanes["two"]
        step = advance(claim, self.worker, lane, reclaim=True, value_json="[7]")
        (receipt,) = self.place.settle(step, by=self.worker)
        (second,) = self.place.store.claims_held(self.worker)
        assert second.id == receipt.id
        self.place.settle(failure(second, self.worker), by=self.worker)
        assert self.place.put(key="k", if_failed=IfFailed.RETRY).revived
        (third,) = self.place.take(self.worker)
        assert (third.stage, third.lane, third.input_json) == ("two", lane, "[7]")
        assert (third.past, third.life) == (ZERO, 2)

    # -- repeats -----------------------------------------------------------------------------

    def test_a_call_that_is_sent_again_finds_its_own_jobs(self) -> None:
        jobs = [self.place.new(), self.place.new(key="k"), self.place.new()]
        first = self.place.store.enqueue(jobs)
        assert self.place.store.enqueue(jobs) == first
        assert self.place.reader.books().accepted == 3
        self.place.clean()

    def test_a_call_that_is_sent_again_with_more_adds_only_the_new(self) -> None:
        known, fresh = self.place.new(), self.place.new()
        (first,) = self.place.store.enqueue([known])
        again, second = self.place.store.enqueue([known, fresh])
        assert again == first
        assert second.no > first.no
        assert self.place.reader.books().accepted == 2
        self.place.clean()

    def test_the_same_job_twice_in_one_batch_is_one_job(self) -> None:
        job = self.place.new()
        first, again = self.place.store.enqueue([job, job])
        assert first.no == again.no
        assert self.place.reader.books().accepted == 1
        self.place.clean()

    def test_a_call_that_is_sent_again_does_not_revive_its_job(self) -> None:
        new = self.place.new(if_failed=IfFailed.RETRY, key="k")
        (made,) = self.place.store.enqueue([new])
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        assert self.place.store.enqueue([new]) == [made]
        assert self.place.see(new.id).state is State.FAILED

    # -- times and ranks ---------------------------------------------------------------------

    def test_a_job_for_later_is_not_ready_before(self) -> None:
        later = self.clock.now() + timedelta(seconds=30)
        id = self.place.put(run_at=later).id
        job = self.place.see(id)
        assert (job.due_at, job.shown_state) == (later, "scheduled")
        self.clock.push(29.999999)
        assert self.place.take(self.worker) == []
        self.clock.push(0.000001)
        assert self.place.taken_ids(self.worker) == [id]

    def test_a_time_in_the_past_is_now(self) -> None:
        id = self.place.put(run_at=self.clock.now() - timedelta(days=1)).id
        assert self.place.see(id).due_at == self.clock.now()
        assert self.place.taken_ids(self.worker) == [id]

    def test_a_deadline_counts_from_the_stores_time(self) -> None:
        id = self.place.put(deadline_s=90.5).id
        assert self.place.see(id).deadline_at == self.clock.now() + timedelta(seconds=90.5)

    def test_a_deadline_counts_from_when_the_job_may_begin(self) -> None:
        now, day = self.clock.now(), timedelta(days=1)
        for run_at, began_at in ((now + day, now + day), (now - day, now)):
            ids = [one.id for one in self.place.put_many(2, deadline_s=90, run_at=run_at)]
            wanted = began_at + timedelta(seconds=90)
            assert [self.place.see(id).deadline_at for id in ids] == [wanted] * 2

    def test_a_higher_priority_goes_first_and_equals_keep_their_order(self) -> None:
        low = self.place.put(priority=-1).id
        plain = [one.id for one in self.place.put_many(2)]
        high = self.place.put(priority=1).id
        assert self.place.taken_ids(self.worker, 9) == [high, *plain, low]

    def test_one_step_of_priority_is_worth_its_ageing(self) -> None:
        old = self.place.put(priority=0).id
        self.clock.push(AGEING_S - 0.000001)
        urgent = self.place.put(priority=1).id
        assert self.place.taken_ids(self.worker, 1) == [urgent]
        self.clock.push(0.000002)
        self.place.put(priority=1)
        assert self.place.taken_ids(self.worker, 1) == [old]

    def test_a_job_for_later_ranks_by_its_time_and_not_by_when_it_was_sent(self) -> None:
        early = self.place.put(run_at=self.clock.now() + timedelta(seconds=100)).id
        self.clock.push(50)
        sooner = self.place.put().id
        self.clock.push(60)
        latest = self.place.put().id
        assert self.place.taken_ids(self.worker, 9) == [sooner, early, latest]

    def test_jobs_of_one_batch_may_be_for_different_lanes_and_times(self) -> None:
        later = self.clock.now() + timedelta(seconds=5)
        jobs = [
            self.place.new(),
            replace(self.place.new(), lane=self.place.lanes["two"], stage="two", run_at=later),
            self.place.new(priority=9),
        ]
        self.place.store.enqueue(jobs)
        assert self.place.taken_ids(self.worker, 9) == [jobs[2].id, jobs[0].id]
        self.clock.push(5)
        assert self.place.taken_ids(self.worker, 9) == [jobs[1].id]
