"""The checker on gates: a right history passes, each wrong one is named."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure.engine.gates.changes import change_of
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.record import Ending
from perdure.engine.settle import settle
from perdure.model.errors import StageError
from perdure.model.gates import GateLook, GateRow, GateState, Probe, Slices
from perdure.model.jobs import ClaimOrder, Receipt, Turn
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.outcomes import Raised
from perdure.rules.evidence import evidence_of
from perdure.rules.gate.gate import Gate, GateSettings, HoldCause, Step
from perdure.rules.gate.hold import hint, hold, release
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.limit_slices import Slice
from perdure.rules.gate.probe import lease
from tests.sim.invariants import Violation
from tests.sim.outside import Outside
from tests.sim.scenes import DONE, FAILED, LINE, STAGES, Scene
from tests.sim.weather import Refused

SETTINGS = GateSettings(flow_after=2)
UPSTREAM = DeclaredUpstream("u", "key", SETTINGS, UpstreamLimits(None, 1, None))
OUTSIDE = Outside((UPSTREAM, DeclaredUpstream("v")), {"one": "u"})
FINE = {"of": "one"}
INVALID = StageError("invalid_output", "no total")
LIMITED = Raised(evidence_of(StageError("rate_limited", "slow down", wait_s=9.0)))


class GateScene(Scene):
    """A scene behind an upstream with a credential."""

    def __init__(self) -> None:
        super().__init__()
        self.checker.gates.outside = OUTSIDE

    @property
    def now(self) -> Any:
        return self.world.clock.now()

    def gate(self, name: str = "u") -> Gate:
        return self.checker.ledger.gate(name).row

    def became(self, gate: Gate, *, by: str = "worker 1", seen: int | None = None) -> None:
        """A gate was changed so, from the generation before or from another."""
        step = Step(gate, None, "because")
        change = change_of(step, "key" if gate.name == "u" else None, self.now)
        if seen is not None:
            change = replace(change, generation=seen)
        self.show("change_gate", self._row(gate), change, Deed(by, "because"))

    def _row(self, gate: Gate) -> GateRow:
        parent = "key" if gate.name == "u" else None
        return GateRow(
            gate.name, parent, gate.state, gate.generation, gate.held_until, "", "", self.now, "{}"
        )

    def trip(self, name: str = "u") -> None:
        number = self.gate(name).generation + 1
        self.became(
            Gate(
                name,
                GateState.HELD,
                number,
                self.now,
                HoldCause.TRIP,
                "sick",
                held_until=self.now + timedelta(seconds=2.0),
                probe_first=True,
                gap=1,
                counts_from=number,
            )
        )

    def told(self, wait_s: float) -> None:
        """An upstream has asked for a pause."""
        until = self.now + timedelta(seconds=wait_s)
        self.became(
            hint(
                self.gate(),
                SETTINGS,
                kind=Kind.RATE_LIMITED,
                generation=0,
                until=until,
                now=self.now,
            ).gate
        )

    def probe(self, no: int = 1) -> None:
        """The next job goes out as the gate's probe."""
        gate = self.gate()
        leased = lease(gate, SETTINGS, self.now, by=1).gate
        if leased is gate:
            leased = replace(gate, state=GateState.PROBING, generation=gate.generation + 1)
        claim = self._claim_of(no)
        change = change_of(Step(leased), "key", self.now)
        self.show(
            "probe",
            Probe(self._row(leased), claim),
            ClaimOrder(1, 1, (1,)),
            change,
            Deed("worker 1", "a probe is out"),
        )

    def _claim_of(self, no: int) -> Any:
        made: list[Any] = []
        show, self.show = self.show, lambda *args, **kwargs: made.append(args[1].claims[0])  # type: ignore[method-assign]
        try:
            self.claim(no=no)
        finally:
            self.show = show  # type: ignore[method-assign]
        return made[0]

    def passes(self, state: GateState) -> None:
        """The probe is taken for a success."""
        gate = self.gate()
        self.became(
            replace(
                gate,
                state=state,
                generation=gate.generation + 1,
                passes=gate.passes + 1,
                lease_until=None,
                held_until=None if state is GateState.FLOWING else self.now,
                probe_first=state is not GateState.FLOWING,
            )
        )

    def silent(self, *, gives_up: bool = False) -> None:
        """The probe is taken for one that says nothing."""
        gate = self.gate()
        self.became(
            replace(
                gate,
                state=GateState.HELD,
                generation=gate.generation + 1,
                lease_until=None,
                held_until=self.now,
                undecided=gate.undecided + 1,
                probe_first=gate.probe_first and not gives_up,
            )
        )

    def failed(self) -> None:
        """The probe is taken for a failure of the upstream's."""
        gate = self.gate()
        self.became(
            replace(
                gate,
                state=GateState.HELD,
                generation=gate.generation + 1,
                lease_until=None,
                held_until=self.now,
                gap=gate.gap + 1,
                passes=0,
            )
        )

    def probed(self, end: object) -> None:
        """A probe goes out, and its call really ends so."""
        self.probe()
        self.checker.gates.ended("a", self.checker.ledger.jobs[1].token, end)

    def parted(self, calls: int, *, generation: int = 0, done: bool = True) -> None:
        until = self.now + timedelta(seconds=15)
        parts = {no: Slice(until, share=0.5, calls=calls) for no in (1, 2)}
        text = msgspec.json.encode(parts).decode()
        self.show("change_slices", done, Slices("u", generation, text))


