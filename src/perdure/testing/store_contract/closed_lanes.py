"""Lanes: what closes them, what that means for claims, and what opens them again."""

from datetime import timedelta
from typing import Any

from perdure.model.errors import CallerError
from perdure.model.filters import JobFilter
from perdure.model.gates import GateChange, GateRow, GateState
from perdure.model.jobs import ClaimOrder, Lane, Receipt
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LanePause, LaneScope
from perdure.model.runs import RunStatus
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import advance, crash, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises

HELD, PROBING, FLOWING = GateState.HELD, GateState.PROBING, GateState.FLOWING


class ClosedLanesContract(OnAFreshStore):
    """A lane is open while its queue, pipeline, run, upstream and credential are."""

    def _why_closed(self, lane: int) -> str | None:
        (seen,) = [one for one in self.place.reader.lanes() if one.no == lane]
        assert seen.open == (seen.closed_by is None)
        return seen.closed_by

    def _gate(self, state: GateState, name: str = "vendor", parent: str | None = None) -> None:
        """Give a gate another state, whatever it has now."""
        known = self.place.reader.gate(name)
        generation = 0 if known is None else known.generation
        change = GateChange(name, generation, state, parent)
        assert self.place.control.change_gate(change, DEED) is not None

    def _upstream(self, name: str = "vendor") -> int:
        """From now on lane one serves an upstream."""
        lane = Lane("q", "c", "p", "one", upstream=name)
        return self.place.store.lanes([lane])[lane]

    # -- what waits --------------------------------------------------------------------------

    def test_the_first_in_line_says_since_when_it_could_be_claimed(self) -> None:
        assert self.place.reader.first_due() == {}
        lane, began = self.place.lanes["one"], self.place.reader.now()
        self.place.put(run_at=began + timedelta(hours=1))
        assert self.place.reader.first_due() == {}
        self.place.put()
        due = self.place.reader.first_due()[lane]
        assert began <= due <= self.place.reader.now()
        self.place.clock.push(60)
        self.place.put()
        assert self.place.reader.first_due() == {lane: due}
        self.place.put(priority=9_000)
        assert self.place.reader.first_due()[lane] >= due + timedelta(seconds=60)

    def test_lanes_behind_a_gate_that_lets_nothing_pass_are_held(self) -> None:
        held, lane, other = self.place.reader.held_lanes, self._upstream(), self.place.lanes["two"]
        assert held([lane, other]) == held([]) == held([999_999]) == frozenset()
        self._gate(FLOWING, parent="key")
        assert held([lane, other]) == frozenset()
        for name in ("vendor", "key"):
            parent = "key" if name == "vendor" else None
            for state in (HELD, PROBING):
                self._gate(state, name, parent)
                assert held([lane, other]) == {lane}
                assert held([other]) == frozenset()
            self._gate(FLOWING, name, parent)
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        assert held([lane, other]) == frozenset(), "a pause is no gate"

    def test_jobs_behind_a_gate_that_lets_nothing_pass_are_told_from_others(self) -> None:
        self._upstream()
        free, mine = self.place.put(lane=self.place.lanes["two"]).id, self.place.put().id
        later = self.place.put(run_at=self.place.reader.now() + timedelta(hours=1)).id
        busy = self.place.put(priority=5).id
        assert [one.id for one in self.place.take(self.place.hire(), 1)] == [busy]

        def jobs(**chosen: Any) -> list[str]:
            return [one.id for one in self.place.reader.jobs(JobFilter(**chosen))]

        assert jobs(held=True) == []
        self._gate(FLOWING, parent="key")
        self._gate(HELD, "key")
        assert jobs(held=True) == jobs(held=True, states=(State.QUEUED,)) == [later, mine]
        assert jobs(held=False) == [busy, free]
        self._gate(FLOWING, "key")
        assert jobs(held=True) == []

    # -- pauses ------------------------------------------------------------------------------

    def test_a_pause_closes_the_lanes_of_its_queue_or_pipeline_and_no_others(self) -> None:
        elsewhere = self.place.store.lanes([Lane("q2", "c", "p2", "one")]).popitem()[1]
        self.place.lanes["elsewhere"] = elsewhere
        for scope, name in ((LaneScope.QUEUE, "q"), (LaneScope.PIPELINE, "p")):
            mine = self.place.put().id
            theirs = self.place.put(lane=elsewhere, pipeline="p2").id
            assert self.place.control.pause(scope, name, DEED)
            assert self.place.taken_ids(self.worker, 9) == [theirs]
            assert self._why_closed(self.place.lanes["one"]) == f"{scope.value} {name} is paused"
            assert self._why_closed(elsewhere) is None
            assert self.place.control.resume(scope, name, DEED)
            assert self.place.taken_ids(self.worker, 9) == [mine]
            assert self._why_closed(self.place.lanes["one"]) is None

    def test_a_suspect_of_a_closed_lane_asks_for_no_process(self) -> None:
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        suspects = self.place.store.suspects
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        assert suspects() == suspects([claim.lane]) == frozenset()
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert suspects() == suspects([claim.lane]) == {1}

    def test_a_name_is_paused_within_its_scope_only(self) -> None:
        self.place.put()
        self.place.control.pause(LaneScope.PIPELINE, "q", DEED)
        self.place.control.pause(LaneScope.QUEUE, "p", DEED)
        assert len(self.place.take(self.worker, 9)) == 1

    def test_a_pause_closes_the_lanes_of_its_run(self) -> None:
        run = self.place.begin_run()
        lane = self.place.lanes_of("p", run=run.no)["one"]
        self.place.lanes["of the run"] = lane
        mine = self.place.put().id
        theirs = self.place.put(lane=lane, run=run.no).id
        assert self.place.control.pause(LaneScope.RUN, str(run.no), DEED)
        assert self._why_closed(lane) == f"run {run.no} is paused"
        assert self.place.taken_ids(self.worker, 9) == [mine]
        assert self.place.control.resume(LaneScope.RUN, str(run.no), DEED)
        assert self.place.taken_ids(self.worker, 9) == [theirs]

    def test_a_run_is_paused_by_its_number_and_nothing_else(self) -> None:
        for name in ("nightly", "", "01", "-1", "1.5", " 1", "٣", "9" * 30):
            with raises(CallerError):
                self.place.control.pause(LaneScope.RUN, name, DEED)
            with raises(CallerError):
                self.place.control.resume(LaneScope.RUN, name, DEED)

    def test_a_pause_is_made_once_and_taken_back_once(self) -> None:
        queue = LaneScope.QUEUE
        first = Deed("ann", "the vendor is down")
        assert self.place.control.pause(queue, "q", first)
        paused_at = self.clock.now()
        self.clock.push(5)
        assert not self.place.control.pause(queue, "q", Deed("bob", "me too"))
        assert self.place.reader.pauses() == [
            LanePause(queue, "q", "the vendor is down", "ann", paused_at)
        ]
        assert self.place.control.resume(queue, "q", Deed("bob", "it is back"))
        assert not self.place.control.resume(queue, "q", DEED)
        assert self.place.reader.pauses() == []
        told = [(one.verb, one.subject, one.by_whom, one.reason) for one in self._deeds()]
        assert told == [
            ("pause queue", "q", "ann", "the vendor is down"),
            ("resume queue", "q", "bob", "it is back"),
        ]

    def _deeds(self) -> list:  # type: ignore[type-arg]
        return self.place.reader.deeds()[::-1]

    def test_pauses_are_listed_by_scope_and_name(self) -> None:
        for scope, name in (
            (LaneScope.RUN, "7"),
            (LaneScope.QUEUE, "b"),
            (LaneScope.QUEUE, "B"),
            (LaneScope.PIPELINE, "z"),
            (LaneScope.QUEUE, "a"),
        ):
            self.place.control.pause(scope, name, DEED)
        assert [(one.scope, one.name) for one in self.place.reader.pauses()] == [
            ("pipeline", "z"),
            ("queue", "B"),
            ("queue", "a"),
            ("queue", "b"),
            ("run", "7"),
        ]

    def test_two_things_that_close_a_lane_must_both_be_opened(self) -> None:
        self.place.put()
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        self.place.control.pause(LaneScope.PIPELINE, "p", DEED)
        words = self._why_closed(self.place.lanes["one"])
        assert words == "pipeline p is paused; queue q is paused"
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.take(self.worker) == []
        self.place.control.resume(LaneScope.PIPELINE, "p", DEED)
        assert len(self.place.take(self.worker)) == 1

    # -- what a closed lane means -----------------------------------------------------------------

    def test_what_is_in_work_when_its_lane_closes_is_finished(self) -> None:
        claim = self.one_claim()
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        (receipt,) = self.place.settle(success(claim, self.worker), by=self.worker)
        assert isinstance(receipt, Receipt)
        self.place.clean()

    def test_jobs_come_into_a_closed_lane_and_wait_there(self) -> None:
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        id = self.place.put().id
        assert self.place.see(id).state is State.QUEUED
        assert self.place.take(self.worker) == []
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.taken_ids(self.worker) == [id]

    def test_nobody_waits_for_a_job_in_a_closed_lane(self) -> None:
        order = self.place.order(self.worker, 1)
        self.place.put()
        self.place.put(run_at=self.clock.now() + timedelta(seconds=30))
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        assert self.place.store.waiting(order) is None
        assert self.place.turn([], self.worker, 5).next_due_s is None
        self.clock.push(31)
        assert self.place.store.waiting(order) is None
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.store.waiting(order) == 0.0

    def test_retries_in_a_closed_lane_are_not_made_ready(self) -> None:
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=1.0), by=self.worker)
        self.place.control.pause(LaneScope.QUEUE, "q", DEED)
        self.clock.push(2)
        assert self.place.take(self.worker) == []
        assert not self.place.see(claim.id).ready
        self.place.control.resume(LaneScope.QUEUE, "q", DEED)
        assert self.place.taken_ids(self.worker) == [claim.id]

    def test_a_carry_on_into_a_closed_lane_is_queued_there(self) -> None:
        claim = self.one_claim()
        lane = Lane("q2", "c", "p", "two")
        closed = self.place.store.lanes([lane])[lane]
        self.place.control.pause(LaneScope.QUEUE, "q2", DEED)
        record = advance(claim, self.worker, closed, reclaim=True)
        (first,) = self.place.settle(record, by=self.worker)
        now = self.clock.now()
        assert first == Receipt(claim.no, claim.id, claim.token, State.QUEUED, now)
        job = self.place.see(claim.id)
        assert (job.state, job.stage, job.lane, job.ready) == (State.QUEUED, "two", closed, True)
        assert (job.token, job.counters.starts, job.worker) == (claim.token + 1, 0, None)
        assert job.input_json == '{"from":"one"}'
        assert self.place.store.tokens_held(self.worker) == {}
        (again,) = self.place.settle(record, by=self.worker)
        assert again == replace(first, repeated=True)
        self.place.control.resume(LaneScope.QUEUE, "q2", DEED)
        order = ClaimOrder(self.worker, 1, (closed,))
        (after,) = self.place.store.turn([], order, by=self.worker).claims
        assert (after.stage, after.counters.starts) == ("two", 1)
        self.place.settle(success(after, self.worker), by=self.worker)
        self.place.clean()

    def test_only_the_carry_on_into_the_closed_lane_of_a_batch_is_queued(self) -> None:
        self.place.put_many(2)
        one, two = self.place.take(self.worker, 2)
        lane = Lane("q2", "c", "p", "two")
        closed = self.place.store.lanes([lane])[lane]
        self.place.control.pause(LaneScope.QUEUE, "q2", DEED)
        answers = self.place.settle(
            advance(one, self.worker, closed, reclaim=True),
            advance(two, self.worker, self.place.lanes["two"], reclaim=True),
            by=self.worker,
        )
        states = {one.no: one.state for one in answers if isinstance(one, Receipt)}
        assert states == {one.no: State.QUEUED, two.no: State.PROCESSING}

    # -- gates -------------------------------------------------------------------------------

    def test_a_gate_that_is_not_flowing_closes_the_lanes_of_its_upstream(self) -> None:
        lane, id = self._upstream(), self.place.put().id
        for state in (HELD, PROBING):
            self._gate(state)
            assert self.place.take(self.worker, 9) == []
            assert self._why_closed(lane) == f"upstream vendor is {state.value}"
            assert self._why_closed(self.place.lanes["two"]) is None
        self._gate(FLOWING)
        assert self._why_closed(lane) is None
        assert self.place.taken_ids(self.worker, 9) == [id]

    def test_the_gate_of_a_credential_closes_the_lanes_of_its_upstreams(self) -> None:
        lane, id = self._upstream(), self.place.put().id
        self._gate(FLOWING, parent="account")
        assert self._why_closed(lane) is None
        self._gate(HELD, "account")
        assert self._why_closed(lane) == "credential account is held"
        assert self.place.take(self.worker, 9) == []
        self._gate(FLOWING, "account")
        assert self.place.taken_ids(self.worker, 9) == [id]

    def test_a_gate_of_another_upstream_closes_nothing_here(self) -> None:
        self._upstream()
        self.place.put()
        self._gate(HELD, "somebody else")
        assert len(self.place.take(self.worker)) == 1

    def test_a_lane_that_leaves_its_upstream_is_opened(self) -> None:
        self._upstream()
        self._gate(HELD)
        self.place.put()
        assert self.place.take(self.worker) == []
        self.place.store.lanes([Lane("q", "c", "p", "one")])
        assert len(self.place.take(self.worker)) == 1

    def test_a_gate_is_changed_by_who_has_seen_its_generation(self) -> None:
        change = GateChange(
            "vendor", 0, HELD, "account", held_for_s=30.5, reason="429", control_json='{"a":1}'
        )
        deed = Deed("worker 1", "tripped")
        first = self.place.control.change_gate(change, deed)
        now = self.clock.now()
        assert first == GateRow(
            name="vendor",
            parent="account",
            state=HELD,
            generation=1,
            held_until=now + timedelta(seconds=30.5),
            reason="429",
            changed_by="worker 1",
            changed_at=now,
            control_json='{"a":1}',
        )
        assert self.place.reader.gate("vendor") == first
        assert self.place.control.change_gate(change, deed) is None
        assert self.place.control.change_gate(replace(change, generation=2), deed) is None
        assert self.place.reader.gate("vendor") == first
        self.clock.push(1)
        released = GateChange("vendor", 1, FLOWING, reason="by hand")
        second = self.place.control.change_gate(released, Deed("ann"))
        assert second is not None
        assert (second.generation, second.state, second.parent) == (2, FLOWING, None)
        assert (second.held_until, second.changed_by) == (None, "ann")
        assert self.place.reader.gate("vendor") == second
        assert [(one.verb, one.subject, one.by_whom) for one in self._deeds()] == [
            ("hold gate", "vendor", "worker 1"),
            ("release gate", "vendor", "ann"),
        ]

    def test_a_change_of_a_gate_is_logged_by_its_own_word_where_it_has_one(self) -> None:
        for generation, verb in enumerate(("trip gate", "", "probe failed")):
            change = GateChange("vendor", generation, HELD, verb=verb)
            assert self.place.control.change_gate(change, DEED) is not None
        assert [one.verb for one in self._deeds()] == ["trip gate", "hold gate", "probe failed"]

    def test_a_gate_without_a_row_is_at_generation_0(self) -> None:
        assert self.place.reader.gate("vendor") is None
        assert self.place.control.change_gate(GateChange("vendor", 1, HELD), DEED) is None
        assert self.place.reader.gates() == []
        assert self.place.reader.deeds() == []

    def test_gates_are_listed_by_name(self) -> None:
        for name in ("b", "a", "B", "é"):
            self._gate(HELD, name)
        assert [gate.name for gate in self.place.reader.gates()] == ["B", "a", "b", "é"]

    def test_a_hold_that_is_over_closes_until_somebody_changes_the_gate(self) -> None:
        """When it is over is for the gatekeeper to judge, not for the store."""
        self._upstream()
        self.place.put()
        self.place.control.change_gate(GateChange("vendor", 0, HELD, held_for_s=1.0), DEED)
        self.clock.push(10)
        assert self.place.take(self.worker) == []

    # -- runs --------------------------------------------------------------------------------

    def test_a_run_that_is_paused_aborted_or_cancelled_has_its_lanes_closed(self) -> None:
        run = self.place.begin_run()
        lane = self.place.lanes_of("p", run=run.no)["one"]
        self.place.lanes = {"one": lane}
        id = self.place.put(run=run.no).id
        for status in (RunStatus.PAUSED, RunStatus.ABORTED, RunStatus.CANCELLED):
            assert self.place.change_run(run, status)
            assert self._why_closed(lane) == f"run {run.no} is paused"
            assert self.place.take(self.worker) == []
        assert self.place.change_run(run, RunStatus.RUNNING)
        assert self.place.reader.pauses() == []
        assert self.place.taken_ids(self.worker) == [id]

    def test_an_aborted_run_keeps_the_pause_that_it_had(self) -> None:
        run = self.place.begin_run()
        self.place.control.pause(LaneScope.RUN, str(run.no), Deed("bob", "first"))
        paused_at = self.clock.now()
        self.clock.push(1)
        self.place.change_run(run, RunStatus.ABORTED)
        assert self.place.reader.pauses() == [
            LanePause(LaneScope.RUN, str(run.no), "first", "bob", paused_at)
        ]
