"""A gate comes to be held by its window, by hints, by a credential, by people; and what ends that."""

import pytest

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.rules.gate.gate import Gate, GateMove, GateState, HoldCause, Step
from perdure.rules.gate.hold import hint, hold, release, resume, trip
from perdure.rules.gate.probe import end_probe, lease, probe_due
from perdure.rules.gate.signs import WELL
from tests.rules.gate.gate_kit import (
    DOWN,
    MIDDLE,
    SETTINGS,
    Row,
    at,
    hinted,
    probing,
    recovered,
    said,
    sick,
    tripped,
    window_of,
)


def person_hold(gate, until=None, t=0.0, reason="maintenance"):
    return hold(gate, reason=reason, until=until, now=at(t))


# Tripping.


def test_a_sick_window_holds_the_gate_under_a_new_generation_with_a_probe_in_two_seconds():
    step = trip(Gate("model"), SETTINGS, sick(), at(100), MIDDLE)
    assert step.move is GateMove.TRIP
    assert step.text == "held: 20 of the last 20 calls that count failed; a probe is due in 2 s"
    assert step.gate == Gate(
        "model",
        state=GateState.HELD,
        generation=1,
        since_at=at(100),
        cause=HoldCause.TRIP,
        reason="20 of the last 20 calls that count failed",
        held_until=at(102),
        probe_first=True,
        gap=1,
        counts_from=1,
        shut_at=at(100),
    )


def test_a_healthy_window_is_no_step():
    gate = Gate("model")
    assert trip(gate, SETTINGS, window_of([False] * 20), at(0), MIDDLE) == Step(gate)


def test_too_few_calls_do_not_trip():
    assert trip(Gate("model"), SETTINGS, window_of([True] * 9), at(0), MIDDLE).move is None


def test_late_results_of_an_earlier_era_do_not_trip_a_gate_that_flows_again():
    gate, t = probing()
    flowing = end_probe(
        gate, SETTINGS, word=WELL, generation=gate.generation, now=t, chance=MIDDLE
    ).gate
    assert flowing.state is GateState.FLOWING
    for generation in range(flowing.generation):
        assert trip(flowing, SETTINGS, sick(generation), t, MIDDLE).move is None
    assert trip(flowing, SETTINGS, sick(flowing.generation), t, MIDDLE).move is GateMove.TRIP


@pytest.mark.parametrize("kind", [None, DOWN])
def test_late_results_of_an_earlier_era_change_nothing_while_held_or_probing(kind):
    for gate in (tripped(), probing()[0]):
        step = end_probe(gate, SETTINGS, word=said(kind), generation=0, now=at(5), chance=MIDDLE)
        assert step == Step(gate)


def test_a_second_trip_of_a_held_gate_neither_shortens_nor_restarts_its_pause():
    gate = hinted(tripped(), at(500)).gate
    assert trip(gate, SETTINGS, sick(gate.generation), at(1), MIDDLE) == Step(gate)


def test_one_of_many_workers_that_see_the_sick_window_trips_the_gate():
    row = Row(Gate("model"))
    copies = [row.gate] * 5
    steps = [trip(copy, SETTINGS, sick(), at(0), chance / 5) for chance, copy in enumerate(copies)]
    assert [row.write(copy, step) for copy, step in zip(copies, steps, strict=True)].count(
        True
    ) == 1
    assert row.gate.generation == 1


@pytest.mark.parametrize(
    ("quiet_s", "wait_s"), [(0.0, 12.0), (119.9, 12.0), (120.0, 2.0), (9999.0, 2.0)]
)
def test_an_outage_that_comes_back_soon_goes_on_with_half_of_the_gaps(quiet_s, wait_s):
    gate = recovered(gap=10, t=200.0)
    again = trip(gate, SETTINGS, sick(gate.generation), at(200 + quiet_s), MIDDLE).gate
    assert again.held_until == at(200 + quiet_s + wait_s)


def test_an_overload_that_comes_back_soon_goes_on_with_half_of_the_gaps_too():
    gate = recovered(gap=10, t=200.0)
    assert hinted(gate, at(260), kind=Kind.OVERLOADED, t=250.0).gate.gap == 5
    assert hinted(gate, at(400), kind=Kind.OVERLOADED, t=320.0).gate.gap == 0


def test_a_rate_limit_between_recovery_and_relapse_does_not_prolong_the_relapse_time():
    gate = recovered(gap=10, t=200.0)
    gate = resume(hinted(gate, at(300), t=250.0).gate, at(300)).gate
    again = trip(gate, SETTINGS, sick(gate.generation), at(330), MIDDLE).gate
    assert again.held_until == at(332)


# Hints.


def test_a_hint_holds_the_whole_gate_until_then_and_then_it_flows_without_a_probe():
    step = hinted(Gate("model"), at(53))
    assert (step.move, step.text) == (GateMove.HINT, "held for 53 s: rate_limited")
    assert (step.gate.cause, step.gate.reason) == (HoldCause.HINT, "rate_limited")
    assert step.gate.state is GateState.HELD
    assert not probe_due(step.gate, at(99))
    assert resume(step.gate, at(52.9)) == Step(step.gate)
    again = resume(step.gate, at(53))
    assert (again.move, again.gate.state) == (GateMove.RESUME, GateState.FLOWING)
    assert again.text == "flowing: the time of the hold is over"
    assert not again.gate.starts_slowly


