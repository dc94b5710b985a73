"""The guard: a word with another token than the job's, or from a dead worker, changes nothing."""

from datetime import timedelta

from perdure.model.errors import WorkerDead
from perdure.model.jobs import Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import (
    ENDINGS,
    advance,
    cancellation,
    crash,
    release,
    success,
)
from perdure.testing.store_contract.fresh_store import OnAFreshStore, raises


class GuardsContract(OnAFreshStore):
    """Who may not write."""

    def test_a_record_with_another_token_writes_nothing_at_all(self) -> None:
        claim = self.one_claim()
        before = self.place.everything()
        for end in ENDINGS:
            for off_by in (-1, 1, 1000):
                stale = replace(end(claim, self.worker), token=claim.token + off_by)
                answer = self.place.settle(stale, by=self.worker)
                assert answer == (Stale(claim.no, claim.id, stale.token),), end.__name__
                assert self.place.everything() == before, end.__name__

    def test_a_record_of_a_job_that_does_not_exist_is_stale(self) -> None:
        claim = self.one_claim()
        stranger = replace(success(claim, self.worker), no=claim.no + 1000)
        (answer,) = self.place.settle(stranger, by=self.worker)
        assert answer == Stale(stranger.no, stranger.id, stranger.token)

    def test_a_stale_advance_leaves_no_attempt_and_no_checkpoint(self) -> None:
        claim = self.one_claim()
        before = self.place.everything()
        step = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        stale = replace(step, token=claim.token + 1)
        assert self.place.settle(stale, by=self.worker) == (Stale(claim.no, claim.id, stale.token),)
        assert self.place.everything() == before

    def test_a_writer_that_was_overtaken_writes_nothing(self) -> None:
        """The job is processing again, so its state would let the late word in; its token does not."""
        claim, other = self.one_claim(), self.place.hire()
        self.place.settle(release(claim, None), by=None)
        (theirs,) = self.place.take(other)
        before = self.place.everything()
        for end in ENDINGS:
            (answer,) = self.place.settle(end(claim, self.worker), by=self.worker)
            assert isinstance(answer, Stale), end.__name__
            assert self.place.everything() == before, end.__name__
        assert isinstance(self.place.settle(success(theirs, other), by=other)[0], Receipt)
        self.place.clean()

    def test_a_word_about_a_job_that_has_ended_is_stale(self) -> None:
        """Two workers say how it ended; the second is not heard."""
        claim, other = self.one_claim(), self.place.hire()
        self.place.settle(crash(claim, self.worker), by=other)
        (again,) = self.place.take(other, isolation=1)
        self.place.settle(success(again, other), by=other)
        before = self.place.everything()
        for end in ENDINGS:
            (answer,) = self.place.settle(end(claim, self.worker), by=self.worker)
            assert isinstance(answer, Stale), end.__name__
        assert self.place.everything() == before

    def test_a_word_about_a_job_that_somebody_else_settled_is_stale(self) -> None:
        """The attempt row of this token is there, but it is not ours."""
        claim = self.one_claim()
        self.place.settle(cancellation(claim, self.worker), by=None)
        before = self.place.everything()
        assert isinstance(self.place.settle(success(claim, self.worker), by=self.worker)[0], Stale)
        assert self.place.everything() == before
        assert self.place.see(claim.id).state is State.CANCELLED
        self.place.clean()

    def test_a_receipt_is_for_the_one_who_wrote(self) -> None:
        claim, other = self.one_claim(), self.place.hire()
        record = success(claim, self.worker)
        self.place.settle(record, by=self.worker)
        for stranger in (other, None):
            (answer,) = self.place.settle(record, by=stranger)
            assert answer == Stale(claim.no, claim.id, claim.token)

    def test_two_sweepers_settle_a_lost_job_once(self) -> None:
        """Both have read the same lost claim; the second one's read is stale by then."""
        claim = self.one_claim()
        one, other = self.place.hire(), self.place.hire()
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        (lost,) = self.place.store.lost_claims(limit=9)
        assert lost.claim == claim
        rescue = crash(lost.claim, self.worker)
        assert isinstance(self.place.settle(rescue, by=one)[0], Receipt)
        (again,) = self.place.take(one, isolation=1)
        self.place.settle(success(again, one), by=one)
        before = self.place.everything()
        assert isinstance(self.place.settle(rescue, by=other)[0], Stale)
        assert self.place.everything() == before
        assert self.place.see(claim.id).state is State.SUCCEEDED
        self.place.clean()

    # -- the dead ----------------------------------------------------------------------------

    def test_a_dead_worker_writes_nothing(self) -> None:
        claim = self.one_claim()
        self.place.put()
        self.place.put(run_at=self.clock.now() + timedelta(seconds=5))
        self.clock.push(6)
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        before = self.place.everything()
        order = self.place.order(self.worker, 1)
        word = success(claim, self.worker)
        for records, wanted in (([word], None), ([], order), ([word], order), ([], None)):
            with raises(WorkerDead, saying=f"worker {self.worker} was declared dead"):
                self.place.store.turn(records, wanted, by=self.worker)
            assert self.place.everything() == before

    def test_a_dead_worker_is_not_even_told_of_its_own_record(self) -> None:
        claim = self.one_claim()
        record = success(claim, self.worker)
        self.place.settle(record, by=self.worker)
        self.place.store.end_worker(self.worker, Death("exited", exit_status=1))
        with raises(WorkerDead):
            self.place.settle(record, by=self.worker)

    def test_a_worker_that_never_was_writes_nothing(self) -> None:
        claim = self.one_claim()
        with raises(WorkerDead):
            self.place.settle(success(claim, self.worker), by=999_999)
        assert self.place.see(claim.id).state is State.PROCESSING

    def test_what_a_dead_worker_held_is_settled_by_another(self) -> None:
        claim, other = self.one_claim(), self.place.hire()
        self.place.store.end_worker(self.worker, Death("exited", signal="SIGKILL"))
        (receipt,) = self.place.settle(crash(claim, self.worker), by=other)
        assert isinstance(receipt, Receipt)
        (seen,) = self.place.reader.attempts(claim.no)
        assert (seen.status, seen.counted, seen.worker) == ("interrupted", "crashes", self.worker)
        job = self.place.see(claim.id)
        assert (job.counters.crashes, job.isolation, job.worker) == (1, 1, None)
        self.place.clean()
