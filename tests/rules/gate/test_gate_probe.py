"""One leased probe at a time, at gaps that grow; and everything that can go wrong with it."""

import random

import pytest

from perdure.model.kinds import KINDS, Kind, PauseScope, Sign
from perdure.model.nouns import replace
from perdure.model.verdicts import Failure
from perdure.rules.gate.gate import Gate, GateMove, GateSettings, GateState, HoldCause, Step, gap_s
from perdure.rules.gate.hold import hint, hold, resume, trip
from perdure.rules.gate.probe import end_probe, hurry, lease, lose_probe, probe_due, word_about
from perdure.rules.gate.signs import Word, word_of
from perdure.rules.gate.window import Sample, Window
from tests.rules.gate.gate_kit import (
    DOWN,
    MIDDLE,
    SETTINGS,
    START,
    Row,
    at,
    probing,
    said,
    sick,
    tripped,
)

NEITHER = [kind for kind in Kind if KINDS[kind].sign is Sign.NEITHER]
LATEST = 1.0 - 2.0**-53  # the largest chance below 1


def result(gate, kind, now, *, settings=SETTINGS, until=None, generation=None, chance=MIDDLE):
    return end_probe(
        gate,
        settings,
        word=said(kind),
        generation=gate.generation if generation is None else generation,
        until=until,
        now=now,
        chance=chance,
    )


# Whose failure it is.


def test_a_probe_of_a_job_that_failed_before_others_were_answered_tells_of_the_job():
    bad = said(Kind.UPSTREAM_ERROR)
    window = Window((Sample(0, at(10), "1", Sign.GOOD, 2.0),))

    def told(since_s, *, word=bad, gate=None, seen=window):
        since = None if since_s is None else at(since_s)
        return word_about(word, gate or Gate("model"), seen, failing_since=since)

    assert told(11.9) == Word(Sign.NEITHER, Kind.UPSTREAM_ERROR, of_job=True)
    assert told(12.0) == told(None) == bad  # the answer came at 12 s
    assert told(1.0, seen=Window()) == bad  # nobody was ever answered
    assert told(1.0, word=said(None)) == said(None)
    assert told(1.0, word=said(Kind.RATE_LIMITED)) == said(Kind.RATE_LIMITED)
    remembered = replace(tripped(), answered_at=at(12))
    assert told(11.9, gate=remembered, seen=Window()).of_job


def test_a_gate_remembers_when_its_upstream_answered_last():
    answered = Sample(0, at(-5), "a", Sign.GOOD, 2.0)
    window = replace(sick(), samples=(answered, *sick().samples))
    gate = trip(Gate("model"), SETTINGS, window, at(60), MIDDLE).gate
    assert gate.answered_at == at(-3)
    gate = trip(replace(gate, state=GateState.FLOWING), SETTINGS, sick(2), at(70), MIDDLE).gate
    assert gate.answered_at == at(-3)
    gate, now = probing(gate)
    assert result(gate, None, now).gate.answered_at == now


# The schedule.


def test_gaps_are_linear_clamped_first_and_then_jittered():
    gaps = [gap_s(SETTINGS, k, MIDDLE) for k in (1, 2, 3, 59, 60, 61, 1000)]
    assert gaps == [2, 4, 6, 118, 120, 120, 120]
    assert [gap_s(SETTINGS, k, 0.0) for k in (1, 60, 1000)] == pytest.approx([1.6, 96, 96])
    assert [gap_s(SETTINGS, k, LATEST) for k in (1, 60, 1000)] == pytest.approx([2.4, 144, 144])


def probes_until(outage_s, chance):
    """How many probes an outage of that length costs, with calls that fail at once."""
    gate, count = tripped(), 0
    while gate.held_until <= at(outage_s):
        now = gate.held_until
        gate = result(lease(gate, SETTINGS, now).gate, DOWN, now, chance=chance()).gate
        count += 1
    return count


@pytest.mark.parametrize(("outage_s", "probes"), [(60, 7), (45 * 60, 51), (10 * 3600, 329)])
def test_an_outage_costs_a_handful_of_probes_however_long_the_queue_is(outage_s, probes):
    assert probes_until(outage_s, lambda: MIDDLE) == probes
    for seed in range(20):
        drawn = probes_until(outage_s, random.Random(seed).random)
        assert abs(drawn - probes) <= max(1, probes * 0.05), f"seed {seed}: {drawn} probes"


