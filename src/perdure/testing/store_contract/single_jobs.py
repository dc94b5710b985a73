"""What people do to single jobs: cancel them, run them now, and retry them with another payload; and whose they are."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from perdure.model.filters import JobFilter
from perdure.model.jobs import Busy, Receipt, Record, Revived, Settled, Stale
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    Deed,
    LaneScope,
    NewBulk,
    Refusal,
    Retention,
    Revival,
)
from perdure.model.states import Move, State
from perdure.model.views import JobView, PayloadView
from perdure.testing.store_contract.attempt_ends import cancellation, failure, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, target, uuid_of

LATER_S = 3_600.0


class DeedsContract(OnAFreshStore):
    """Deeds on jobs that are not dead, and what a new life may bring."""

    # -- cancel ------------------------------------------------------------------------------

    def _cancel(self, *jobs: JobView, **options: Any) -> list[Settled | Busy]:
        return self.place.control.cancel([_ending(job) for job in jobs], DEED, **options)

    def test_a_waiting_job_is_cancelled_with_who_and_why(self) -> None:
        job = self.place.see(self.place.put().id)
        self.clock.push(3)
        (answer,) = self.place.control.cancel([_ending(job)], Deed("ann", "wrong file"))
        assert answer == Receipt(job.no, job.id, job.token, State.CANCELLED, None)
        seen = self.place.see(job.id)
        assert (seen.state, seen.token, seen.finished_at) == (
            State.CANCELLED,
            job.token + 1,
            self.clock.now(),
        )
        (deed,) = self.place.reader.deeds()
        assert (deed.verb, deed.subject, deed.by_whom, deed.reason, deed.done_at) == (
            "cancel job",
            job.id,
            "ann",
            "wrong file",
            self.clock.now(),
        )
        assert self.place.take(self.worker, 9) == []
        self.place.clean()

    def test_a_running_job_is_cancelled_and_its_attempt_is_kept(self) -> None:
        claim = self.one_claim()
        (answer,) = self.place.control.cancel([cancellation(claim, self.worker)], DEED)
        assert isinstance(answer, Receipt)
        seen = self.place.see(claim.id)
        assert (seen.state, seen.worker) == (State.CANCELLED, None)
        assert [one.status for one in self.place.reader.attempts(seen.no)] == ["cancelled"]
        assert isinstance(self.place.settle(success(claim, self.worker), by=self.worker)[0], Stale)
        self.place.clean()

    def test_only_an_open_job_that_has_not_moved_on_is_cancelled(self) -> None:
        ended = [self.place.dead_letter(self.worker, end=end) for end in (success, failure)]
        moved = replace(self.place.see(self.place.put().id), token=77)
        nobody = replace(moved, no=999_999, id=uuid_of(5))
        before = self.place.everything()
        answers = self._cancel(*ended, moved, nobody)
        assert answers == [Stale(one.no, one.id, one.token) for one in (*ended, moved, nobody)]
        assert self.place.everything() == before

    def test_of_several_each_is_cancelled_for_itself_and_once(self) -> None:
        one, two = (self.place.see(done.id) for done in self.place.put_many(2))
        answers = self._cancel(two, replace(one, token=9), one, two)
        assert [type(answer) for answer in answers] == [Receipt, Stale, Receipt, Stale]
        assert [answer.id for answer in answers] == [two.id, one.id, one.id, two.id]
        assert len(self.place.reader.deeds()) == 2
        self.place.clean()

    def test_a_cancelled_job_counts_in_its_run(self) -> None:
        run = self.place.begin_run()
        job = self.place.see(self.place.put(run=run.no).id)
        self._cancel(job)
        counts = self.place.see_run(run).counts
        assert (counts.cancelled, counts.open) == (1, 0)
        self.place.clean()

    # -- run now -----------------------------------------------------------------------------

    def _run_now(self, *jobs: JobView, **options: Any) -> list[Settled | Busy]:
        return self.place.control.run_now([target(job) for job in jobs], DEED, **options)

    def _schedule_job(self, **changes: Any) -> JobView:
        run_at = self.clock.now() + timedelta(seconds=LATER_S)
        return self.place.see(self.place.put(run_at=run_at, **changes).id)

    def test_a_scheduled_job_that_is_run_now_can_be_claimed_at_once(self) -> None:
        job = self._schedule_job(deadline_s=60.0)
        self.clock.push(10)
        (answer,) = self.place.control.run_now([target(job)], Deed("ann", "it is urgent"))
        now = self.clock.now()
        assert answer == Receipt(job.no, job.id, job.token, State.QUEUED, now)
        assert self.place.see(job.id) == replace(
            job,
            ready=True,
            token=job.token + 1,
            due_at=now,
            updated_at=now,
            ordered_at=now,
            deadline_at=now + timedelta(seconds=60),
        )
        (deed,) = self.place.reader.deeds()
        assert (deed.verb, deed.subject, deed.by_whom, deed.reason) == (
            "run job now",
            job.id,
            "ann",
            "it is urgent",
        )
        assert self.place.taken_ids(self.worker) == [job.id]
        self.place.clean()

    def test_the_deadline_of_what_is_run_now_counts_from_then_on_wherever_it_stands_in_line(
        self,
    ) -> None:
        job = self._schedule_job(deadline_s=60.0, ordered_at=self.clock.now())
        self.clock.push(10)
        self._run_now(job)
        seen = self.place.see(job.id)
        assert seen.deadline_at == self.clock.now() + timedelta(seconds=60)
        assert seen.ordered_at == job.ordered_at
        self.clock.push(5)
        (claim,) = self.place.take(self.worker)
        self.place.settle(retry(claim, self.worker, delay_s=LATER_S), by=self.worker)
        self._run_now(self.place.see(job.id))
        assert self.place.see(job.id).deadline_at == seen.deadline_at
        self.place.clean()

    def test_a_retry_that_is_run_now_keeps_its_counters_and_its_error(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=LATER_S), by=self.worker)
        job = self.place.see(claim.id)
        self.clock.push(1)
        self._run_now(job)
        seen = self.place.see(job.id)
        assert (seen.counters, seen.error_kind, seen.life) == (job.counters, "network", 1)
        (again,) = self.place.take(self.worker)
        assert (again.id, again.counters.failures, again.counters.starts) == (job.id, 1, 2)
        self.place.settle(success(again, self.worker), by=self.worker)
        self.place.clean()

    def test_what_is_run_now_stands_in_line_from_then_on_and_a_retry_where_it_stood(self) -> None:
        old = self.one_claim()
        self.place.settle(retry(old, self.worker, delay_s=LATER_S), by=self.worker)
        first = self._schedule_job()
        self.clock.push(1)
        between = self.place.put().id
        self.clock.push(1)
        self._run_now(first, self.place.see(old.id))
        self.clock.push(1)
        last = self.place.put().id
        assert self.place.taken_ids(self.worker, 4) == [old.id, between, first.id, last]

    def test_priority_counts_for_what_is_run_now(self) -> None:
        urgent = self._schedule_job(priority=1)
        plain = self.place.put().id
        self.clock.push(1)
        self._run_now(urgent)
        assert self.place.taken_ids(self.worker, 2) == [urgent.id, plain]

    def test_only_a_job_that_waits_for_its_time_is_run_now(self) -> None:
        ended = [self.place.dead_letter(self.worker, end=end) for end in (success, failure)]
        held = self.place.see(self.one_claim().id)
        ready = self.place.see(self.place.put().id)
        moved = replace(self._schedule_job(), token=77)
        nobody = replace(moved, no=999_999, id=uuid_of(5))
        before = self.place.everything()
        chosen = (*ended, held, ready, moved, nobody)
        assert self._run_now(*chosen) == [Stale(one.no, one.id, one.token) for one in chosen]
        assert self.place.everything() == before

    def test_a_job_that_is_run_now_behind_a_closed_lane_stays_there(self) -> None:
        job = self._schedule_job()
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        assert isinstance(self._run_now(job)[0], Receipt)
        assert self.place.take(self.worker) == []
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.taken_ids(self.worker) == [job.id]

    def test_a_filter_may_mean_what_waits_for_its_time(self) -> None:
        later, ready = self._schedule_job(), self.place.put().id
        found = self.place.reader.jobs
        assert [job.id for job in found(JobFilter(waiting=True))] == [later.id]
        assert [job.id for job in found(JobFilter(waiting=False))] == [ready]
        queued = JobFilter(states=(State.QUEUED,), waiting=True)
        assert [job.id for job in found(queued)] == [later.id]
        assert self.place.reader.preview(queued).count == 1

    # -- whose they are ----------------------------------------------------------------------

    def _strange(self, make: Callable[[], JobView], act: Callable[..., list[Any]]) -> None:
        """To one who is not its owner a job is as one that never was; its owner may act."""
        job = make()
        assert job.owner == "ann"
        before = self.place.everything()
        for owner in ("bob", "", "ANN"):
            assert act(job, owner=owner) == [Stale(job.no, job.id, job.token)], owner
        assert self.place.everything() == before
        assert isinstance(act(job, owner="ann")[0], Receipt)
        assert len(self.place.reader.deeds()) == 1

    def test_another_owners_job_is_not_cancelled(self) -> None:
        self._strange(lambda: self.place.see(self.place.put(owner="ann").id), self._cancel)

    def test_another_owners_running_job_is_not_cancelled(self) -> None:
        def act(job: JobView, **options: Any) -> list[Settled | Busy]:
            return self.place.control.cancel([cancellation(claim, self.worker)], DEED, **options)

        claim = self.one_claim(owner="ann")
        self._strange(lambda: self.place.see(claim.id), act)

    def test_another_owners_job_is_not_run_now(self) -> None:
        self._strange(lambda: self._schedule_job(owner="ann"), self._run_now)

    def test_another_owners_job_is_not_revived(self) -> None:
        def act(job: JobView, **options: Any) -> list[Revived]:
            return self.place.control.revive([_revival_of(job)], DEED, **options)

        self._strange(lambda: self.place.dead_letter(self.worker, owner="ann", key="k"), act)

    def test_another_owners_job_is_not_discarded(self) -> None:
        def act(job: JobView, **options: Any) -> list[Settled | Busy]:
            return self.place.control.discard([target(job)], DEED, **options)

        self._strange(lambda: self.place.dead_letter(self.worker, owner="ann"), act)

    # -- another payload ---------------------------------------------------------------------

    def _anew(self, job: JobView, payload_json: str) -> Revived:
        return self.place.revive(job, payload_json=payload_json, forgotten=("one", "two"))

    def test_a_new_life_may_bring_another_payload_and_the_old_one_is_kept(self) -> None:
        job = self.place.dead_letter(self.worker, key="k", payload_json='{"n":"wrong"}')
        assert isinstance(self._anew(job, '{"n":1}'), Receipt)
        seen = self.place.see(job.id)
        assert (seen.payload_json, seen.input_json, seen.key) == ('{"n":1}', '{"n":1}', "k")
        assert (seen.life, seen.token) == (job.life + 1, job.token + 1)
        assert self.place.reader.payloads(job.no) == [PayloadView(1, '{"n":"wrong"}')]
        (claim,) = self.place.take(self.worker)
        assert (claim.payload_json, claim.input_json) == ('{"n":1}', '{"n":1}')
        assert not self.place.put(key="k").created
        self.place.clean()

    def test_each_payload_is_kept_with_the_life_that_it_was_for(self) -> None:
        job = self.place.dead_letter(self.worker, payload_json="1")
        for payload in ("2", None, "4"):
            again = self.place.see(job.id)
            assert isinstance(self.place.revive(again, payload_json=payload), Receipt)
            (claim,) = self.place.take(self.worker)
            self.place.settle(failure(claim, self.worker), by=self.worker)
        assert self.place.see(job.id).payload_json == "4"
        assert self.place.reader.payloads(job.no) == [PayloadView(1, "1"), PayloadView(3, "2")]
        assert self.place.reader.payloads(job.no + 1) == []
        self.place.clean()

    def test_a_revival_that_is_stale_or_conflicts_replaces_nothing(self) -> None:
        job = self.place.dead_letter(self.worker, key="k", run=self.place.begin_run().no)
        self.place.put(key="k")
        before = self.place.everything()
        assert not isinstance(self._anew(job, "1"), Receipt)
        assert not isinstance(self._anew(replace(job, token=77), "1"), Receipt)
        assert self.place.everything() == before

    def test_old_payloads_go_with_their_job(self) -> None:
        job = self.place.dead_letter(self.worker)
        self._anew(job, "1")
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        self.clock.push(10)
        assert self.place.control.prune(Retention(succeeded_s=1.0), limit=9).jobs == 1
        assert self.place.reader.payloads(job.no) == []
        self.place.clean()

    # -- in bulk -----------------------------------------------------------------------------

    def _bulk(self, verb: BulkVerb, **changes: Any) -> BulkView:
        return self.place.control.add_bulk(
            replace(NewBulk(uuid_of(7), verb, "{}", DEED), **changes)
        )

    def _only_bulk(self) -> BulkView:
        (found,) = self.place.reader.bulks()
        return found

    def test_a_step_of_cancels_counts_what_it_did(self) -> None:
        bulk = self._bulk(BulkVerb.CANCEL)
        one, two = (self.place.see(done.id) for done in self.place.put_many(2))
        step = BulkStep(bulk.no, None, one.no, refusals=(Refusal(999, "why not"),))
        answers = self._cancel(two, replace(one, token=77), step=step)
        assert [type(answer) for answer in answers] == [Receipt, Stale]
        moved = self._only_bulk()
        assert (moved.cursor, moved.done, moved.refused) == (one.no, 1, 2)
        assert self.place.see(one.id).state is State.QUEUED

    def test_a_step_of_jobs_that_are_run_now_counts_what_it_did(self) -> None:
        bulk, jobs = self._bulk(BulkVerb.RUN_NOW), [self._schedule_job() for _ in range(2)]
        step = BulkStep(bulk.no, None, jobs[0].no)
        answers = self._run_now(jobs[1], replace(jobs[0], token=77), step=step)
        assert [type(answer) for answer in answers] == [Receipt, Stale]
        assert (self._only_bulk().done, self._only_bulk().refused) == (1, 1)

    def test_a_step_of_deeds_from_elsewhere_does_nothing(self) -> None:
        bulk, later = self._bulk(BulkVerb.CANCEL), self._schedule_job()
        first = BulkStep(bulk.no, None, later.no + 1)
        assert self._cancel(step=first) == []
        before = self.place.everything()
        for act in (self._cancel, self._run_now):
            assert act(later, step=first) == [Stale(later.no, later.id, later.token)]
        assert self.place.everything() == before

    def test_the_verbs_of_bulk_operations_are_written_down(self) -> None:
        for place, verb in enumerate((BulkVerb.CANCEL, BulkVerb.RETRY, BulkVerb.RUN_NOW)):
            assert self._bulk(verb, id=uuid_of(place)).verb is verb
        assert [deed.verb for deed in self.place.reader.deeds()] == [
            "begin bulk run now",
            "begin bulk retry",
            "begin bulk cancel",
        ]

    def test_payloads_that_an_operation_brings_are_kept_until_it_is_done(self) -> None:
        brought = (("a", "1"), ("b", '{"n":2}'))
        bulk = self._bulk(BulkVerb.RETRY, payloads=brought)
        again = self._bulk(BulkVerb.RETRY, payloads=(("a", "9"), ("c", "3")))
        assert again == bulk
        asked = self.place.reader.bulk_payloads
        assert asked(bulk.no, ["a", "b", "c"]) == dict(brought)
        assert asked(bulk.no, ["b", "nobody"]) == {"b": '{"n":2}'}
        assert asked(bulk.no, []) == asked(bulk.no + 1, ["a"]) == {}
        stopped = BulkStep(bulk.no, None, 5, status=BulkStatus.STOPPED)
        assert self.place.control.step_bulk(stopped) is not None
        assert asked(bulk.no, ["a", "b"]) == dict(brought)
        self.place.clean()

    def test_payloads_go_when_their_operation_is_done(self) -> None:
        bulk = self._bulk(BulkVerb.RETRY, payloads=(("k", "1"),))
        job = self.place.dead_letter(self.worker, key="k")
        step = BulkStep(bulk.no, None, job.no)
        again = replace(_revival_of(job), payload_json="1")
        assert isinstance(self.place.control.revive([again], DEED, step=step)[0], Receipt)
        done = BulkStep(bulk.no, job.no, job.no, status=BulkStatus.DONE)
        assert self.place.control.step_bulk(done) is not None
        assert self.place.reader.bulk_payloads(bulk.no, ["k"]) == {}
        self.place.clean()


def _ending(job: JobView) -> Record:
    """What is written when a job that waits is cancelled."""
    return Record(
        no=job.no,
        id=job.id,
        token=job.token,
        move=Move.CANCEL,
        state=State.CANCELLED,
        stage=job.stage,
        lane=job.lane,
        counters=job.counters,
        past=job.past,
        isolation=job.isolation,
        error_message="nobody wants it",
    )


def _revival_of(job: JobView) -> Revival:
    return Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