def test_a_right_history_of_a_gate_passes():
    scene = GateScene()
    scene.parted(0)
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(2.5)
    for state in (GateState.HELD, GateState.FLOWING):
        scene.probe()
        job = scene.checker.ledger.jobs[1]
        scene.checker.gates.ended("a", job.token, FINE)
        scene.passes(state)
        record_as_probe(scene)
    scene.told(5.0)
    scene.world.clock.push(5.0)
    scene.became(Gate("u", generation=scene.gate().generation + 1))
    scene.became(hold(scene.gate(), reason="", until=None, now=scene.now).gate, by="ann")
    scene.became(release(scene.gate(), reason="", now=scene.now).gate, by="ann")
    scene.claim()
    assert scene.world.seen["probes that let a gate flow"] == 1


def test_three_probes_that_say_nothing_may_let_a_gate_flow_and_any_answer_proves_as_much_as_a_success():
    scene = GateScene()
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(2.5)
    for gives_up in (False, False, True):
        scene.probed(KeyError("total"))
        scene.silent(gives_up=gives_up)
        record_as_probe(scene)
    scene.became(Gate("u", generation=scene.gate().generation + 1))
    scene.trip()
    scene.world.clock.push(2.5)
    for state, end in ((GateState.HELD, Refused(400)), (GateState.FLOWING, INVALID)):
        scene.probed(end)
        scene.passes(state)
        record_as_probe(scene)
    assert scene.world.seen["gates that give up probing"] == 1


def test_a_probe_that_failed_is_a_failure_however_late_its_worker_writes_it():
    """Its time was over, so it was taken for lost, and the silent ones before and after it for three in a row."""
    scene = GateScene()
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(2.5)
    most = 3 * SETTINGS.flow_after
    for no in range(most):
        scene.probed(Refused(503) if no == 1 else KeyError("total"))
        if no == 1:
            scene.world.clock.push(SETTINGS.lease_s + 1.0)
            scene.failed()
        else:
            scene.silent()
        record_as_probe(scene)
    account = scene.checker.ledger.gate("u")
    assert (account.undecided, account.not_bad) == (most - 2, most - 2)


def test_a_pause_may_be_one_jobs_alone_where_few_others_were_turned_away():
    scene = GateScene()
    last = after_nine(scene, FINE, DONE)
    scene.checker.gates.ended(last.id, 1, Refused(429, 9.0))
    _written(scene, last, LIMITED)
    assert scene.world.seen["pauses that one job made alone"] == 1


def after_nine(scene: GateScene, end: object, outcome: Any) -> Any:
    """The tenth call, after nine that ended so."""
    for no in range(1, 10):
        scene.enqueue(f"job{no}")
        call = scene.claim(no=no)
        scene.checker.gates.ended(call.id, 1, end)
        scene.world.clock.push(0.1)
        scene.settled(call, outcome)
    scene.enqueue("last")
    return scene.claim(no=10)


def record_as_probe(scene: GateScene) -> None:
    """The job that was the probe goes back to its queue."""
    job = scene.checker.ledger.jobs[1]
    del scene.checker.ledger.workers[1].held[job.no]
    job.holder, job.state = None, type(job.state).QUEUED
    job.token += 1


