"""Gates between workers: what they tell each other, how limits are parted, and the job that is the probe."""

from datetime import timedelta
from typing import Any

from perdure.model.decisions import Counted
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateState, Probe, Samples, Slices
from perdure.model.jobs import Claim, ClaimOrder, Lane, OnLost, Receipt
from perdure.model.limits import PROBE_BATCH_MAX, SAMPLES_S_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LaneScope
from perdure.model.outcomes import Death
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import advance, crash, failure, retry, success
from perdure.testing.store_contract.fresh_store import DEED, TTL_S, OnAFreshStore, raises

HELD, PROBING, FLOWING = GateState.HELD, GateState.PROBING, GateState.FLOWING


class GatesContract(OnAFreshStore):
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

    def _probed(self, name: str = "vendor", **parts: Any) -> str:
        """The job that has become the probe."""
        probe = self._probe(name, **parts)
        assert probe is not None
        return probe.claim.id

    # -- the probe ---------------------------------------------------------------------------

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
            "probe gate", "vendor", "worker 1", "its time has come",
        )  # fmt: skip
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
            assert self._probed() == wanted

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
        assert self._probed() == claim.id

    def test_a_job_beyond_the_first_hundred_is_not_the_probe(self) -> None:
        self._vendor()
        many = self.place.put_many(PROBE_BATCH_MAX + 1)
        claims = self.place.take(self.worker, PROBE_BATCH_MAX)
        backs = [retry(claim, self.worker, delay_s=0.0) for claim in claims]
        self.place.settle(*backs, by=self.worker)
        self._set("vendor", HELD)
        assert self._probed() == many[0].id

    def test_the_first_are_the_first_of_all_lanes_by_rank(self) -> None:
        self._vendor()
        lane = Lane("q", "c", "p", "two", upstream="vendor")
        two = self.place.store.lanes([lane])[lane]
        ids = [self.place.put(lane=no).id for no in (two, self.place.lanes["one"], two)]
        for id in ids:
            self._set("vendor", HELD)
            assert self._probed() == id

    def test_a_retry_that_fell_due_behind_the_closed_gate_can_be_the_probe(self) -> None:
        self._vendor()
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=1.0), by=self.worker)
        self._set("vendor", HELD)
        assert self._probe() is None
        self.clock.push(2)
        assert not self.place.see(claim.id).ready
        assert self._probed() == claim.id
        assert self.place.see(claim.id).state is State.PROCESSING

    def test_a_probe_is_sought_at_its_own_level_of_isolation(self) -> None:
        self._vendor()
        claim = self.one_claim()
        self.place.settle(crash(claim, self.worker), by=self.worker)
        self._set("vendor", HELD)
        assert self._probe() is None
        assert self._probed(isolation=1) == claim.id

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
        assert self._probed("account") == id
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

    # -- tokens --------------------------------------------------------------------------------

    def test_a_claim_says_how_many_tokens_its_calls_are_thought_to_take(self) -> None:
        assert self.one_claim().tokens is None
        assert self.one_claim(tokens=0).tokens == 0
        claim = self.one_claim(tokens=3_000_000_000)
        assert claim.tokens == 3_000_000_000
        assert claim in self.place.store.claims_held(self.worker)

    def test_the_estimate_stays_through_stages_retries_and_new_lives(self) -> None:
        claim = self.one_claim(tokens=1234)
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (claim,) = self.place.take(self.worker)
        two = self.place.lanes["two"]
        (receipt,) = self.place.settle(
            advance(claim, self.worker, two, reclaim=True), by=self.worker
        )
        assert isinstance(receipt, Receipt)
        assert receipt.claim is not None
        assert receipt.claim.tokens == 1234
        self.place.settle(failure(receipt.claim, self.worker), by=self.worker)
        self.place.revive(self.place.see(claim.id))
        (again,) = self.place.take(self.worker)
        assert (again.id, again.tokens) == (claim.id, 1234)

    def test_a_caller_that_begins_a_job_has_its_estimate(self) -> None:
        job = self.place.new(tokens=77)
        claim = self.place.store.begin(job, worker=self.worker, hard_s=9.0, on_lost=OnLost.DROP)
        assert isinstance(claim, Claim)
        assert claim.tokens == 77

    # -- a look ------------------------------------------------------------------------------

    def test_a_look_shows_the_gates_and_their_parents_at_one_moment(self) -> None:
        self._vendor()
        for name in ("account", "é", "B"):
            self._set(name, HELD, held_for_s=5.0)
        look = self.place.store.look_at_gates(["é", "vendor"], worker=self.worker, samples={})
        assert look.now == self.clock.now()
        assert [row.name for row in look.rows] == ["account", "vendor", "é"]
        assert list(look.rows) == [self.place.reader.gate(row.name) for row in look.rows]
        assert (look.samples, look.slices) == ((), ())

    def test_a_gate_without_a_row_is_not_among_the_rows(self) -> None:
        look = self.place.store.look_at_gates(["vendor"], worker=self.worker, samples={})
        assert (look.now, look.rows) == (self.clock.now(), ())
        look = self.place.store.look_at_gates([], worker=self.worker, samples={})
        assert (look.rows, look.samples, look.slices) == ((), (), ())

    def _look(self, worker: int, *names: str, **samples: str) -> tuple[Samples, ...]:
        return self.place.store.look_at_gates(names, worker=worker, samples=samples).samples

    def test_what_one_worker_has_noted_the_others_see_and_not_itself(self) -> None:
        assert self.worker
        other, third = self.place.hire(), self.place.hire()
        assert self._look(self.worker, "vendor", vendor='["é"]', elsewhere="[2]") == ()
        first_at = self.clock.now()
        self.clock.push(1)
        seen = self._look(other, "vendor", vendor="[3]")
        assert seen == (Samples("vendor", self.worker, '["é"]', first_at),)
        assert [one.worker for one in self._look(third, "vendor")] == [self.worker, other]
        assert self._look(self.worker, "vendor", vendor="[4]") == (
            Samples("vendor", other, "[3]", self.clock.now()),
        )
        told = self._look(other, "vendor", "elsewhere")
        assert told == (
            Samples("elsewhere", self.worker, "[2]", first_at),
            Samples("vendor", self.worker, "[4]", self.clock.now()),
        )

    def test_what_was_noted_about_a_parent_is_seen_with_its_child(self) -> None:
        self._vendor()
        other = self.place.hire()
        self._look(other, account="[1]")
        assert [one.gate for one in self._look(self.worker, "vendor")] == ["account"]

    def test_what_was_noted_too_long_ago_is_not_shown(self) -> None:
        other = self.place.hire()
        self._look(other, vendor="[1]")
        self.clock.push(SAMPLES_S_MAX)
        assert len(self._look(self.worker, "vendor")) == 1
        self.clock.push(0.001)
        assert self._look(self.worker, "vendor") == ()

    def test_what_a_dead_worker_has_noted_is_not_shown_and_it_notes_nothing_more(self) -> None:
        other = self.place.hire()
        self._look(other, vendor="[1]")
        self.place.store.end_worker(other, Death("exited"))
        assert self._look(self.worker, "vendor") == ()
        assert self._look(other, "vendor", vendor="[2]") == ()
        self.place.store.mark_dead(by=self.worker)
        assert self._look(self.worker, "vendor") == ()

    def test_a_look_names_all_workers_that_are_alive_and_none_that_is_dead(self) -> None:
        first, ended, silent, other = self.worker, *(self.place.hire() for _ in range(3))
        for asked in (["vendor"], []):
            look = self.place.store.look_at_gates(asked, worker=other, samples={})
            assert look.alive == {first, ended, silent, other}
        self.place.store.end_worker(ended, Death("exited"))
        for by in (first, other, ended):
            look = self.place.store.look_at_gates(["vendor"], worker=by, samples={"vendor": "[1]"})
            assert look.alive == {first, silent, other}
        self.place.live([first, other], TTL_S + 1)
        assert self.place.store.mark_dead(by=first) == (silent,)
        look = self.place.store.look_at_gates(["vendor"], worker=other, samples={})
        assert look.alive == {first, other}

    def test_a_reader_sees_what_a_worker_sees_and_what_it_has_noted_itself(self) -> None:
        self._vendor()
        self._set("account", FLOWING)
        first, other = self.worker, self.place.hire()
        self._look(first, vendor="[1]", account="[2]")
        self._look(other, vendor="[3]", elsewhere="[4]")
        assert self.place.store.change_slices(Slices("vendor", 0, "{}"))
        look = self.place.reader.look(["vendor"])
        assert look.now == self.clock.now()
        assert [row.name for row in look.rows] == ["account", "vendor"]
        told = [(one.gate, one.worker, one.samples_json) for one in look.samples]
        assert told == [
            ("account", first, "[2]"), ("vendor", first, "[1]"), ("vendor", other, "[3]"),
        ]  # fmt: skip
        assert look.slices == (Slices("vendor", 1, "{}"),)
        assert look.alive == {first, other}

    # -- slices ------------------------------------------------------------------------------

    def _slices(self) -> tuple[Slices, ...]:
        return self.place.store.look_at_gates(["vendor"], worker=self.worker, samples={}).slices

    def test_limits_are_parted_by_who_has_seen_the_generation(self) -> None:
        change = self.place.store.change_slices
        assert not change(Slices("vendor", 1, '{"1":9}'))
        assert self._slices() == ()
        assert change(Slices("vendor", 0, '{"1":1}'))
        assert self._slices() == (Slices("vendor", 1, '{"1":1}'),)
        assert not change(Slices("vendor", 0, '{"1":2}'))
        assert not change(Slices("vendor", 2, '{"1":2}'))
        assert change(Slices("vendor", 1, '{"1":3}'))
        assert self._slices() == (Slices("vendor", 2, '{"1":3}'),)
        assert change(Slices("elsewhere", 0, "{}"))
        assert self._slices() == (Slices("vendor", 2, '{"1":3}'),)
