"""The gate itself: its table, its settings, what passes it, and the basic breaker as a setting."""

from datetime import UTC, datetime

import pytest

from perdure.model.errors import ConfigError
from perdure.model.kinds import Kind
from perdure.model.limits import DELAY_S_MAX
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.decide import GateView
from perdure.rules.gate.gate import (
    GAP_S_MIN,
    GATE_MOVES,
    Gate,
    GateMove,
    GateSettings,
    GateState,
    Step,
    after,
    basic_gate,
    gap_s,
    gate_target,
    latest,
    step_along,
    view,
)
from perdure.rules.gate.hold import trip
from perdure.rules.gate.pace import admits, after_starts, slow_start
from perdure.rules.gate.probe import end_probe, hurry, lease, lose_probe
from perdure.rules.gate.signs import WELL
from perdure.rules.gate.window import WindowSettings
from tests.rules.gate.gate_kit import (
    DOWN,
    MIDDLE,
    SETTINGS,
    at,
    hinted,
    probing,
    recovered,
    said,
    sick,
    tripped,
    window_of,
)

# The table.


def test_the_table_has_one_arrow_for_each_state_and_move():
    assert len({(source, move) for source, move, _ in GATE_MOVES}) == len(GATE_MOVES)
    assert {move for _, move, _ in GATE_MOVES} == set(GateMove)


def test_every_state_can_be_left_and_reached():
    assert {source for source, _, _ in GATE_MOVES} == set(GateState)
    assert {result for source, _, result in GATE_MOVES if source is not result} == set(GateState)


def test_a_person_can_release_whatever_does_not_flow():
    for state in (GateState.HELD, GateState.PROBING):
        assert gate_target(state, GateMove.RELEASE) is GateState.FLOWING


def test_a_probe_is_leased_from_held_only():
    assert [s for s in GateState if gate_target(s, GateMove.LEASE)] == [GateState.HELD]


@pytest.mark.parametrize("state", GateState)
@pytest.mark.parametrize("move", GateMove)
def test_a_move_without_an_arrow_is_no_step(state, move):
    gate = Gate("model", state=state, generation=7)
    step = step_along(gate, move, at(0), "words")
    if gate_target(state, move) is None:
        assert step == Step(gate)
    else:
        assert (step.gate.generation, step.move, step.text) == (8, move, "words")


def test_the_state_is_dated_when_it_is_entered_not_when_it_is_extended():
    gate = tripped(t=10.0)
    assert gate.since_at == at(10)
    assert hinted(gate, at(99), t=20.0).gate.since_at == at(10)


# What passes.


def test_a_recovery_does_not_release_all_waiting_calls_at_once():
    gate = recovered(gap=1, t=100.0)
    assert gate.starts_slowly
    pace = slow_start(SETTINGS.pace, at(100))
    assert admits(pace, SETTINGS.pace, at(100)) == 1
    pace = after_starts(pace, SETTINGS.pace, 1, at(100))
    assert admits(pace, SETTINGS.pace, at(1000)) == 0


def test_the_view_of_a_gate_is_what_decide_reads():
    assert view(Gate("model")) == GateView("flowing", probe=False)
    assert view(tripped()) == GateView("held", probe=False)
    assert view(probing()[0], probe=True) == GateView("probing", probe=True)


# [001]'s breaker as a setting.


def test_the_basic_breaker_holds_cools_down_and_resumes_on_a_healthy_window():
    settings = basic_gate(window=20, fail_threshold=0.5, cooldown_ms=30_000)
    gate = Gate("gateway")
    nine_of_twenty = window_of([False] * 11 + [True] * 9)
    assert trip(gate, settings, nine_of_twenty, at(0), 0.9).move is None
    gate = trip(gate, settings, window_of([False, True] * 10), at(0), 0.9).gate
    assert (gate.state, gate.held_until) == (GateState.HELD, at(30))
    for failures in (1, 2):
        gate, t = probing(gate, settings)
        gate = end_probe(
            gate, settings, word=said(DOWN), generation=gate.generation, now=t, chance=0.9
        ).gate
        assert gate.held_until == at(30 + 30 * failures)
    moves = []
    for _ in range(3):
        gate, t = probing(gate, settings)
        step = end_probe(gate, settings, word=WELL, generation=gate.generation, now=t, chance=0.9)
        gate = step.gate
        moves.append(step.move)
    assert moves == [GateMove.PASS, GateMove.PASS, GateMove.FLOW]
    assert gate.state is GateState.FLOWING


