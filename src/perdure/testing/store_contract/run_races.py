"""Runs and bulk operations that two hands move at once: nothing slips past the other."""

from functools import partial

from perdure.model.jobs import Conflict, Receipt, Stale
from perdure.model.operations import BulkStep, BulkVerb, NewBulk, Revival
from perdure.model.runs import RunChange, RunStatus
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.testing.store_contract.attempt_ends import failure, success
from perdure.testing.store_contract.fresh_store import DEED, uuid_of
from perdure.testing.store_contract.shared_connections import SharingContract, at_once

_ROUNDS = 10


class RacesContract(SharingContract):
    """Two connections, and a run or a bulk operation between them."""

    def test_a_run_does_not_finish_past_a_job_that_lives_again(self) -> None:
        for n in range(_ROUNDS):
            run = self.place.begin_run(f"run {n}")
            self.place.control.seal_run(run.no)
            job = self.place.dead_letter(self.worker, run=run.no)
            change = RunChange(run.no, RunStatus.RUNNING, RunStatus.FAILED)
            _, answers = at_once(
                partial(self.place.control.change_run, change, DEED),
                partial(self.other.control.revive, [_revival_of(job)], DEED),
            )
            assert isinstance(answers[0], Receipt)
            seen = self.place.see_run(run)
            assert (seen.status, seen.ended_at) == (RunStatus.RUNNING, None)
            self.place.take(self.worker)
        self.place.clean()

    def test_a_run_finishes_with_the_counts_of_all_its_jobs(self) -> None:
        for n in range(_ROUNDS):
            run = self.place.begin_run(f"run {n}")
            self.place.control.seal_run(run.no)
            claim = self.one_claim(run=run.no)
            change = RunChange(run.no, RunStatus.RUNNING, RunStatus.COMPLETED)
            ended, _ = at_once(
                partial(self.place.control.change_run, change, DEED),
                partial(self.other.settle, success(claim, self.worker), by=self.worker),
            )
            assert ended is None or ended.counts.succeeded == 1
            assert self.place.see_run(run).counts.open == 0
        self.place.clean()

    def test_of_two_new_lives_for_one_key_one_happens(self) -> None:
        for n in range(_ROUNDS):
            runs = [self.place.begin_run(f"{side} {n}") for side in ("one", "two")]
            jobs = [self.place.dead_letter(self.worker, run=run.no, key=f"k{n}") for run in runs]
            answers = at_once(
                partial(self.place.control.revive, [_revival_of(jobs[0])], DEED),
                partial(self.other.control.revive, [_revival_of(jobs[1])], DEED),
            )
            kinds = {type(one) for (one,) in answers}
            assert kinds == {Receipt, Conflict}
            self.place.take(self.worker)
        self.place.clean()

    def test_of_two_who_make_one_step_one_does(self) -> None:
        bulk = self.place.control.add_bulk(NewBulk(uuid_of(1), BulkVerb.REDRIVE, "{}", DEED))
        cursor = None
        for _ in range(_ROUNDS):
            jobs = [self.place.dead_letter(self.worker) for _ in range(2)]
            step = BulkStep(bulk.no, cursor, jobs[0].no)
            chosen = [_revival_of(job) for job in jobs]
            answers = at_once(
                partial(self.place.control.revive, chosen, DEED, step=step),
                partial(self.other.control.revive, chosen, DEED, step=step),
            )
            kinds = sorted({type(one).__name__ for one in some} for some in answers)
            assert kinds in ([{"Receipt"}, {"Stale"}], [{"Stale"}, {"Receipt"}])
            cursor = jobs[0].no
            self.place.take(self.worker, 2)
        (seen,) = self.place.reader.bulks(id=bulk.id)
        assert (seen.done, seen.refused) == (2 * _ROUNDS, 0)
        assert self.place.reader.refusals(bulk.no) == []

    def test_a_job_that_ends_while_its_like_is_revived_is_told_apart(self) -> None:
        for n in range(_ROUNDS):
            run = self.place.begin_run(f"run {n}")
            job = self.place.dead_letter(self.worker, run=run.no, key=f"k{n}")
            claim = self.one_claim(key=f"k{n}")
            (answer,), _ = at_once(
                partial(self.place.control.revive, [_revival_of(job)], DEED),
                partial(self.other.settle, failure(claim, self.worker), by=self.worker),
            )
            assert not isinstance(answer, Stale)
            revived = self.place.see(job.id).state is State.QUEUED
            assert revived == isinstance(answer, Receipt)
            self.place.take(self.worker)
        self.place.clean()


def _revival_of(job: JobView) -> Revival:
    return Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
