"""Whose jobs, and since when: lists of one owner's jobs, newest first and by their last change."""

from datetime import datetime
from typing import Any

from perdure.model.errors import CallerError
from perdure.model.filters import JobFilter
from perdure.model.jobs import Claim, IfFailed, OnLost
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import BulkVerb, LaneScope, NewBulk, Retention
from perdure.model.runs import NewRun
from perdure.model.states import FailedReason, State
from perdure.testing.store_contract.attempt_ends import (
    ENDINGS,
    advance,
    cancellation,
    failing,
    failure,
    retry,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises, uuid_of

ANN = JobFilter(owner="ann")


class OwnersContract(OnAFreshStore):
    """What an owner sees of its jobs, and never of another's."""

    def _listed_nos(self, chosen: JobFilter = ANN, **page: Any) -> list[int]:
        return [job.no for job in self.place.reader.jobs(chosen, **page)]

    def _changed_nos(self, since: datetime, chosen: JobFilter = ANN, **page: Any) -> list[int]:
        return [one.job.no for one in self.place.reader.jobs_changed(chosen, since=since, **page)]

    def _in_work(self, **changes: Any) -> Claim:
        """A job of Ann's in the hands of the worker, a second later."""
        claim = self.one_claim(owner="ann", priority=9, **changes)
        self.clock.push(1)
        return claim

    def _pairs(self) -> list[int]:
        """Ann's jobs 0 done, 1 failed, 2 cancelled, 3 retrying, 4 running, 5 waiting, each beside one of Bob's."""
        nos = [
            self.place.put(owner=owner, priority=9 if n < 5 else 0).no
            for n in range(6)
            for owner in ("ann", "bob")
        ]
        claims = {claim.no: claim for claim in self.place.take(self.worker, 10)}
        for pair, end in enumerate((success, failure, cancellation, retry)):
            records = [end(claims[no], self.worker) for no in nos[2 * pair : 2 * pair + 2]]
            self.place.settle(*records, by=self.worker)
        return nos[::2]

    # -- newest first ------------------------------------------------------------------------

    def test_an_owners_jobs_come_newest_first_in_pages(self) -> None:
        nos = self._pairs()
        assert self._listed_nos() == nos[::-1]
        assert self._listed_nos(limit=4) == nos[:1:-1]
        assert self._listed_nos(limit=4, before=nos[2]) == nos[1::-1]
        assert self._listed_nos(before=nos[0]) == []
        assert self._listed_nos(limit=0) == []
        assert self._listed_nos(before=10**30) == nos[::-1]
        self.place.clean()

    def test_an_owners_jobs_are_filtered_by_state_and_by_all_else(self) -> None:
        done, failed, over, again, running, waiting = self._pairs()
        for states, meant in (
            ((State.SUCCEEDED,), [done]),
            ((State.FAILED,), [failed]),
            ((State.CANCELLED,), [over]),
            ((State.PROCESSING,), [running]),
            ((State.QUEUED,), [waiting, again]),
            ((State.FAILED, State.SUCCEEDED, State.FAILED), [failed, done]),
            ((State.PROCESSING, State.CANCELLED), [running, over]),
        ):
            assert self._listed_nos(JobFilter(owner="ann", states=states)) == meant, states
        for chosen, meant in (
            ({"reason": FailedReason.FATAL}, [failed]),
            ({"kind": "network"}, [again]),
            ({"text": "BROKEN"}, [failed]),
            ({"pipeline": "p", "kind": "network"}, [again]),
            ({"queue": "q", "category": "c", "states": (State.SUCCEEDED,)}, [done]),
            ({"queue": "other"}, []),
            ({"category": "other"}, []),
            ({"stage": "two"}, []),
            ({"discarded": True}, []),
            ({"discarded": False, "states": (State.FAILED,)}, [failed]),
            ({"finished_from": self.clock.now()}, [over, failed, done]),
        ):
            assert self._listed_nos(JobFilter(owner="ann", **chosen)) == meant, chosen

    def test_pages_of_an_owner_leave_nothing_out_and_repeat_nothing(self) -> None:
        nos = self._pairs()
        for limit in (1, 2, 4):
            seen: list[int] = []
            while page := self._listed_nos(limit=limit, before=seen[-1] if seen else None):
                seen += page
            assert seen == nos[::-1]

    def test_an_owners_jobs_in_a_run_are_found_whosever_run_it_is(self) -> None:
        own = self.place.begin_run("own", owner="ann")
        shared = self.place.begin_run("shared", owner="bob")
        mine = self.place.put(owner="ann", run=own.no).no
        also = self.place.put(owner="ann", run=shared.no).no
        self.place.put(owner="bob", run=own.no)
        self.place.put(owner="bob", run=shared.no)
        self.place.put(owner="ann")
        assert self._listed_nos(JobFilter(owner="ann", run=own.no)) == [mine]
        assert self._listed_nos(JobFilter(owner="ann", run=shared.no)) == [also]
        assert self._listed_nos(JobFilter(owner="ann", run=777)) == []
        driven = self.place.dead_letter(self.worker, owner="ann", priority=9)
        self.place.revive(driven, redrive_run=shared.no)
        assert self._listed_nos(JobFilter(owner="ann", run=shared.no)) == [driven.no, also]

    def test_another_owners_jobs_never_show(self) -> None:
        self._pairs()
        self.place.put()
        since = self.clock.now().replace(year=2000)
        for owner, count in (("ann", 6), ("bob", 6), ("Ann", 0), ("an", 0), ("ann ", 0), ("%", 0)):
            meant = JobFilter(owner=owner)
            listed = self.place.reader.jobs(meant)
            changed = [one.job for one in self.place.reader.jobs_changed(meant, since=since)]
            assert {one.owner for one in (*listed, *changed)} <= {owner}
            assert (len(listed), len(changed)) == (count, count)
            assert self.place.reader.preview(meant).count == count
        assert len(self._listed_nos(JobFilter(owner=""))) == 1

    def test_by_its_id_another_owners_job_is_not_there_as_one_that_never_was(self) -> None:
        made = self.place.put(owner="ann")
        nobodys = self.place.put()
        job = self.place.reader.job
        assert job(made.id) is not None
        assert job(made.id) == job(made.id, owner="ann")
        assert job(made.id, owner="bob") is job(made.id, owner="") is job(uuid_of(99)) is None
        assert job(nobodys.id, owner="") is not None
        assert job(nobodys.id, owner="ann") is None  # what is nobody's is the operator's

    def test_by_its_id_another_owners_run_is_not_there_as_one_that_never_was(self) -> None:
        made = self.place.control.add_run(NewRun(uuid_of(1), "ann", "p", "nightly"))
        run = self.place.reader.run
        assert run(made.id) == run(made.id, owner="ann") == made
        assert run(made.id, owner="bob") is run(made.id, owner="") is None

    def test_another_owners_runs_never_show(self) -> None:
        anns = self.place.begin_run("one", owner="ann")
        bobs = self.place.begin_run("one", owner="bob")
        assert bobs.no == self.place.begin_run("one", owner="bob").no != anns.no
        runs = self.place.reader.runs
        assert runs(owner="ann") == runs(owner="ann", live=True) == [anns]
        assert runs(owner="eve") == runs(owner="eve", live=True) == []

    def test_a_key_that_another_owner_has_finds_nothing(self) -> None:
        anns = self.place.put(key="k", owner="ann")
        bobs = self.place.put(key="k", owner="bob")
        assert bobs.created
        assert self.place.put(key="k", owner="bob").id == bobs.id != anns.id

    def test_a_key_is_found_by_whose_it_is(self) -> None:
        self.place.put(key="k", owner="ann")
        bobs = self.place.put(key="k", owner="bob")
        for pipeline in (None, "p"):
            meant = JobFilter(owner="bob", key="k", pipeline=pipeline)
            assert [one.id for one in self.place.reader.jobs(meant)] == [bobs.id]

    def test_another_owners_bulk_operations_never_show(self) -> None:
        begin, bulks = self.place.control.add_bulk, self.place.reader.bulks
        anns = begin(NewBulk(uuid_of(1), BulkVerb.DISCARD, "{}", DEED, owner="ann"))
        nobodys = begin(NewBulk(uuid_of(2), BulkVerb.DISCARD, "{}", DEED))
        assert bulks() == bulks(running=True) == [nobodys, anns]
        assert bulks(owner="ann") == bulks(owner="ann", running=True) == [anns]
        assert bulks(owner="bob") == bulks(owner="bob", running=True) == []
        assert bulks(id=anns.id, owner="ann") == [anns]
        assert bulks(id=anns.id, owner="bob") == bulks(id=nobodys.id, owner="ann") == []

    def test_a_page_of_an_owner_is_bounded_whatever_is_asked_for(self) -> None:
        since = self.clock.now()
        made = self.place.put_many(PAGE_ROWS_MAX + 1, owner="ann")
        nos = [one.no for one in made]
        assert self._listed_nos(limit=10**6) == nos[:0:-1]
        assert self._changed_nos(since, limit=10**6) == nos[:-1]
        assert self.place.reader.preview(ANN).count == len(nos)

    # -- by change ---------------------------------------------------------------------------

    def test_what_is_listed_by_change_is_the_job_itself_and_when_it_changed(self) -> None:
        came_at = self.clock.now()
        claim = self._in_work()
        (one,) = self.place.reader.jobs_changed(ANN, since=came_at)
        assert one.changed_at == came_at
        assert one.job == self.place.see(claim.id)
        assert one.job.state is State.PROCESSING

    def test_the_oldest_change_comes_first_and_a_moment_includes_itself(self) -> None:
        began_at = self.clock.now()
        nos = []
        for _ in range(3):
            nos.append(self.place.put(owner="ann", priority=9).no)
            self.clock.push(1)
        assert self._changed_nos(began_at) == nos
        first = self.place.take(self.worker)[0]
        self.place.settle(success(first, self.worker), by=self.worker)
        assert self._changed_nos(began_at) == [*nos[1:], nos[0]]
        assert self._changed_nos(self.clock.now()) == [nos[0]]
        self.clock.push(0.000001)
        assert self._changed_nos(self.clock.now()) == []

    def test_every_way_in_which_an_attempt_can_end_is_a_change_and_a_claim_is_none(self) -> None:
        for end in ENDINGS:
            claim = self._in_work()
            assert self._changed_nos(self.clock.now()) == [], end
            self.place.settle(end(claim, self.worker), by=self.worker)
            assert self._changed_nos(self.clock.now()) == [claim.no], end
            self.clock.push(1)
            self.place.clean()
            self.place.store.turn([], self.place.order(self.worker, 9), by=self.worker)

    def test_the_end_of_a_stage_is_a_change_queued_or_claimed_again(self) -> None:
        for reclaim in (False, True):
            claim = self._in_work()
            record = advance(claim, self.worker, self.place.lanes["two"], reclaim=reclaim)
            self.place.settle(record, by=self.worker)
            assert self._changed_nos(self.clock.now()) == [claim.no]
            self.clock.push(1)
            self.place.take(self.worker)
            self.place.clean()

    def test_a_new_life_and_a_discard_are_changes(self) -> None:
        job = self.place.dead_letter(self.worker, owner="ann")
        self.clock.push(1)
        self.place.discard(job)
        assert self._changed_nos(self.clock.now()) == [job.no]
        self.clock.push(1)
        self.place.revive(self.place.see(job.id))
        assert self._changed_nos(self.clock.now()) == [job.no]
        assert self._listed_nos(JobFilter(owner="ann", states=(State.FAILED,))) == []
        assert self._listed_nos(JobFilter(owner="ann", states=(State.QUEUED,))) == [job.no]
        self.clock.push(1)
        self.place.take(self.worker)
        assert self._changed_nos(self.clock.now()) == []
        self.place.clean()

    def test_a_job_that_is_enqueued_again_by_its_key_has_changed(self) -> None:
        job = self.place.dead_letter(self.worker, owner="ann", key="k")
        self.clock.push(1)
        self.place.put(owner="ann", key="k")
        assert self._changed_nos(self.clock.now()) == []
        again = self.place.put(owner="ann", key="k", if_failed=IfFailed.RETRY)
        assert again.revived
        assert self._changed_nos(self.clock.now()) == [job.no]
        self.place.clean()

    def test_a_job_that_its_caller_runs_is_its_owners(self) -> None:
        for paused in (False, True):
            if paused:
                self.place.control.pause(LaneScope.QUEUE, "q", DEED)
            since = self.clock.now()
            self.place.store.begin(
                self.place.new(owner="ann"), worker=self.worker, hard_s=10.0, on_lost=OnLost.DROP
            )
            (no,) = self._changed_nos(since)
            assert self._listed_nos(limit=1) == [no]
            self.clock.push(1)
            self.place.clean()

    def test_equal_moments_are_told_apart_by_the_number(self) -> None:
        since = self.clock.now()
        nos = [one.no for one in self.place.put_many(7, owner="ann")]
        for limit in (1, 2, 3, 7):
            seen: list[int] = []
            at, after = since, 0
            while page := self.place.reader.jobs_changed(ANN, since=at, after=after, limit=limit):
                seen += [one.job.no for one in page]
                at, after = page[-1].changed_at, page[-1].job.no
            assert seen == nos, limit
        assert self._changed_nos(since, after=10**30) == []

    def test_who_follows_the_changes_misses_none_and_sees_each_as_it_was_left(self) -> None:
        """Every second something happens, to several jobs at one moment; after each the follower goes on."""
        at, after = self.clock.now(), 0
        told: list[tuple[int, State, int]] = []
        happened: list[tuple[int, State, int]] = []

        def go_on() -> None:
            nonlocal at, after
            while page := self.place.reader.jobs_changed(ANN, since=at, after=after, limit=2):
                told.extend((one.job.no, one.job.state, one.job.token) for one in page)
                at, after = page[-1].changed_at, page[-1].job.no
            self.clock.push(1)

        def happens(*nos: int) -> None:
            jobs = {job.no: job for job in self.place.every_job()}
            happened.extend((no, jobs[no].state, jobs[no].token) for no in sorted(nos))
            go_on()

        happens(*(one.no for one in self.place.put_many(5, owner="ann", priority=9)))
        claims = self.place.take(self.worker, 5)
        self.place.put(owner="bob")
        go_on()
        done, failed, later, over, failed_too = claims
        self.place.settle(
            success(done, self.worker),
            failure(failed, self.worker),
            retry(later, self.worker),
            cancellation(over, self.worker),
            failure(failed_too, self.worker),
            by=self.worker,
        )
        happens(*(claim.no for claim in claims))
        one, two = (self.place.see(claims[place].id) for place in (1, 4))
        self.place.discard(one)
        self.place.revive(two)
        happens(one.no, two.no)
        assert told == happened

    def test_changes_are_filtered_as_lists_are(self) -> None:
        since = self.clock.now()
        done, failed, over, again, running, waiting = self._pairs()
        for chosen, meant in (
            (ANN, [done, failed, over, again, running, waiting]),
            (JobFilter(owner="ann", states=(State.FAILED, State.SUCCEEDED)), [done, failed]),
            (JobFilter(owner="ann", text="broken"), [failed]),
            (JobFilter(owner="ann", queue="other"), []),
            (JobFilter(owner="ann", states=(State.QUEUED,)), [again, waiting]),
        ):
            assert self._changed_nos(since, chosen) == meant
            seen: list[int] = []
            while page := self.place.reader.jobs_changed(
                chosen, since=since, after=seen[-1] if seen else 0, limit=1
            ):
                seen += [one.job.no for one in page]
            assert seen == meant

    def test_what_was_written_in_vain_is_no_change(self) -> None:
        claim = self._in_work()
        record = failing(claim, self.worker)
        self.place.settle(record, by=self.worker)
        self.clock.push(1)
        self.place.settle(record, success(claim, self.worker), by=self.worker)
        job = self.place.see(claim.id)
        self.place.discard(job)
        self.clock.push(1)
        self.place.discard(job)
        self.place.revive(job)
        assert self._changed_nos(self.clock.now()) == []
        self.place.clean()

    def test_by_change_only_an_owners_jobs_are_listed(self) -> None:
        self.place.put()
        for nobody in (JobFilter(), JobFilter(owner="")):
            with raises(CallerError, saying="one owner"):
                self.place.reader.jobs_changed(nobody, since=self.clock.now())

    def test_pruned_jobs_are_nobodys(self) -> None:
        for end in (success, failure, cancellation):
            self.place.settle(end(self._in_work(), self.worker), by=self.worker)
        kept = self.place.put(owner="ann").no
        since = self.clock.now().replace(year=2000)
        self.clock.push(10)
        retention = Retention(succeeded_s=1.0, cancelled_s=1.0, discarded_s=1.0, failed_s=1.0)
        assert self.place.control.prune(retention, limit=100).jobs == 3
        assert self._listed_nos() == self._changed_nos(since) == [kept]
        self.place.clean()