def test_the_schedule_with_an_exponential_curve_without_cap_would_find_the_end_too_late():
    """The twin: few probes, but the next one after 45 minutes is 23 minutes away."""
    gaps = [2.0 * 2**k for k in range(12)]
    found_after_s = next(total for k in range(12) if (total := sum(gaps[: k + 1])) > 45 * 60)
    assert found_after_s - 45 * 60 > 1000
    assert gap_s(SETTINGS, 52, LATEST) < 150


# One probe.


def test_a_probe_is_leased_when_it_is_due_and_not_before():
    gate = tripped()
    assert not probe_due(gate, at(1.9))
    assert lease(gate, SETTINGS, at(1.9)) == Step(gate)
    assert probe_due(gate, at(2))
    step = lease(gate, SETTINGS, at(2))
    assert (step.move, step.text) == (GateMove.LEASE, "a probe is out")
    assert (step.gate.state, step.gate.lease_until) == (GateState.PROBING, at(302))


def test_a_probing_gate_has_no_second_probe_to_lease():
    gate, _ = probing()
    assert not probe_due(gate, at(9999))
    assert lease(gate, SETTINGS, at(9999)) == Step(gate)


def leases_won(row):
    """A hundred workers read the same due gate, and each writes its lease."""
    copies = [row.gate] * 100
    return [row.write(copy, lease(copy, SETTINGS, at(2))) for copy in copies].count(True)


def test_of_many_workers_that_see_a_due_probe_one_gets_it():
    row = Row(tripped())
    assert leases_won(row) == 1
    assert row.gate.state is GateState.PROBING


def test_a_row_written_without_comparing_generations_would_give_every_worker_a_probe():
    """The broken twin of the row."""

    class Careless(Row):
        def write(self, read, step):
            return super().write(self.gate, step)

    assert leases_won(Careless(tripped())) == 100


def test_a_success_lets_the_gate_flow():
    gate, t = probing()
    step = result(gate, None, t)
    assert (step.move, step.text) == (GateMove.FLOW, "flowing: probe 1 of 1 succeeded")
    assert step.gate == Gate(
        "model",
        generation=3,
        since_at=t,
        gap=1,
        proved_at=t,
        counts_from=3,
        answered_at=t,
    )


def test_the_converter_wants_three_in_a_row_and_a_failure_starts_the_count_anew():
    settings = GateSettings(flow_after=3)
    gate = tripped(settings=settings)
    moves = []
    for kind in (None, None, DOWN, None, None, None):
        gate, t = probing(gate, settings)
        step = result(gate, kind, t, settings=settings)
        gate = step.gate
        moves.append(step.move)
    passed, missed, flow = GateMove.PASS, GateMove.MISS, GateMove.FLOW
    assert moves == [passed, passed, missed, passed, passed, flow]


def test_after_a_success_that_is_not_the_last_the_next_probe_is_due_at_once():
    settings = GateSettings(flow_after=2)
    gate, _ = probing(settings=settings)
    step = result(gate, None, at(7), settings=settings)
    assert (step.gate.state, step.gate.held_until) == (GateState.HELD, at(7))
    assert step.text == "probe 1 of 2 succeeded"
    assert probe_due(step.gate, at(7))


@pytest.mark.parametrize("kind", [None, DOWN, Kind.INVALID_REQUEST])
def test_a_clock_that_ran_backwards_makes_no_pause_shorter(kind):
    settings = GateSettings(flow_after=2)
    gate, t = probing(settings=settings)
    assert t == at(2)
    assert result(gate, kind, at(-100), settings=settings).gate.held_until == t


@pytest.mark.parametrize("kind", [kind for kind in Kind if KINDS[kind].sign is Sign.BAD])
def test_a_failure_of_the_upstream_makes_the_gap_longer(kind):
    gate, t = probing()
    step = result(gate, kind, t)
    assert step.move is GateMove.MISS
    assert step.text == f"the probe failed: {kind.value}; the next is due in 4 s"
    assert (step.gate.state, step.gate.gap, step.gate.held_until) == (GateState.HELD, 2, at(6))


@pytest.mark.parametrize("kind", [kind for kind in Kind if KINDS[kind].sign is Sign.GOOD])
def test_a_failure_that_proves_an_answer_passes_a_probe(kind):
    gate, t = probing()
    step = result(gate, kind, t)
    assert (step.move, step.gate.state) == (GateMove.FLOW, GateState.FLOWING)
    assert step.text == f"flowing: probe 1 of 1 was answered ({kind.value})"
    assert step.gate.starts_slowly