# -- wrong histories -----------------------------------------------------------------------


def claimed_behind_a_held_gate(scene: GateScene) -> None:
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(3.0)
    scene.claim()


def claimed_behind_a_held_credential(scene: GateScene) -> None:
    scene.enqueue()
    scene.became(Gate("u", generation=1))
    scene.trip("key")
    scene.claim()


def claimed_beside_the_probe(scene: GateScene) -> None:
    scene.enqueue()
    scene.enqueue("b")
    scene.trip()
    scene.world.clock.push(2.5)
    scene.probe()
    scene.claim(worker=2, no=2)


def two_probes_at_once(scene: GateScene) -> None:
    scene.enqueue()
    scene.enqueue("b")
    scene.trip()
    scene.world.clock.push(2.5)
    scene.probe()
    scene.probe(2)


def a_probe_before_its_time(scene: GateScene) -> None:
    scene.enqueue()
    scene.trip()
    scene.probe()


def a_late_result_lets_it_flow(scene: GateScene) -> None:
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(2.5)
    scene.probe()
    scene.passes(GateState.FLOWING)


def flowing_after_too_few_probes(scene: GateScene) -> None:
    scene.enqueue()
    scene.trip()
    scene.world.clock.push(2.5)
    scene.probe()
    scene.checker.gates.ended("a", 1, FINE)
    scene.passes(GateState.FLOWING)


def flowing_without_a_probe(scene: GateScene) -> None:
    scene.trip()
    scene.world.clock.push(2.5)
    scene.became(Gate("u", generation=2))


def flowing_before_its_time(scene: GateScene) -> None:
    scene.told(9.0)
    scene.world.clock.push(8.0)
    scene.became(Gate("u", generation=2))


def from_flowing_to_probing(scene: GateScene) -> None:
    scene.became(Gate("u", GateState.PROBING, 1, lease_by=1))


def an_answer_is_taken_for_none(scene: GateScene) -> None:
    _out(scene, FINE)
    scene.silent()


def gives_up_too_soon(scene: GateScene) -> None:
    for _ in range(2):
        _out(scene, KeyError("total"))
        scene.silent()
        record_as_probe(scene)
    _out(scene, Refused(503))
    scene.failed()
    record_as_probe(scene)
    _out(scene, KeyError("total"))
    scene.silent(gives_up=True)


def gives_up_without_a_probe(scene: GateScene) -> None:
    scene.trip()
    scene.became(replace(scene.gate(), generation=2, probe_first=False))


def gives_up_for_a_credential(scene: GateScene) -> None:
    for number in range(3):
        _out(scene, KeyError("total"), cause=HoldCause.CREDENTIAL)
        scene.silent(gives_up=number == 2)
        record_as_probe(scene)


def gives_up_for_a_person(scene: GateScene) -> None:
    for number in range(3):
        _out(scene, KeyError("total"), until_person=True)
        scene.silent(gives_up=number == 2)
        record_as_probe(scene)


def asks_for_ever(scene: GateScene) -> None:
    for _ in range(6):
        _out(scene, KeyError("total"))
        scene.silent()
        record_as_probe(scene)


def _out(scene: GateScene, end: object, **parts: Any) -> None:
    """The gate is held, and its probe ends so."""
    if scene.gate().state is GateState.FLOWING:
        scene.enqueue()
        scene.trip()
        row = scene.gate()
        if parts:
            scene.became(replace(row, generation=row.generation + 1, **parts), by="ann")
        scene.world.clock.push(2.5)
    scene.probed(end)


def a_pause_of_one_job_though_most_were_turned_away(scene: GateScene) -> None:
    last = after_nine(scene, Refused(429), LIMITED)
    scene.checker.gates.ended(last.id, 1, Refused(429, 9.0))
    _written(scene, last, LIMITED)


def a_pause_that_nobody_makes(scene: GateScene) -> None:
    last = after_nine(scene, FINE, DONE)
    scene.checker.gates.ended(last.id, 1, Refused(429, 90.0))
    _written(scene, last, LIMITED)


def a_second_hint_shortens_the_first(scene: GateScene) -> None:
    scene.told(9.0)
    sooner = scene.now + timedelta(seconds=3.0)
    scene.became(replace(scene.gate(), generation=2, held_until=sooner, told_until=sooner))


