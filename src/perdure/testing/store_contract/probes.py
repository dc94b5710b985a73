"""The job that is a gate's probe: which one, since when it has failed, and what else then waits."""

from datetime import datetime, timedelta
from typing import Any

from perdure.model.decisions import Counted
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateState, Probe
from perdure.model.jobs import ClaimOrder, Lane
from perdure.model.limits import PROBE_BATCH_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import advance, crash, retry, success
from perdure.testing.store_contract.fresh_store import DEED, OnAFreshStore, raises

HELD, PROBING, FLOWING = GateState.HELD, GateState.PROBING, GateState.FLOWING


class ProbesContract(OnAFreshStore):
    """Lane one stands behind the upstream ``vendor``, whose credential is ``account``."""

    def _vendor(self, *, parent: str | None = "account") -> int:
        """Lane one has an upstream from now on, and the upstream a gate that flows."""
        lane = Lane("q", "c", "p", "one", upstream="vendor")
        no = self.place.store.lanes([lane])[lane]
        self._set("vendor", FLOWING, parent=parent)
        return no

    def _set(self, name: str, state: GateState, **parts: Any) -> None:
        """Give a gate another state, whatever it has now."""
        known = self.place.reader.gate(name)
        parent = None if known is None else known.parent
        change = GateChange(name, 0 if known is None else known.generation, state, parent)
        assert self.place.control.change_gate(replace(change, **parts), DEED) is not None

    def _change(self, name: str = "vendor", **parts: Any) -> GateChange:
        """From what the gate is now to probing."""
        known = self.place.reader.gate(name)
        assert known is not None
        return replace(GateChange(name, known.generation, PROBING, known.parent), **parts)

    def _probe(self, name: str = "vendor", *, isolation: int = 0, **parts: Any) -> Probe | None:
        order = self.place.order(self.worker, isolation=isolation)
        return self.place.store.probe(order, self._change(name, **parts), DEED)

    def _probe_id(self, name: str = "vendor", **parts: Any) -> str:
        """The job that has become the probe."""
        probe = self._probe(name, **parts)
        assert probe is not None
        return probe.claim.id

    def test_a_probe_changes_the_gate_and_claims_one_job_in_one_step(self) -> None:
        self._vendor()
        first = self.place.put(owner="ann").id
        self.place.put()
        self._set("vendor", HELD)
        self.clock.push(3)
        change = self._change(held_for_s=30.0, reason="a look", control_json='{"n":1}')
        deed = Deed("worker 1", "its time has come")
        probe = self.place.store.probe(self.place.order(self.worker), change, deed)
        assert probe is not None
        now = self.clock.now()
        gate, claim = probe.gate, probe.claim
        assert (gate.state, gate.generation, gate.parent) == (PROBING, 3, "account")
        assert (gate.held_until, gate.control_json) == (now + timedelta(seconds=30), '{"n":1}')
        assert self.place.reader.gate("vendor") == gate
        assert (claim.id, claim.owner, claim.token, claim.counters.starts) == (first, "ann", 1, 1)
        assert claim.claimed_at == now
        assert self.place.store.tokens_held(self.worker) == {claim.no: claim.token}
        assert self.place.store.claims_held(self.worker) == [claim]
        told = self.place.reader.deeds()[0]
        assert (told.verb, told.subject, told.by_whom, told.reason) == (
            "probe gate",
            "vendor",
            "worker 1",
            "its time has come",
        )
        self.place.settle(success(claim, self.worker), by=self.worker)
        self.place.clean()

    def test_a_probe_is_logged_by_its_own_word_where_it_has_one(self) -> None:
        self._vendor()
        self.place.put()
        self._set("vendor", HELD)
        assert self._probe(verb="send probe") is not None
        assert self.place.reader.deeds()[0].verb == "send probe"

    def test_the_others_wait_while_one_is_the_probe(self) -> None:
        self._vendor()
        self.place.put_many(3)
        self._set("vendor", HELD)
        assert self._probe() is not None
        assert self.place.take(self.worker, 9) == []

    def test_a_gate_that_has_moved_on_is_not_probed(self) -> None:
        self._vendor()
        self.place.put()
        self._set("vendor", HELD)
        change = self._change()
        order = self.place.order(self.worker)
        before = self.place.everything()
        for generation in (change.generation - 1, change.generation + 1, 0):
            seen = replace(change, generation=generation)
            assert self.place.store.probe(order, seen, DEED) is None
        assert self.place.everything() == before
        assert self.place.store.probe(order, change, DEED) is not None
        assert self.place.store.probe(order, change, DEED) is None

    def test_a_gate_behind_which_nothing_waits_stays_as_it_is(self) -> None:
        self._vendor()
        self.place.put(lane=self.place.lanes["two"], stage="two")
        self.place.put(run_at=self.clock.now() + timedelta(seconds=5))
        self._set("vendor", HELD)
        order = self.place.order(self.worker)
        before = self.place.everything()
        assert self.place.store.probe(order, self._change(), DEED) is None
        assert self.place.everything() == before

    def test_a_job_in_a_lane_that_the_order_does_not_name_is_not_the_probe(self) -> None:
        self._vendor()
        self.place.put()
        self._set("vendor", HELD)
        order = ClaimOrder(self.worker, 1, (self.place.lanes["two"],))
        assert self.place.store.probe(order, self._change(), DEED) is None

    def test_the_probe_is_the_least_tried_of_the_first(self) -> None:
        """However its tries ended: a probe that said nothing of the upstream counts as a failure or a wait."""
        self._vendor()
        first, second, third = (made.id for made in self.place.put_many(3))
        ends = (Counted.PROBES, Counted.FAILURES, Counted.WAITS, Counted.SNOOZES)
        for counted, wanted in zip(ends, (first, second, third, first), strict=True):
            self._set("vendor", HELD)
            probe = self._probe()
            assert probe is not None
            claim = probe.claim
            assert claim.id == wanted
            back = retry(claim, self.worker, delay_s=0.0)
            counters = claim.counters.after_event(counted)
            self.place.settle(replace(back, counters=counters), by=self.worker)

    def test_a_job_that_was_tried_before_the_gate_was_held_goes_after_the_others(self) -> None:
        self._vendor()
        tried = self.one_claim()
        self.place.settle(retry(tried, self.worker, delay_s=0.0), by=self.worker)
        fresh = self.place.put().id
        for wanted in (fresh, tried.id):
            self._set("vendor", HELD)
            assert self._probe_id() == wanted

    def test_a_probe_says_since_when_its_job_has_failed_by_what_speaks_against_the_upstream(
        self,
    ) -> None:
        self._vendor()
        claim, ends = self.one_claim(), list[datetime]()
        told = list[datetime | None]()
        for kind in ("rate_limited", "network", "upstream_error"):  # the first says nothing
            self.clock.push(5)
            back = retry(claim, self.worker, delay_s=0.0)
            assert back.attempt is not None
            attempt = replace(back.attempt, kind=kind, elapsed_s=1.5)
            self.place.settle(replace(back, attempt=attempt), by=self.worker)
            ends.append(claim.claimed_at + timedelta(seconds=1.5))
            self._set("vendor", HELD)
            probe = self._probe()
            assert probe is not None
            claim = probe.claim
            told.append(probe.failing_since)
        assert told == [None, ends[1], ends[1]]

    def test_a_probe_knows_nothing_of_failures_in_another_stage_or_life(self) -> None:
        self._vendor()
        lane = Lane("q", "c", "p", "two", upstream="vendor")
        two = self.place.store.lanes([lane])[lane]
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (again,) = self.place.take(self.worker, 1)
        self.place.settle(advance(again, self.worker, two), by=self.worker)
        self._set("vendor", HELD)
        order = replace(self.place.order(self.worker), lanes=(two,))
        probe = self.place.store.probe(order, self._change(), DEED)
        assert probe is not None
        assert (probe.claim.id, probe.failing_since) == (claim.id, None)

    def test_tries_are_counted_for_each_stage(self) -> None:
        self._vendor()
        lane = Lane("q", "c", "p", "two", upstream="vendor")
        two = self.place.store.lanes([lane])[lane]
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (again,) = self.place.take(self.worker, 1)
        self.place.settle(advance(again, self.worker, two), by=self.worker)
        self.place.put()
        self._set("vendor", HELD)
        assert self._probe_id() == claim.id

    def test_a_job_beyond_the_first_hundred_is_not_the_probe(self) -> None:
        self._vendor()
        many = self.place.put_many(PROBE_BATCH_MAX + 1)
        claims = self.place.take(self.worker, PROBE_BATCH_MAX)
        backs = [retry(claim, self.worker, delay_s=0.0) for claim in claims]
        self.place.settle(*backs, by=self.worker)
        self._set("vendor", HELD)
        assert self._probe_id() == many[0].id

    def test_the_first_are_the_first_of_all_lanes_by_rank(self) -> None:
        self._vendor()
        lane = Lane("q", "c", "p", "two", upstream="vendor")
        two = self.place.store.lanes([lane])[lane]
        ids = [self.place.put(lane=no).id for no in (two, self.place.lanes["one"], two)]
        for id in ids:
            self._set("vendor", HELD)
            assert self._probe_id() == id

    def test_a_retry_that_fell_due_behind_the_closed_gate_can_be_the_probe(self) -> None:
        self._vendor()
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=1.0), by=self.worker)
        self._set("vendor", HELD)
        assert self._probe() is None
        self.clock.push(2)
        assert not self.place.see(claim.id).ready
        assert self._probe_id() == claim.id
        assert self.place.see(claim.id).state is State.PROCESSING

    def test_a_probe_is_sought_at_its_own_level_of_isolation(self) -> None:
        self._vendor()
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        self._set("vendor", HELD)
        assert self._probe() is None
        assert self._probe_id(isolation=1) == claim.id

    def test_a_lane_that_something_else_closes_too_is_left_alone(self) -> None:
        self._vendor()
        self.place.put()
        self._set("vendor", HELD)
        for scope, name in ((LaneScope.QUEUE, "q"), (LaneScope.PIPELINE, "p")):
            self.place.control.pause(scope, name, DEED)
            assert self._probe() is None
            self.place.control.resume(scope, name, DEED)
        self._set("account", HELD)
        assert self._probe() is None
        self._set("account", FLOWING)
        assert self._probe() is not None

    def test_a_lane_of_a_paused_run_is_left_alone(self) -> None:
        run = self.place.begin_run()
        lane = self.place.lanes_of("p", run=run.no, upstream="vendor")["one"]
        self.place.lanes["of the run"] = lane
        self._set("vendor", HELD)
        self.place.put(lane=lane, run=run.no)
        self.place.control.pause(LaneScope.RUN, str(run.no), DEED)
        assert self._probe() is None
        self.place.control.resume(LaneScope.RUN, str(run.no), DEED)
        assert self._probe() is not None

    def test_the_gate_of_a_credential_is_probed_through_the_lanes_of_its_upstreams(self) -> None:
        self._vendor()
        lane = Lane("q", "c", "p", "two", upstream="other")
        two = self.place.store.lanes([lane])[lane]
        self._set("other", HELD, parent="account")
        self.place.put(lane=two)  # its own gate is held too
        id = self.place.put().id
        self._set("account", HELD)
        assert self._probe_id("account") == id
        self._set("account", HELD)
        assert self._probe("account") is None

    def test_the_gate_of_another_credential_is_not_probed_through_these_lanes(self) -> None:
        self._vendor()
        self.place.put()
        self._set("another account", HELD)
        assert self._probe("another account") is None

    def test_a_dead_worker_probes_nothing(self) -> None:
        self._vendor()
        self.place.put()
        self._set("vendor", HELD)
        self.place.store.end_worker(self.worker, Death("silent"))
        before = self.place.everything()
        with raises(WorkerDead):
            self._probe()
        assert self.place.everything() == before