def test_a_wrong_request_that_carries_a_status_passes_a_probe_and_without_one_says_nothing():
    for status, move in ((400, GateMove.FLOW), (None, GateMove.UNDECIDED)):
        gate, t = probing()
        word = word_of(Failure(Kind.INVALID_REQUEST, "test", status=status))
        step = end_probe(
            gate, SETTINGS, word=word, generation=gate.generation, now=t, chance=MIDDLE
        )
        assert step.move is move


@pytest.mark.parametrize("kind", NEITHER)
def test_a_failure_that_is_not_the_upstreams_leaves_it_undecided_and_nothing_grows(kind):
    """Another job may say more, so it goes after the first gap, however far the gaps have grown."""
    settings = GateSettings(flow_after=3)
    gate, t = probing(replace(tripped(), gap=7, passes=1), settings)
    step = result(gate, kind, t, settings=settings)
    assert step.move is GateMove.UNDECIDED
    assert step.text == (
        f"the probe says nothing about the upstream: {kind.value}; the next is due in 2 s"
    )
    assert (step.gate.gap, step.gate.passes, step.gate.held_until) == (7, 1, at(4))
    assert probe_due(step.gate, at(4))


@pytest.mark.parametrize("kind", NEITHER)
def test_after_three_probes_in_a_row_that_say_nothing_calls_start_again_slowly(kind):
    gate, t = probing(replace(tripped(), gap=7))
    for _ in range(2):
        gate, t = probing(result(gate, kind, t).gate)
    step = result(gate, kind, t)
    assert step.move is GateMove.UNDECIDED
    assert step.text == (
        f"the probe says nothing about the upstream: {kind.value}; "
        "3 in a row, so calls start again, slowly"
    )
    assert not probe_due(step.gate, t)
    flowing = resume(step.gate, t)
    assert (flowing.move, flowing.gate.state) == (GateMove.RESUME, GateState.FLOWING)
    assert flowing.text == "flowing: 3 probes in a row said nothing about the upstream"
    assert flowing.gate.starts_slowly
    assert flowing.gate.undecided == 0
    assert (flowing.gate.gap, t) == (7, at(6))


@pytest.mark.parametrize("between", [DOWN, None])
def test_a_probe_that_says_something_starts_the_count_of_those_that_do_not_anew(between):
    settings = GateSettings(flow_after=3)
    gate, t = probing(settings=settings)
    for kind in (Kind.INTERNAL, Kind.INTERNAL, between, Kind.INTERNAL, Kind.INTERNAL):
        gate, t = probing(result(gate, kind, t, settings=settings).gate, settings)
    assert gate.undecided == 2


def test_a_failed_probe_starts_that_count_anew_while_a_person_holds_the_gate_too():
    gate, t = probing(replace(tripped(), undecided=2))
    gate = replace(gate, until_person=True)
    assert result(gate, DOWN, t).gate.undecided == 0


def test_a_lost_probe_neither_counts_as_one_that_says_nothing_nor_starts_the_count_anew():
    gate, t = probing()
    gate, t = probing(result(gate, Kind.INTERNAL, t).gate)
    gate, t = probing(lose_probe(gate, SETTINGS, at(9_999), MIDDLE).gate)
    assert gate.undecided == 1


def test_after_three_probes_that_say_nothing_nobody_starts_before_the_upstream_said():
    gate, t = probing()
    for _ in range(2):
        gate, t = probing(result(gate, Kind.RATE_LIMITED, t).gate)
    gate = result(gate, Kind.RATE_LIMITED, t, until=at(60)).gate
    assert (gate.state, gate.held_until) == (GateState.HELD, at(60))
    assert resume(gate, at(59.9)) == Step(gate)
    flowing = resume(gate, at(60)).gate
    assert (flowing.state, flowing.starts_slowly) == (GateState.FLOWING, True)


def test_a_give_up_is_for_its_own_outage_alone():
    """The next hold asks for its own proof again."""
    gate, t = probing()
    for _ in range(2):
        gate, t = probing(result(gate, Kind.INTERNAL, t).gate)
    gate = resume(result(gate, Kind.INTERNAL, t).gate, t).gate
    again = tripped(gate, t=10.0)
    assert (again.undecided, again.probe_first) == (0, True)
    assert resume(again, at(1e9)) == Step(again)


