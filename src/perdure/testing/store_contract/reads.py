"""The reads: pages, filters, previews, counts and groups."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.jobs import Claim, Lane, Record
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import FailedReason, State
from perdure.model.views import Books, FailureGroup
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failure,
    retry,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore


class ReadsContract(OnAFreshStore):
    """What screens show."""

    def _make_busy(self) -> list[Claim]:
        """Jobs 0 and 1 done, 2 failed, 3 cancelled, 4 retrying, 5 running, 6 ready again, 7 suspect.

        Job 0 went through both stages.
        """
        self.place.put_many(8)
        claims = self.place.take(self.worker, 8)
        zero, one, two, three, four, _, six, seven = claims
        self.place.settle(
            advance(zero, self.worker, self.place.lanes["two"]),
            success(one, self.worker),
            failure(two, self.worker),
            cancellation(three, self.worker),
            retry(four, self.worker),
            retry(six, self.worker, delay_s=0.0),
            crash(seven, self.worker),
            by=self.worker,
        )
        (again,) = self.place.take(self.worker, 1)
        assert again.id == zero.id
        self.place.settle(success(again, self.worker), by=self.worker)
        self.clock.push(1)
        return claims

    def _which(self, claims: list[Claim], **chosen: Any) -> list[int]:
        """The places of the chosen ones among these."""
        places = {claim.no: place for place, claim in enumerate(claims)}
        return [places[job.no] for job in self.place.reader.jobs(JobFilter(**chosen))]

    # -- books and counts --------------------------------------------------------------------

    def test_books_are_kept_by_state_and_by_pipeline(self) -> None:
        self._make_busy()
        books = self.place.reader.books
        assert books() == Books(
            accepted=8, queued=3, processing=1, succeeded=2, failed=1, cancelled=1, pruned=0
        )
        assert books(pipeline="p") == books()
        assert books(pipeline="other") == Books(0, 0, 0, 0, 0, 0, 0)
        lane = self.place.lanes_of("other")["one"]
        self.place.put(pipeline="other", lane=lane)
        assert books(pipeline="other") == Books(1, 1, 0, 0, 0, 0, 0)
        assert books().accepted == 9
        assert books().balanced
        self.place.clean()

    def test_lanes_tell_what_waits_in_them(self) -> None:
        self._make_busy()
        self.place.put_many(2, lane=self.place.lanes["two"], stage="two")
        seen = {one.lane.stage: one for one in self.place.reader.lanes()}
        assert [one.lane for one in seen.values()] == [
            Lane("q", "c", "p", "one"),
            Lane("q", "c", "p", "two"),
        ]
        assert (seen["one"].ready, seen["one"].later) == (2, 1)
        assert (seen["two"].ready, seen["two"].later) == (2, 0)

    # -- pages -------------------------------------------------------------------------------

    def test_jobs_come_newest_first_in_pages(self) -> None:
        claims = self._make_busy()
        assert self._which(claims) == [7, 6, 5, 4, 3, 2, 1, 0]
        jobs = self.place.reader.jobs
        nos = [claim.no for claim in reversed(claims)]
        assert [job.no for job in jobs(limit=3)] == nos[:3]
        assert [job.no for job in jobs(limit=3, before=nos[2])] == nos[3:6]
        assert [job.no for job in jobs(before=10**12)] == nos
        assert jobs(before=nos[-1]) == []
        assert jobs(limit=0) == []

    def test_jobs_are_found_by_key_in_every_pipeline_and_run(self) -> None:
        other = self.place.lanes_of("other")["one"]
        plain = self.place.put(key="k").id
        also = self.place.put(key="k", pipeline="other", lane=other).id
        anns = self.place.put(key="k", owner="ann").id
        self.place.put(key="kk")
        jobs = self.place.reader.jobs

        def found_ids(**chosen: Any) -> list[str]:
            return [job.id for job in jobs(JobFilter(key="k", **chosen))]

        assert found_ids() == [anns, also, plain]
        assert found_ids(owner="") == [also, plain]
        assert found_ids(owner="", pipeline="other") == [also]
        assert found_ids(owner="ann") == [anns]
        assert found_ids(owner="bob") == []
        assert [job.id for job in jobs(JobFilter(key="k", owner=""), limit=1)] == [also]

    def test_jobs_that_have_failed_before_are_told_from_others_that_wait(self) -> None:
        claims = self._make_busy()
        assert self._which(claims, retrying=True) == [7, 6, 4]
        assert self._which(claims, retrying=False) == [5, 3, 2, 1, 0]

    def test_jobs_are_found_by_the_label_of_their_success(self) -> None:
        self.place.put_many(3)
        claims = self.place.take(self.worker, 3)
        ends = [replace(success(one, self.worker), label="good") for one in claims[:2]]
        self.place.settle(*ends, success(claims[2], self.worker), by=self.worker)
        assert self._which(claims, label="good") == [1, 0]
        assert self._which(claims, label="good", owner="ann") == []
        assert self._which(claims, label="GOOD") == []

    def test_a_page_is_bounded_whatever_is_asked_for(self) -> None:
        self.place.put_many(PAGE_ROWS_MAX + 1)
        assert len(self.place.reader.jobs(limit=10**6)) == PAGE_ROWS_MAX

    def test_the_pages_of_a_filter_leave_nothing_out_and_repeat_nothing(self) -> None:
        claims = self._make_busy()
        queued = JobFilter(states=(State.QUEUED, State.FAILED))
        seen, before = [], None
        while page := self.place.reader.jobs(queued, limit=1, before=before):
            (job,) = page
            seen.append(job.no)
            before = job.no
        assert seen == [claims[place].no for place in (7, 6, 4, 2)]

    def test_a_job_in_a_page_is_the_job_itself(self) -> None:
        self._make_busy()
        for job in self.place.every_job():
            assert job == self.place.see(job.id)

    def test_a_job_that_is_not_there_is_none(self) -> None:
        self.place.put()
        strangers = (
            "nobody",
            "",
            "00000000-0000-7000-8000-ffffffffffff",
            "🎉",
            "%",
            "00000000-0000-7000-8000-00000000000",
            "{00000000-0000-7000-8000-000000000001}",
        )
        for stranger in strangers:
            assert self.place.reader.job(stranger) is None, stranger

    def test_of_many_jobs_those_that_have_ended_are_found_at_once(self) -> None:
        claims = self._make_busy()
        strangers = ["nobody", "00000000-0000-7000-8000-ffffffffffff"]
        found = self.place.reader.jobs_ended([*(one.id for one in claims), *strangers])
        ended = [self.place.see(claims[place].id) for place in (0, 1, 2, 3)]
        assert found == {one.id: one for one in ended} | dict.fromkeys(strangers)
        assert self.place.reader.jobs_ended([]) == {}

    # -- filters -----------------------------------------------------------------------------

    def test_jobs_are_filtered_by_state(self) -> None:
        claims = self._make_busy()
        which = self._which
        assert which(claims, states=(State.SUCCEEDED, State.FAILED)) == [2, 1, 0]
        assert which(claims, states=(State.PROCESSING,)) == [5]
        assert which(claims, states=(State.CANCELLED,)) == [3]
        assert which(claims, states=(State.QUEUED,)) == [7, 6, 4]
        assert which(claims, states=(State.QUEUED, State.QUEUED)) == [7, 6, 4]
        assert which(claims, states=tuple(State)) == [7, 6, 5, 4, 3, 2, 1, 0]

    def test_jobs_are_filtered_by_where_they_are(self) -> None:
        claims = self._make_busy()
        which = self._which
        assert which(claims, stage="two") == [0]
        assert which(claims, pipeline="p", states=(State.QUEUED,)) == [7, 6, 4]
        for nowhere in ({"pipeline": "other"}, {"queue": "Q"}, {"category": "x"}, {"stage": "p"}):
            assert which(claims, **nowhere) == []
        lane = self.place.store.lanes([Lane("q9", "c9", "p", "one")]).popitem()[1]
        other = self.place.put(lane=lane)
        for there in (
            JobFilter(queue="q9"),
            JobFilter(category="c9"),
            JobFilter(queue="q9", category="c9"),
        ):
            (job,) = self.place.reader.jobs(there)
            assert (job.no, job.queue, job.category) == (other.no, "q9", "c9")
        assert len(which(claims, queue="q", category="c")) == 8

    def test_jobs_are_filtered_by_owner(self) -> None:
        mine = self.place.put(owner="ann").no
        plain = self.place.put().no
        jobs = self.place.reader.jobs
        assert [job.no for job in jobs(JobFilter(owner="ann"))] == [mine]
        assert [job.no for job in jobs(JobFilter(owner=""))] == [plain]
        assert jobs(JobFilter(owner="Ann")) == []

    def test_jobs_are_filtered_by_run_be_it_their_own_or_the_one_that_drives_them_again(
        self,
    ) -> None:
        run, child = self.place.begin_run("one"), self.place.begin_run("two")
        self.place.put()
        job = self.place.dead_letter(self.worker, run=run.no, priority=9)
        self.place.revive(job, redrive_run=child.no)
        for one in (run, child):
            assert [seen.no for seen in self.place.reader.jobs(JobFilter(run=one.no))] == [job.no]
        both = JobFilter(run=child.no, states=(State.FAILED,))
        assert self.place.reader.jobs(both) == []
        assert self.place.reader.jobs(JobFilter(run=987_654)) == []

    def test_jobs_are_filtered_by_how_they_failed(self) -> None:
        claims = self._make_busy()
        which = self._which
        assert which(claims, reason=FailedReason.FATAL) == [2]
        assert which(claims, reason=FailedReason.EXPIRED) == []
        assert which(claims, kind="network") == [6, 4]
        assert which(claims, kind="input_invalid") == [2]
        assert which(claims, kind="network", states=(State.FAILED,)) == []

    def test_text_is_looked_for_in_the_public_message_in_any_case(self) -> None:
        claims = self._make_busy()
        which = self._which
        assert which(claims, text="CONNECTION") == [6, 4]
        assert which(claims, text="the ") == [7, 6, 4, 2]
        assert which(claims, text="is broken.") == [2]
        for nothing in ("%", "_", "T_e", "\\", "'", "nowhere"):
            assert which(claims, text=nothing) == [], nothing

    def test_text_is_text_whatever_it_looks_like(self) -> None:
        for message in ("100 % of it", "a_b", "C:\\temp", "Ärger mit Größe", 'it\'s "so"'):
            claim = self.one_claim()
            record = replace(failure(claim, self.worker), error_message=message)
            self.place.settle(record, by=self.worker)
            for text in (message, message.upper(), message[1:5]):
                found = self.place.reader.jobs(JobFilter(text=text))
                assert [job.id for job in found] == [claim.id], (message, text)

    def test_jobs_are_filtered_by_when_they_came_in(self) -> None:
        start = self.clock.now()
        nos = []
        for _ in range(3):
            nos.append(self.place.put().no)
            self.clock.push(10)

        def nos_between(first_s: float | None, end_s: float | None) -> list[int]:
            chosen = JobFilter(
                enqueued_from=None if first_s is None else start + timedelta(seconds=first_s),
                enqueued_until=None if end_s is None else start + timedelta(seconds=end_s),
            )
            return [nos.index(job.no) for job in self.place.reader.jobs(chosen)]

        assert nos_between(10, None) == [2, 1]
        assert nos_between(10.000001, None) == [2]
        assert nos_between(None, 10) == [0]
        assert nos_between(None, 10.000001) == [1, 0]
        assert nos_between(5, 15) == [1]
        assert nos_between(15, 5) == []

    def test_dead_letters_are_those_that_nobody_has_discarded(self) -> None:
        one, two = (self.place.dead_letter(self.worker) for _ in range(2))
        self.place.put()
        self.place.discard(one)
        jobs = self.place.reader.jobs
        assert [job.id for job in jobs(DEAD_LETTERS)] == [two.id]
        assert [job.id for job in jobs(JobFilter(discarded=True))] == [one.id]
        assert len(jobs(JobFilter(discarded=False))) == 2
        assert len(jobs(JobFilter(states=(State.FAILED,)))) == 2

    # -- previews and groups -----------------------------------------------------------------

    def _fail_jobs(self, count: int, **changes: Any) -> list[str]:
        made = []
        for _ in range(count):
            claim = self.one_claim(priority=9)
            record = replace(failure(claim, self.worker), **changes)
            self.place.settle(record, by=self.worker)
            made.append(claim.id)
        return made

    def test_failures_are_grouped_most_frequent_first(self) -> None:
        few = self._fail_jobs(1)
        many = self._fail_jobs(2, error_kind="too_large")
        assert self.place.reader.failures() == [
            FailureGroup("p", "one", "fatal", "too_large", 2, min(many)),
            FailureGroup("p", "one", "fatal", "input_invalid", 1, min(few)),
        ]
        assert self.place.reader.failures(pipeline="p") == self.place.reader.failures()
        assert self.place.reader.failures(pipeline="other") == []

    def test_a_preview_says_how_many_are_meant_and_how_they_ended(self) -> None:
        self._make_busy()
        more = self._fail_jobs(3, error_kind="too_large", failed_reason=FailedReason.EXHAUSTED)
        seen = self.place.reader.preview(DEAD_LETTERS)
        assert (seen.count, seen.capped) == (4, False)
        assert [(one.kind, one.count) for one in seen.groups] == [
            ("too_large", 3),
            ("input_invalid", 1),
        ]
        assert seen.groups[0] == FailureGroup("p", "one", "exhausted", "too_large", 3, min(more))
        waiting = self.place.reader.preview(JobFilter(states=(State.QUEUED,)))
        assert (waiting.count, waiting.groups) == (3, ())
        nothing = self.place.reader.preview(JobFilter(pipeline="other"))
        assert (nothing.count, nothing.capped, nothing.groups) == (0, False, ())

    def test_a_preview_counts_up_to_its_bound_and_says_so(self) -> None:
        self._fail_jobs(3)
        for count_max, count, capped in ((2, 2, True), (3, 3, False), (4, 3, False)):
            seen = self.place.reader.preview(DEAD_LETTERS, count_max=count_max)
            assert (seen.count, seen.capped) == (count, capped)
            assert sum(group.count for group in seen.groups) == count

    def test_a_preview_means_what_a_listing_shows(self) -> None:
        self._make_busy()
        for chosen in (
            JobFilter(),
            DEAD_LETTERS,
            JobFilter(text="the"),
            JobFilter(stage="two"),
            JobFilter(states=(State.QUEUED, State.SUCCEEDED), pipeline="p"),
        ):
            listed = self.place.reader.jobs(chosen, limit=100)
            assert self.place.reader.preview(chosen).count == len(listed), chosen

    # -- the rest ----------------------------------------------------------------------------

    def test_attempts_come_oldest_first(self) -> None:
        claims = self._make_busy()
        seen = [(one.token, one.stage) for one in self.place.reader.attempts(claims[0].no)]
        assert seen == [(1, "one"), (3, "two")]
        assert self.place.reader.attempts(999_999) == []

    def test_deeds_come_newest_first_in_pages(self) -> None:
        jobs = [self.place.dead_letter(self.worker) for _ in range(4)]
        for job in jobs:
            self.clock.push(1)
            self.place.discard(job)
        deeds = self.place.reader.deeds
        subjects = [job.id for job in reversed(jobs)]
        assert [one.subject for one in deeds()] == subjects
        first = deeds(limit=2)
        assert [one.subject for one in first] == subjects[:2]
        assert [one.subject for one in deeds(before=first[-1].no)] == subjects[2:]
        assert deeds(before=deeds()[-1].no) == []
        assert {one.by_whom for one in deeds()} == {DEED.by_whom}

    def test_the_deeds_about_one_subject_are_found_by_it(self) -> None:
        jobs = [self.place.dead_letter(self.worker) for _ in range(2)]
        for job in jobs:
            self.place.discard(job)
        deeds = self.place.reader.deeds
        (found,) = deeds(subject=jobs[0].id)
        assert found == deeds()[-1]
        assert deeds(subject=jobs[0].id, before=found.no) == []
        assert deeds(subject="nobody") == []

    def test_workers_with_unsettled_jobs_come_before_those_that_are_done_with(self) -> None:
        holding, idle = self.place.hire(), self.place.hire()
        self.place.put()
        self.place.take(holding)
        for worker in (holding, idle):
            self.place.store.end_worker(worker, Death("exited", exit_status=0))
        self.place.store.mark_dead(by=self.worker)
        listed = [one.no for one in self.place.reader.workers()]
        assert listed == [self.worker, holding, idle]

    def test_the_audit_of_a_busy_store_finds_nothing(self) -> None:
        ends: tuple[Callable[[Claim, int | None], Record], ...] = (failure, cancellation)
        claims = self._make_busy()
        for end, claim in zip(ends, (claims[5], *self.place.take(self.worker)), strict=True):
            self.place.settle(end(claim, self.worker), by=self.worker)
        self.place.revive(self.place.see(claims[5].id))
        self.place.discard(self.place.see(claims[2].id))
        self.place.clean()
