"""Bulk operations: they move on by one hand at a time, together with what they do."""

from typing import Any

from perdure.model.jobs import Conflict, Receipt, Revived, Stale
from perdure.model.nouns import replace
from perdure.model.operations import (
    BulkChange,
    BulkPhase,
    BulkStatus,
    BulkStep,
    BulkVerb,
    BulkView,
    Deed,
    LoggedRefusal,
    NewBulk,
    Refusal,
    Revival,
)
from perdure.model.views import JobView
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, target, uuid_of

BULK = uuid_of(7)


class BulksContract(OnAFreshStore):
    """What is done to many, by the step."""

    def _begin_bulk(self, id: str = BULK, verb: BulkVerb = BulkVerb.REDRIVE) -> BulkView:
        return self.place.control.add_bulk(NewBulk(id, verb, '{"kind":"x"}', DEED))

    def _dead_letters(self, count: int, **changes: Any) -> list[JobView]:
        return [self.place.dead_letter(self.worker, **changes) for _ in range(count)]

    def _see_bulk(self, bulk: BulkView) -> BulkView:
        (found,) = self.place.reader.bulks(id=bulk.id)
        return found

    def _revive_in_step(self, jobs: list[JobView], step: BulkStep) -> list[Revived]:
        return self.place.control.revive([_revival_of(job) for job in jobs], DEED, step=step)

    def test_a_bulk_operation_begins_at_the_top_and_is_written_down(self) -> None:
        bulk = self._begin_bulk()
        now = self.clock.now()
        assert bulk == BulkView(
            no=bulk.no,
            id=BULK,
            verb=BulkVerb.REDRIVE,
            status=BulkStatus.RUNNING,
            filter_json='{"kind":"x"}',
            begun_by=DEED.by_whom,
            reason=DEED.reason,
            cursor=None,
            done=0,
            refused=0,
            begun_at=now,
            changed_at=now,
            settings_json="{}",
            run=None,
            phase=BulkPhase.ALL,
            why="",
        )
        assert self.place.reader.bulks() == [bulk]
        (deed,) = self.place.reader.deeds()
        assert (deed.verb, deed.subject) == ("begin bulk redrive", BULK)

    def test_the_same_id_is_the_same_bulk_operation(self) -> None:
        bulk = self._begin_bulk()
        step = BulkStep(bulk.no, None, 90, done=3)
        moved = self.place.control.step_bulk(step)
        self.clock.push(5)
        again = self.place.control.add_bulk(
            NewBulk(BULK, BulkVerb.DISCARD, "{}", Deed("bob", "other"))
        )
        assert again == moved
        assert len(self.place.reader.bulks()) == 1
        assert len(self.place.reader.deeds()) == 1

    def test_a_step_moves_it_on_from_where_it_was_seen(self) -> None:
        bulk = self._begin_bulk()
        step = self.place.control.step_bulk
        self.clock.push(1)
        first = step(BulkStep(bulk.no, None, 90, done=3, refusals=(Refusal(95, "why not"),)))
        assert first is not None
        assert (first.cursor, first.done, first.refused) == (90, 3, 1)
        assert (first.changed_at, first.begun_at) == (self.clock.now(), bulk.begun_at)
        assert step(BulkStep(bulk.no, None, 80, done=3)) is None
        assert step(BulkStep(bulk.no, 91, 80, done=3)) is None
        assert self.place.reader.bulks() == [first]
        second = step(BulkStep(bulk.no, 90, None, done=2, status=BulkStatus.DONE))
        assert second is not None
        assert (second.cursor, second.done, second.status) == (None, 5, BulkStatus.DONE)

    def test_a_bulk_operation_that_is_over_does_not_move(self) -> None:
        bulk = self._begin_bulk()
        step = self.place.control.step_bulk
        assert step(BulkStep(bulk.no, None, 90, status=BulkStatus.STOPPED)) is not None
        assert step(BulkStep(bulk.no, 90, 80)) is None
        assert step(BulkStep(bulk.no + 1000, None, 80)) is None

    def test_bulk_operations_come_newest_first_and_running_ones_alone(self) -> None:
        first, second = self._begin_bulk(uuid_of(1)), self._begin_bulk(uuid_of(2), BulkVerb.DISCARD)
        self.place.control.step_bulk(BulkStep(second.no, None, None, status=BulkStatus.DONE))
        reader = self.place.reader
        assert [one.no for one in reader.bulks()] == [second.no, first.no]
        assert [one.no for one in reader.bulks(limit=1)] == [second.no]
        assert reader.bulks(running=True) == [first]

    def test_a_bulk_operation_is_found_by_its_id(self) -> None:
        first, _ = self._begin_bulk(uuid_of(1)), self._begin_bulk(uuid_of(2))
        bulks = self.place.reader.bulks
        assert bulks(id=first.id) == [first]
        assert bulks(id=uuid_of(99)) == bulks(id="nobody") == []
        self.place.control.step_bulk(BulkStep(first.no, None, None, status=BulkStatus.DONE))
        assert bulks(id=first.id, running=True) == []

    def test_a_bulk_operation_keeps_its_settings_its_run_and_its_phase(self) -> None:
        run = self.place.begin_run()
        new = NewBulk(
            BULK,
            BulkVerb.REDRIVE,
            "{}",
            DEED,
            settings_json='{"per_s":5}',
            run=run.no,
            phase=BulkPhase.CANARY,
        )
        bulk = self.place.control.add_bulk(new)
        assert (bulk.settings_json, bulk.run, bulk.phase) == (
            '{"per_s":5}',
            run.no,
            BulkPhase.CANARY,
        )
        assert self._see_bulk(bulk) == bulk
        for phase in (BulkPhase.PROVING, BulkPhase.ALL):
            step = BulkStep(bulk.no, None, None, phase=phase, why=f"now {phase.value}")
            moved = self.place.control.step_bulk(step)
            assert moved is not None
            assert (moved.phase, moved.why) == (phase, f"now {phase.value}")

    # -- a step with what it does --------------------------------------------------------------

    def test_a_step_of_new_lives_counts_what_it_did(self) -> None:
        bulk, jobs = self._begin_bulk(), self._dead_letters(3)
        self.clock.push(1)
        stale = replace(jobs[2], token=77)
        step = BulkStep(bulk.no, None, 5, refusals=(Refusal(999, "its source is gone"),))
        answers = self._revive_in_step([jobs[0], jobs[1], stale], step)
        assert [type(one) for one in answers] == [Receipt, Receipt, Stale]
        moved = self._see_bulk(bulk)
        assert (moved.cursor, moved.done, moved.refused) == (5, 2, 2)
        assert moved.changed_at == self.clock.now()
        refused = self.place.reader.refusals(bulk.no)
        assert [(one.job_no, one.why) for one in refused] == sorted(
            [(stale.no, "has moved on since"), (999, "its source is gone")]
        )
        (own,) = [one for one in refused if one.job_no == stale.no]
        assert own.job_id == stale.id
        self.place.clean()

    def test_a_conflict_is_refused_and_says_with_whom(self) -> None:
        bulk = self._begin_bulk()
        (job,) = self._dead_letters(1, key="k", run=self.place.begin_run().no)
        alive = self.place.put(key="k").id
        (answer,) = self._revive_in_step([job], BulkStep(bulk.no, None, job.no))
        assert answer == Conflict(job.no, job.id, job.token, alive)
        assert (self._see_bulk(bulk).done, self._see_bulk(bulk).refused) == (0, 1)
        assert self.place.reader.refusals(bulk.no) == [
            LoggedRefusal(job.no, job.id, f"its key is alive again as job {alive}")
        ]

    def test_a_step_of_discards_counts_what_it_did(self) -> None:
        bulk, jobs = self._begin_bulk(verb=BulkVerb.DISCARD), self._dead_letters(2)
        self.place.discard(jobs[1])
        step = BulkStep(bulk.no, None, None, status=BulkStatus.DONE, why="all looked at")
        answers = self.place.control.discard([target(job) for job in jobs], DEED, step=step)
        assert [type(one) for one in answers] == [Receipt, Stale]
        moved = self._see_bulk(bulk)
        assert (moved.done, moved.refused, moved.status) == (1, 1, BulkStatus.DONE)
        assert moved.why == "all looked at"
        assert self.place.see(jobs[0].id).discarded_at == self.clock.now()

    def test_a_step_from_elsewhere_does_nothing(self) -> None:
        bulk, jobs = self._begin_bulk(), self._dead_letters(2)
        first = BulkStep(bulk.no, None, jobs[1].no)
        assert isinstance(self._revive_in_step([jobs[1]], first)[0], Receipt)
        before = self.place.everything()
        for step in (
            first,
            BulkStep(bulk.no, 12_345, 5),
            BulkStep(bulk.no + 1000, jobs[1].no, 5),
            replace(first, refusals=(Refusal(jobs[0].no, "why"),)),
        ):
            assert self._revive_in_step([jobs[0]], step) == [
                Stale(jobs[0].no, jobs[0].id, jobs[0].token)
            ], step
            discarded = self.place.control.discard([target(jobs[0])], DEED, step=step)
            assert [type(one) for one in discarded] == [Stale], step
        assert self.place.everything() == before

    def test_a_step_of_an_operation_that_was_stopped_does_nothing(self) -> None:
        bulk, jobs = self._begin_bulk(), self._dead_letters(1)
        self._change_bulk(bulk, BulkStatus.STOPPED)
        before = self.place.everything()
        assert isinstance(self._revive_in_step(jobs, BulkStep(bulk.no, None, 1))[0], Stale)
        assert self.place.everything() == before

    def test_a_step_may_do_nothing_but_move(self) -> None:
        bulk = self._begin_bulk()
        assert self._revive_in_step([], BulkStep(bulk.no, None, 40)) == []
        assert self.place.control.discard([], DEED, step=BulkStep(bulk.no, 40, 30)) == []
        assert (self._see_bulk(bulk).cursor, self._see_bulk(bulk).done) == (30, 0)

    def test_what_is_refused_twice_is_counted_once_and_keeps_its_first_reason(self) -> None:
        bulk, (job,) = self._begin_bulk(), self._dead_letters(1)
        first = BulkStep(bulk.no, None, 90, refusals=(Refusal(job.no, "first"),))
        assert self.place.control.step_bulk(first) is not None
        again = BulkStep(bulk.no, 90, 80, done=1, refusals=(Refusal(job.no, "second"),))
        moved = self.place.control.step_bulk(again)
        assert moved is not None
        assert (moved.done, moved.refused) == (1, 1)
        self._revive_in_step([replace(job, token=99)], BulkStep(bulk.no, 80, 70))
        assert self._see_bulk(bulk).refused == 1
        assert self.place.reader.refusals(bulk.no) == [LoggedRefusal(job.no, job.id, "first")]

    def test_refusals_come_in_pages_by_job_number_and_by_operation(self) -> None:
        one, two = self._begin_bulk(uuid_of(1)), self._begin_bulk(uuid_of(2))
        jobs = self._dead_letters(3)
        some = tuple(Refusal(job.no, "why") for job in reversed(jobs))
        self.place.control.step_bulk(BulkStep(one.no, None, 1, refusals=some))
        self.place.control.step_bulk(BulkStep(two.no, None, 1, refusals=some[:1]))
        refusals = self.place.reader.refusals
        assert [line.job_no for line in refusals(one.no)] == [job.no for job in jobs]
        assert [line.job_id for line in refusals(one.no, limit=2)] == [job.id for job in jobs[:2]]
        assert [line.job_id for line in refusals(one.no, after=jobs[1].no)] == [jobs[2].id]
        assert [line.job_no for line in refusals(two.no)] == [jobs[2].no]
        assert refusals(one.no, limit=0) == refusals(one.no + 1000) == []

    # -- another status ----------------------------------------------------------------------

    def _change_bulk(self, bulk: BulkView, status: BulkStatus, why: str = "") -> BulkView | None:
        change = BulkChange(bulk.no, self._see_bulk(bulk).status, status, why)
        return self.place.control.change_bulk(change, Deed("bob", "enough"))

    def test_an_operation_that_was_stopped_goes_on_where_it_stood(self) -> None:
        bulk = self._begin_bulk()
        self.place.control.step_bulk(BulkStep(bulk.no, None, 90, done=3))
        self.clock.push(10)
        stopped = self._change_bulk(bulk, BulkStatus.STOPPED, "by hand")
        assert stopped is not None
        assert (stopped.status, stopped.why) == (BulkStatus.STOPPED, "by hand")
        self.clock.push(10)
        going = self._change_bulk(bulk, BulkStatus.RUNNING)
        assert going is not None
        assert (going.status, going.why, going.cursor, going.done) == (
            BulkStatus.RUNNING,
            "",
            90,
            3,
        )
        assert going.changed_at == self.clock.now()
        assert self._see_bulk(bulk) == going
        assert self.place.control.step_bulk(BulkStep(bulk.no, 90, 80)) is not None

    def test_an_operation_changes_if_its_status_is_as_it_was_seen(self) -> None:
        bulk = self._begin_bulk()
        change = BulkChange(bulk.no, BulkStatus.STOPPED, BulkStatus.RUNNING)
        before = self.place.everything()
        assert self.place.control.change_bulk(change, DEED) is None
        assert self.place.control.change_bulk(replace(change, no=bulk.no + 1000), DEED) is None
        assert self.place.everything() == before

    def test_each_change_of_an_operation_is_written_down(self) -> None:
        bulk = self._begin_bulk()
        for status in (BulkStatus.STOPPED, BulkStatus.RUNNING, BulkStatus.DONE):
            assert self._change_bulk(bulk, status) is not None
        told = self.place.reader.deeds()[::-1]
        assert [one.verb for one in told] == [
            "begin bulk redrive",
            "stop bulk",
            "resume bulk",
            "end bulk",
        ]
        assert {one.subject for one in told} == {BULK}
        assert (told[1].by_whom, told[1].reason) == ("bob", "enough")


def _revival_of(job: JobView) -> Revival:
    return Revival(job.no, job.id, job.token, job.stage, job.lane, job.input_from)