@pytest.mark.parametrize("kind", [Kind.INTERNAL, Kind.CANCELLED])
def test_a_credentials_gate_flows_by_a_good_answer_alone_and_asks_less_often(kind):
    gate, t = probing(replace(credential(at(10)), gap=7))
    waits_s = []
    for _ in range(6):
        step = result(gate, kind, t)
        assert step.text.startswith(f"the probe says nothing about the credential: {kind.value};")
        held = step.gate
        assert resume(held, at(1e9)) == Step(held)
        waits_s.append((held.held_until - t).total_seconds())
        gate, t = probing(held)
    assert waits_s == [2.0, 2.0, 16.0, 18.0, 20.0, 22.0]
    assert result(gate, None, t).gate.state is GateState.FLOWING


@pytest.mark.parametrize("until", [None, at(3600)])
def test_what_a_person_holds_is_not_given_up(until):
    gate = hold(Gate("model"), reason="", until=until, now=START).gate
    for n in range(6):
        hurried = hurry(gate, reason="", now=at(n)).gate
        gate = result(probing(hurried)[0], Kind.INTERNAL, at(n)).gate
        assert (gate.state, gate.held_until) == (GateState.HELD, until)
        assert resume(gate, at(3599)) == Step(gate)


# Lost.


def test_a_lost_probe_does_not_freeze_the_gate():
    gate, _ = probing()
    assert lose_probe(gate, SETTINGS, at(301.9), MIDDLE) == Step(gate)
    step = lose_probe(gate, SETTINGS, at(302), MIDDLE)
    assert step.move is GateMove.LOSE
    assert step.text == "the probe was lost; the next is due in 2 s"
    assert (step.gate.state, step.gate.gap, step.gate.held_until) == (GateState.HELD, 1, at(304))
    assert probe_due(step.gate, at(304))


@pytest.mark.parametrize("kind", [None, DOWN])
def test_the_late_result_of_a_lost_probe_changes_nothing_and_does_not_end_the_next(kind):
    gate, _ = probing()
    held = lose_probe(gate, SETTINGS, at(302), MIDDLE).gate
    assert result(held, kind, at(303), generation=gate.generation) == Step(held)
    second, t = probing(held)
    assert result(second, kind, t, generation=gate.generation) == Step(second)


def test_a_result_after_the_lease_but_before_anybody_noticed_is_still_the_truth():
    gate, _ = probing()
    assert result(gate, None, at(9999)).gate.state is GateState.FLOWING


def test_only_a_probe_that_is_out_can_be_lost():
    for gate in (Gate("model"), tripped()):
        assert lose_probe(gate, SETTINGS, at(1e9), MIDDLE) == Step(gate)


def test_the_probe_of_a_worker_that_died_is_lost_at_once_and_that_of_no_other():
    held = tripped()
    gate = lease(held, SETTINGS, held.held_until, by=3).gate
    step = lose_probe(gate, SETTINGS, at(3), MIDDLE, died=3)
    assert (step.move, step.gate.lease_by, step.gate.held_until) == (GateMove.LOSE, None, at(5))
    for died in (4, None):
        assert lose_probe(gate, SETTINGS, at(3), MIDDLE, died=died) == Step(gate)
    nobodys = probing()[0]
    assert lose_probe(nobodys, SETTINGS, at(3), MIDDLE, died=3) == Step(nobodys)


# Hints, credentials and people.


@pytest.mark.parametrize(
    ("kind", "move", "gap"),
    [(Kind.OVERLOADED, GateMove.MISS, 2), (Kind.RATE_LIMITED, GateMove.UNDECIDED, 1)],
)
def test_the_hint_of_a_failed_probe_moves_the_next_one(kind, move, gap):
    gate, t = probing()
    step = result(gate, kind, t, until=at(60))
    assert (step.move, step.gate.generation) == (move, gate.generation + 1)
    assert (step.gate.held_until, step.gate.told_until, step.gate.gap) == (at(60), at(60), gap)
    assert step.text == f"held for 58 s: {kind.value}"


def test_a_hint_that_ends_before_the_next_gap_moves_nothing_sooner():
    gate, t = probing()
    step = result(gate, Kind.OVERLOADED, t, until=at(3))
    assert step.gate.held_until == at(6)
    over = result(gate, Kind.OVERLOADED, t, until=at(1))
    assert (over.move, over.gate.held_until) == (GateMove.MISS, at(6))


