"""What stands where and what has happened: kept as jobs move, never counted over them."""

from datetime import timedelta

from perdure.model.decisions import Counted
from perdure.model.filters import DEAD_LETTERS, JobFilter
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import ClaimOrder, Record
from perdure.model.nouns import replace
from perdure.model.operations import LaneScope, Retention
from perdure.model.states import FailedReason, Move, State
from perdure.model.views import DeathCount, Depth, Flow, QueueHead
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failing,
    retry,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, target

NO_JOBS = Depth("q", "p", "one", 0, 0, 0, 0, 0, 0, 0)
NO_FLOW = Flow("p", "one", None, *(0,) * 11)
HOUR_S = 3_600.0


class TalliesContract(OnAFreshStore):
    """Every move of a job is one in the tallies; the audit holds them against the rows."""

    def _flow(self, stage: str = "one") -> Flow:
        return next((one for one in self.place.reader.flows() if one.stage == stage), NO_FLOW)

    # -- depths ------------------------------------------------------------------------------

    def test_a_job_stands_in_one_place_at_a_time(self) -> None:
        assert self.place.reader.depths() == []
        later = self.clock.now() + timedelta(seconds=5)
        self.place.put(run_at=later)
        self.place.put()
        assert self.place.reader.depths() == [replace(NO_JOBS, ready=1, waiting=1)]
        (claim,) = self.place.take(self.worker)
        assert self.place.reader.depths() == [replace(NO_JOBS, processing=1, waiting=1)]
        self.place.settle(retry(claim, self.worker), by=self.worker)
        assert self.place.reader.depths() == [replace(NO_JOBS, retrying=1, waiting=1)]
        self.clock.push(6)
        first, second = self.place.take(self.worker, 2)
        assert self.place.reader.depths() == [replace(NO_JOBS, processing=2)]
        self.place.settle(
            advance(first, self.worker, self.place.lanes["two"]),
            cancellation(second, self.worker),
            by=self.worker,
        )
        two = replace(NO_JOBS, stage="two")
        assert self.place.reader.depths() == [replace(NO_JOBS, cancelled=1), replace(two, ready=1)]
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        assert self.place.reader.depths()[1] == replace(two, succeeded=1)
        self.place.clean()

    def test_what_is_claimed_again_in_the_same_breath_stands_in_the_next_stage(self) -> None:
        claim = self.one_claim()
        record = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        self.place.settle(record, by=self.worker)
        assert self.place.reader.depths() == [replace(NO_JOBS, stage="two", processing=1)]
        self.place.clean()

    def test_a_wait_that_was_made_ready_meanwhile_is_cancelled_from_there(self) -> None:
        """A promotion raises no token: who cancels may have seen the job wait."""
        self.place.put(run_at=self.clock.now() + timedelta(seconds=5))
        self.place.put()
        seen = self.place.reader.jobs(JobFilter(states=(State.QUEUED,)))[-1]
        self.clock.push(6)
        self.place.take(self.worker)
        unwanted = Record(
            no=seen.no,
            id=seen.id,
            token=seen.token,
            move=Move.CANCEL,
            state=State.CANCELLED,
            stage=seen.stage,
            lane=seen.lane,
            counters=seen.counters,
            past=seen.past,
            isolation=0,
        )
        self.place.settle(unwanted, by=None)
        assert self.place.standing("waiting", "retrying") == 0
        self.place.clean()

    def test_a_dead_letter_that_lives_again_is_ready_where_it_begins(self) -> None:
        claim = self.one_claim()
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failing(claim, self.worker), by=self.worker)
        assert self.place.standing("failed") == 1
        self.place.revive(self.place.see(claim.id))
        assert self.place.reader.depths() == [replace(NO_JOBS, stage="two", ready=1)]
        assert self._flow("two").revived == 1
        self.place.clean()

    # -- flows -------------------------------------------------------------------------------

    def test_what_has_happened_is_counted_by_stage_and_never_falls(self) -> None:
        self.place.put_many(4)
        one, two, three, four = self.place.take(self.worker, 4)
        waiting = retry(three, self.worker)
        assert waiting.attempt is not None
        self.place.settle(
            spending(success(one, self.worker), tokens_in=3, tokens_out=4, cost_nusd=5),
            retry(two, self.worker),
            replace(
                waiting,
                counters=three.counters.after_event(Counted.WAITS),
                attempt=replace(waiting.attempt, counted="waits"),
            ),
            failing(four, self.worker),
            by=self.worker,
        )
        wanted = replace(
            NO_FLOW,
            created=4,
            succeeded=1,
            failed=1,
            attempts=4,
            retries=1,
            waits=1,
            tokens_in=3,
            tokens_out=4,
            cost_nusd=5,
        )
        assert self._flow() == wanted
        self.place.revive(self.place.see(four.id))
        assert self._flow() == replace(wanted, revived=1)
        self.place.clean()
        self.clock.push(10)
        self.place.control.prune(Retention(succeeded_s=1.0), limit=100)
        assert self.place.reader.books().pruned == 1
        assert self._flow() == replace(wanted, revived=1)
        self.place.clean()

    def test_the_last_sixty_minutes_are_told_apart(self) -> None:
        self.place.put()
        began_at = self.clock.now().replace(second=0, microsecond=0)
        self.clock.push(60)
        self.place.put_many(2)
        minutes = self.place.reader.flows(minutes=True)
        assert [(one.at, one.created) for one in minutes] == [
            (began_at, 1),
            (began_at + timedelta(minutes=1), 2),
        ]
        self.clock.push(HOUR_S - 60)
        assert [one.created for one in self.place.reader.flows(minutes=True)] == [2]
        self.clock.push(120)
        self.place.control.prune_workers(HOUR_S, limit=10)
        assert self.place.reader.flows(minutes=True) == []
        assert self._flow().created == 3
        self.place.clean()

    def test_a_record_that_comes_again_has_happened_once(self) -> None:
        record = success(self.one_claim(), self.worker)
        for _ in range(2):
            self.place.settle(record, by=self.worker)
        assert (self._flow().succeeded, self._flow().attempts) == (1, 1)
        assert self.place.standing("succeeded") == 1

    def test_a_job_that_was_there_before_is_not_created_again(self) -> None:
        for _ in range(2):
            self.place.put(key="k", owner="ann")
        assert self._flow().created == 1
        assert self.place.reader.open_jobs("ann") == 1

    def test_an_owners_open_jobs_are_the_same_before_and_after_they_are_added_up(self) -> None:
        for owner in ("ann", "bob", "ann", "", "ann"):
            self.place.put(owner=owner)
        first, *rest = self.place.take(self.worker, 4)
        self.place.settle(success(first, self.worker), by=self.worker)
        self.place.settle(*(success(one, self.worker) for one in rest), by=self.worker)
        for _ in range(2):
            assert [self.place.reader.open_jobs(one) for one in ("ann", "bob")] == [1, 0]
            self.place.control.prune_workers(HOUR_S, limit=10)
        self.place.clean()

    # -- deaths ------------------------------------------------------------------------------

    def test_what_jobs_die_of_is_counted_by_kind_and_code(self) -> None:
        jobs = []
        for kind, code in (("network", "n"), ("network", "n"), ("timeout", "t")):
            claim = self.one_claim()
            record = failing(claim, self.worker, kind=kind, code=code, fingerprint=f"f-{kind}")
            self.place.settle(record, by=self.worker)
            jobs.append(self.place.see(claim.id))
        network = DeathCount("p", "one", FailedReason.FATAL, "network", "n", 2, 2)
        timeout = DeathCount("p", "one", FailedReason.FATAL, "timeout", "t", 1, 1)
        assert self.place.reader.deaths() == [network, timeout]
        self.place.revive(jobs[0])
        self.place.control.discard([target(jobs[1])], DEED)
        assert self.place.reader.deaths() == [replace(network, letters=0), timeout]
        self.place.clean()
        self.place.revive(self.place.see(jobs[1].id))
        assert self.place.reader.deaths() == [replace(network, letters=0), timeout]
        self.place.clean()

    def test_a_group_of_dead_letters_says_when_it_struck_first_and_last(self) -> None:
        began_at = self.clock.now()
        jobs = []
        for owner in ("ann", "bob", "ann"):
            claim = self.one_claim(owner=owner)
            self.place.settle(failing(claim, self.worker, fingerprint="f"), by=self.worker)
            jobs.append(self.place.see(claim.id))
            self.clock.push(10)
        (group,) = self.place.reader.dead_groups()
        assert (group.count, group.example_id) == (3, jobs[2].id)
        self.place.control.discard([target(jobs[2])], DEED)
        self.place.revive(jobs[0])
        (group,) = self.place.reader.dead_groups()
        assert (group.count, group.example_id) == (1, jobs[1].id)
        assert (group.first_at, group.last_at) == (began_at, began_at + timedelta(seconds=20))
        assert self.place.reader.dead_groups(replace(DEAD_LETTERS, owner="ann")) == []
        (group,) = self.place.reader.dead_groups(replace(DEAD_LETTERS, owner="bob"))
        assert group.first_at == group.last_at == began_at + timedelta(seconds=10)

    def test_letters_that_were_pruned_are_no_letters_and_have_been_ones(self) -> None:
        claim = self.one_claim()
        self.place.settle(failing(claim, self.worker, fingerprint="f"), by=self.worker)
        self.clock.push(10)
        self.place.control.prune(Retention(failed_s=1.0), limit=100)
        (found,) = self.place.reader.deaths()
        assert (found.letters, found.ever) == (0, 1)
        assert self.place.reader.dead_groups() == []
        self.place.clean()

    # -- owners ------------------------------------------------------------------------------

    def test_open_jobs_are_counted_by_owner(self) -> None:
        self.place.put_many(3, owner="ann")
        self.place.put(owner="bob")
        self.place.put()
        assert [self.place.reader.open_jobs(one) for one in ("ann", "bob", "", "eve")] == [
            3,
            1,
            0,
            0,
        ]
        one, two, _ = self.place.take(self.worker, 3)
        self.place.settle(success(one, self.worker), failing(two, self.worker), by=self.worker)
        assert self.place.reader.open_jobs("ann") == 1
        self.place.revive(self.place.see(two.id))
        assert self.place.reader.open_jobs("ann") == 2
        self.place.control.prune_workers(HOUR_S, limit=10)
        assert self.place.reader.open_jobs("ann") == 2
        self.place.clean()

    def test_what_ended_in_runs_is_added_up_in_their_stages(self) -> None:
        runs = [self.place.begin_run(name) for name in ("one", "two")]
        for run in runs:
            lanes = self.place.lanes_of("p", run=run.no)
            self.place.put_many(3, run=run.no, lane=lanes["one"])
            order = ClaimOrder(self.worker, 2, (lanes["one"],))
            first, second = self.place.store.turn([], order, by=self.worker).claims
            self.place.settle(success(first, self.worker), by=self.worker)
            self.place.settle(failing(second, self.worker), by=self.worker)
        dead = self.place.reader.jobs(DEAD_LETTERS)
        before = self.place.reader.depths()
        self.place.control.prune_workers(HOUR_S, limit=10)
        assert self.place.reader.depths() == before
        for run in runs:
            lane = self.place.lanes_of("p", run=run.no)["one"]
            (claim,) = self.place.store.turn(
                [], ClaimOrder(self.worker, 1, (lane,)), by=self.worker
            ).claims
            self.place.settle(success(claim, self.worker), by=self.worker)
        self.place.control.prune_workers(HOUR_S, limit=10)
        assert self.place.reader.depths() == [replace(NO_JOBS, succeeded=4, failed=2)]
        self.place.clean()
        for job in dead:
            self.place.revive(job)
        assert self.place.reader.depths() == [replace(NO_JOBS, succeeded=4, ready=2)]
        self.place.clean()

    # -- all at one moment -------------------------------------------------------------------

    def test_what_a_gate_or_a_pause_keeps_is_told_apart(self) -> None:
        """A person's pause outlasts a gate's hold, so what both keep is paused."""
        assert self.place.reader.figures().depths == {}
        behind = self.place.lanes_of("p", category="d", upstream="model")["one"]
        waiting = replace(NO_JOBS, ready=1, waiting=1)
        self.place.put_many(2)
        self.place.put(lane=behind)
        self.place.put(lane=behind, run_at=self.clock.now() + timedelta(seconds=5))
        both = {"": [replace(NO_JOBS, ready=3, waiting=1)]}
        assert self.place.reader.figures().depths == both
        self.place.control.change_gate(GateChange("model", 0, GateState.HELD), DEED)
        found = {"": [replace(NO_JOBS, ready=2)], "held": [waiting]}
        assert self.place.reader.figures().depths == found
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        all_paused = {"paused": [replace(NO_JOBS, ready=3, waiting=1)]}
        assert self.place.reader.figures().depths == all_paused
        assert self.place.reader.depths() == all_paused["paused"]
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.reader.figures().depths == found

    def test_the_head_of_a_queues_line_says_since_when_it_is_due(self) -> None:
        """Of two it is the next to be claimed; one that waits for its time counts once that has come."""
        began_at = self.clock.now()
        five = began_at + timedelta(seconds=5)
        self.place.put(run_at=five)
        assert self.place.reader.figures().heads == []
        self.clock.push(6)
        assert self.place.reader.figures().heads == [QueueHead("q", "", five)]
        six = self.clock.now()
        self.place.put()
        self.clock.push(1)
        self.place.put()
        assert self.place.reader.figures().heads == [QueueHead("q", "", five)]
        self.place.take(self.worker)
        assert self.place.reader.figures().heads == [QueueHead("q", "", six)]
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        assert self.place.reader.figures().heads == [QueueHead("q", "paused", six)]
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        (claim,) = self.place.take(self.worker)
        self.place.settle(crash(claim, self.worker), by=self.worker)
        self.place.take(self.worker)
        (head,) = (
            self.place.reader.figures().heads
        )  # the suspect, which waits for a child of its own
        assert head.due_at >= self.clock.now() - timedelta(seconds=1)

    def test_the_figures_are_what_each_read_says_and_what_struck_first_comes_first(self) -> None:
        self.place.put_many(4)
        one, two, three, _ = self.place.take(self.worker, 4)
        self.place.settle(failing(one, self.worker, kind="timeout", code="t"), by=self.worker)
        self.clock.push(1)
        self.place.settle(
            failing(two, self.worker, kind="network", code="n"),
            failing(three, self.worker, kind="network", code="n"),
            by=self.worker,
        )
        self.place.control.change_gate(GateChange("model", 0, GateState.HELD), DEED)
        found, reader = self.place.reader.figures(), self.place.reader
        assert found.now == self.clock.now()
        assert [one.code for one in found.deaths] == ["t", "n"]
        assert [one.code for one in reader.deaths()] == ["n", "t"]
        assert found.flows == reader.flows()
        assert found.gates == reader.gates()
        assert found.workers == reader.workers()

    def test_what_was_added_up_is_the_same(self) -> None:
        self.place.put_many(3, owner="ann")
        claims = self.place.take(self.worker, 2)
        self.place.settle(
            success(claims[0], self.worker),
            failing(claims[1], self.worker, fingerprint="f"),
            by=self.worker,
        )
        before = (self.place.everything(), self.place.reader.open_jobs("ann"))
        for _ in range(2):
            self.place.control.prune_workers(HOUR_S, limit=10)
            assert (self.place.everything(), self.place.reader.open_jobs("ann")) == before
        self.place.clean()
