"""Callers and gates: they look, they pass on what they are told, and they never wait for a store that is away."""

import pytest

from perdure.engine.gates.caller_gates import CallerGates
from perdure.engine.gates.changes import hold_by_person, release_by_person
from perdure.engine.record import Ending
from perdure.model.decisions import Fail, Hold, Retry, Succeed, Why
from perdure.model.gates import GateState
from perdure.model.kinds import Kind, PauseScope
from perdure.model.operations import Deed
from perdure.model.states import FailedReason
from perdure.model.verdicts import Success
from perdure.rules.decide import FLOWING, GateView
from perdure.testing.store_contract.fresh_store import Place
from tests.engine.gating import FINE, gate, upstream
from tests.engine.kit import Unreliable, claim_of

CLAIM = claim_of()
ENDING = Ending(CLAIM, FINE, 0.1, None)
WHY = Why("as the test says", "rule", "policy")
KEY = "key-1"


def gates_of(place: Place, *, credential: str | None = KEY) -> CallerGates:
    control = Unreliable(place.control)
    return CallerGates(place.reader, control, upstream(credential=credential), "caller 7")


def told(scope: PauseScope, for_s: float | None, kind: Kind | None = Kind.RATE_LIMITED) -> Retry:
    return Retry(1.0, "waits", kind, WHY, Hold(scope, for_s))


def test_a_caller_sees_the_gate_as_it_is(either):
    gates = gates_of(either)
    assert gates.end_call(ENDING, Success("1")) == FLOWING
    hold_by_person(either.reader, either.control, "vendor", Deed("ann", "a pause"))
    assert gates.end_call(ENDING, Success("1")) == GateView("held")
    release_by_person(either.reader, either.control, "vendor", Deed("ann"))
    assert gates.end_call(ENDING, Success("1")) == FLOWING


def test_a_caller_sees_that_its_credential_is_held(either):
    hold_by_person(either.reader, either.control, KEY, Deed("ann", "a pause"))
    assert gates_of(either).end_call(ENDING, Success("1")) == GateView("held")
    assert gates_of(either, credential=None).end_call(ENDING, Success("1")) == FLOWING


def test_what_a_caller_is_told_holds_everybody(either):
    gates_of(either).hear_decision(CLAIM, told(PauseScope.UPSTREAM, 40.0))
    held = gate(either)
    assert held.state is GateState.HELD
    assert (held.held_until - either.clock.now()).total_seconds() == 40.0
    (deed,) = either.reader.deeds()
    assert (deed.by_whom, deed.reason) == ("caller 7", "rate_limited, as a caller was told")


def test_a_second_hint_of_a_caller_never_shortens_the_first(either):
    gates = gates_of(either)
    gates.hear_decision(CLAIM, told(PauseScope.UPSTREAM, 40.0))
    gates.hear_decision(CLAIM, told(PauseScope.UPSTREAM, 10.0))
    assert (gate(either).held_until - either.clock.now()).total_seconds() == 40.0
    assert gate(either).generation == 1


def test_a_bill_holds_the_credential_where_there_is_one_and_else_the_upstream(either):
    bill = told(PauseScope.CREDENTIAL, None, Kind.BILLING)
    gates_of(either).hear_decision(CLAIM, bill)
    assert (gate(either, KEY).state, gate(either).state) == (GateState.HELD, GateState.FLOWING)
    assert gate(either, KEY).until_person
    gates_of(either, credential=None).hear_decision(CLAIM, bill)
    assert gate(either).state is GateState.HELD


@pytest.mark.parametrize(
    "decision",
    [
        Succeed("1", None, WHY),
        Retry(1.0, "waits", Kind.RATE_LIMITED, WHY),
        told(PauseScope.JOB, 40.0),
        told(PauseScope.UPSTREAM, 40.0, None),
        Fail(FailedReason.FATAL, None, Kind.INTERNAL, WHY),
    ],
    ids=["success", "no hold", "the job's own", "no kind", "failure"],
)
def test_what_is_not_everybodys_holds_nothing(either, decision):
    gates_of(either).hear_decision(CLAIM, decision)
    assert either.reader.gates() == []


def test_a_store_that_is_away_is_not_the_callers_trouble(either):
    gates = gates_of(either)
    gates._control.away = True
    gates.hear_decision(CLAIM, told(PauseScope.UPSTREAM, 40.0))
    gates._control.away = False
    assert either.reader.gates() == []
    gates.hear_decision(CLAIM, told(PauseScope.UPSTREAM, 40.0))
    assert gate(either).state is GateState.HELD


def test_a_hint_beyond_the_calendar_is_bounded(either):
    gates_of(either).hear_decision(CLAIM, told(PauseScope.UPSTREAM, 1e15))
    assert gate(either).until_person
    assert gate(either).state is GateState.HELD