def test_the_hint_of_a_stale_probe_is_heard_though_its_result_is_not():
    gate, _ = probing()
    held = lose_probe(gate, SETTINGS, at(302), MIDDLE).gate
    step = result(held, DOWN, at(303), until=at(900), generation=gate.generation)
    assert (step.move, step.gate.held_until) == (GateMove.HINT, at(900))


def test_a_hint_beyond_the_cap_in_a_probe_is_a_persons_case():
    gate, t = probing()
    held = result(gate, Kind.OVERLOADED, t, until=at(1e6)).gate
    assert (held.held_until, held.until_person) == (None, True)


def credential(until):
    return hint(Gate("key"), SETTINGS, kind=Kind.BILLING, generation=0, until=until, now=START).gate


@pytest.mark.parametrize("kind", [k for k in Kind if KINDS[k].scope is PauseScope.CREDENTIAL])
def test_a_credential_that_still_does_not_work_at_its_reset_waits_for_a_person(kind):
    gate, t = probing(credential(at(3600)))
    step = result(gate, kind, t)
    assert (step.move, step.gate.state) == (GateMove.HINT, GateState.HELD)
    assert (step.gate.held_until, step.gate.until_person) == (None, True)


def test_a_credential_that_gets_another_reset_waits_for_that():
    gate, t = probing(credential(at(3600)))
    assert result(gate, Kind.BILLING, t, until=at(7200)).gate.held_until == at(7200)


def test_an_outage_met_by_a_credentials_probe_is_an_ordinary_miss():
    gate, t = probing(credential(at(3600)))
    assert result(gate, DOWN, t).move is GateMove.MISS


def test_a_broken_credential_says_nothing_about_a_tripped_upstream():
    gate, t = probing()
    assert result(gate, Kind.BILLING, t).move is GateMove.UNDECIDED


def test_a_person_can_have_a_probe_now():
    gate = hint(
        tripped(), SETTINGS, kind=Kind.OVERLOADED, generation=0, until=at(5000), now=at(1)
    ).gate
    step = hurry(gate, reason="status page is green", now=at(10))
    assert step.move is GateMove.HURRY
    assert step.text == "a probe is due: a person asked for it (status page is green)"
    assert probe_due(step.gate, at(10))
    old = hint(step.gate, SETTINGS, kind=DOWN, generation=1, until=at(5000), now=at(11))
    assert old == Step(step.gate)
    assert hold(step.gate, reason="", until=at(20), now=at(11)).gate.held_until == at(20)


def test_a_hurried_probe_that_fails_leads_back_to_the_hold_that_was():
    gate = hurry(credential(None), reason="", now=at(10)).gate
    gate, t = probing(gate)
    for kind in (DOWN, Kind.BILLING, Kind.INVALID_REQUEST):
        held = result(gate, kind, t).gate
        assert (held.state, held.held_until, held.until_person) == (GateState.HELD, None, True)
    step = result(replace(gate, gap=3, passes=1), DOWN, t)
    assert step.text == "the probe failed: upstream_unavailable; held until a person releases it"
    assert (step.gate.gap, step.gate.passes) == (4, 0)
    assert lose_probe(gate, SETTINGS, at(9999), MIDDLE).gate.held_until is None
    assert result(gate, None, t).gate.state is GateState.FLOWING


def test_hurrying_a_manual_hold_proves_the_upstream_before_it_flows():
    gate = hold(Gate("model"), reason="", until=at(3600), now=START).gate
    gate = hurry(gate, reason="", now=at(10)).gate
    assert resume(gate, at(10)) == Step(gate)
    assert gate.held_until == at(10)
    assert result(probing(gate)[0], None, at(10)).gate.kept_until is None


def test_a_hurried_probe_that_fails_leaves_the_rest_of_a_persons_timed_hold():
    gate = hold(Gate("model"), reason="", until=at(3600), now=START).gate
    gate = hurry(gate, reason="", now=at(10)).gate
    again = hurry(gate, reason="", now=at(10)).gate
    for out in (probing(gate)[0], probing(again)[0]):
        for kind in (DOWN, Kind.INVALID_REQUEST):
            step = result(out, kind, at(10))
            assert (step.gate.held_until, step.gate.kept_until) == (at(3600), None)
            assert step.text.endswith("; the next is due in 3590 s")
        assert lose_probe(out, SETTINGS, at(2000), MIDDLE).gate.held_until == at(3600)
    late = result(probing(gate)[0], DOWN, at(3599.5)).gate
    assert late.held_until is not None
    assert late.held_until > at(3600)
    shorter = hold(gate, reason="", until=at(60), now=at(11)).gate
    assert (shorter.held_until, shorter.kept_until) == (at(60), None)