@pytest.mark.parametrize(("first", "second"), [(30, 60), (60, 30), (60, 60)])
def test_the_later_of_two_hints_wins_in_either_order(first, second):
    gate = hinted(Gate("model"), at(first)).gate
    after_both = hinted(gate, at(second), generation=0, t=1.0)
    assert after_both.gate.held_until == at(60)
    assert (after_both.move is None) == (second <= first)


def test_a_hint_from_an_earlier_era_is_heard_because_it_can_only_lengthen_the_pause():
    gate = tripped()
    assert hinted(gate, at(60), generation=0).gate.held_until == at(60)
    flowing = recovered(gap=1, t=5.0)
    assert hinted(flowing, at(60), generation=0, t=10.0).gate.held_until == at(60)


def test_a_hint_moves_the_probe_of_a_tripped_gate_but_not_its_cause():
    gate = hinted(tripped(), at(60)).gate
    assert (gate.cause, gate.held_until, gate.probe_first) == (HoldCause.TRIP, at(60), True)
    assert not probe_due(gate, at(59.9))
    assert probe_due(gate, at(60))


def test_a_hint_that_is_over_or_now_is_none():
    gate = Gate("model")
    assert hinted(gate, at(10), t=10.0) == Step(gate)
    assert hinted(gate, at(9), t=10.0) == Step(gate)


def test_an_overloaded_upstream_is_probed_when_the_time_it_asked_for_is_over():
    gate = hinted(Gate("model"), at(10), kind=Kind.OVERLOADED).gate
    assert resume(gate, at(10)) == Step(gate)
    assert probe_due(gate, at(10))
    gate = lease(gate, SETTINGS, at(10)).gate
    missed = end_probe(
        gate, SETTINGS, word=said(DOWN), generation=gate.generation, now=at(11), chance=MIDDLE
    )
    assert missed.gate.held_until == at(13)


def test_a_shorter_hint_that_asks_for_a_proof_is_still_news():
    gate = hinted(Gate("model"), at(60)).gate
    step = hinted(gate, at(30), kind=Kind.OVERLOADED, t=1.0)
    assert (step.gate.held_until, step.gate.probe_first) == (at(60), True)
    assert step.gate.reason == "overloaded"


@pytest.mark.parametrize(("asked_s", "endless"), [(86_400.0, False), (86_400.1, True)])
def test_a_hint_beyond_a_day_holds_the_gate_until_a_person_releases_it(asked_s, endless):
    step = hinted(Gate("model"), at(asked_s))
    assert step.gate.until_person is endless
    assert (step.gate.held_until is None) is endless
    if endless:
        assert step.text == "held until a person releases it: rate_limited"
        assert resume(step.gate, at(1e9)) == Step(step.gate)
        assert not probe_due(step.gate, at(1e9))


def test_a_later_hint_does_not_end_an_endless_hold():
    gate = hinted(Gate("model"), at(1e6)).gate
    assert hinted(gate, at(60), t=1.0) == Step(gate)
    later = hinted(gate, at(2e6), t=1.0).gate
    assert (later.held_until, later.told_until) == (None, at(2e6))


def test_a_hint_while_the_probe_is_out_ends_its_say():
    gate, t = probing()
    held = hinted(gate, at(60), generation=0, t=2.0).gate
    assert (held.state, held.held_until, held.lease_until) == (GateState.HELD, at(60), None)
    assert end_probe(
        held, SETTINGS, word=WELL, generation=gate.generation, now=t, chance=MIDDLE
    ) == Step(held)


def test_the_window_goes_on_across_a_rate_limit():
    """Otherwise an upstream that limits every few calls could never be seen to fail."""
    gate = resume(hinted(Gate("model"), at(5)).gate, at(5)).gate
    assert (gate.generation, gate.counts_from) == (2, 0)
    assert trip(gate, SETTINGS, sick(0), at(6), MIDDLE).move is GateMove.TRIP


# Credentials.


@pytest.mark.parametrize("kind", [Kind.BILLING, Kind.AUTH])
def test_a_credential_without_a_reset_waits_for_a_person(kind):
    gate = hinted(Gate("key"), None, kind=kind).gate
    assert (gate.cause, gate.reason, gate.held_until) == (HoldCause.CREDENTIAL, kind.value, None)
    assert resume(gate, at(1e9)) == Step(gate)
    assert not probe_due(gate, at(1e9))
    assert release(gate, reason="topped up", now=at(60)).gate.state is GateState.FLOWING


def test_a_credential_with_a_reset_is_probed_then_however_far_it_is():
    gate = hinted(Gate("key"), at(864_000), kind=Kind.QUOTA_WINDOW).gate
    assert gate.held_until == at(864_000)
    assert resume(gate, at(864_000)) == Step(gate)
    assert probe_due(gate, at(864_000))


