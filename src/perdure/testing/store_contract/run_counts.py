"""What a run counts beside its jobs: failures by kind, tokens and money, through every life."""

from perdure.model.jobs import Claim, IfFailed, Record
from perdure.model.nouns import replace
from perdure.model.runs import NANO, RunCounts, RunView
from perdure.testing.store_contract.attempt_ends import (
    advance,
    failing,
    failure,
    retry,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import OnAFreshStore


class CountsContract(OnAFreshStore):
    """Kept as jobs move, never counted over them."""

    def _kinds_of(self, run: RunView) -> dict[str, int]:
        return dict(self.place.see_run(run).kinds)

    def _claim_again(self) -> Claim:
        (claim,) = self.place.take(self.worker)
        return claim

    # -- kinds -------------------------------------------------------------------------------

    def test_failed_jobs_are_counted_by_kind(self) -> None:
        run = self.place.begin_run()
        for kind in ("network", "input_invalid", "network", None):
            claim = self.one_claim(run=run.no)
            self.place.settle(failing(claim, self.worker, kind=kind), by=self.worker)
        assert self._kinds_of(run) == {"": 1, "input_invalid": 1, "network": 2}
        assert sum(self._kinds_of(run).values()) == self.place.see_run(run).counts.failed
        self.place.clean()

    def test_a_failure_that_is_tried_again_is_no_failed_job(self) -> None:
        run = self.place.begin_run()
        self.place.settle(retry(self.one_claim(run=run.no), self.worker), by=self.worker)
        assert self._kinds_of(run) == {}

    def test_the_kinds_of_all_writers_are_summed(self) -> None:
        run = self.place.begin_run()
        for _ in range(3):
            worker = self.place.hire()
            self.place.put(run=run.no)
            (claim,) = self.place.take(worker)
            self.place.settle(failing(claim, worker, kind="network"), by=worker)
        assert self._kinds_of(run) == {"network": 3}

    def test_a_new_life_takes_back_the_kind_that_the_job_had(self) -> None:
        run = self.place.begin_run()
        jobs = []
        for kind in ("network", None, "network"):
            claim = self.one_claim(run=run.no)
            self.place.settle(failing(claim, self.worker, kind=kind), by=self.worker)
            jobs.append(self.place.see(claim.id))
        self.place.revive(jobs[0])
        assert self._kinds_of(run) == {"": 1, "network": 1}
        self.place.revive(jobs[1])
        assert self._kinds_of(run) == {"network": 1}
        claims = self.place.take(self.worker, 2)
        self.place.settle(
            *(failing(claim, self.worker, kind="timeout") for claim in claims), by=self.worker
        )
        assert self._kinds_of(run) == {"network": 1, "timeout": 2}
        self.place.clean()

    def test_a_job_revived_by_its_key_takes_back_the_kind_that_it_had(self) -> None:
        run = self.place.begin_run()
        self.place.dead_letter(self.worker, run=run.no, key="k")
        assert self._kinds_of(run) == {"input_invalid": 1}
        assert self.place.put(run=run.no, key="k", if_failed=IfFailed.RETRY).revived
        assert self._kinds_of(run) == {}
        self.place.clean()

    def test_a_job_that_is_driven_again_counts_by_kind_in_both_runs(self) -> None:
        run = self.place.begin_run("first")
        job = self.place.dead_letter(self.worker, run=run.no)
        child = self.place.begin_run("again", parent=run.no)
        self.place.revive(job, redrive_run=child.no)
        assert (self._kinds_of(run), self._kinds_of(child)) == ({}, {})
        self.place.settle(failing(self._claim_again(), self.worker, kind="network"), by=self.worker)
        assert (self._kinds_of(run), self._kinds_of(child)) == ({"network": 1}, {"network": 1})
        self.place.revive(self.place.see(job.id))
        assert (self._kinds_of(run), self._kinds_of(child)) == ({}, {})
        self.place.settle(failing(self._claim_again(), self.worker, kind="timeout"), by=self.worker)
        third = self.place.begin_run("third", parent=run.no)
        self.place.revive(self.place.see(job.id), redrive_run=third.no)
        assert (self._kinds_of(run), self._kinds_of(child)) == ({}, {"timeout": 1})
        assert self._kinds_of(third) == {}
        self.place.clean()

    def test_a_stale_or_repeated_record_counts_no_kind_twice(self) -> None:
        run = self.place.begin_run()
        record = failure(self.one_claim(run=run.no), self.worker)
        self.place.settle(replace(record, token=record.token + 5), by=self.worker)
        assert self._kinds_of(run) == {}
        self.place.settle(record, by=self.worker)
        self.place.settle(record, by=self.worker)
        assert self._kinds_of(run) == {"input_invalid": 1}

    # -- tokens and money --------------------------------------------------------------------

    def test_what_every_attempt_has_used_up_is_counted_whatever_became_of_it(self) -> None:
        run = self.place.begin_run()
        spent = {"tokens_in": 100, "tokens_out": 7, "cost_nusd": 250_000}
        claim = self.one_claim(run=run.no)
        self.place.settle(spending(retry(claim, self.worker, delay_s=0.0), **spent), by=self.worker)
        step = advance(self._claim_again(), self.worker, self.place.lanes["two"], reclaim=True)
        self.place.settle(spending(step, **spent), by=self.worker)
        (held,) = self.place.store.claims_held(self.worker)
        self.place.settle(spending(success(held, self.worker), **spent), by=self.worker)
        assert self.place.see_run(run).counts == RunCounts(
            total=1,
            succeeded=1,
            attempts=3,
            retries=1,
            tokens_in=300,
            tokens_out=21,
            cost_nusd=750_000,
        )
        told = self.place.reader.attempts(claim.no)
        assert [(one.tokens_in, one.tokens_out, one.cost_nusd) for one in told] == [
            (100, 7, 250_000)
        ] * 3
        self.place.clean()

    def test_a_success_at_the_first_attempt_is_counted_with_what_it_cost(self) -> None:
        run = self.place.begin_run()
        record = success(self.one_claim(run=run.no), self.worker)
        self.place.settle(spending(record, cost_nusd=1), by=self.worker)
        self.place.settle(spending(record, cost_nusd=1), by=self.worker)
        counts = self.place.see_run(run).counts
        assert counts == RunCounts(total=1, succeeded=1, attempts=1, cost_nusd=1)
        (attempt,) = self.place.reader.attempts(record.no)
        assert attempt.cost_nusd == 1

    def test_calls_of_an_upstream_are_counted_and_other_attempts_are_not(self) -> None:
        """Alone in a batch and beside others, at the first attempt and after a retry; sent twice, once."""
        run = self.place.begin_run()
        again = _calling(retry(self.one_claim(run=run.no), self.worker, delay_s=0.0))
        self.place.settle(again, by=self.worker)
        step = advance(self._claim_again(), self.worker, self.place.lanes["two"], reclaim=True)
        self.place.settle(step, by=self.worker)
        (held,) = self.place.store.claims_held(self.worker)
        last, other = success(held, self.worker), success(self.one_claim(run=run.no), self.worker)
        for _ in range(2):
            self.place.store.turn([_calling(last), other], None, by=self.worker)
        counts = self.place.see_run(run).counts
        assert (counts.attempts, counts.calls) == (4, 2)
        first = success(self.one_claim(run=run.no), self.worker)
        self.place.settle(_calling(first), by=self.worker)
        counts = self.place.see_run(run).counts
        assert (counts.attempts, counts.calls) == (5, 3)
        self.place.clean()

    def test_money_is_whole_and_may_be_much(self) -> None:
        run = self.place.begin_run()
        for _ in range(3):
            record = success(self.one_claim(run=run.no), self.worker)
            self.place.settle(spending(record, cost_nusd=10**15 + 1), by=self.worker)
        counts = self.place.see_run(run).counts
        assert counts.cost_nusd == 3 * 10**15 + 3
        assert counts.cost_usd == counts.cost_nusd / NANO

    def test_earlier_lives_stay_counted_and_a_child_run_counts_its_own(self) -> None:
        run = self.place.begin_run("first")
        claim = self.one_claim(run=run.no)
        self.place.settle(
            spending(failure(claim, self.worker), tokens_in=10, cost_nusd=5), by=self.worker
        )
        child = self.place.begin_run("again", parent=run.no)
        self.place.revive(self.place.see(claim.id), redrive_run=child.no)
        again = spending(success(self._claim_again(), self.worker), tokens_in=20, tokens_out=1)
        self.place.settle(again, by=self.worker)
        assert self.place.see_run(run).counts == RunCounts(
            total=1, succeeded=1, attempts=2, tokens_in=30, tokens_out=1, cost_nusd=5
        )
        assert self.place.see_run(child).counts == RunCounts(
            total=1, succeeded=1, attempts=1, tokens_in=20, tokens_out=1
        )
        self.place.clean()

    # -- what is said of a failure ---------------------------------------------------------------

    def test_code_detail_and_fingerprint_are_the_last_records(self) -> None:
        claim = self.one_claim()
        record = retry(claim, self.worker, delay_s=0.0)
        self.place.settle(replace(record, error_code="ECONNRESET"), by=self.worker)
        assert self.place.see(claim.id).error_code == "ECONNRESET"
        again = self._claim_again()
        record = failing(
            again, self.worker, code="422", detail="field x: too long", fingerprint="f" * 16
        )
        self.place.settle(record, by=self.worker)
        job = self.place.see(claim.id)
        assert (job.error_code, job.error_detail, job.fingerprint) == (
            "422",
            "field x: too long",
            "f" * 16,
        )
        first, second = self.place.reader.attempts(claim.no)
        assert (first.code, second.code) == (None, "422")
        self.place.revive(job)
        job = self.place.see(claim.id)
        assert (job.error_code, job.error_detail, job.fingerprint) == (None, None, None)
        self.place.settle(success(self._claim_again(), self.worker), by=self.worker)
        job = self.place.see(claim.id)
        assert (job.error_code, job.error_detail, job.fingerprint) == (None, None, None)
        self.place.clean()

    def test_a_record_clears_what_it_does_not_say(self) -> None:
        claim = self.one_claim()
        record = retry(claim, self.worker, delay_s=0.0)
        self.place.settle(replace(record, error_code="503", error_detail="x"), by=self.worker)
        self.place.settle(success(self._claim_again(), self.worker), by=self.worker)
        job = self.place.see(claim.id)
        assert (job.error_code, job.error_detail) == (None, None)

    def test_a_job_revived_by_its_key_has_no_failure_left(self) -> None:
        claim = self.one_claim(key="k")
        self.place.settle(
            failing(claim, self.worker, code="c", detail="d", fingerprint="f"), by=self.worker
        )
        assert self.place.put(key="k", if_failed=IfFailed.RETRY).revived
        job = self.place.see(claim.id)
        assert (job.error_kind, job.error_code, job.error_detail, job.fingerprint) == (
            None,
            None,
            None,
            None,
        )


def _calling(record: Record) -> Record:
    assert record.attempt is not None
    return replace(record, attempt=replace(record.attempt, called=True))