def test_a_hurried_probe_that_fails_after_a_trip_is_followed_by_one_after_the_gap():
    gate, t = probing(hurry(tripped(), reason="", now=at(1)).gate)
    assert t == at(1)
    assert result(gate, DOWN, t).gate.held_until == at(5)


def test_a_hurried_probe_leaves_no_hold_of_a_person_where_there_was_none_and_hears_new_hints():
    gate = hurry(tripped(), reason="", now=at(1)).gate
    assert gate.kept_until is None
    told = hint(gate, SETTINGS, kind=DOWN, generation=gate.generation, until=at(60), now=at(2))
    assert told.gate.held_until == at(60)


def test_a_credential_needs_an_answer_under_whatever_else_holds_it_and_other_gates_do_not():
    held = hold(credential(None), reason="", until=at(60), now=at(1)).gate
    assert (held.cause, held.needs_answer) == (HoldCause.PERSON, True)
    limit = {"kind": Kind.RATE_LIMITED, "generation": held.generation, "now": at(2)}
    assert hint(held, SETTINGS, **limit, until=at(90)).gate.needs_answer
    person = hold(Gate("model"), reason="", until=at(60), now=at(1)).gate
    assert not person.needs_answer
    assert not hint(person, SETTINGS, **limit, until=at(90)).gate.needs_answer
    keyed = {**limit, "kind": Kind.BILLING, "until": None}
    assert hint(person, SETTINGS, **keyed).gate.needs_answer


@pytest.mark.parametrize(
    ("word", "proof"),
    [
        (Word(Sign.NEITHER, Kind.UNKNOWN), False),  # a defect of the stage's own
        (said(Kind.RATE_LIMITED), False),
        (said(Kind.BILLING), True),
    ],
)
def test_the_third_undecided_probe_with_a_pause_asks_for_proof_only_where_a_credential_is_told_of(
    word, proof
):
    gate, t = probing()
    gate = replace(gate, undecided=2)
    step = end_probe(
        gate, SETTINGS, word=word, generation=gate.generation, until=at(60), now=t, chance=MIDDLE
    )
    assert (step.move, step.gate.held_until) == (GateMove.UNDECIDED, at(60))
    assert step.gate.probe_first is proof
    assert step.gate.generation == gate.generation + 1


def test_the_third_undecided_probe_leaves_the_pause_that_was_asked_for_before():
    gate, t = probing()
    gate = replace(gate, undecided=2, told_until=at(500))
    held = result(gate, Kind.CANCELLED, t).gate
    assert (held.held_until, held.probe_first, held.since_at) == (at(500), False, t)


@pytest.mark.parametrize("kind", [DOWN, Kind.CANCELLED])
def test_a_gate_is_held_since_its_probe_said_so(kind):
    gate, _ = probing()
    assert result(gate, kind, at(7)).gate.since_at == at(7)
    keyed, _ = probing(hurry(credential(None), reason="", now=at(3)).gate)
    assert result(keyed, kind, at(7)).gate.since_at == at(7)


@pytest.mark.parametrize(("gap", "after_relapse"), [(2, 2), (3, 2), (4, 3)])
def test_a_relapse_forgives_half_of_the_gaps_and_counts_in_whole_ones(gap, after_relapse):
    gate = tripped(replace(Gate("model"), gap=gap, proved_at=START), t=1.0)
    assert (gate.gap, type(gate.gap)) == (after_relapse, int)


def test_a_gate_knows_since_when_it_is_in_its_state():
    limit = {"kind": Kind.RATE_LIMITED, "generation": 0, "until": at(90)}
    hinted = hint(Gate("model"), SETTINGS, **limit, now=at(7)).gate
    assert hinted.since_at == at(7)
    assert hold(hinted, reason="", until=at(99), now=at(9)).gate.since_at == at(7)
    assert resume(hinted, at(91)).gate.since_at == at(91)
    assert hold(Gate("model"), reason="", until=None, now=at(7)).gate.since_at == at(7)
    gate, t = probing(settings=GateSettings(flow_after=2))
    assert gate.since_at == t
    assert result(gate, None, at(8), settings=GateSettings(flow_after=2)).gate.since_at == at(8)


def test_nothing_but_a_held_gate_can_be_hurried():
    for gate in (Gate("model"), probing()[0]):
        assert hurry(gate, reason="", now=at(0)) == Step(gate)
