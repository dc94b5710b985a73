"""Dead letters: a new life, or dealt with; guarded, and written down with who did it and why."""

from datetime import timedelta
from typing import Any

from perdure.model.jobs import ZERO, Receipt, RecordRefused, Stale
from perdure.model.nouns import replace
from perdure.model.operations import Deed, Revival, Target
from perdure.model.states import FailedReason, State
from perdure.model.views import JobView
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failure,
    retry,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, target, uuid_of


class RevivalContract(OnAFreshStore):
    """Failed is where a job stays until somebody decides."""

    def _fail_at_two(self, **changes: Any) -> JobView:
        """A job that has done stage one and failed at stage two."""
        claim = self.one_claim(**changes)
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (second,) = self.place.take(self.worker)
        self.place.settle(failure(second, self.worker), by=self.worker)
        return self.place.see(claim.id)

    def _revival(self, job: JobView, **changes: Any) -> Revival:
        plain = Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
        return replace(plain, **changes)

    # -- a new life --------------------------------------------------------------------------

    def test_a_new_life_begins_with_counters_from_zero_and_keeps_its_history(self) -> None:
        job = self._fail_at_two(key="k", owner="ann", priority=3)
        self.clock.push(100)
        answer = self.place.revive(job)
        now = self.clock.now()
        assert answer == Receipt(job.no, job.id, job.token, State.QUEUED, now)
        seen = self.place.see(job.id)
        assert (seen.state, seen.life, seen.token) == (State.QUEUED, 2, job.token + 1)
        assert (seen.counters, seen.past, seen.retries_manual) == (ZERO, ZERO, 1)
        assert (seen.failed_reason, seen.error_kind, seen.error_message) == (None, None, None)
        assert (seen.finished_at, seen.due_at, seen.ready) == (None, now, True)
        assert (seen.stage, seen.input_from, seen.input_json) == ("two", "one", '{"from":"one"}')
        assert (seen.key, seen.owner, seen.priority) == ("k", "ann", 3)
        assert seen.enqueued_at == job.enqueued_at
        assert len(self.place.reader.attempts(job.no)) == 2
        (claim,) = self.place.take(self.worker)
        assert (claim.life, claim.counters.starts, claim.token) == (2, 1, job.token + 2)
        self.place.settle(success(claim, self.worker), by=self.worker)
        lives = [one.life for one in self.place.reader.attempts(job.no)]
        assert lives == [1, 1, 2]
        self.place.clean()

    def test_a_new_life_is_ordered_as_if_it_were_new(self) -> None:
        job = self.place.dead_letter(self.worker)
        self.clock.push(10)
        waiting = self.place.put().id
        self.clock.push(10)
        self.place.revive(job)
        assert self.place.taken_ids(self.worker, 9) == [waiting, job.id]

    def test_a_new_life_has_as_long_until_its_deadline_as_the_first(self) -> None:
        later = self.clock.now() + timedelta(hours=10)
        id = self.place.put(deadline_s=100, run_at=later).id
        self.clock.push(36_000)
        for _ in range(2):
            self.clock.push(40)
            (claim,) = self.place.take(self.worker)
            self.place.settle(failure(claim, self.worker), by=self.worker)
            self.clock.push(1000)
            self.place.revive(self.place.see(id))
            assert self.place.see(id).deadline_at == self.clock.now() + timedelta(seconds=100)

    def test_a_job_without_a_deadline_has_the_one_that_its_new_life_brings(self) -> None:
        for given_s in (None, 60.5):
            job = self.place.dead_letter(self.worker)
            self.place.revive(job, deadline_s=given_s)
            wanted = given_s and self.clock.now() + timedelta(seconds=given_s)
            assert self.place.see(job.id).deadline_at == wanted
            self.place.take(self.worker, 9)
        kept = self.place.dead_letter(self.worker, deadline_s=100)
        self.place.revive(kept, deadline_s=60.5)
        assert self.place.see(kept.id).deadline_at == self.clock.now() + timedelta(seconds=100)

    def _lives_of(self, job: JobView, *policies_s: float | None) -> list[tuple[float | None, ...]]:
        """How long each of its lives may take: in all, by its caller's word, and by its policies'."""
        lives: list[tuple[float | None, ...]] = []
        for given_s in (*policies_s, None):
            seen = self.place.see(job.id)
            began_at = seen.enqueued_at if seen.life == 1 else seen.due_at
            ends_at = seen.deadline_at
            total_s = None if ends_at is None else (ends_at - began_at).total_seconds()
            lives.append((total_s, seen.deadline_s, seen.policies_s))
            if seen.state is State.QUEUED:
                (claim,) = self.place.take(self.worker)
                self.clock.push(7)
                self.place.settle(failure(claim, self.worker), by=self.worker)
            self.clock.push(1000)
            self.place.revive(self.place.see(job.id), deadline_s=given_s)
        return lives

    def test_each_life_has_the_time_that_policies_give_it_unless_its_caller_brought_one(
        self,
    ) -> None:
        judged = self.place.dead_letter(self.worker, policies_s=50.5)
        assert self._lives_of(judged, 60.25, None, 70.0) == [
            (50.5, None, 50.5),
            (60.25, None, 60.25),
            (None, None, None),
            (70.0, None, 70.0),
        ]
        self.place.take(self.worker, 9)
        brought = self.place.dead_letter(self.worker, deadline_s=100.5, policies_s=50.5)
        assert self._lives_of(brought, 60.25, None) == [(100.5, 100.5, None)] * 3

    def test_where_a_job_stood_in_line_says_nothing_of_how_long_it_may_take(self) -> None:
        long_ago = self.clock.now() - timedelta(days=30)
        job = self.place.dead_letter(self.worker, deadline_s=100, ordered_at=long_ago)
        assert self._lives_of(job, 60.0) == [(100, 100, None)] * 2

    def test_a_suspect_begins_its_new_life_among_the_others(self) -> None:
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        (again,) = self.place.take(self.worker, isolation=1)
        dead = replace(failure(again, self.worker), failed_reason=FailedReason.CRASHED, isolation=2)
        self.place.settle(dead, by=self.worker)
        self.place.revive(self.place.see(claim.id))
        assert self.place.see(claim.id).isolation == 0
        assert self.place.taken_ids(self.worker) == [claim.id]

    def test_a_new_life_may_begin_at_an_earlier_stage(self) -> None:
        job = self._fail_at_two()
        self.place.revive(
            job, stage="one", lane=self.place.lanes["one"], input_from=None, forgotten=("one",)
        )
        (claim,) = self.place.take(self.worker)
        assert (claim.stage, claim.input_json) == ("one", claim.payload_json)
        other = advance(claim, self.worker, self.place.lanes["two"], value_json="[2]")
        assert isinstance(self.place.settle(other, by=self.worker)[0], Receipt)
        (second,) = self.place.take(self.worker)
        assert second.input_json == "[2]"
        self.place.settle(success(second, self.worker), by=self.worker)
        self.place.clean()

    def test_a_result_that_was_not_forgotten_is_not_written_over(self) -> None:
        job = self._fail_at_two()
        self.place.revive(job, stage="one", lane=self.place.lanes["one"], input_from=None)
        (claim,) = self.place.take(self.worker)
        step = advance(claim, self.worker, self.place.lanes["two"], value_json="[2]")
        (answer,) = self.place.settle(step, by=self.worker)
        assert isinstance(answer, RecordRefused)

    def test_forgetting_touches_no_other_stage_and_no_other_job(self) -> None:
        job, other = self._fail_at_two(), self._fail_at_two()
        self.place.revive(job, forgotten=("two", "three"))
        for one in (job, other):
            assert self.place.see(one.id).input_json == '{"from":"one"}'

    def test_a_stale_revival_forgets_nothing(self) -> None:
        job = self._fail_at_two()
        assert isinstance(self.place.revive(job, token=77, forgotten=("one",)), Stale)
        assert self.place.see(job.id).input_json == '{"from":"one"}'

    def test_only_a_failed_job_that_has_not_moved_on_is_revived(self) -> None:
        ends = {"success": success, "cancelled": cancellation, "retry": retry}
        for what, end in ends.items():
            job = self.place.dead_letter(self.worker, end=end)
            assert self.place.revive(job) == Stale(job.no, job.id, job.token), what
            assert self.place.see(job.id) == job, what
        claim = self.one_claim()
        held = self.place.see(claim.id)
        assert self.place.revive(held) == Stale(held.no, held.id, held.token)
        assert self.place.reader.deeds() == []

    def test_a_revival_from_an_old_sight_is_stale(self) -> None:
        job = self.place.dead_letter(self.worker)
        assert isinstance(self.place.revive(job), Receipt)
        before = self.place.everything()
        assert self.place.revive(job) == Stale(job.no, job.id, job.token)
        nobody = self._revival(job, no=job.no + 1000)
        (answer,) = self.place.control.revive([nobody], DEED)
        assert answer == Stale(nobody.no, nobody.id, nobody.token)
        assert self.place.everything() == before

    def test_a_late_word_about_the_life_before_is_stale(self) -> None:
        claim = self.one_claim()
        other = self.place.hire()
        self.place.settle(failure(claim, self.worker), by=other)
        self.place.revive(self.place.see(claim.id))
        before = self.place.everything()
        (answer,) = self.place.settle(success(claim, self.worker), by=self.worker)
        assert isinstance(answer, Stale)
        assert self.place.everything() == before

    def test_of_a_batch_each_job_is_answered_for_itself(self) -> None:
        good, stale, done = (self.place.dead_letter(self.worker) for _ in range(3))
        self.place.revive(done)
        answers = self.place.control.revive(
            [self._revival(good), self._revival(stale, token=77), self._revival(done)], DEED
        )
        assert [type(one) for one in answers] == [Receipt, Stale, Stale]
        assert [one.id for one in answers] == [good.id, stale.id, done.id]
        assert self.place.see(stale.id).state is State.FAILED
        self.place.clean()

    def test_nothing_to_revive_is_nothing(self) -> None:
        assert self.place.control.revive([], DEED) == []
        assert self.place.control.discard([], DEED) == []

    def test_each_revival_is_written_down_with_who_and_why(self) -> None:
        one, two = (self.place.dead_letter(self.worker) for _ in range(2))
        self.clock.push(3)
        chosen = [self._revival(two), self._revival(one), self._revival(one, token=99)]
        self.place.control.revive(chosen, Deed("ann", "the vendor is back"))
        told = {(deed.verb, deed.subject) for deed in self.place.reader.deeds()}
        assert told == {("revive job", one.id), ("revive job", two.id)}
        for deed in self.place.reader.deeds():
            assert (deed.by_whom, deed.reason) == ("ann", "the vendor is back")
            assert deed.done_at == self.clock.now()
        assert len(self.place.reader.deeds()) == 2

    # -- dealt with --------------------------------------------------------------------------

    def test_a_discarded_job_stays_failed_and_in_the_books(self) -> None:
        job = self.place.dead_letter(self.worker)
        self.clock.push(3)
        answer = self.place.discard(job)
        assert answer == Receipt(job.no, job.id, job.token, State.FAILED, None)
        now = self.clock.now()
        seen = self.place.see(job.id)
        assert seen == replace(job, discarded_at=now, updated_at=now, token=job.token + 1)
        assert self.place.reader.books().failed == 1
        (deed,) = self.place.reader.deeds()
        assert (deed.verb, deed.subject, deed.by_whom) == ("discard job", job.id, DEED.by_whom)
        self.place.clean()

    def test_a_job_is_discarded_once(self) -> None:
        job = self.place.dead_letter(self.worker)
        self.place.discard(job)
        before = self.place.everything()
        for sight in (job, self.place.see(job.id)):
            assert self.place.discard(sight) == Stale(job.no, job.id, sight.token)
        assert self.place.everything() == before

    def test_only_a_failed_job_that_has_not_moved_on_is_discarded(self) -> None:
        for end in (success, cancellation, retry):
            job = self.place.dead_letter(self.worker, end=end)
            assert self.place.discard(job) == Stale(job.no, job.id, job.token), end.__name__
            assert self.place.see(job.id) == job, end.__name__
        nobody = Target(999_999, uuid_of(1), 1)
        assert self.place.control.discard([nobody], DEED) == [
            Stale(nobody.no, nobody.id, nobody.token)
        ]

    def test_of_two_who_saw_the_same_dead_letter_one_acts(self) -> None:
        job = self.place.dead_letter(self.worker)
        self.place.discard(job)
        assert isinstance(self.place.revive(job), Stale)
        fresh = self.place.see(job.id)
        assert isinstance(self.place.revive(fresh), Receipt)
        assert isinstance(self.place.control.discard([target(fresh)], DEED)[0], Stale)

    def test_a_discarded_job_that_is_revived_is_discarded_no_longer(self) -> None:
        job = self.place.dead_letter(self.worker)
        self.place.discard(job)
        self.place.revive(self.place.see(job.id))
        seen = self.place.see(job.id)
        assert (seen.state, seen.discarded_at, seen.life) == (State.QUEUED, None, 2)
        self.place.clean()