def test_the_basic_breaker_has_the_documents_own_numbers_by_default():
    assert basic_gate() == GateSettings(
        WindowSettings(calls=20, calls_min=10, fail_share=0.5),
        gaps=Backoff(Curve.FIXED, base_s=60.0, cap_s=None),
        jitter=Jitter(Spread.NONE),
        flow_after=3,
        isolated_share=0.0,
    )
    assert gap_s(basic_gate(cooldown_ms=3_600_000), 1, 0.9) == 3_600.0


def test_the_basic_breaker_with_a_small_window_asks_for_no_more_than_it_holds():
    assert basic_gate(window=4).window == WindowSettings(calls=4, calls_min=4, fail_share=0.5)
    assert basic_gate(window=40, fail_threshold=0.25).window == WindowSettings(
        calls=40, calls_min=10, fail_share=0.25
    )


# Settings, and moments.

BAD_SETTINGS = [
    ({"flow_after": 0}, "gate.flow_after is 0; it must be a whole number between 1 and 1000"),
    ({"lease_s": 0.5}, "gate.lease_s is 0.5; it must be a number between 1 and"),
    ({"relapse_s": -1.0}, "gate.relapse_s is -1.0; it must be a number between 0 and"),
    ({"hint_s_max": float("inf")}, "gate.hint_s_max is inf; it must be a number between 0 and"),
    ({"isolated_share": -0.1}, "gate.isolated_share is -0.1; it must be a number between 0 and 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SETTINGS)
def test_a_bad_setting_is_named_with_its_value_and_range(changes, message):
    with pytest.raises(ConfigError) as told:
        GateSettings(**changes)
    assert str(told.value).startswith(message)


LEAST = {
    "flow_after": 1,
    "lease_s": 1.0,
    "relapse_s": 0.0,
    "hint_s_max": 0.0,
    "isolated_share": 0.0,
}
MOST = {
    "flow_after": 1_000,
    "lease_s": DELAY_S_MAX,
    "relapse_s": DELAY_S_MAX,
    "hint_s_max": DELAY_S_MAX,
    "isolated_share": 1.0,
}


@pytest.mark.parametrize("name", MOST)
def test_settings_pass_at_their_limits_and_not_beyond(name):
    GateSettings(**{name: LEAST[name]})
    GateSettings(**{name: MOST[name]})
    with pytest.raises(ConfigError, match=f"gate.{name} is"):
        GateSettings(**{name: MOST[name] + 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cooldown_ms": DELAY_S_MAX * 1000 + 1}, "cooldown_ms is 31622400001.0; it must be"),
        ({"window": 0}, "window is 0; it must be a whole number between 1 and 1000"),
        ({"fail_threshold": 50}, "window.fail_share is 50; it must be a number between 0 and 1"),
        ({"cooldown_ms": 999}, "cooldown_ms is 999; it must be a number between 1000 and"),
    ],
)
def test_a_bad_knob_of_the_basic_breaker_is_named(changes, message):
    with pytest.raises(ConfigError) as told:
        basic_gate(**changes)
    assert str(told.value).startswith(message)


def test_no_curve_and_no_jitter_makes_probes_a_hot_loop():
    settings = GateSettings(gaps=Backoff(Curve.FIXED, base_s=0.0))
    assert gap_s(settings, 1, 0.5) == GAP_S_MIN
    settings = GateSettings(jitter=Jitter(Spread.FULL))
    assert gap_s(settings, 1, 0.0) == GAP_S_MIN


def test_moments_do_not_run_over_the_end_of_the_calendar():
    end = datetime.max.replace(tzinfo=UTC)
    assert after(end, 1.0) == end
    assert after(at(0), 60.0) == at(60)
    assert latest() is None
    assert latest(None, at(2), None, at(1)) == at(2)


def test_every_event_is_total_at_the_end_of_time():
    end = datetime.max.replace(tzinfo=UTC)
    gate = trip(Gate("model"), SETTINGS, sick(), end, MIDDLE).gate
    assert lease(gate, SETTINGS, end).move is GateMove.LEASE
    gate = lease(gate, SETTINGS, end).gate
    assert lose_probe(gate, SETTINGS, end, MIDDLE).move is GateMove.LOSE
    assert (
        hurry(lose_probe(gate, SETTINGS, end, MIDDLE).gate, reason="", now=end).move
        is GateMove.HURRY
    )
    assert hinted(Gate("model"), end, kind=Kind.RATE_LIMITED).gate.until_person