def test_calls_from_before_a_release_cannot_undo_it():
    gate = hinted(Gate("key"), None, kind=Kind.BILLING).gate
    released = release(gate, reason="topped up", now=at(60)).gate
    for until in (None, at(1000)):
        step = hinted(released, until, kind=Kind.BILLING, generation=0, t=61.0)
        assert step == Step(released)
    again = hinted(released, None, kind=Kind.BILLING, t=61.0)
    assert again.move is GateMove.HINT


def test_the_stronger_cause_names_the_hold():
    gate = hinted(Gate("key"), at(60)).gate
    gate = hinted(gate, None, kind=Kind.BILLING, t=1.0).gate
    assert (gate.cause, gate.reason) == (HoldCause.CREDENTIAL, "billing")
    gate = hinted(person_hold(gate, t=2.0).gate, at(99), kind=Kind.OVERLOADED, t=3.0).gate
    assert (gate.cause, gate.reason) == (HoldCause.PERSON, "maintenance")


# People.


def test_a_manual_hold_without_an_end_lasts_until_a_manual_release():
    step = person_hold(Gate("model"))
    assert step.text == "held by a person until a person releases it (maintenance)"
    assert (step.gate.cause, step.gate.held_until) == (HoldCause.PERSON, None)
    assert resume(step.gate, at(1e9)) == Step(step.gate)
    free = release(step.gate, reason="done", now=at(60))
    assert (free.move, free.text) == (GateMove.RELEASE, "released by a person (done)")
    assert (free.gate.state, free.gate.cause, free.gate.reason) == (GateState.FLOWING, None, "")


def test_an_endless_manual_hold_is_endless_whatever_the_upstream_asked_for():
    gate = person_hold(hinted(Gate("model"), at(60)).gate).gate
    assert (gate.held_until, gate.until_person) == (None, True)


def test_a_manual_hold_of_a_flowing_gate_forgets_the_last_outage_and_of_a_held_one_keeps_it():
    assert person_hold(recovered(gap=10, t=200.0), t=201.0).gate.gap == 0
    assert person_hold(replace(tripped(), gap=10)).gate.gap == 10


def test_a_manual_hold_with_an_end_flows_then_and_starts_slowly():
    step = person_hold(Gate("model"), at(3600), reason="")
    assert step.text == "held by a person for 3600 s"
    gate = step.gate
    assert resume(gate, at(3599)) == Step(gate)
    flowing = resume(gate, at(3600)).gate
    assert flowing.state is GateState.FLOWING
    assert flowing.starts_slowly


def test_a_manual_hold_of_a_sick_upstream_still_ends_in_a_probe():
    gate = person_hold(tripped(), at(10)).gate
    assert resume(gate, at(10)) == Step(gate)
    assert probe_due(gate, at(10))


def test_a_person_may_change_a_manual_hold_but_not_below_what_the_upstream_asked_for():
    gate = person_hold(Gate("model")).gate
    gate = person_hold(gate, at(1800)).gate
    assert (gate.held_until, gate.until_person) == (at(1800), False)
    gate = hinted(gate, at(2000)).gate
    assert person_hold(gate, at(600)).gate.held_until == at(2000)


def test_a_manual_hold_that_is_already_over_is_none():
    gate = Gate("model")
    assert person_hold(gate, at(5), t=5.0) == Step(gate)


def test_a_manual_hold_takes_the_probe_that_is_out_its_say():
    gate, t = probing()
    held = person_hold(gate, t=2.0).gate
    assert held.state is GateState.HELD
    step = end_probe(held, SETTINGS, word=WELL, generation=gate.generation, now=t, chance=MIDDLE)
    assert step == Step(held)


@pytest.mark.parametrize("make", [tripped, lambda: probing()[0]])
def test_a_release_lets_any_held_gate_flow_and_forgets_the_outage(make):
    gate = replace(hinted(make(), at(9000)).gate, proved_at=at(-60))
    free = release(gate, reason="", now=at(10))
    assert free.text == "released by a person"
    assert free.gate == Gate(
        "model",
        generation=gate.generation + 1,
        since_at=at(10),
        counts_from=gate.generation + 1,
        hints_from=gate.generation + 1,
        spoken_at=at(10),
    )
    assert free.gate.starts_slowly


def test_a_release_silences_the_calls_claimed_before_it_and_none_that_was_claimed_since():
    held = tripped()
    free = release(held, reason="", now=at(10)).gate
    old = {"kind": Kind.RATE_LIMITED, "generation": held.generation, "until": at(90), "now": at(11)}
    for claimed_at in (None, at(9), at(10)):
        assert hint(free, SETTINGS, **old, claimed_at=claimed_at) == Step(free)
    told = hint(free, SETTINGS, **old, claimed_at=at(10.001)).gate  # by who had not heard of it yet
    assert (told.state, told.told_until) == (GateState.HELD, at(90))


def test_releasing_a_flowing_gate_is_no_step():
    gate = Gate("model")
    assert release(gate, reason="", now=at(0)) == Step(gate)
