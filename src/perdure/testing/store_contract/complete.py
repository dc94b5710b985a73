"""Records that a stage writes in a transaction of its own: they come and go with it, and the token guards them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from perdure.model.errors import BugError, CallerError, WorkerDead
from perdure.model.jobs import Capture, Claim, Receipt, RecordRefused, Stale
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, State
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    failure,
    retry,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import raises, uuid_of
from perdure.testing.store_contract.shared_connections import SharingContract


class LentTransaction(Protocol):
    """A connection of a stage's own to the store's database: what is passed as ``within``, and its transaction."""

    @property
    def within(self) -> object:
        """What a stage would pass."""
        ...

    def commit(self) -> object:
        """End the transaction; what it holds has happened."""
        ...

    def rollback(self) -> object:
        """End the transaction; what it holds has not happened."""
        ...


class CompleteContract(SharingContract):
    """A stage with a transaction of its own beside the store's."""

    def lend(self) -> AbstractContextManager[LentTransaction]:
        """A connection of a stage's own to the store that ``open`` has opened; an author writes this."""
        raise NotImplementedError

    @contextmanager
    def lent(self, claim: Claim) -> Iterator[LentTransaction]:
        """A transaction in which this claim has just succeeded."""
        with self.lend() as own:
            record = success(claim, self.worker)
            answer = self.place.store.complete(record, by=self.worker, within=own.within)
            assert answer == Receipt(claim.no, claim.id, claim.token, State.SUCCEEDED, None)
            yield own

    # -- both or neither -----------------------------------------------------------------------

    def test_a_record_in_a_stages_transaction_is_there_after_its_commit_and_not_before(
        self,
    ) -> None:
        claim = self.one_claim()
        with self.lent(claim) as own:
            assert self.place.see(claim.id).state is State.PROCESSING
            assert self.place.reader.attempts(claim.no) == []
            assert self.place.store.ends_of([(claim.no, claim.token)]) == {}
            own.commit()
        job = self.place.see(claim.id)
        assert (job.state, job.result_json) == (State.SUCCEEDED, '"done"')
        (attempt,) = self.place.reader.attempts(claim.no)
        assert (attempt.status, attempt.worker) == (AttemptStatus.SUCCESS, self.worker)
        self.place.clean()

    def test_a_record_goes_with_its_stages_rollback_and_the_claim_stands(self) -> None:
        claim = self.one_claim(run=self.place.begin_run().no)
        before = self.place.everything()
        with self.lent(claim) as own:
            own.rollback()
        assert self.place.everything() == before
        assert isinstance(self.place.settle(retry(claim, self.worker), by=self.worker)[0], Receipt)
        self.place.clean()

    def test_a_connection_that_ends_without_a_commit_takes_the_record_along(self) -> None:
        claim = self.one_claim()
        before = self.place.everything()
        with self.lent(claim):
            pass
        assert self.place.everything() == before

    def test_a_record_that_was_rolled_back_may_be_written_again(self) -> None:
        claim = self.one_claim()
        with self.lent(claim) as own:
            own.rollback()
        with self.lent(claim) as own:
            own.commit()
        assert self.place.see(claim.id).state is State.SUCCEEDED
        self.place.clean()

    def test_a_stage_that_is_not_the_last_leaves_its_job_queued_with_its_result(self) -> None:
        claim = self.one_claim()
        record = advance(claim, self.worker, self.place.lanes["two"])
        with self.lend() as own:
            answer = self.place.store.complete(record, by=self.worker, within=own.within)
            assert isinstance(answer, Receipt)
            assert (answer.state, answer.claim) == (State.QUEUED, None)
            own.commit()
        assert self.place.store.tokens_held(self.worker) == {}
        (following,) = self.place.take(self.worker)
        assert (following.stage, following.input_json) == ("two", '{"from":"one"}')
        assert following.token == claim.token + 2
        self.place.clean()

    def test_a_record_in_a_stages_transaction_claims_nothing_again(self) -> None:
        claim = self.one_claim()
        record = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        with self.lend() as own, raises(BugError, saying="claimed again"):
            self.place.store.complete(record, by=self.worker, within=own.within)

    def test_what_belongs_to_a_record_goes_with_it(self) -> None:
        run = self.place.begin_run()
        claim = self.one_claim(run=run.no)
        aside = Capture(uuid_of(1), "raw", "text/plain", b"words", 5, None)
        record = spending(success(claim, self.worker), tokens_in=3, tokens_out=4, cost_nusd=5)
        with self.lend() as own:
            self.place.store.complete(
                replace(record, captures=(aside,), label="passed"),
                by=self.worker,
                within=own.within,
            )
            assert self.place.see_run(run).counts.succeeded == 0
            own.commit()
        counts = self.place.see_run(run).counts
        assert (counts.succeeded, counts.attempts, counts.open) == (1, 1, 0)
        assert (counts.tokens_in, counts.tokens_out, counts.cost_nusd) == (3, 4, 5)
        assert [one.id for one in self.place.reader.captures(claim.no)] == [aside.id]
        assert self.place.see(claim.id).label == "passed"
        self.place.clean()

    # -- the guards ----------------------------------------------------------------------------

    def test_an_attempt_that_was_overtaken_completes_nothing(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=None)
        before = self.place.everything()
        with self.lend() as own:
            record = success(claim, self.worker)
            answer = self.place.store.complete(record, by=self.worker, within=own.within)
            assert answer == Stale(claim.no, claim.id, claim.token)
            own.commit()
        assert self.place.everything() == before

    def test_a_job_that_is_in_other_hands_is_not_completed_by_the_first(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=None)
        (again,) = self.place.take(self.place.hire())
        with self.lend() as own:
            record = success(claim, self.worker)
            answer = self.place.store.complete(record, by=self.worker, within=own.within)
            assert isinstance(answer, Stale)
            own.commit()
        assert self.place.see(claim.id).token == again.token
        assert [one.status for one in self.place.reader.attempts(claim.no)] == ["retrying"]

    def test_a_cancelled_job_is_not_completed(self) -> None:
        claim = self.one_claim()
        self.place.settle(cancellation(claim, self.worker), by=None)
        with self.lend() as own:
            record = success(claim, self.worker)
            answer = self.place.store.complete(record, by=self.worker, within=own.within)
            assert isinstance(answer, Stale)
            own.commit()
        assert self.place.see(claim.id).state is State.CANCELLED
        self.place.clean()

    def test_a_worker_that_was_declared_dead_completes_nothing(self) -> None:
        claim = self.one_claim()
        assert self.place.store.end_worker(self.worker, Death("exited"))
        before = self.place.everything()
        with self.lend() as own:
            record = success(claim, self.worker)
            with raises(WorkerDead, saying=f"worker {self.worker} was declared dead"):
                self.place.store.complete(record, by=self.worker, within=own.within)
            own.commit()
        assert self.place.everything() == before

    def test_the_same_record_in_a_stages_transaction_again_has_the_same_receipt(self) -> None:
        claim = self.one_claim()
        again = Receipt(claim.no, claim.id, claim.token, State.SUCCEEDED, None, repeated=True)
        record = success(claim, self.worker)
        with self.lent(claim) as own:
            assert again == self.place.store.complete(record, by=self.worker, within=own.within)
            own.commit()
        with self.lend() as own:
            assert again == self.place.store.complete(record, by=self.worker, within=own.within)
        assert len(self.place.reader.attempts(claim.no)) == 1
        self.place.clean()

    def test_a_record_that_cannot_be_written_leaves_the_stages_transaction_as_it_was(self) -> None:
        first, second = self.one_claim(), self.one_claim()
        with self.lent(first) as own:
            bad = replace(success(second, self.worker), isolation=9)
            answer = self.place.store.complete(bad, by=self.worker, within=own.within)
            assert isinstance(answer, RecordRefused)
            assert answer.reason
            own.commit()
        assert self.place.see(first.id).state is State.SUCCEEDED
        assert self.place.see(second.id).state is State.PROCESSING
        self.place.clean()

    def test_what_is_no_connection_is_no_transaction(self) -> None:
        claim = self.one_claim()
        with raises(CallerError, saying="within is"):
            self.place.store.complete(success(claim, self.worker), by=self.worker, within=5)
        assert self.place.see(claim.id).state is State.PROCESSING

    # -- beside it -----------------------------------------------------------------------------

    def test_how_attempts_have_ended_is_told_by_job_and_token(self) -> None:
        claims = [self.one_claim() for _ in range(3)]
        done, failed, open_one = claims
        self.place.settle(success(done, self.worker), by=self.worker)
        self.place.settle(failure(failed, self.worker), by=None)
        asked = [(one.no, one.token) for one in claims] + [(done.no, done.token + 1)]
        assert self.place.store.ends_of(asked) == {
            (done.no, done.token): AttemptStatus.SUCCESS,
            (failed.no, failed.token): AttemptStatus.FAILED,
        }
        assert self.place.store.ends_of([]) == {}
        assert self.place.see(open_one.id).state is State.PROCESSING

    def test_settling_without_waiting_writes_what_a_turn_would(self) -> None:
        claims = [self.one_claim() for _ in range(3)]
        bad = replace(retry(claims[1], self.worker), isolation=9)
        records = [success(claims[0], self.worker), bad, retry(claims[2], self.worker)]
        found = self.place.store.settle(records, by=self.worker)
        kinds = {one.no: type(one) for one in found}
        assert kinds == {claims[0].no: Receipt, claims[1].no: RecordRefused, claims[2].no: Receipt}
        again = self.place.store.settle([records[0]], by=self.worker)
        assert [one.repeated for one in again if isinstance(one, Receipt)] == [True]
        (late,) = self.place.store.settle([failure(claims[0], None)], by=None)
        assert isinstance(late, Stale)
        assert self.place.store.settle([], by=None) == ()
        self.place.clean()

    def test_a_dead_worker_settles_nothing_without_waiting_either(self) -> None:
        claim = self.one_claim()
        assert self.place.store.end_worker(self.worker, Death("exited"))
        with raises(WorkerDead):
            self.place.store.settle([success(claim, self.worker)], by=self.worker)
        assert self.place.see(claim.id).state is State.PROCESSING
