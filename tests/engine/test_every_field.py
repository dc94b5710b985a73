"""No knob without an effect: every field of a policy and of a gate has an input for which it changes an outcome.

A row is a field, two values and a look. What is compared is what the store would write about an ended attempt, or
what the rules of the gate answer; a field without a row fails, and so does one that nobody reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import zip_longest
from random import Random
from typing import Any

import pytest

from perdure.engine.enqueue import new_job
from perdure.engine.ids import Ids
from perdure.engine.record import Ending
from perdure.engine.settle import Gates, settle
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.decisions import Decision
from perdure.model.errors import ConfigError
from perdure.model.jobs import ZERO, Claim, Counters
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Death, Evidence, Lost, Outcome, Raised, Snoozed
from perdure.model.verdicts import Verdict
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.decide import GateView
from perdure.rules.gate.gate import Gate, GateSettings
from perdure.rules.gate.hold import hint, trip
from perdure.rules.gate.pace import (
    Pace,
    Trouble,
    admits,
    after_answer,
    after_failure as pace_failed,
    after_refusal,
    after_strain,
    opens_in_s,
    slow_start,
)
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.probe import end_probe, lease
from perdure.rules.gate.signs import WELL
from perdure.rules.gate.window import Window, WindowSettings, is_isolated
from perdure.rules.hints.calls_left import Room
from perdure.rules.matchers import Match
from perdure.rules.policy import Hints, Policy, Rule
from perdure.rules.vocabulary import VOCABULARIES
from perdure.testing import VirtualClock
from tests.engine.kit import claim_of, echo
from tests.rules.gate.gate_kit import MIDDLE, at, probing, recovered, tripped, window_of

Look = Callable[[Any], object]


@dataclass(frozen=True)
class Row:
    """Two values of a field, and a look at which they differ."""

    one: Any
    other: Any
    look: Look


STILL = Jitter("none")
PLAIN = Policy(
    "plain",
    backoff=Backoff("fixed", base_s=10.0),
    jitter=STILL,
    rules={"network": "retry", "rate_limited": "wait", "auth": "fail"},
)
SYNC = replace(PLAIN, name="sync", profile="sync")


def raised(kind: str | None, **seen: Any) -> Raised:
    return Raised(Evidence(("SomeError",), "no", kind=None if kind is None else Kind(kind), **seen))


NETWORK, LIMITED, OTHER = raised("network"), raised("rate_limited"), raised("timeout")
USELESS = raised(None, status=503, headers=(("x-should-retry", "false"),))
LOST = Lost(Death("exited", signal="SIGKILL"))


def written(
    policy: Policy,
    outcome: Outcome,
    *,
    chance: float = 0.25,
    deadline_s: float | None = None,
    past: Counters = ZERO,
    gates: Gates | None = None,
    **counters: Any,
) -> tuple[object, ...]:
    """What the store is told about an attempt that ended so under the policy."""
    claim = claim_of(counters=Counters(starts=1, **counters), past=past, deadline_s=deadline_s)
    stage = Stage("one", echo, PLAIN, 60.0)
    line = LaidPipeline("p", "q", "c", (stage,), {"one": 1})
    ending = Ending(claim, outcome, 0.5, 1, policy=policy)
    record = settle(ending, line, stage, chance=chance, gates=gates)
    assert record.attempt is not None
    told = record.attempt
    moved = (record.state, record.delay_s, record.failed_reason, record.error_code)
    return (*moved, told.policy, told.status)


def after(outcome: Outcome, **more: Any) -> Look:
    return lambda policy: written(policy, outcome, **more)


def may_be_a_stages(policy: Policy) -> bool:
    try:
        Stage("one", echo, policy, 60.0)
    except ConfigError:
        return False
    return True


def enqueued_and_failed(policy: Policy) -> object:
    """A job that brings no deadline fails once, under a policy that would wait for an hour."""
    hourly = replace(policy, backoff=Backoff("fixed", base_s=3600.0, cap_s=None))
    line = LaidPipeline("p", "q", "c", (Stage("one", echo, hourly, 60.0),), {"one": 1})
    job = new_job(Ids(VirtualClock(), Random(1)), line, 1)
    return written(hourly, NETWORK, deadline_s=job.policies_s)


def of_policy(policy: Policy, name: str) -> Callable[[Any], Policy]:
    return lambda value: replace(policy, **{name: value})


POLICY: dict[str, tuple[Policy, Row]] = {
    "name": (PLAIN, Row("a", "b", after(NETWORK))),
    "version": (PLAIN, Row(1, 2, after(NETWORK))),
    "profile": (PLAIN, Row("background", "sync", may_be_a_stages)),
    "scope": (PLAIN, Row("stage", "job", after(NETWORK, past=Counters(failures=2)))),
    "attempts_max": (PLAIN, Row(1, 2, after(NETWORK))),
    "waits_max": (PLAIN, Row(0, 1, after(LIMITED))),
    "wait_s_max": (PLAIN, Row(9.0, 10.0, after(LIMITED))),
    "weak_share": (PLAIN, Row(None, 0.5, lambda one: written(one, NETWORK, failures=2, gates=Failing()))),
    "crashes_max": (PLAIN, Row(1, 2, after(LOST))),
    "snoozes_max": (PLAIN, Row(0, 1, after(Snoozed(5.0, "later")))),
    "crash_is_failure": (PLAIN, Row(False, True, after(LOST))),
    "deadline_s": (PLAIN, Row(None, 60.0, enqueued_and_failed)),
    "inline_s_max": (SYNC, Row(None, 5.0, after(NETWORK))),
    "exhausted": (SYNC, Row("fail", "hand_over", after(NETWORK, failures=2))),
    "heed_server": (replace(PLAIN, otherwise=Rule("retry")), Row(False, True, after(USELESS))),
    "backoff": (PLAIN, Row(Backoff("fixed", base_s=1.0), Backoff("fixed"), after(NETWORK))),
    "jitter": (PLAIN, Row(STILL, Jitter("full"), after(NETWORK))),
    "hint": (PLAIN, Row(Hints("ignore"), Hints("exact"), after(raised("rate_limited", wait_s=3)))),
    "rules": (PLAIN, Row({}, {"network": "retry"}, after(NETWORK))),
    "retriable": (PLAIN, Row(None, "all", after(OTHER))),
    "otherwise": (PLAIN, Row(Rule("fail"), Rule("retry"), after(OTHER))),
    "matches": (PLAIN, Row((), (Match("auth", status=503),), after(raised(None, status=503)))),
    "vocabulary": (
        PLAIN, Row(VOCABULARIES["kinds"], VOCABULARIES["gateway"], after(raised("auth"))),
    ),
    "own_delay": (PLAIN, Row(None, lambda failures, kind: 77.0, after(NETWORK))),
}  # fmt: skip


def in_rule(look: Look, kind: str = "network") -> Look:
    return lambda rule: look(replace(PLAIN, rules={kind: rule}))


RULE: dict[str, Row] = {
    "action": Row("retry", "fail", in_rule(after(NETWORK))),
    "attempts_max": Row(None, 1, in_rule(after(NETWORK))),
    "backoff": Row(None, Backoff("fixed", base_s=1.0), in_rule(after(NETWORK))),
    "jitter": Row(None, Jitter("full"), in_rule(after(NETWORK))),
    "hint": Row(
        None, Hints("ignore"), in_rule(after(raised("rate_limited", wait_s=30)), "rate_limited")
    ),
    "heed_server": Row(None, False, in_rule(after(USELESS), "upstream_unavailable")),
}


def in_hint(look: Look) -> Look:
    return lambda hints: look(replace(PLAIN, hint=hints, rules={"rate_limited": "retry"}))


SLOW_DOWN = raised("rate_limited", wait_s=30)
HINTS: dict[str, Row] = {
    "mode": Row("floor", "ignore", in_hint(after(SLOW_DOWN))),
    "counted": Row(True, False, in_hint(after(SLOW_DOWN, failures=2))),
    "s_max": Row(29.0, 30.0, in_hint(after(SLOW_DOWN))),
    "kinds": Row(frozenset(), frozenset({Kind.RATE_LIMITED}), in_hint(after(SLOW_DOWN))),
}

third = lambda backoff: written(  # noqa: E731
    replace(PLAIN, backoff=backoff, attempts_max=9), NETWORK, failures=2
)
BACKOFF: dict[str, Row] = {
    "curve": Row("exponential", "linear", third),
    "base_s": Row(1.0, 2.0, third),
    "factor": Row(2.0, 3.0, third),
    "cap_s": Row(None, 5.0, third),
}

JITTER: dict[str, Row] = {
    "spread": Row("none", "full", lambda one: written(replace(PLAIN, jitter=one), NETWORK)),
    "ratio": Row(0.1, 0.2, lambda one: written(replace(PLAIN, jitter=one), NETWORK)),
    "add_s_max": Row(
        0.0, 9.0, lambda one: written(replace(PLAIN, jitter=replace(one, spread="additive")), NETWORK)
    ),
}  # fmt: skip


class Failing:
    """Gates that say that all of the last ten calls failed."""

    def end_call(self, ending: Ending, verdict: Verdict) -> GateView:
        return GateView(failed=10, known=10)

    def hear_decision(self, claim: Claim, decision: Decision) -> None:
        """Nothing is held."""


FLOWING = Gate("model")


def trips(settings: GateSettings) -> object:
    """Eight calls out of ten have failed."""
    return trip(FLOWING, settings, window_of([True] * 8 + [False] * 2), at(0), MIDDLE).move


def first_gap(settings: GateSettings) -> object:
    return trip(FLOWING, settings, window_of([True] * 20), at(0), 0.25).gate.held_until


def probe_passes(settings: GateSettings) -> object:
    gate, now = probing(settings=settings)
    return end_probe(
        gate, settings, word=WELL, generation=gate.generation, now=now, chance=MIDDLE
    ).move


def leased_until(settings: GateSettings) -> object:
    gate = tripped(settings=settings)
    return lease(gate, settings, gate.held_until).gate.lease_until


def relapsed(settings: GateSettings) -> object:
    gate = recovered(gap=7, t=0)
    window = window_of([True] * 20, generation=gate.generation)
    return trip(gate, settings, window, at(60), MIDDLE).gate.held_until


def asked_for_an_hour(settings: GateSettings) -> object:
    step = hint(FLOWING, settings, kind=Kind.RATE_LIMITED, generation=0, until=at(3600), now=at(0))
    return step.gate.until_person, step.gate.held_until


def calls_at_once(settings: GateSettings) -> object:
    """How many may start after a hold."""
    return admits(slow_start(settings.pace, at(0)), settings.pace, at(0))


def rare_refusal(settings: GateSettings) -> object:
    """One call of ten was turned away."""
    window, share = window_of([False] * 9 + [True]), settings.isolated_share
    return is_isolated(window, settings.window, share, counts_from=0, now=at(20))


# A pace that has run for a while, and what happens to it then.


def running(**changes: Any) -> Pace:
    """Ten calls a second were admitted; the last of them met a limit, and two are in flight."""
    fell = Trouble(fell_at=at(-100), still_until=at(-100))
    pace = Pace(at(0), 5.0, 10.0, 0.0, 2, 100.0, 10.0, refused_per_s=10.0, limit=fell)
    return replace(pace, **changes)


def later(settings: PaceSettings) -> Pace:
    return pace_failed(running(), settings, at(1))


def pace_after_refusal(*, wait_s: float = 0.0, isolated: bool = False, **changes: Any) -> Look:
    def look(settings: PaceSettings) -> object:
        pace = running(**changes)
        call = {"sent_at": at(0), "now": at(0), "wait_s": wait_s, "isolated": isolated}
        return after_refusal(pace, settings, **call)

    return look


def pace_after_strain(settings: PaceSettings) -> object:
    """Calls time out."""
    pace = running(in_flight=20, strain=Trouble(share=0.3))
    return after_strain(pace, settings, sent_at=at(0), now=at(0)).knee


def told_of_room(settings: PaceSettings) -> object:
    room = Room(40, at(30), 100)
    return after_answer(running(), settings, sent_at=at(0), now=at(0), room=room).room


def saved_up(settings: PaceSettings) -> object:
    return admits(running(), settings, at(60))


def grown(settings: PaceSettings) -> object:
    pace = replace(slow_start(settings, at(0)), allowance=2.0)
    return after_answer(pace, settings, sent_at=at(0), now=at(0)).allowance


def spaced_start(settings: PaceSettings) -> object:
    return opens_in_s(running(rate_per_s=None, allowance=4.0), settings, at(0))


NOISY = Trouble(share=0.2, noise=0.1)

PACE: dict[str, Row] = {
    "start_calls": Row(1, 2, lambda one: admits(slow_start(one, at(0)), one, at(0))),
    "calls_max": Row(2, 10, grown),
    "rate_min_per_s": Row(0.01, 100.0, pace_after_refusal()),
    "climb_per_s": Row(0.01, 0.02, later),
    "quicken_s": Row(10.0, 20.0, later),
    "still_times": Row(20.0, 10.0, pace_after_refusal(wait_s=5.0)),
    "measured_times_max": Row(1.0, 2.0, later),
    "measure_s": Row(10.0, 20.0, later),
    "burst_s": Row(0.25, 0.5, saved_up),
    "room_share": Row(0.5, 0.3, told_of_room),
    "room_s_max": Row(60.0, 20.0, told_of_room),
    "find_s": Row(4.0, 8.0, pace_after_refusal()),
    "rest_s": Row(0.5, 1.0, pace_after_refusal()),
    "strain_share": Row(0.2, 0.9, pace_after_strain),
    "slack_share": Row(0.08, 0.5, pace_after_refusal(isolated=True, limit=NOISY)),
    "wave_times": Row(6.0, 3.0, spaced_start),
}


GATE: dict[str, Row] = {
    "window": Row(WindowSettings(), WindowSettings(fail_share=0.5), trips),
    "isolated_share": Row(0.25, 0.0, rare_refusal),
    "gaps": Row(GateSettings().gaps, Backoff("fixed", base_s=30.0), first_gap),
    "jitter": Row(STILL, Jitter("full"), first_gap),
    "flow_after": Row(1, 2, probe_passes),
    "lease_s": Row(100.0, 200.0, leased_until),
    "relapse_s": Row(30.0, 120.0, relapsed),
    "hint_s_max": Row(60.0, 7200.0, asked_for_an_hour),
    "pace": Row(PaceSettings(), PaceSettings(start_calls=5), calls_at_once),
}


def sick_of(failed: list[bool], *slow: bool, now_s: float = 20.0, **more: float) -> Look:
    """Whether a window trips the gate where calls, a second apart, ended so; the slow ones took three seconds."""

    def look(settings: WindowSettings) -> object:
        samples = window_of(failed).samples
        calls = Window(
            tuple(
                replace(one, took_s=3.0 * is_slow)
                for one, is_slow in zip_longest(samples, slow, fillvalue=False)
            )
        )
        gate = GateSettings(window=replace(settings, **more))
        return trip(FLOWING, gate, calls, at(now_s), MIDDLE).move

    return look


WINDOW: dict[str, Row] = {
    "calls": Row(20, 10, sick_of([False] * 10 + [True] * 10)),
    "calls_min": Row(10, 20, sick_of([True] * 10)),
    "fail_share": Row(0.9, 0.5, sick_of([True] * 8 + [False] * 2)),
    "window_s": Row(None, 30.0, sick_of([True] * 20, now_s=1_000.0)),
    "slow_s": Row(None, 2.0, sick_of([False] * 20, *[True] * 20)),
    "slow_share": Row(0.8, 1.0, sick_of([False] * 20, *[True] * 18, slow_s=2.0)),
}


def outcomes(row: Row, make: Callable[[Any], Any]) -> tuple[object, object]:
    return row.look(make(row.one)), row.look(make(row.other))


@pytest.mark.parametrize("name", [one.name for one in fields(Policy)])
def test_every_field_of_a_policy_changes_an_outcome(name):
    policy, row = POLICY[name]
    one, other = outcomes(row, of_policy(policy, name))
    assert one != other


PARTS: dict[type, tuple[Any, dict[str, Row]]] = {
    Rule: (Rule("retry"), RULE),
    Hints: (Hints(), HINTS),
    Backoff: (Backoff(), BACKOFF),
    Jitter: (Jitter(), JITTER),
    GateSettings: (GateSettings(), GATE),
    WindowSettings: (WindowSettings(), WINDOW),
    PaceSettings: (PaceSettings(), PACE),
}
FIELDS = [(cls, one.name) for cls in PARTS for one in fields(cls) if one.name != "steps_s"]


@pytest.mark.parametrize(("cls", "name"), FIELDS)
def test_every_field_of_a_part_changes_an_outcome(cls, name):
    plain, rows = PARTS[cls]
    one, other = outcomes(rows[name], lambda value: replace(plain, **{name: value}))
    assert one != other


def test_the_steps_of_a_schedule_change_an_outcome():
    """They go with one curve alone, so they are changed together with it."""
    one, other = (third(Backoff("schedule", steps_s=(1.0, 2.0, last))) for last in (3.0, 4.0))
    assert one != other


def test_a_field_that_nobody_reads_would_be_noticed():
    """The twin: two values, one outcome."""
    deaf = Row(1.0, 2.0, lambda settings: written(PLAIN, NETWORK))
    one, other = outcomes(deaf, lambda value: replace(PLAIN, wait_s_max=value))
    assert one == other


def test_no_row_is_left_over():
    assert set(POLICY) == {one.name for one in fields(Policy)}
    for cls, (_, rows) in PARTS.items():
        assert set(rows) == {one.name for one in fields(cls)} - {"steps_s"}
