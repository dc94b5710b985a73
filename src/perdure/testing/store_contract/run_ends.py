"""How runs end: sealed when all is in, finished while nothing is open, opened again by a job that lives again."""

from typing import Any

from perdure.model.errors import CallerError
from perdure.model.jobs import IfFailed, Receipt, Stale
from perdure.model.limits import FEEDER_SILENT_S
from perdure.model.nouns import replace
from perdure.model.operations import LaneScope
from perdure.model.runs import CLOSED, FINISHED, RunChange, RunCounts, RunStatus, RunView
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.testing.store_contract.attempt_ends import cancellation, failure, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises

COMPLETED, FAILED, CANCELLED = RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED


class EndsContract(OnAFreshStore):
    """A run is over when it says so, and not a job too early."""

    def _sealed_run(self, name: str = "nightly", **changes: Any) -> RunView:
        run = self.place.begin_run(name, **changes)
        sealed = self.place.control.seal_run(run.no)
        assert sealed is not None
        return sealed

    def _failed_run(self, **changes: Any) -> tuple[RunView, JobView]:
        """A run that has failed with its only job."""
        run = self._sealed_run()
        job = self.place.dead_letter(self.worker, run=run.no, **changes)
        ended = self.place.change_run(run, FAILED, why="all of it failed")
        assert ended is not None
        return ended, job

    # -- sealing -----------------------------------------------------------------------------

    def test_a_run_is_sealed_once_and_the_first_moment_stands(self) -> None:
        run = self.place.begin_run()
        assert run.sealed_at is None
        self.clock.push(5)
        sealed = self.place.control.seal_run(run.no)
        assert sealed == replace(run, sealed_at=self.clock.now())
        assert self.place.see_run(run) == sealed
        self.clock.push(5)
        assert self.place.control.seal_run(run.no) == sealed
        assert self.place.control.seal_run(run.no + 1000) is None

    def test_what_comes_into_a_sealed_run_comes_in(self) -> None:
        run = self._sealed_run()
        id = self.place.put(run=run.no).id
        assert self.place.see_run(run).counts.total == 1
        assert self.place.taken_ids(self.worker) == [id]

    def test_a_change_may_seal_a_run_or_take_that_back(self) -> None:
        run = self.place.begin_run()
        paused = self.place.change_run(run, RunStatus.PAUSED, sealed=True)
        assert paused is not None
        sealed_at = self.clock.now()
        assert paused.sealed_at == sealed_at
        self.clock.push(1)
        for sealed, expected_at in ((None, sealed_at), (True, sealed_at), (False, None)):
            changed = self.place.change_run(run, RunStatus.RUNNING, sealed=sealed)
            assert changed is not None
            assert changed.sealed_at == expected_at, sealed
        assert self.place.see_run(run).sealed_at is None

    def test_a_change_may_replace_the_settings(self) -> None:
        run = self.place.begin_run(settings_json='{"a":1}')
        kept = self.place.change_run(run, RunStatus.PAUSED)
        assert kept is not None
        assert kept.settings_json == '{"a":1}'
        changed = self.place.change_run(run, RunStatus.RUNNING, settings_json='{"a":2}')
        assert changed is not None
        assert changed.settings_json == '{"a":2}'
        assert self.place.see_run(run) == changed

    def test_the_reason_of_a_status_is_the_last_one(self) -> None:
        run = self.place.begin_run()
        for status, why in ((RunStatus.ABORTED, "12 % of 1000 failed"), (RunStatus.RUNNING, "")):
            changed = self.place.change_run(run, status, why=why)
            assert changed is not None
            assert (changed.status, changed.why) == (status, why)

    # -- finishing ---------------------------------------------------------------------------

    def test_an_unsealed_run_does_not_finish(self) -> None:
        run = self.place.begin_run()
        before = self.place.everything()
        for status in sorted(FINISHED):
            assert self.place.change_run(run, status) is None, status
        assert self.place.everything() == before

    def test_a_run_with_an_open_job_does_not_finish(self) -> None:
        run = self._sealed_run()
        claim = self.one_claim(run=run.no)
        assert self.place.change_run(run, COMPLETED) is None
        self.place.settle(retry(claim, self.worker), by=self.worker)
        assert self.place.change_run(run, COMPLETED) is None
        self.clock.push(5)
        (again,) = self.place.take(self.worker)
        self.place.settle(success(again, self.worker), by=self.worker)
        ended = self.place.change_run(run, COMPLETED, why="all done")
        assert ended is not None
        assert (ended.status, ended.why, ended.ended_at) == (
            COMPLETED,
            "all done",
            self.clock.now(),
        )
        self.place.clean()

    def test_a_run_finishes_only_with_the_counts_that_were_seen(self) -> None:
        run = self._sealed_run()
        self.place.settle(success(self.one_claim(run=run.no), self.worker), by=self.worker)
        seen = self.place.see_run(run).counts
        self.place.settle(success(self.one_claim(run=run.no), self.worker), by=self.worker)
        assert self.place.change_run(run, COMPLETED, counts=seen) is None
        assert self.place.see_run(run).status is RunStatus.RUNNING
        now = self.place.see_run(run).counts
        assert self.place.change_run(run, COMPLETED, counts=now) is not None

    def test_other_statuses_ask_for_no_counts(self) -> None:
        run = self.place.begin_run()
        self.place.put(run=run.no)
        for status in (*sorted(CLOSED), RunStatus.RUNNING):
            assert self.place.change_run(run, status, counts=RunCounts(total=99)), status

    def test_a_run_that_finishes_leaves_its_lanes_as_they_are(self) -> None:
        run = self._sealed_run()
        self.place.control.pause(LaneScope.RUN, str(run.no), DEED)
        assert self.place.change_run(run, COMPLETED)
        assert len(self.place.reader.pauses()) == 1
        other = self._sealed_run("other")
        assert self.place.change_run(other, COMPLETED)
        assert len(self.place.reader.pauses()) == 1

    # -- cancelling --------------------------------------------------------------------------

    def test_a_cancelled_run_is_over_when_none_of_its_jobs_is_open(self) -> None:
        run = self.place.begin_run()
        claim = self.one_claim(run=run.no)
        first = self.place.change_run(run, CANCELLED)
        assert first is not None
        assert (first.status, first.ended_at) == (CANCELLED, None)
        self.clock.push(1)
        self.place.settle(cancellation(claim, self.worker), by=self.worker)
        assert self.place.see_run(run).ended_at is None
        self.clock.push(1)
        over = self.place.change_run(run, CANCELLED)
        assert over is not None
        assert over.ended_at == self.clock.now()
        before = self.place.everything()
        self.clock.push(1)
        assert self.place.change_run(run, CANCELLED) is None
        assert self.place.everything() == before

    def test_an_empty_run_that_is_cancelled_is_over_at_once(self) -> None:
        run = self.place.begin_run()
        over = self.place.change_run(run, CANCELLED)
        assert over is not None
        assert over.ended_at == self.clock.now()

    def test_a_cancelled_run_may_go_on(self) -> None:
        run = self.place.begin_run()
        self.place.change_run(run, CANCELLED)
        again = self.place.change_run(run, RunStatus.RUNNING)
        assert again is not None
        assert (again.status, again.ended_at) == (RunStatus.RUNNING, None)
        assert self.place.reader.pauses() == []

    # -- opening again -----------------------------------------------------------------------

    def test_a_run_that_had_finished_is_running_again_with_a_job_that_lives_again(self) -> None:
        run, job = self._failed_run()
        self.clock.push(10)
        assert isinstance(self.place.revive(job), Receipt)
        again = self.place.see_run(run)
        assert (again.status, again.why, again.ended_at) == (RunStatus.RUNNING, "", None)
        assert (again.changed_at, again.sealed_at) == (self.clock.now(), run.sealed_at)
        assert again.counts == RunCounts(total=1, attempts=1)
        assert self.place.change_run(run, COMPLETED) is None
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        assert self.place.change_run(run, COMPLETED) is not None
        self.place.clean()

    def test_a_job_that_is_revived_by_its_key_opens_its_run_again(self) -> None:
        run, _ = self._failed_run(key="k")
        assert not self.place.put(run=run.no, key="k").revived
        assert self.place.see_run(run) == run
        assert self.place.put(run=run.no, key="k", if_failed=IfFailed.RETRY).revived
        again = self.place.see_run(run)
        assert (again.status, again.ended_at) == (RunStatus.RUNNING, None)

    def test_a_new_life_opens_the_run_before_and_the_run_that_drives_it_again(self) -> None:
        run, job = self._failed_run()
        child, other = (self._sealed_run(name, parent=run.no) for name in ("one", "two"))
        self.place.revive(job, redrive_run=child.no)
        (claim,) = self.place.take(self.worker)
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        assert self.place.change_run(child, COMPLETED) is None
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        for one in (run, child, other):
            assert self.place.change_run(one, FAILED) is not None, one.name
        self.place.revive(self.place.see(job.id), redrive_run=other.no)
        for one in (run, child, other):
            assert self.place.see_run(one).status is RunStatus.RUNNING, one.name
        assert self.place.see_run(child).counts.open == 0
        assert self.place.see_run(other).counts.open == 1

    def test_a_run_with_a_new_item_is_not_over(self) -> None:
        run, _ = self._failed_run(key="k")
        self.clock.push(5)
        self.place.put(run=run.no, key="k")
        assert self.place.see_run(run) == run
        self.place.put(run=run.no, key="l")
        again = self.place.see_run(run)
        assert (again.status, again.why, again.ended_at) == (RunStatus.RUNNING, "", None)
        assert (again.changed_at, again.counts.open) == (self.clock.now(), 1)
        assert self.place.change_run(run, FAILED) is None
        empty = self.place.begin_run("empty")
        self.place.change_run(empty, CANCELLED, why="so")
        self.place.put(run=empty.no)
        late = self.place.see_run(empty)
        assert (late.status, late.why, late.ended_at) == (CANCELLED, "so", None)

    def test_there_is_no_new_life_in_the_lanes_of_a_cancelled_run(self) -> None:
        run, job = self._failed_run(key="k")
        self.place.change_run(run, CANCELLED)
        before = self.place.everything()
        assert isinstance(self.place.revive(job), Stale)
        assert not self.place.put(run=run.no, key="k", if_failed=IfFailed.RETRY).revived
        assert self.place.everything() == before
        child = self.place.begin_run("again", parent=run.no)
        assert isinstance(self.place.revive(job, redrive_run=child.no), Receipt)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        self.place.change_run(child, CANCELLED)
        assert isinstance(self.place.revive(self.place.see(job.id)), Stale)
        self.place.clean()

    def test_a_revival_that_does_not_happen_opens_nothing(self) -> None:
        run, job = self._failed_run()
        self.place.revive(job, token=job.token + 5)
        assert self.place.see_run(run) == run

    def test_a_run_that_was_not_finished_keeps_its_status(self) -> None:
        run = self.place.begin_run()
        for status in (RunStatus.PAUSED, RunStatus.ABORTED, CANCELLED):
            self.place.change_run(run, RunStatus.RUNNING)
            job = self.place.dead_letter(self.worker, run=run.no)
            changed = self.place.change_run(run, status, why="so")
            assert changed is not None
            self.place.revive(job)
            after = self.place.see_run(run)
            assert (after.status, after.why) == (status, "so")
            self.place.take(self.worker)

    def test_a_job_is_not_driven_again_in_its_own_run(self) -> None:
        run, job = self._failed_run()
        before = self.place.everything()
        with raises(CallerError):
            self.place.revive(job, redrive_run=run.no)
        assert self.place.everything() == before
        assert self.place.see(job.id).state is State.FAILED

    # -- what is live ------------------------------------------------------------------------

    def test_the_lanes_of_runs_are_those_of_runs_that_are_not_over(self) -> None:
        one, two = self._sealed_run("one"), self._sealed_run("two")
        lanes = {run.no: self.place.lanes_of("p", run=run.no) for run in (one, two)}
        both = self.place.store.run_lanes()
        assert set(both) == {no for own in lanes.values() for no in own.values()}
        assert {(lane.run, lane.stage): no for no, lane in both.items()} == {
            (run, stage): no for run, own in lanes.items() for stage, no in own.items()
        }
        self.place.change_run(one, COMPLETED)
        self.place.change_run(two, RunStatus.PAUSED)
        assert set(self.place.store.run_lanes()) == set(lanes[two.no].values())
        self.place.change_run(two, CANCELLED)
        assert self.place.store.run_lanes() == {}
        self.place.change_run(one, RunStatus.RUNNING)
        assert set(self.place.store.run_lanes()) == set(lanes[one.no].values())

    def test_runs_are_found_by_what_is_said_of_them(self) -> None:
        one = self._sealed_run("one", owner="ann")
        two = self.place.begin_run("two", owner="bob")
        three = self.place.begin_run("one", pipeline="other")
        runs = self.place.reader.runs
        assert runs(owner="ann") == [one]
        assert runs(name="one") == [three, one]
        assert runs(name="one", pipeline="p") == [one]
        assert runs(no=two.no) == [two]
        assert runs(no=two.no, owner="ann") == []
        assert runs(live=True) == [three, two, one]
        ended = self.place.change_run(one, COMPLETED)
        assert runs(live=True) == [three, two]
        assert runs(name="one") == [three, ended]
        assert runs(live=True, owner="ann") == []
        assert [run.no for run in runs(live=True, limit=1)] == [three.no]
        assert runs(live=True, before=two.no) == []

    def test_the_count_at_which_a_budget_was_looked_at_never_falls(self) -> None:
        run = self.place.begin_run()
        assert run.checked == 0
        for checked, expected in ((1000, 1000), (500, 1000), (2000, 2000), (2000, 2000)):
            self.place.control.note_check(run.no, checked)
            assert self.place.see_run(run).checked == expected
        self.place.control.note_check(run.no + 1000, 5)

    def test_whoever_feeds_a_run_leaves_a_sign_of_life_on_it(self) -> None:
        place, run = self.place, self.place.begin_run()
        assert (run.fed_by, run.feeding_at, run.fed_at) == (None, None, None)
        began_at = place.clock.now()
        place.control.note_feeding(run.no, "one")
        place.clock.push(5)
        place.control.note_feeding(run.no, "one")
        seen = place.see_run(run)
        assert (seen.fed_by, seen.feeding_at, seen.fed_at) == ("one", began_at, place.clock.now())
        assert (seen.status, seen.changed_at, seen.sealed_at) == (run.status, run.changed_at, None)
        place.clock.push(1)
        place.control.note_feeding(run.no, "one", ended=True)
        seen = place.see_run(run)
        assert (seen.fed_by, seen.feeding_at, seen.fed_at) == ("one", None, place.clock.now())
        place.control.note_feeding(run.no + 1000, "one")

    def test_two_may_feed_a_run_and_one_that_died_is_not_taken_for_them(self) -> None:
        place, run = self.place, self.place.begin_run()
        began_at = place.clock.now()
        for by in ("one", "two"):
            place.control.note_feeding(run.no, by)
            place.clock.push(5)
        place.control.note_feeding(run.no, "one", ended=True)
        seen = place.see_run(run)
        assert (seen.fed_by, seen.feeding_at) == ("two", began_at)
        place.clock.push(FEEDER_SILENT_S)
        place.control.note_feeding(run.no, "three")
        assert place.see_run(run).feeding_at == place.clock.now()

    def test_a_sealed_run_is_fed_by_nobody(self) -> None:
        place, run = self.place, self.place.begin_run()
        place.control.note_feeding(run.no, "one")
        sealed = place.control.seal_run(run.no)
        assert sealed is not None
        assert (sealed.fed_by, sealed.feeding_at) == ("one", None)
        place.clock.push(1)
        place.control.note_feeding(run.no, "one")
        assert place.see_run(run) == replace(sealed, fed_at=place.clock.now())

    def test_a_run_that_stands_still_is_sealed_all_the_same(self) -> None:
        for status in (RunStatus.PAUSED, RunStatus.ABORTED, RunStatus.CANCELLED):
            run = self.place.begin_run(status.value)
            self.place.put(run=run.no)
            stopped = self.place.change_run(run, status, why="so")
            assert stopped is not None
            sealed = self.place.control.seal_run(run.no)
            assert sealed == replace(stopped, sealed_at=self.place.clock.now())

    def test_the_audit_of_a_run_that_nobody_has_damaged_finds_nothing(self) -> None:
        run, job = self._failed_run()
        child = self._sealed_run("again", parent=run.no)
        self.place.revive(job, redrive_run=child.no)
        for no in (run.no, child.no, child.no + 1000):
            assert self.place.reader.audit(run=no) == []

    def test_a_change_of_a_run_that_is_not_there_is_none(self) -> None:
        change = RunChange(99_999, RunStatus.RUNNING, COMPLETED)
        assert self.place.control.change_run(change, DEED) is None
        assert self.place.reader.deeds() == []
