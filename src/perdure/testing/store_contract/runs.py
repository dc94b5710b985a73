"""Runs: found again by name, counted as their jobs move, changed by who has seen their status."""

from typing import Any

from perdure.model.jobs import Claim, IfFailed
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.runs import NewRun, RunChange, RunCounts, RunStatus, RunView
from perdure.model.views import JobView
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failure,
    release,
    retry,
    snooze,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, uuid_of

RUNNING, PAUSED, ABORTED = RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.ABORTED


class RunsContract(OnAFreshStore):
    """Batches of jobs."""

    def _counts(self, run: RunView) -> RunCounts:
        return self.place.see_run(run).counts

    def _claim_in(self, run: RunView, **changes: Any) -> Claim:
        return self.one_claim(run=run.no, **changes)

    def _dead_letter_of(self, run: RunView) -> JobView:
        return self.place.dead_letter(self.worker, run=run.no)

    # -- making ------------------------------------------------------------------------------

    def test_a_new_run_is_running_and_empty(self) -> None:
        parent = self.place.begin_run("first")
        new = NewRun(uuid_of(1), "ann", "p", "nightly", settings_json='{"a":1}', parent=parent.no)
        run = self.place.control.add_run(new)
        now = self.clock.now()
        assert run == RunView(
            no=run.no,
            id=uuid_of(1),
            owner="ann",
            pipeline="p",
            name="nightly",
            status=RUNNING,
            parent=parent.no,
            settings_json='{"a":1}',
            created_at=now,
            changed_at=now,
            ended_at=None,
            counts=RunCounts(),
        )
        assert self.place.reader.run(uuid_of(1)) == run
        assert run.no != parent.no

    def test_a_run_that_is_found_again_uses_no_number_up(self) -> None:
        first = self.place.begin_run("first")
        for n in range(5):
            again = self.place.control.add_run(NewRun(uuid_of(n), "", first.pipeline, "first"))
            assert again == first
        assert self.place.begin_run("second").no == first.no + 1

    def test_a_run_is_found_again_by_owner_pipeline_and_name(self) -> None:
        first = self.place.begin_run("nightly", settings_json='{"a":1}')
        self.place.put(run=first.no)
        self.clock.push(5)
        again = self.place.begin_run("nightly", settings_json='{"a":2}')
        assert again == self.place.see_run(first)
        assert (again.no, again.settings_json, again.counts.total) == (first.no, '{"a":1}', 1)
        assert len(self.place.reader.runs()) == 1

    def test_runs_differ_in_every_part_of_their_name(self) -> None:
        begin = self.place.begin_run
        runs = [begin("a"), begin("b"), begin("a", owner="ann"), begin("a", pipeline="other")]
        assert len({run.no for run in runs}) == 4

    def test_a_run_that_is_not_there_is_none(self) -> None:
        for stranger in ("nobody", "", uuid_of(99), "🎉"):
            assert self.place.reader.run(stranger) is None, stranger

    # -- counting ----------------------------------------------------------------------------

    def test_what_comes_in_is_counted_once(self) -> None:
        run = self.place.begin_run()
        self.place.put_many(3, run=run.no)
        self.place.put(run=run.no, key="k")
        self.place.put(run=run.no, key="k")
        self.place.put()
        assert self._counts(run) == RunCounts(total=4)
        assert self._counts(run).open == 4

    def test_every_way_to_end_is_counted(self) -> None:
        run = self.place.begin_run()
        for end in (success, failure, cancellation):
            self.place.settle(end(self._claim_in(run), self.worker), by=self.worker)
        counts = RunCounts(total=3, succeeded=1, failed=1, cancelled=1, attempts=3)
        assert self._counts(run) == counts
        assert counts.open == 0

    def test_attempts_are_counted_and_counted_failures_that_go_on_are_retries(self) -> None:
        run = self.place.begin_run()
        claim = self._claim_in(run)
        for end in (retry, snooze, release):
            self.place.settle(end(claim, self.worker), by=self.worker)
            self.clock.push(5)
            (claim,) = self.place.take(self.worker)
        step = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        self.place.settle(step, by=self.worker)
        (claim,) = self.place.store.claims_held(self.worker)
        self.place.settle(crash(claim, self.worker), by=self.worker)
        assert self._counts(run) == RunCounts(total=1, attempts=5, retries=1)

    def test_what_waited_and_was_cancelled_is_no_attempt(self) -> None:
        run = self.place.begin_run()
        claim = self._claim_in(run)
        self.place.settle(release(claim, self.worker), by=self.worker)
        job = self.place.see(claim.id)
        record = cancellation(claim, None)
        self.place.settle(replace(record, token=job.token, attempt=None), by=None)
        assert self._counts(run) == RunCounts(total=1, cancelled=1, attempts=1)

    def test_a_stale_or_repeated_record_counts_nothing(self) -> None:
        run = self.place.begin_run()
        record = success(self._claim_in(run), self.worker)
        self.place.settle(replace(record, token=record.token + 5), by=self.worker)
        assert self._counts(run) == RunCounts(total=1)
        self.place.settle(record, by=self.worker)
        self.place.settle(record, by=self.worker)
        assert self._counts(run) == RunCounts(total=1, succeeded=1, attempts=1)

    def test_the_counts_of_all_writers_are_summed(self) -> None:
        run = self.place.begin_run()
        for _ in range(3):
            worker = self.place.hire()
            self.place.put(run=run.no)
            (claim,) = self.place.take(worker)
            self.place.settle(success(claim, worker), by=worker)
        assert self._counts(run) == RunCounts(total=3, succeeded=3, attempts=3)

    def test_the_jobs_of_one_batch_may_belong_to_several_runs_or_none(self) -> None:
        one, two = self.place.begin_run("one"), self.place.begin_run("two")
        new = self.place.new
        self.place.store.enqueue([new(run=one.no), new(run=two.no), new(), new(run=two.no)])
        claims = self.place.take(self.worker, 9)
        assert [claim.run for claim in claims] == [one.no, two.no, None, two.no]
        self.place.settle(*(success(claim, self.worker) for claim in claims), by=self.worker)
        assert self._counts(one) == RunCounts(total=1, succeeded=1, attempts=1)
        assert self._counts(two) == RunCounts(total=2, succeeded=2, attempts=2)

    def test_a_revived_job_is_open_again_in_its_run(self) -> None:
        run = self.place.begin_run()
        job = self._dead_letter_of(run)
        self.place.revive(job)
        assert self._counts(run) == RunCounts(total=1, failed=0, attempts=1)
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        assert self._counts(run) == RunCounts(total=1, succeeded=1, attempts=2)

    def test_a_job_that_is_driven_again_counts_in_both_runs(self) -> None:
        run = self.place.begin_run("first")
        job = self._dead_letter_of(run)
        child = self.place.begin_run("again", parent=run.no)
        lane = self.place.lanes_of("p", run=child.no)["one"]
        self.place.revive(job, redrive_run=child.no, lane=lane)
        seen = self.place.see(job.id)
        assert (seen.run, seen.redrive_run, seen.lane) == (run.no, child.no, lane)
        assert self._counts(run) == RunCounts(total=1, failed=0, attempts=1)
        assert self._counts(child) == RunCounts(total=1)
        self.place.lanes["again"] = lane
        (claim,) = self.place.take(self.worker)
        assert claim.run == run.no
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        assert self._counts(run) == RunCounts(total=1, failed=1, attempts=3, retries=1)
        assert self._counts(child) == RunCounts(total=1, failed=1, attempts=2, retries=1)
        self.place.revive(self.place.see(job.id))
        assert self._counts(run) == RunCounts(total=1, failed=0, attempts=3, retries=1)
        assert self._counts(child) == RunCounts(total=1, failed=0, attempts=2, retries=1)
        assert self.place.see(job.id).redrive_run == child.no
        self.place.clean()

    def test_a_job_revived_by_its_key_is_open_again_in_its_run(self) -> None:
        run = self.place.begin_run()
        self.place.dead_letter(self.worker, run=run.no, key="k")
        assert self.place.put(run=run.no, key="k", if_failed=IfFailed.RETRY).revived
        assert self._counts(run) == RunCounts(total=1, attempts=1)

    # -- status ------------------------------------------------------------------------------

    def test_a_run_changes_if_its_status_is_as_it_was_seen(self) -> None:
        run = self.place.begin_run()
        self.clock.push(1)
        change = self.place.control.change_run
        paused = change(RunChange(run.no, RUNNING, PAUSED, why="by hand"), DEED)
        assert paused is not None
        assert (paused.status, paused.changed_at) == (PAUSED, self.clock.now())
        assert paused.why == "by hand"
        assert self.place.see_run(run) == paused
        assert change(RunChange(run.no, RUNNING, ABORTED), DEED) is None
        assert change(RunChange(run.no + 1000, RUNNING, PAUSED), DEED) is None
        assert self.place.see_run(run) == paused

    def test_a_run_changes_if_its_seal_is_as_it_was_seen(self) -> None:
        run, change = self.place.begin_run(), self.place.control.change_run
        for sealed in (False, True):
            stale = RunChange(run.no, RUNNING, RUNNING, sealed=False, seen_sealed=not sealed)
            before = self.place.see_run(run)
            assert change(stale, DEED) is None
            assert self.place.see_run(run) == before
            moved = change(replace(stale, seen_sealed=sealed), DEED)
            assert moved is not None
            assert moved.sealed_at is None
            self.place.control.seal_run(run.no)

    def test_a_run_has_an_end_while_it_has_ended(self) -> None:
        run = self.place.begin_run()
        self.place.control.seal_run(run.no)
        for status, ended in (
            (RunStatus.COMPLETED, True),
            (RunStatus.RUNNING, False),
            (RunStatus.PARTIAL_SUCCESS, True),
            (RunStatus.PAUSED, False),
            (RunStatus.FAILED, True),
            (RunStatus.ABORTED, False),
            (RunStatus.CANCELLED, True),
        ):
            self.clock.push(1)
            changed = self.place.change_run(run, status)
            assert changed is not None
            assert changed.ended_at == (self.clock.now() if ended else None), status

    def test_a_change_returns_the_run_with_its_counts(self) -> None:
        run = self.place.begin_run()
        self.place.put_many(2, run=run.no)
        changed = self.place.change_run(run, PAUSED)
        assert changed is not None
        assert changed.counts == RunCounts(total=2)

    def test_a_change_is_written_down(self) -> None:
        run = self.place.begin_run()
        self.place.control.seal_run(run.no)
        deed = Deed("ann", "too many failures")
        for seen, status in (
            (RUNNING, ABORTED),
            (RUNNING, ABORTED),
            (ABORTED, RUNNING),
            (RUNNING, PAUSED),
            (PAUSED, RunStatus.CANCELLED),
            (RunStatus.CANCELLED, RunStatus.FAILED),
        ):
            self.place.control.change_run(RunChange(run.no, seen, status), deed)
        told = self.place.reader.deeds()[::-1]
        assert [one.verb for one in told] == [
            "abort run",
            "resume run",
            "pause run",
            "cancel run",
            "end run",
        ]
        assert {(one.subject, one.by_whom, one.reason) for one in told} == {
            (str(run.no), "ann", "too many failures")
        }

    # -- reading -----------------------------------------------------------------------------

    def test_runs_come_newest_first_in_pages(self) -> None:
        runs = [self.place.begin_run(name) for name in "abcd"]
        other = self.place.begin_run("e", pipeline="other")
        names = [run.name for run in self.place.reader.runs()]
        assert names == ["e", "d", "c", "b", "a"]
        reader = self.place.reader
        assert [run.name for run in reader.runs(limit=2)] == ["e", "d"]
        assert [run.name for run in reader.runs(limit=2, before=runs[3].no)] == ["c", "b"]
        assert reader.runs(before=runs[0].no) == []
        assert reader.runs(pipeline="other") == [other]
        assert reader.runs(pipeline="nobody") == []
        assert reader.runs(limit=0) == []
