"""Dead letters whose key is alive again: they stay dead, and say with whom they conflict."""

from typing import Any

from perdure.model.jobs import Conflict, Receipt, Stale
from perdure.model.nouns import replace
from perdure.model.operations import BulkStep, BulkVerb, LoggedRefusal, NewBulk, Revival
from perdure.model.runs import RunView
from perdure.model.states import State
from perdure.model.views import JobView
from perdure.testing.store_contract.attempt_ends import advance, cancellation, failure, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, uuid_of


class ConflictsContract(OnAFreshStore):
    """One key, one job alive."""

    def _dead_with_key(self, run: RunView | None = None, **changes: Any) -> JobView:
        no = None if run is None else run.no
        return self.place.dead_letter(self.worker, run=no, **{"key": "k", **changes})

    def _new_life(self, job: JobView) -> Revival:
        return Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)

    def test_a_dead_letter_whose_key_is_queued_in_another_run_stays_dead(self) -> None:
        run = self.place.begin_run()
        job = self._dead_with_key(run)
        alive = self.place.put(key="k").id
        before = self.place.everything()
        assert self.place.revive(job) == Conflict(job.no, job.id, job.token, alive)
        assert self.place.everything() == before
        assert self.place.reader.rivals([job.no]) == {job.no: alive}

    def test_a_key_is_alive_in_work_too_and_through_all_stages(self) -> None:
        job = self._dead_with_key(self.place.begin_run())
        claim = self.one_claim(key="k")
        assert isinstance(self.place.revive(job), Conflict)
        step = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        self.place.settle(step, by=self.worker)
        assert isinstance(self.place.revive(job), Conflict)

    def test_a_key_that_has_ended_is_in_nobodys_way(self) -> None:
        for n, end in enumerate((success, failure, cancellation)):
            job = self._dead_with_key(self.place.begin_run(end.__name__), key=f"k{n}")
            self.place.dead_letter(self.worker, key=f"k{n}", end=end)
            assert self.place.reader.rivals([job.no]) == {}
            assert isinstance(self.place.revive(job), Receipt), end.__name__
            self.place.take(self.worker)

    def test_keys_conflict_within_one_owner_and_one_pipeline(self) -> None:
        job = self._dead_with_key(self.place.begin_run(), owner="ann")
        self.place.put(key="k", owner="bob")
        self.place.put(key="k")
        lane = self.place.lanes_of("other")["one"]
        self.place.put(key="k", owner="ann", pipeline="other", lane=lane)
        self.place.put(key="K", owner="ann")
        assert self.place.reader.rivals([job.no]) == {}
        assert isinstance(self.place.revive(job), Receipt)

    def test_a_job_without_a_key_never_conflicts(self) -> None:
        job = self._dead_with_key(key=None)
        self.place.put()
        assert self.place.reader.rivals([job.no]) == {}
        assert isinstance(self.place.revive(job), Receipt)

    def test_of_two_dead_letters_with_one_key_the_lower_number_is_revived(self) -> None:
        first = self._dead_with_key(self.place.begin_run("one"))
        second = self._dead_with_key(self.place.begin_run("two"))
        other = self._dead_with_key(key="other")
        assert first.no < second.no
        answers = self.place.control.revive(
            [self._new_life(second), self._new_life(other), self._new_life(first)], DEED
        )
        assert answers[0] == Conflict(second.no, second.id, second.token, first.id)
        assert [type(one) for one in answers[1:]] == [Receipt, Receipt]
        states = [self.place.see(job.id).state for job in (first, second, other)]
        assert states == [State.QUEUED, State.FAILED, State.QUEUED]
        self.place.clean()

    def test_a_stale_dead_letter_is_in_nobodys_way(self) -> None:
        first = self._dead_with_key(self.place.begin_run("one"))
        second = self._dead_with_key(self.place.begin_run("two"))
        gone = Revival(first.no, first.id, first.token + 7, first.stage, first.lane, None)
        answers = self.place.control.revive([gone, self._new_life(second)], DEED)
        assert [type(one) for one in answers] == [Stale, Receipt]

    def test_a_job_that_moved_on_is_stale_though_its_key_is_alive(self) -> None:
        job = self._dead_with_key(self.place.begin_run())
        self.place.put(key="k")
        self.place.discard(job)
        assert isinstance(self.place.revive(job), Stale)
        assert isinstance(self.place.revive(self.place.see(job.id)), Conflict)

    def test_a_conflict_is_over_when_the_other_has_ended(self) -> None:
        job = self._dead_with_key(self.place.begin_run())
        claim = self.one_claim(key="k")
        assert isinstance(self.place.revive(job), Conflict)
        self.place.settle(success(claim, self.worker), by=self.worker)
        assert isinstance(self.place.revive(job), Receipt)

    # -- in one run ----------------------------------------------------------------------------

    def _two_of_a_key(self) -> tuple[JobView, JobView, RunView]:
        """Two dead letters of two runs, and a third run to drive them again."""
        one = self._dead_with_key(self.place.begin_run("one"))
        two = self._dead_with_key(self.place.begin_run("two"))
        return one, two, self.place.begin_run("again")

    def test_a_key_is_driven_again_once_in_a_run_however_that_ended(self) -> None:
        for n, end in enumerate((success, failure, cancellation)):
            older = self._dead_with_key(self.place.begin_run(f"old {n}"), key=f"k{n}")
            newer = self._dead_with_key(self.place.begin_run(f"new {n}"), key=f"k{n}")
            child = self.place.begin_run(f"again {n}")
            assert isinstance(self.place.revive(newer, redrive_run=child.no), Receipt)
            answer = self.place.revive(older, redrive_run=child.no)
            assert answer == Conflict(older.no, older.id, older.token, newer.id, alive=True)
            (claim,) = self.place.take(self.worker)
            self.place.settle(end(claim, self.worker), by=self.worker)
            before = self.place.everything()
            answer = self.place.revive(older, redrive_run=child.no)
            assert answer == Conflict(older.no, older.id, older.token, newer.id, alive=False)
            assert self.place.everything() == before, end.__name__
            assert self.place.reader.rivals([older.no]) == {}
            assert self.place.see_run(child).counts.total == 1

    def test_in_another_run_or_in_none_it_may_be_driven_again(self) -> None:
        for n, other in enumerate((None, self.place.begin_run("another").no)):
            older = self._dead_with_key(self.place.begin_run(f"old {n}"), key=f"k{n}")
            newer = self._dead_with_key(self.place.begin_run(f"new {n}"), key=f"k{n}")
            self.place.revive(newer, redrive_run=self.place.begin_run(f"again {n}").no)
            (claim,) = self.place.take(self.worker)
            self.place.settle(success(claim, self.worker), by=self.worker)
            assert isinstance(self.place.revive(older, redrive_run=other), Receipt)
            self.place.take(self.worker)

    def test_what_was_driven_again_in_a_run_may_be_so_once_more(self) -> None:
        _, two, child = self._two_of_a_key()
        for _ in range(2):
            answer = self.place.revive(self.place.see(two.id), redrive_run=child.no)
            assert isinstance(answer, Receipt)
            (claim,) = self.place.take(self.worker)
            self.place.settle(failure(claim, self.worker), by=self.worker)
        assert self.place.see_run(child).counts.total == 1

    def test_without_a_key_or_of_another_owner_all_are_driven_again_in_one_run(self) -> None:
        child = self.place.begin_run("again")
        for changes in ({"key": None}, {"key": None}, {"owner": "ann"}, {"owner": "bob"}):
            job = self._dead_with_key(None, **changes)
            assert isinstance(self.place.revive(job, redrive_run=child.no), Receipt)
            (claim,) = self.place.take(self.worker)
            self.place.settle(success(claim, self.worker), by=self.worker)
        assert self.place.see_run(child).counts.succeeded == 4

    def test_within_one_call_who_is_alive_is_told_before_who_was_driven(self) -> None:
        one, two, child = self._two_of_a_key()
        three = self._dead_with_key(self.place.begin_run("three"))
        self.place.revive(one, redrive_run=child.no)
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        other = self.place.begin_run("other")
        lives = [replace(self._new_life(job), redrive_run=child.no) for job in (two, three)]
        answers = self.place.control.revive(lives, DEED)
        assert answers == [
            Conflict(job.no, job.id, job.token, one.id, alive=False) for job in (two, three)
        ]
        answers = self.place.control.revive(
            [lives[1], replace(lives[0], redrive_run=other.no)], DEED
        )
        assert answers[0] == Conflict(three.no, three.id, three.token, two.id, alive=True)
        assert isinstance(answers[1], Receipt)

    def test_a_step_says_which_job_of_the_key_was_driven_again(self) -> None:
        older, newer, child = self._two_of_a_key()
        bulk = self.place.control.add_bulk(
            NewBulk(uuid_of(1, 0xB01), BulkVerb.REDRIVE, "{}", DEED, run=child.no)
        )
        step = BulkStep(bulk.no, None, newer.no)
        lives = [replace(self._new_life(job), redrive_run=child.no) for job in (newer, older)]
        self.place.control.revive(lives[:1], DEED, step=step)
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        second = BulkStep(bulk.no, newer.no, older.no)
        (answer,) = self.place.control.revive(lives[1:], DEED, step=second)
        assert isinstance(answer, Conflict)
        why = f"its key was driven again as job {newer.id}"
        assert self.place.reader.refusals(bulk.no) == [LoggedRefusal(older.no, older.id, why)]
        assert self.place.see(older.id).state is State.FAILED
        assert self.place.see_run(child).counts.total == 1

    def test_rivals_are_told_for_those_that_have_some(self) -> None:
        assert self.place.reader.rivals([]) == {}
        one = self._dead_with_key(self.place.begin_run("one"))
        two = self._dead_with_key(self.place.begin_run("two"), key="other")
        alive = self.place.put(key="k")
        found = self.place.reader.rivals([two.no, one.no, alive.no, 999_999])
        assert found == {one.no: alive.id}