def claimed_before_the_upstream_wants(scene: GateScene) -> None:
    scene.enqueue()
    until = scene.now + timedelta(seconds=9.0)
    scene.became(Gate("u", generation=1, told_until=until), by="ann")
    scene.claim()


def a_probe_of_another_gate(scene: GateScene) -> None:
    scene.enqueue()
    job, claim = scene.checker.ledger.jobs[1], scene._claim_of(1)
    scene.checker.gates.claimed(job, claim, 1, "v")


def a_pause_that_no_gate_hears_of(scene: GateScene) -> None:
    scene.enqueue()
    claim = scene.claim()
    scene.checker.gates.ended("a", 1, Refused(429, 9.0))
    _written(scene, claim, LIMITED)


def _written(scene: GateScene, claim: Any, outcome: Any) -> None:
    """Settled in a turn that also claims."""
    record = settle(Ending(claim, outcome, 1.0, 1), LINE, STAGES[0], chance=0.5)
    receipt = Receipt(record.no, record.id, record.token, record.state, None)
    scene.show("turn", Turn((receipt,), ()), [record], ClaimOrder(1, 1, (1,)), by=1)


def parted_into_more_than_there_is(scene: GateScene) -> None:
    scene.parted(1)


def more_calls_than_are_admitted(scene: GateScene) -> None:
    scene.enqueue()
    scene.enqueue("b")
    scene.parted(0)
    scene.claim(worker=1, no=1)
    scene.claim(worker=2, no=2)


def written_over_another_generation(scene: GateScene) -> None:
    scene.became(Gate("u", generation=1))
    scene.became(Gate("u", generation=5), seen=4)


def refused_for_nothing(scene: GateScene) -> None:
    change = change_of(Step(Gate("u", generation=1)), None, scene.now)
    scene.show("change_gate", None, change, Deed("worker 1", ""))


def slices_over_another_generation(scene: GateScene) -> None:
    scene.parted(0, generation=3)


def counted_though_it_was_known_to_be_held(scene: GateScene) -> None:
    scene.enqueue()
    claim = scene.claim()
    scene.trip()
    seen = GateLook(scene.now, (scene._row(scene.gate()),))
    scene.checker.gates.heard("look_at_gates", seen, (("u",),), {"worker": 1})
    scene.world.clock.push(1.0)
    scene.checker.gates.ended("a", 1, Refused(503))
    scene.settled(claim, FAILED)


WRONG = [
    ("S11", claimed_behind_a_held_gate),
    ("S11", claimed_behind_a_held_credential),
    ("S11", claimed_beside_the_probe),
    ("S11", two_probes_at_once),
    ("S11", a_probe_before_its_time),
    ("S11", a_late_result_lets_it_flow),
    ("S11", flowing_after_too_few_probes),
    ("S11", flowing_without_a_probe),
    ("S11", flowing_before_its_time),
    ("S11", from_flowing_to_probing),
    ("S11", an_answer_is_taken_for_none),
    ("S11", gives_up_too_soon),
    ("S11", gives_up_without_a_probe),
    ("S11", gives_up_for_a_credential),
    ("S11", gives_up_for_a_person),
    ("L11", asks_for_ever),
    ("S11", a_pause_of_one_job_though_most_were_turned_away),
    ("S9", a_pause_that_nobody_makes),
    ("S11", a_second_hint_shortens_the_first),
    ("S11", claimed_before_the_upstream_wants),
    ("S11", a_probe_of_another_gate),
    ("S11", a_pause_that_no_gate_hears_of),
    ("S10", parted_into_more_than_there_is),
    ("S10", more_calls_than_are_admitted),
    ("E9", written_over_another_generation),
    ("E9", refused_for_nothing),
    ("E9", slices_over_another_generation),
    ("E10", counted_though_it_was_known_to_be_held),
]


@pytest.mark.parametrize(
    ("invariant", "history"), WRONG, ids=[f"{name}: {one.__name__}" for name, one in WRONG]
)
def test_a_wrong_history_of_a_gate_is_named(invariant, history):
    with pytest.raises(Violation) as found:
        history(GateScene())
    assert found.value.invariant == invariant, str(found.value)
