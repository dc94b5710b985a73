"""Any sequence of events keeps a gate's promises; and broken gates are caught breaking them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings as examples, strategies as st

from perdure.model.kinds import Kind, Sign
from perdure.model.nouns import replace
from perdure.rules.gate import hold as holds, probe as probes
from perdure.rules.gate.gate import (
    GATE_MOVES,
    Gate,
    GateMove,
    GateSettings,
    GateState,
    HoldCause,
    Step,
    after,
    step_along,
)
from perdure.rules.gate.window import Sample, Window
from tests.rules.gate.gate_kit import START, said

SETTINGS = GateSettings(flow_after=2, lease_s=30.0, hint_s_max=3_600.0)
PEOPLES = {"hold", "release", "hurry"}


@dataclass(frozen=True)
class Rules:
    """The events as functions; a broken twin replaces one of them."""

    trip: Callable[..., Step] = holds.trip
    hint: Callable[..., Step] = holds.hint
    hold: Callable[..., Step] = holds.hold
    release: Callable[..., Step] = holds.release
    resume: Callable[..., Step] = holds.resume
    lease: Callable[..., Step] = probes.lease
    probed: Callable[..., Step] = probes.end_probe
    lost: Callable[..., Step] = probes.lose_probe
    hurry: Callable[..., Step] = probes.hurry


@dataclass(frozen=True)
class Event:
    """What happens: after how long, to a call how many generations old, and with what in it."""

    name: str
    pause_s: float = 0.0
    behind: int = 0
    kind: Kind | None = None
    wait_s: float | None = None
    chance: float = 0.5


@dataclass
class Walk:
    """A gate led through events, with a memory of its own of what the upstream asked for."""

    rules: Rules
    gate: Gate = field(default_factory=lambda: Gate("model"))
    now: datetime = START
    asked_until: datetime = START
    spoken: int = 0  # the generation of a person's last release or hurry

    def happens(self, event: Event) -> None:
        self.now += timedelta(seconds=event.pause_s)
        before = self.gate
        step = self._step(event)
        self._remember(event)
        self._check_step(event, before, step)
        self.gate = step.gate
        if event.name in ("release", "hurry") and step.move:
            self.asked_until, self.spoken = self.now, step.gate.generation
        self._check_gate()

    def _step(self, event: Event) -> Step:
        gate, now, rules = self.gate, self.now, self.rules
        generation = self._sent_under(event)
        until = None if event.wait_s is None else after(now, event.wait_s)
        match event.name:
            case "trip":
                samples = [Sample(generation, now, f"{n:02}", Sign.BAD) for n in range(20)]
                return rules.trip(gate, SETTINGS, Window(tuple(samples)), now, event.chance)
            case "hint":
                kind = event.kind or Kind.RATE_LIMITED
                call = {"kind": kind, "generation": generation, "until": until, "now": now}
                return rules.hint(gate, SETTINGS, **call)
            case "probed":
                word = said(event.kind)
                call = {"word": word, "generation": generation, "until": until, "now": now}
                return rules.probed(gate, SETTINGS, **call, chance=event.chance)
            case "lost":
                return rules.lost(gate, SETTINGS, now, event.chance)
            case "lease":
                return rules.lease(gate, SETTINGS, now)
            case "resume":
                return rules.resume(gate, now)
            case "hold":
                return rules.hold(gate, reason="", until=until, now=now)
            case "release":
                return rules.release(gate, reason="", now=now)
        return rules.hurry(gate, reason="", now=now)

    def _sent_under(self, event: Event) -> int:
        return max(self.gate.generation - event.behind, 0)

    def _remember(self, event: Event) -> None:
        heard = self._sent_under(event) >= self.spoken
        told = event.name == "hint" or (event.name == "probed" and event.kind is not None)
        if heard and told and event.wait_s is not None:
            self.asked_until = max(self.asked_until, after(self.now, event.wait_s))

    def _check_step(self, event: Event, before: Gate, step: Step) -> None:
        gate, move = step.gate, step.move
        if move is None:
            assert gate == before, "no move, no change"
            return
        assert gate.generation == before.generation + 1, "each change raises the generation by one"
        assert (before.state, move, gate.state) in GATE_MOVES, "only arrows of the table are taken"
        entered = self.now if gate.state is not before.state else before.since_at
        assert gate.since_at == entered, "a state is dated when it is entered"
        if move in (GateMove.LEASE, GateMove.RESUME):
            assert self.now >= self.asked_until, "nothing starts before the upstream said"
        if move is GateMove.TRIP:
            assert self._sent_under(event) >= before.counts_from, "old calls do not count"
        if event.name == "probed" and move is not GateMove.HINT:
            current = self._sent_under(event) == before.generation
            assert current, "the result of an old generation says nothing"
        held_before = before.state is not GateState.FLOWING
        if held_before and gate.state is GateState.HELD and event.name not in PEOPLES:
            assert end(gate) >= end(before), "only a person makes a pause shorter"
        if before.until_person and event.name not in PEOPLES:
            proved = move is GateMove.FLOW
            assert gate.until_person or proved, "only a person or a proof ends an endless hold"

    def _check_gate(self) -> None:
        gate = self.gate
        assert (gate.state is GateState.PROBING) == (gate.lease_until is not None)
        if gate.state is GateState.FLOWING:
            assert (gate.cause, gate.held_until, gate.told_until) == (None, None, None)
            return
        assert gate.cause is not None, "a hold says why"
        if gate.state is GateState.HELD:
            assert gate.held_until is not None or gate.until_person, "a hold has an end or a person"


def end(gate: Gate) -> datetime:
    return gate.held_until or datetime.max.replace(tzinfo=START.tzinfo)


def walk(events: list[Event], rules: Rules) -> Walk:
    walked = Walk(rules)
    for event in events:
        walked.happens(event)
    return walked


pauses = st.sampled_from([0.0, 1.0, 2.5, 31.0, 200.0, 90_000.0]) | st.floats(0.0, 10.0)
waits = st.floats(-5.0, 60.0) | st.sampled_from([3_600.0, 3_601.0, 1e6])
kinds = st.sampled_from(
    [None, None, Kind.UPSTREAM_ERROR, Kind.RATE_LIMITED, Kind.INVALID_REQUEST, Kind.BILLING]
)


def events_of(names, *, unasked=1):
    """Events by these names; ``unasked`` is how often no wait is given for once that one is."""
    return st.builds(
        Event,
        name=st.sampled_from(names),
        pause_s=pauses,
        behind=st.sampled_from([0, 0, 0, 0, 1, 2, 5]),
        kind=kinds,
        wait_s=st.one_of(*[st.none()] * unasked, waits),
        chance=st.floats(0.0, 1.0, exclude_max=True),
    )


# As in life, a probe is leased and ends more often than a person speaks.
turns = st.tuples(
    events_of(["trip", "trip", "hint", "hold", "lost", "release", "hurry"]),
    events_of(["resume", "lease", "lease", "trip", "hint"]),
    events_of(["probed", "probed", "probed", "lost", "lease", "hint"], unasked=4),
    events_of(["lease", "lease", "resume", "lost"]),
    events_of(["probed", "probed", "lost"], unasked=4),
)
lives = st.lists(turns, min_size=1, max_size=10).map(
    lambda turns: [e for turn in turns for e in turn]
)


@examples(max_examples=150)
@given(lives)
def test_every_life_of_a_gate_keeps_its_promises(life):
    walk(life, Rules())


@pytest.mark.long
@examples(max_examples=3_000)
@given(lives)
def test_many_lives_of_a_gate_keep_their_promises(life):
    walk(life, Rules())


@given(lives)
def test_every_gate_can_be_brought_to_flow_without_a_person_or_waits_for_one(life):
    """No sequence of events leaves a gate stuck."""
    walked = walk(life, Rules())
    walked.gate = probes.lose_probe(walked.gate, SETTINGS, after(walked.now, 1e9), 0.5).gate
    if walked.gate.until_person and walked.gate.held_until is None:
        walked.happens(Event("release"))
    walked.now = after(walked.now, 2e9)
    for _ in range(SETTINGS.flow_after):
        walked.happens(Event("resume"))
        walked.happens(Event("lease"))
        walked.happens(Event("probed"))
    assert walked.gate.state is GateState.FLOWING


def probed_in_vain(gate, rules):
    """Three probes that say nothing, each as soon as it may go."""
    walked = Walk(rules, gate=gate, now=gate.held_until)
    for _ in range(3):
        walked.now = max(walked.now, walked.gate.held_until)
        walked.happens(Event("lease"))
        walked.happens(Event("probed", kind=Kind.INTERNAL))
    walked.happens(Event("resume"))
    return walked.gate


@given(lives)
def test_three_probes_that_say_nothing_free_any_gate_but_a_credentials_and_a_persons(life):
    gate = probes.lose_probe(walk(life, Rules()).gate, SETTINGS, after(START, 1e9), 0.5).gate
    mended_by_proof = gate.cause in (HoldCause.TRIP, HoldCause.HINT) and not gate.until_person
    if gate.probe_first and mended_by_proof and gate.kept_until is None:
        gate = probed_in_vain(gate, Rules())
        assert gate.state is GateState.FLOWING
        assert gate.starts_slowly


def never_gives_up(gate, settings, **call):
    return probes.end_probe(replace(gate, undecided=0), settings, **call)


def test_a_gate_that_never_gives_up_would_stay_held():
    """The broken twin."""
    gate = walk([TRIP], Rules()).gate
    assert probed_in_vain(gate, Rules()).state is GateState.FLOWING
    assert probed_in_vain(gate, Rules(probed=never_gives_up)).state is GateState.HELD


# The broken twins: each breaks one promise, and a short life shows it.


def two_probes(gate, settings, now):
    if gate.state is GateState.PROBING:
        return Step(replace(gate, generation=gate.generation + 1), GateMove.LEASE)
    return probes.lease(gate, settings, now)


def last_hint_wins(gate, settings, *, until, **call):
    step = holds.hint(gate, settings, until=until, **call)
    if until is None or gate.state is not GateState.HELD or until <= call["now"]:
        return step
    held = replace(step.gate, held_until=until, until_person=False)
    return Step(replace(held, generation=gate.generation + 1), GateMove.HINT)


def hint_without_memory(gate, settings, **call):
    step = holds.hint(gate, settings, **call)
    return Step(replace(step.gate, told_until=None), step.move) if step.move else step


def any_result_counts(gate, settings, *, generation, **call):
    return probes.end_probe(gate, settings, generation=gate.generation, **call)


def trip_by_any_call(gate, settings, window, now, chance):
    return holds.trip(replace(gate, counts_from=0), settings, window, now, chance)


def lost_keeps_the_generation(gate, settings, now, chance):
    step = probes.lose_probe(gate, settings, now, chance)
    return Step(replace(step.gate, generation=gate.generation), step.move)


def probe_that_forgets_the_hold(gate, settings, **call):
    step = probes.end_probe(replace(gate, until_person=False), settings, **call)
    return step if step.move else Step(gate)


def probe_before_its_time(gate, settings, now):
    return step_along(gate, GateMove.LEASE, now, "", lease_until=after(now, settings.lease_s))


def flows_when_due(gate, now):
    ready = gate.held_until is not None and now >= gate.held_until
    return step_along(gate, GateMove.RESUME, now, "", told_until=now) if ready else Step(gate)


TRIP, LEASE = Event("trip"), Event("lease", pause_s=200.0)
DOWN = Kind.UPSTREAM_ERROR

TWINS = {
    "two probes at once": (Rules(lease=two_probes), [TRIP, LEASE, LEASE]),
    "the last hint wins": (
        Rules(hint=last_hint_wins),
        [Event("hint", wait_s=60.0), Event("hint", wait_s=30.0)],
    ),
    "what the upstream asked for is forgotten": (
        Rules(hint=hint_without_memory),
        [Event("hint", wait_s=60.0), Event("hold", wait_s=5.0), Event("resume", pause_s=10.0)],
    ),
    "results of any generation count": (
        Rules(probed=any_result_counts),
        [TRIP, LEASE, Event("probed", behind=1, kind=DOWN)],
    ),
    "calls of any generation trip": (
        Rules(trip=trip_by_any_call),
        [TRIP, Event("release"), Event("trip", behind=1)],
    ),
    "a lost probe keeps its generation": (
        Rules(lost=lost_keeps_the_generation),
        [TRIP, LEASE, Event("lost", pause_s=31.0)],
    ),
    "a failed probe ends an endless hold": (
        Rules(probed=probe_that_forgets_the_hold),
        [Event("hold"), Event("hurry"), LEASE, Event("probed", kind=DOWN)],
    ),
    "a probe before it is due": (
        Rules(lease=probe_before_its_time),
        [TRIP, Event("hint", wait_s=60.0), Event("lease", pause_s=5.0)],
    ),
    "what was told stays on a flowing gate": (
        Rules(resume=flows_when_due),
        [Event("hint", wait_s=60.0), Event("resume", pause_s=60.0)],
    ),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_gate_is_caught_in_a_life_that_does_the_real_one_no_harm(twin):
    rules, life = TWINS[twin]
    with pytest.raises(AssertionError):
        walk(life, rules)
    walk(life, Rules())


@given(lives, st.datetimes(timezones=st.just(START.tzinfo)))
def test_events_are_total_even_where_time_jumps_anywhere(life, moment):
    walked = walk(life, Rules())
    for name in ("trip", "hint", "lease", "probed", "lost", "resume", "hold", "hurry", "release"):
        leapt = Walk(Rules(), gate=walked.gate, now=moment)
        for wait_s in (None, 60.0, 1e12):
            step = leapt._step(Event(name, kind=Kind.OVERLOADED, wait_s=wait_s))
            assert step.gate.generation - walked.gate.generation == (step.move is not None)
