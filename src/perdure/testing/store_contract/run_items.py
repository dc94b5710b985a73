"""The items of a run: in their order, as they end, and what their attempts add up to."""

from math import isclose
from typing import Any

from perdure.model.jobs import Claim, IfFailed, Record
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.nouns import replace
from perdure.model.runs import ItemView, RunView
from perdure.model.states import FailedReason, State
from perdure.model.views import Errors, JobView, RunFigures, StageFigures
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failing,
    failure,
    retry,
    snooze,
    spending,
    success,
)
from perdure.testing.store_contract.captures import putting_aside
from perdure.testing.store_contract.fresh_store import OnAFreshStore


class ItemsContract(OnAFreshStore):
    """What came of what was put in."""

    def _write(self, record: Record) -> None:
        self.place.settle(record, by=self.worker)

    def _next_claim(self) -> Claim:
        (claim,) = self.place.take(self.worker)
        return claim

    # -- in order ----------------------------------------------------------------------------

    def test_an_item_tells_what_has_become_of_it(self) -> None:
        run = self.place.begin_run()
        done, dead, waiting = (self.place.put(run=run.no, key=f"k{n}") for n in range(3))
        one, two = self.place.take(self.worker, 2)
        self.clock.push(1)
        self._write(replace(success(one, self.worker, result_json="[1]"), label="good"))
        self._write(failing(two, self.worker, kind="network", code="E", detail="for operators"))
        now = self.clock.now()
        assert self.place.reader.items(run.no) == [
            ItemView(
                done.no, done.id, "k0", State.SUCCEEDED, "[1]", "good", None, None, None, None, now
            ),
            ItemView(
                dead.no,
                dead.id,
                "k1",
                State.FAILED,
                None,
                None,
                FailedReason.FATAL,
                "network",
                "E",
                "The item is broken.",
                now,
                "for operators",
            ),
            ItemView(
                waiting.no, waiting.id, "k2", State.QUEUED, None, None, None, None, None, None, None
            ),
        ]

    def test_items_come_in_pages_in_the_order_in_which_they_came(self) -> None:
        run = self.place.begin_run()
        other = self.place.begin_run("other")
        made = []
        for _ in range(5):
            made.append(self.place.put(run=run.no))
            self.place.put(run=other.no)
            self.place.put()
        items = self.place.reader.items
        numbers = [one.no for one in made]
        assert [one.no for one in items(run.no)] == numbers
        assert [one.no for one in items(run.no, limit=2)] == numbers[:2]
        assert [one.no for one in items(run.no, after=numbers[1], limit=2)] == numbers[2:4]
        assert items(run.no, after=numbers[-1]) == items(run.no, limit=0) == []
        assert items(run.no + 1000) == []

    def test_a_page_of_items_is_bounded(self) -> None:
        run = self.place.begin_run()
        self.place.put_many(PAGE_ROWS_MAX + 1, run=run.no)
        assert len(self.place.reader.items(run.no, limit=10_000)) == PAGE_ROWS_MAX

    def test_what_was_driven_again_is_listed_apart(self) -> None:
        run = self.place.begin_run("first")
        jobs = [self.place.dead_letter(self.worker, run=run.no) for _ in range(3)]
        child = self.place.begin_run("again", parent=run.no)
        for job in (jobs[2], jobs[0]):
            self.place.revive(job, redrive_run=child.no)
        own = self.place.put(run=child.no)
        items = self.place.reader.items
        assert [one.no for one in items(run.no)] == [job.no for job in jobs]
        assert [one.no for one in items(child.no)] == [own.no]
        assert [one.no for one in items(child.no, redriven=True)] == [jobs[0].no, jobs[2].no]
        assert [one.no for one in items(child.no, redriven=True, after=jobs[0].no)] == [jobs[2].no]
        assert items(run.no, redriven=True) == []

    # -- as they end -------------------------------------------------------------------------

    def _ended_nos(self, run: RunView, **more: Any) -> list[int]:
        since = more.pop("since", run.created_at)
        return [one.no for one in self.place.reader.items_ended(run.no, since=since, **more)]

    def test_ended_items_come_by_when_they_ended(self) -> None:
        run = self.place.begin_run()
        made = self.place.put_many(6, run=run.no)
        claims = self.place.take(self.worker, 5)
        for claim, end in ((claims[3], success), (claims[0], failure), (claims[4], cancellation)):
            self.clock.push(1)
            self._write(end(claim, self.worker))
        self._write(retry(claims[1], self.worker))
        ended = [made[3].no, made[0].no, made[4].no]
        assert self._ended_nos(run) == ended
        assert self._ended_nos(run, limit=2) == ended[:2]
        assert self._ended_nos(run, limit=0) == []
        second = self.place.see(made[0].id).finished_at
        assert self._ended_nos(run, since=second) == ended[1:]
        assert self._ended_nos(run, since=second, after=made[0].no) == ended[2:]
        assert self._ended_nos(run, since=self.clock.now(), after=made[4].no) == []

    def test_of_items_that_ended_together_each_comes_once_whatever_the_page(self) -> None:
        run = self.place.begin_run()
        self.place.put_many(7, run=run.no)
        claims = self.place.take(self.worker, 7)
        self.place.settle(*(success(one, self.worker) for one in claims[:4]), by=self.worker)
        self.clock.push(1)
        self.place.settle(*(failure(one, self.worker) for one in claims[4:]), by=self.worker)
        found: list[int] = []
        since, after = run.created_at, 0
        while page := self.place.reader.items_ended(run.no, since=since, after=after, limit=3):
            found += [one.no for one in page]
            assert page[-1].finished_at is not None
            since, after = page[-1].finished_at, page[-1].no
        assert found == [claim.no for claim in claims]

    def test_ended_items_of_a_child_run_are_those_driven_again_in_it(self) -> None:
        run = self.place.begin_run("first")
        jobs = [self.place.dead_letter(self.worker, run=run.no) for _ in range(2)]
        child = self.place.begin_run("again", parent=run.no)
        for job in jobs:
            self.place.revive(job, redrive_run=child.no)
        self.clock.push(1)
        self._write(success(self._next_claim(), self.worker))
        assert self._ended_nos(child, redriven=True) == [jobs[0].no]
        assert self._ended_nos(child) == []
        assert self._ended_nos(run) == [jobs[0].no]
        assert self._ended_nos(run, redriven=True) == []

    def test_an_item_that_lives_again_has_not_ended(self) -> None:
        run = self.place.begin_run()
        job = self.place.dead_letter(self.worker, run=run.no)
        assert self._ended_nos(run) == [job.no]
        self.place.revive(job)
        assert self._ended_nos(run) == []

    # -- figures -----------------------------------------------------------------------------

    def test_a_run_without_attempts_has_no_figures(self) -> None:
        run = self.place.begin_run()
        self.place.put(run=run.no)
        nothing = RunFigures({}, (), (), 0, 0, 0, 0, 0, 0, None, None, None)
        assert self.place.reader.run_figures(run.no) == nothing
        assert self.place.reader.run_figures(run.no + 1000) == nothing

    def test_retries_are_counted_for_items_that_have_ended_in_their_last_life(self) -> None:
        run = self.place.begin_run()
        for tries, end in (
            (0, success),
            (2, success),
            (2, failure),
            (1, cancellation),
            (0, failure),
        ):
            claim = self.one_claim(run=run.no)
            for _ in range(tries):
                self._write(retry(claim, self.worker, delay_s=0.0))
                claim = self._next_claim()
            self._write(end(claim, self.worker))
        figures = self.place.reader.run_figures
        assert figures(run.no).retries == {0: 2, 2: 2}
        claim = self.one_claim(run=run.no)
        for pause in (snooze, crash):
            self._write(pause(claim, self.worker))
            self.clock.push(5)
            (claim,) = self.place.take(self.worker, isolation=1 if pause is crash else 0)
        assert figures(run.no).retries == {0: 2, 2: 2}
        self._write(success(claim, self.worker))
        assert figures(run.no).retries == {0: 3, 2: 2}

    def test_waits_are_counted_beside_the_retries_with_how_long_they_were_to_be(self) -> None:
        run = self.place.begin_run()
        claim = self.one_claim(run=run.no)
        for delay_s in (2.5, 4.0):
            self._write(snooze(claim, self.worker, delay_s=delay_s))
            self.clock.push(10)
            claim = self._next_claim()
        self._write(retry(claim, self.worker, delay_s=1.0))
        figures = self.place.reader.run_figures(run.no)
        assert (figures.waits, figures.waited_s) == (2, 6.5)

    def test_a_new_life_begins_with_no_retries(self) -> None:
        run = self.place.begin_run()
        self._write(retry(self.one_claim(run=run.no), self.worker, delay_s=0.0))
        claim = self._next_claim()
        self._write(failure(claim, self.worker))
        assert self.place.reader.run_figures(run.no).retries == {1: 1}
        self.place.revive(self.place.see(claim.id))
        assert self.place.reader.run_figures(run.no).retries == {}
        self._write(success(self._next_claim(), self.worker))
        assert self.place.reader.run_figures(run.no).retries == {0: 1}

    def test_errors_are_counted_by_kind_and_code(self) -> None:
        run = self.place.begin_run()
        self._write(retry(self.one_claim(run=run.no), self.worker, delay_s=0.0))
        self._write(retry(self._next_claim(), self.worker, delay_s=0.0))
        self._write(failing(self._next_claim(), self.worker, kind="network", code="E1"))
        self._write(failing(self.one_claim(run=run.no), self.worker, kind="network"))
        for kind in ("invalid_output", "truncated_output"):
            self._write(failing(self.one_claim(run=run.no), self.worker, kind=kind, code="E1"))
        figures = self.place.reader.run_figures(run.no)
        assert figures.errors == (
            Errors("network", "", 3, 1),
            Errors("invalid_output", "E1", 1, 1),
            Errors("network", "E1", 1, 1),
            Errors("truncated_output", "E1", 1, 1),
        )
        assert figures.invalid_outputs == 2

    def test_stages_stand_in_their_order_with_what_they_did_and_what_it_cost(self) -> None:
        run = self.place.begin_run()
        two = self.place.lanes["two"]
        for tries in (1, 0, 0):
            claim = self.one_claim(run=run.no)
            for _ in range(tries):
                again = retry(claim, self.worker, delay_s=0.0)
                self._write(spending(again, tokens_in=10, cost_nusd=4))
                claim = self._next_claim()
            step = advance(claim, self.worker, two, reclaim=True)
            self._write(spending(step, tokens_in=10, tokens_out=2, cost_nusd=8))
        held = self.place.store.claims_held(self.worker)
        self._write(success(held[0], self.worker))
        self._write(spending(failure(held[1], self.worker), cost_nusd=1))
        figures = self.place.reader.run_figures(run.no)
        assert figures.stages == (
            StageFigures("one", 4, 3, 1, 0, 0.5, 0.5, 40, 6, 28, 4),
            StageFigures("two", 2, 1, 0, 1, 0.5, 0.5, 0, 0, 1, 1),
        )
        assert (figures.attempts, figures.wasted_attempts) == (6, 2)
        assert (figures.cost_nusd, figures.wasted_nusd) == (29, 5)

    def test_percentiles_are_of_the_nearest_rank(self) -> None:
        run = self.place.begin_run()
        started_at = self.clock.now()
        self.place.put_many(21, run=run.no)
        for n, claim in enumerate(self.place.take(self.worker, 21)):
            self.clock.push(1)
            record = success(claim, self.worker)
            assert record.attempt is not None
            told = replace(record.attempt, elapsed_s=0.125 * (21 - n))
            self._write(replace(record, attempt=told))
        figures = self.place.reader.run_figures(run.no)
        (stage,) = figures.stages
        assert (stage.p50_s, stage.p95_s) == (0.125 * 11, 0.125 * 20)
        assert (figures.success_p50_s, figures.success_p95_s) == (11.0, 20.0)
        assert figures.success_mean_s is not None
        assert isclose(figures.success_mean_s, 11.0)
        assert (self.clock.now() - started_at).total_seconds() == 21

    def test_only_successes_have_a_time_to_success(self) -> None:
        run = self.place.begin_run()
        self.place.put_many(2, run=run.no)
        one, two = self.place.take(self.worker, 2)
        self.clock.push(3)
        self._write(success(one, self.worker))
        self.clock.push(100)
        self._write(failure(two, self.worker))
        figures = self.place.reader.run_figures(run.no)
        assert (figures.success_p50_s, figures.success_p95_s) == (3.0, 3.0)
        assert figures.success_mean_s == 3.0

    def test_attempts_with_captures_are_counted_once_each(self) -> None:
        run = self.place.begin_run()
        first = retry(self.one_claim(run=run.no), self.worker, delay_s=0.0)
        self._write(putting_aside(first, b"a", b"b"))
        self._write(putting_aside(success(self._next_claim(), self.worker), b"c"))
        self._write(putting_aside(success(self.one_claim(), self.worker), b"not of the run"))
        assert self.place.reader.run_figures(run.no).attempts_captured == 2

    def test_the_figures_of_a_child_run_are_of_what_it_drove_again(self) -> None:
        run = self.place.begin_run("first")
        self.place.dead_letter(self.worker, run=run.no)
        job = self.place.dead_letter(self.worker, run=run.no)
        child = self.place.begin_run("again", parent=run.no)
        self.place.revive(job, redrive_run=child.no)
        self._write(success(self._next_claim(), self.worker))
        assert self.place.reader.run_figures(run.no).attempts == 3
        figures = self.place.reader.run_figures(child.no)
        assert (figures.attempts, figures.wasted_attempts, figures.errors) == (1, 0, ())
        assert figures.retries == {0: 1}

    def _drive_again(self, job: JobView, run: RunView | None) -> None:
        """One more life that fails after one retry, in a run or where it was."""
        again = self.place.see(job.id)
        self.place.revive(again, redrive_run=None if run is None else run.no)
        first = retry(self._next_claim(), self.worker, delay_s=0.0)
        self._write(putting_aside(spending(first, tokens_in=1, cost_nusd=10), b"x"))
        self.clock.push(1)
        last = failing(self._next_claim(), self.worker, kind="timeout", code="E2")
        self._write(spending(last, cost_nusd=100))

    def test_what_a_second_child_took_over_still_counts_in_the_first(self) -> None:
        run = self.place.begin_run("parent")
        first = self.place.begin_run("first", parent=run.no)
        second = self.place.begin_run("second", parent=run.no)
        jobs = [self.place.dead_letter(self.worker, run=run.no) for _ in range(2)]
        for job in jobs:
            self._drive_again(job, first)
        before = self.place.reader.run_figures(first.no)
        assert (before.attempts, before.retries, before.attempts_captured) == (4, {1: 2}, 2)
        assert before.errors == (Errors("network", "", 2, 0), Errors("timeout", "E2", 2, 2))
        assert (before.cost_nusd, before.success_p50_s) == (220, None)
        self.clock.push(1)
        self.place.revive(self.place.see(jobs[0].id), redrive_run=second.no)
        assert self.place.reader.run_figures(first.no) == before
        assert self.place.reader.run_figures(second.no).retries == {}
        self._write(spending(success(self._next_claim(), self.worker), cost_nusd=1000))
        assert self.place.reader.run_figures(first.no) == before
        after = self.place.reader.run_figures(second.no)
        assert (after.attempts, after.wasted_attempts, after.retries) == (1, 0, {0: 1})
        assert (after.errors, after.cost_nusd, after.attempts_captured) == ((), 1000, 0)
        assert after.success_p50_s is not None
        parent = self.place.reader.run_figures(run.no)
        assert (parent.attempts, parent.cost_nusd) == (7, 1220)
        assert (parent.retries, parent.attempts_captured) == ({0: 1, 1: 1}, 2)
        assert parent.success_p50_s == after.success_p50_s

    def test_lives_that_follow_each_other_in_one_child_are_one_item(self) -> None:
        run = self.place.begin_run("parent")
        child, other = (self.place.begin_run(name, parent=run.no) for name in ("first", "second"))
        job = self.place.dead_letter(self.worker, run=run.no)
        for again in (child, None, other, child):
            self._drive_again(job, again)
        figures = self.place.reader.run_figures
        counts = self.place.see_run(child).counts
        assert figures(child.no).retries == {1: counts.failed} == {1: 2}
        assert (figures(child.no).attempts, figures(other.no).attempts) == (6, 2)
        assert figures(other.no).retries == {1: 1}
        assert (figures(run.no).attempts, figures(run.no).retries) == (9, {1: 1})

    def test_a_new_life_for_who_asks_again_stays_with_the_child(self) -> None:
        run = self.place.begin_run("parent")
        child = self.place.begin_run("child", parent=run.no)
        job = self.place.dead_letter(self.worker, run=run.no, key="k")
        self._drive_again(job, child)
        self.place.put(run=run.no, key="k", if_failed=IfFailed.RETRY)
        self._write(success(self._next_claim(), self.worker))
        figures = self.place.reader.run_figures(child.no)
        assert (figures.attempts, figures.retries) == (3, {0: 1})
        assert figures.success_p50_s is not None
