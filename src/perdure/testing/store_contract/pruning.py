"""Pruning: what may be let go goes with all that is its own, and the books keep count."""

from typing import Any

from perdure.model.errors import WorkerDead
from perdure.model.jobs import Claim, ClaimOrder, Record
from perdure.model.limits import PRUNE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Pruned, Retention
from perdure.model.outcomes import Death
from perdure.model.runs import NewRun, RunChange, RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import Books, JobView
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failure,
    retry,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises

DAY_S = 86_400.0


def costly_failure(claim: Claim, worker: int | None) -> Record:
    """A dead letter that has used something up."""
    return spending(failure(claim, worker), tokens_in=3, tokens_out=2, cost_nusd=7)


class PruningContract(OnAFreshStore):
    """Jobs that ended longer ago than they are kept."""

    def _end_job(self, end: Any = success, **changes: Any) -> JobView:
        claim = self.one_claim(**changes)
        self.place.settle(end(claim, self.worker), by=self.worker)
        return self.place.see(claim.id)

    def _prune(self, *, limit: int = 100, after: int = 0, **retention: Any) -> Pruned:
        return self.place.control.prune(Retention(**retention), limit=limit, after=after)

    def _ids_left(self) -> set[str]:
        return {job.id for job in self.place.every_job()}

    def test_what_ended_longer_ago_than_it_is_kept_goes(self) -> None:
        old = self._end_job()
        self.clock.push(100)
        self.place.put()
        assert self._prune(succeeded_s=100.0) == Pruned(0, 0, None)
        self.clock.push(0.000001)
        assert self._prune(succeeded_s=100.0) == Pruned(1, 1, None)
        assert self.place.reader.job(old.id) is None
        assert self.place.reader.attempts(old.no) == []
        self.place.clean()

    def test_what_a_run_that_is_not_over_has_stays(self) -> None:
        run = self.place.control.add_run(NewRun(self.place.id_of(900), "ann", "p", "batch"))
        lanes = self.place.lanes_of("p", run=run.no)
        claim = self.one_claim()
        self.place.settle(success(claim, self.worker), by=self.worker)
        self.place.put(run=run.no, lane=lanes["one"])
        order = ClaimOrder(self.worker, 1, tuple(self.place.store.run_lanes()))
        (item,) = self.place.store.turn([], order, by=self.worker).claims
        self.place.settle(success(item, self.worker), by=self.worker)
        self.clock.push(DAY_S)
        assert self._prune(succeeded_s=1.0).jobs == 1
        assert self._ids_left() == {item.id}
        sealed = self.place.control.seal_run(run.no)
        assert sealed is not None
        over = RunChange(run.no, RunStatus.RUNNING, RunStatus.COMPLETED, counts=sealed.counts)
        assert self.place.control.change_run(over, DEED) is not None
        assert self._prune(succeeded_s=1.0).jobs == 1
        assert self._ids_left() == set()

    def test_each_way_to_end_has_its_own_retention(self) -> None:
        ended = {
            "succeeded_s": self._end_job(success),
            "cancelled_s": self._end_job(cancellation),
            "failed_s": self._end_job(failure),
            "discarded_s": self._end_job(failure),
        }
        self.place.discard(ended["discarded_s"])
        self.clock.push(DAY_S)
        left = {job.id for job in ended.values()}
        for name, job in ended.items():
            assert self._ids_left() == left
            keeping = replace(Retention(), **{name: 10.0})
            gone = self.place.control.prune(keeping, limit=100)
            assert gone == Pruned(1, 1, None), name
            left -= {job.id}
        assert self._ids_left() == set()
        self.place.clean()

    def test_nothing_goes_that_nobody_has_named(self) -> None:
        for end in (success, cancellation, failure):
            self._end_job(end)
        self.clock.push(DAY_S)
        assert self._prune() == Pruned(0, 0, None)
        assert len(self._ids_left()) == 3

    def test_what_has_not_ended_never_goes(self) -> None:
        waiting = self.one_claim()
        self.place.settle(retry(waiting, self.worker, delay_s=10 * DAY_S), by=self.worker)
        self.one_claim()
        self.place.put()
        self.clock.push(5 * DAY_S)
        gone = self._prune(succeeded_s=0.0, cancelled_s=0.0, discarded_s=0.0, failed_s=0.0)
        assert gone == Pruned(0, 0, None)
        assert len(self._ids_left()) == 3

    def test_a_dead_letter_that_nobody_has_discarded_is_kept(self) -> None:
        job = self._end_job(failure)
        self.clock.push(DAY_S)
        assert self._prune(succeeded_s=1.0, cancelled_s=1.0, discarded_s=1.0).jobs == 0
        assert self.place.see(job.id) == job

    def test_a_discarded_one_is_kept_from_the_discard_on(self) -> None:
        job = self._end_job(failure)
        self.clock.push(DAY_S)
        self.place.discard(job)
        self.clock.push(50)
        assert self._prune(discarded_s=50.0).jobs == 0
        assert self._prune(failed_s=0.0).jobs == 0
        self.clock.push(0.000001)
        assert self._prune(discarded_s=50.0).jobs == 1

    def test_the_end_counts_and_not_when_a_job_came_in(self) -> None:
        claim = self.one_claim()
        self.clock.push(DAY_S)
        self.place.settle(success(claim, self.worker), by=self.worker)
        self.clock.push(5)
        assert self._prune(succeeded_s=10.0).jobs == 0
        self.clock.push(6)
        assert self._prune(succeeded_s=10.0).jobs == 1

    def test_a_job_goes_with_its_attempts_and_results(self) -> None:
        claim = self.one_claim()
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (second,) = self.place.take(self.worker)
        self.place.settle(retry(second, self.worker, delay_s=0.0), by=self.worker)
        (third,) = self.place.take(self.worker)
        self.place.settle(success(third, self.worker), by=self.worker)
        other = self._end_job()
        self.clock.push(11)
        assert self._prune(limit=1, succeeded_s=10.0) == Pruned(1, 3, claim.no)
        assert self.place.reader.attempts(claim.no) == []
        assert len(self.place.reader.attempts(other.no)) == 1
        self.place.clean()

    def test_the_books_keep_count_of_what_went(self) -> None:
        lane = self.place.lanes_of("p2")["one"]
        self.place.lanes["elsewhere"] = lane
        self._end_job()
        for _ in range(2):
            self._end_job(pipeline="p2", lane=lane)
        self.place.put(pipeline="p2", lane=lane)
        self.clock.push(11)
        assert self._prune(succeeded_s=10.0).jobs == 3
        books = self.place.reader.books
        assert books(pipeline="p") == Books(1, 0, 0, 0, 0, 0, 1)
        assert books(pipeline="p2") == Books(3, 1, 0, 0, 0, 0, 2)
        assert books() == Books(4, 1, 0, 0, 0, 0, 3)
        self.place.clean()

    def test_the_key_of_a_job_that_went_is_free(self) -> None:
        job = self._end_job(key="k")
        assert not self.place.put(key="k").created
        self.clock.push(11)
        self._prune(succeeded_s=10.0)
        again = self.place.put(key="k")
        assert again.created
        assert again.no > job.no

    def _over(self, *runs: RunView) -> None:
        """All of their items are in, and each has ended."""
        for run in runs:
            self.place.control.seal_run(run.no)
            assert self.place.change_run(run, RunStatus.COMPLETED) is not None

    def test_the_counts_of_a_run_outlive_its_jobs(self) -> None:
        run = self.place.begin_run()
        for end in (costly_failure, success, cancellation):
            self._end_job(end, run=run.no)
        self._over(run)
        before = self.place.see_run(run)
        assert before.counts.cost_nusd == 7
        self.clock.push(11)
        for kind in ("succeeded_s", "cancelled_s", "failed_s"):
            keeping = replace(Retention(), **{kind: 10.0})
            assert self.place.control.prune(keeping, limit=100).jobs == 1
            assert self.place.see_run(run) == before
            self.place.clean()

    def test_the_counts_of_every_run_that_had_a_job_outlive_it(self) -> None:
        parent = self.place.begin_run("parent")
        job = self._end_job(costly_failure, run=parent.no)
        runs = [parent]
        for name, end in (("child", costly_failure), ("child", failure), ("other", success)):
            if name != runs[-1].name:
                runs.append(self.place.begin_run(name, parent=parent.no))
            self.place.revive(self.place.see(job.id), redrive_run=runs[-1].no)
            (claim,) = self.place.take(self.worker)
            self.place.settle(end(claim, self.worker), by=self.worker)
            self.place.clean()
        self._over(*runs)
        before = [self.place.see_run(run) for run in runs]
        assert [(one.counts.total, one.counts.failed, one.counts.attempts) for one in before] == [
            (1, 0, 4),
            (1, 1, 2),
            (1, 0, 1),
        ]
        self.clock.push(11)
        assert self._prune(succeeded_s=10.0).jobs == 1
        assert [self.place.see_run(run) for run in runs] == before
        self.place.clean()

    def test_a_word_about_a_job_that_went_is_stale(self) -> None:
        claim = self.one_claim()
        record = success(claim, self.worker)
        self.place.settle(record, by=self.worker)
        job = self.place.see(claim.id)
        self.clock.push(11)
        self._prune(succeeded_s=10.0)
        before = self.place.everything()
        (answer,) = self.place.settle(replace(record, token=job.token), by=self.worker)
        assert type(answer).__name__ == "Stale"
        assert self.place.everything() == before

    # -- workers -----------------------------------------------------------------------------

    def _workers(self) -> set[int]:
        return {one.no for one in self.place.reader.workers()}

    def test_a_worker_that_ended_longer_ago_than_it_is_kept_goes(self) -> None:
        old = self.place.hire()
        self.place.store.end_worker(old, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=self.worker)
        prune = self.place.control.prune_workers
        self.clock.push(100)
        assert prune(100.0, limit=9) == 0
        self.clock.push(0.000001)
        assert prune(100.0, limit=9) == 1
        assert self._workers() == {self.worker}
        assert prune(100.0, limit=9) == 0
        self.place.clean()

    def test_a_worker_that_has_gone_is_dead_and_its_number_is_never_given_again(self) -> None:
        old = self.place.hire()
        self.place.store.end_worker(old, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=self.worker)
        self.clock.push(1)
        assert self.place.control.prune_workers(0.0, limit=9) == 1
        assert self.place.store.beat([old]) == frozenset()
        assert not self.place.store.end_worker(old, Death("silent"))
        with raises(WorkerDead):
            self.place.take(old)
        assert self.place.hire() > old

    def test_a_worker_that_lives_or_holds_a_job_is_kept(self) -> None:
        dead = self.place.hire()
        self.place.put()
        (claim,) = self.place.take(dead)
        self.place.store.end_worker(dead, Death("exited", exit_status=1))
        self.place.store.mark_dead(by=self.worker)
        self.clock.push(DAY_S)
        assert self.place.control.prune_workers(0.0, limit=9) == 0
        assert [one.worker for one in self.place.store.lost_claims(limit=9)] == [dead]
        self.place.settle(crash(claim, dead), by=None)
        self.place.store.mark_dead(by=self.worker)
        assert self.place.control.prune_workers(0.0, limit=9) == 1
        assert self._workers() == {self.worker}
        self.place.clean()

    def test_attempts_keep_the_number_of_a_worker_that_has_gone(self) -> None:
        job = self._end_job()
        other = self.place.hire()
        self.place.store.end_worker(self.worker, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=other)
        before = self.place.reader.attempts(job.no)
        self.clock.push(1)
        assert self.place.control.prune_workers(0.0, limit=9) == 1
        assert self.place.reader.attempts(job.no) == before
        assert before[0].worker == self.worker
        self.place.clean()

    def test_a_dead_worker_is_kept_while_a_duty_names_it(self) -> None:
        other = self.place.hire()
        assert self.place.control.take_duty("d", worker=other, ttl_s=60.0)
        self.place.store.end_worker(other, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=self.worker)
        self.clock.push(1)
        assert self.place.control.prune_workers(0.0, limit=9) == 0
        assert self.place.control.take_duty("d", worker=self.worker, ttl_s=60.0)
        assert self.place.control.prune_workers(0.0, limit=9) == 1

    def test_workers_go_in_bounded_steps_the_oldest_first(self) -> None:
        dead = [self.place.hire() for _ in range(5)]
        for worker in dead:
            self.place.store.end_worker(worker, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=self.worker)
        self.clock.push(1)
        prune = self.place.control.prune_workers
        assert prune(0.0, limit=2) == 2
        assert self._workers() == {self.worker, *dead[2:]}
        assert [prune(0.0, limit=2), prune(0.0, limit=2)] == [2, 1]

    # -- steps -------------------------------------------------------------------------------

    def test_each_step_looks_at_so_many_jobs_and_says_where_to_go_on(self) -> None:
        jobs = [self._end_job(end) for end in (success, failure, success, success, failure)]
        self.clock.push(11)
        seen = []
        after: int | None = 0
        while after is not None:
            step = self._prune(limit=2, after=after, succeeded_s=10.0)
            seen.append((step.jobs, step.go_on_after))
            after = step.go_on_after
        assert seen == [(1, jobs[1].no), (2, jobs[3].no), (0, None)]
        assert self._ids_left() == {jobs[1].id, jobs[4].id}
        self.place.clean()

    def test_a_look_ends_where_jobs_are_too_young(self) -> None:
        old = self._end_job()
        self.clock.push(100)
        for _ in range(3):
            self._end_job()
        assert self._prune(limit=2, succeeded_s=50.0) == Pruned(1, 1, None)
        assert self.place.reader.job(old.id) is None

    def test_a_step_is_bounded_whatever_is_asked_for(self) -> None:
        made = self.place.put_many(PRUNE_BATCH_MAX + 1)
        self.clock.push(1)
        step = self._prune(limit=10 * PRUNE_BATCH_MAX, succeeded_s=0.0)
        assert step == Pruned(0, 0, made[PRUNE_BATCH_MAX - 1].no)

    def test_a_job_that_was_revived_is_kept(self) -> None:
        job = self._end_job(failure)
        self.clock.push(DAY_S)
        self.place.revive(job)
        assert self._prune(failed_s=1.0).jobs == 0
        assert self.place.see(job.id).state is State.QUEUED
