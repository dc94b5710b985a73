"""Gates between workers: what they tell each other, and how limits are parted."""

from perdure.model.gates import GateState, Samples, Slices
from perdure.model.jobs import Claim, OnLost, Receipt
from perdure.model.limits import SAMPLES_S_MAX
from perdure.model.outcomes import Death
from perdure.testing.store_contract.attempt_ends import advance, failure, retry
from perdure.testing.store_contract.fresh_store import TTL_S
from perdure.testing.store_contract.probes import ProbesContract

HELD, PROBING, FLOWING = GateState.HELD, GateState.PROBING, GateState.FLOWING


class GatesContract(ProbesContract):
    """What workers share about the gates that `ProbesContract` has set up."""

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
            ("account", first, "[2]"),
            ("vendor", first, "[1]"),
            ("vendor", other, "[3]"),
        ]
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
