"""Upstreams that are weak and not down: they are used, gently, and no job pays for them with its attempts."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from math import inf

import pytest

from perdure.engine.record import Ending
from perdure.engine.settle import judge
from perdure.model.gates import GateState
from perdure.model.jobs import Claim
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Outcome
from perdure.model.states import FailedReason, State
from perdure.rules.gate.gate import GateSettings, HoldCause, basic_gate
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from tests.engine.gating import (
    FINE,
    STANDARD,
    Post,
    failed,
    gate,
    jobs_of,
    put,
    stage,
    upstream,
)

HELD, FLOWING = GateState.HELD, GateState.FLOWING
SICK = failed(Kind.UPSTREAM_ERROR)
REFUSED = failed(Kind.RATE_LIMITED, wait_s=2.0)
Answer = Callable[[int, Claim], tuple[Outcome, float]]


class Service:
    """An upstream that answers each call as the test says, after the time that it says."""

    def __init__(self, place, *, policy: Policy = STANDARD, slots: int = 10, jobs: int = 0) -> None:
        gates = [upstream(gate=GateSettings())]
        self.post = Post(place, stage(policy=policy), upstreams=gates, concurrency=slots)
        self.place = place
        self.answer: Answer = lambda number, claim: (FINE, 1.0)
        self.ids = put(place, jobs)
        self.ends: dict[tuple[int, int], tuple[float, Outcome]] = {}
        self.numbers: Iterator[int] = count(1)
        self.told_until: dict[int, float] = {}
        self.early = 0
        self.fine = 0
        self.t = 0.0

    def runs(self, seconds: float) -> tuple[float, float]:
        """So much time passes; successes a second, and calls in flight on average."""
        until, fine, flying, turns = self.t + seconds, self.fine, 0, 0
        while self.t < until:
            for claim in self.post.turn(passing_s=0.25):
                self._answered(claim)
            self.t, turns = self.t + 0.25, turns + 1
            flying += len(self.post.running)
        return (self.fine - fine) / seconds, flying / turns

    def _answered(self, claim: Claim) -> None:
        key = (claim.no, claim.token)
        if key not in self.ends:
            self.early += self.t < self.told_until.get(claim.no, -inf) - 0.01
            outcome, took_s = self.answer(next(self.numbers), claim)
            self.ends[key] = self.t + took_s, outcome
        end_s, outcome = self.ends[key]
        if self.t >= end_s:
            self.fine += outcome is FINE
            if outcome is REFUSED:
                self.told_until[claim.no] = self.t + 2.0
            self.post.end(claim, outcome)


def half(number: int, claim: Claim) -> tuple[Outcome, float]:
    return (SICK, 0.5) if number % 2 else (FINE, 1.0)


def words_of(place, id: str) -> list[str]:
    """What was said about each attempt of the job."""
    return [json.loads(one.why_json)["text"] for one in place.reader.attempts(place.see(id).no)]


# -- refusals at random ------------------------------------------------------------------


def test_random_refusals_with_hints_hold_nothing_and_leave_the_rate_what_it_was(either):
    service = Service(either, jobs=700)
    service.runs(10.0)
    before, _ = service.runs(10.0)
    service.answer = lambda number, claim: (REFUSED, 0.25) if number % 20 == 0 else (FINE, 1.0)
    service.runs(15.0)
    after, _ = service.runs(15.0)
    assert (gate(either).state, service.post.moves()) == (FLOWING, [])
    assert len(service.told_until) >= 5
    assert service.early == 0  # nobody who met one comes back before its hint
    assert after > before / 2


def test_a_job_that_meets_an_isolated_refusal_is_not_due_before_its_hint(either):
    service = Service(either, jobs=200)
    service.runs(10.0)
    claim, *_ = service.post.turn(passing_s=0.25)
    service.post.end(claim, failed(Kind.RATE_LIMITED, wait_s=50.0))
    service.post.turn()
    assert gate(either).state is FLOWING
    job = either.see(claim.id)
    assert (job.due_at - either.clock.now()).total_seconds() >= 50.0
    assert (job.counters.failures, job.counters.waits) == (0, 1)


def test_what_was_isolated_of_one_call_says_nothing_about_a_call_that_is_not_ours(either):
    service = Service(either, jobs=200)
    service.runs(10.0)
    claim, *_ = service.post.turn(passing_s=0.25)
    service.post.end(claim, REFUSED)
    service.post.turn()
    assert gate(either).state is FLOWING
    (foreign,) = either.take(either.hire(ttl_s=86_400.0), 1)
    ending = Ending(foreign, REFUSED, 0.1, service.post.worker)
    judge(
        ending, stage(policy=STANDARD), chance=0.5, now=either.clock.now(), gates=service.post.gates
    )
    service.post.turn()
    assert (gate(either).state, gate(either).cause) == (HELD, HoldCause.HINT)


def test_a_burst_of_refusals_with_the_same_hint_holds_the_gate(either):
    service = Service(either, jobs=300)
    service.runs(10.0)
    service.answer = lambda number, claim: (REFUSED, 0.25) if number % 2 else (FINE, 0.25)
    for _ in range(20):
        service.runs(0.25)
        if gate(either).state is HELD:
            break
    assert (gate(either).state, gate(either).cause) == (HELD, HoldCause.HINT)


def test_behind_a_basic_gate_every_hint_holds_however_isolated(either):
    """As the converter's document has it."""
    post = Post(either, stage(policy=STANDARD), upstreams=[upstream(gate=basic_gate())])
    put(either, 60)
    for _ in range(6):
        post.turn(passing_s=0.1)
        post.end_all(FINE)
    first, *others = post.turn(passing_s=0.1)
    post.end(first, REFUSED)
    for claim in others:
        post.end(claim, FINE)
    post.turn(passing_s=0.1)
    assert (gate(either).state, gate(either).cause) == (HELD, HoldCause.HINT)


def test_behind_a_basic_gate_half_of_the_calls_hold_the_queue(either):
    post = Post(either, stage(policy=STANDARD), upstreams=[upstream(gate=basic_gate())])
    put(either, 60)
    for turn in range(20):
        post.turn(passing_s=0.1)
        post.end_all(SICK if turn % 2 else FINE)
    assert gate(either).cause is HoldCause.TRIP


# -- half of the calls fail --------------------------------------------------------------


def test_an_upstream_that_fails_half_of_its_calls_is_used_and_no_attempts_are_spent_on_it(either):
    service = Service(either, jobs=150)
    service.answer = half
    service.runs(20.0)
    before = [job.counters.failures for job in jobs_of(either, service.ids)]
    per_s, _ = service.runs(20.0)
    assert (gate(either).state, service.post.moves()) == (FLOWING, [])
    assert per_s > 1.0
    jobs = jobs_of(either, service.ids)
    assert not any(job.state is State.FAILED for job in jobs)
    assert [job.counters.failures for job in jobs if job.state is State.QUEUED] == [
        failures for job, failures in zip(jobs, before, strict=True) if job.state is State.QUEUED
    ]
    waiting = next(job for job in jobs if job.counters.waits)
    assert any(
        "of the last 20 calls that count failed: attempt not counted" in one
        for one in words_of(either, waiting.id)
    )


def test_an_item_that_always_fails_pays_for_it_when_its_waits_are_used_up(either):
    policy = replace(STANDARD, name="mine", waits_max=2, attempts_max=3)
    service = Service(either, policy=policy, jobs=200)
    service.answer = half
    service.runs(10.0)
    poor = service.ids[-1]
    no = either.see(poor).no
    service.answer = lambda number, claim: (SICK, 0.5) if claim.no == no else half(number, claim)
    for _ in range(30):
        service.runs(5.0)
        if either.see(poor).state is State.FAILED:
            break
    job = either.see(poor)
    assert job.failed_reason is FailedReason.EXHAUSTED
    assert (job.counters.waits, job.counters.failures) == (2, 3)


@pytest.mark.parametrize("name", ["reports", "converter", "verifier"])
def test_under_the_presets_of_others_each_failure_counts_as_ever(either, name):
    service = Service(either, policy=preset(name), jobs=80)
    service.answer = half
    service.runs(10.0)
    jobs = jobs_of(either, service.ids)
    assert sum(job.counters.failures for job in jobs) > 10
    assert {job.counters.waits for job in jobs} == {0}
    assert not any("calls failed" in one for job in jobs[:20] for one in words_of(either, job.id))


# -- timeouts ----------------------------------------------------------------------------


def test_timeouts_of_half_the_calls_leave_fewer_in_flight_and_answers_bring_them_back(either):
    service = Service(either, jobs=700, slots=16)
    service.runs(10.0)
    _, calm = service.runs(5.0)
    late = failed(Kind.TIMEOUT)
    service.answer = lambda number, claim: (late, 1.0) if number % 2 else (FINE, 1.0)
    service.runs(5.0)
    _, strained = service.runs(5.0)
    assert gate(either).state is FLOWING
    assert strained < 0.8 * calm
    service.answer = lambda number, claim: (FINE, 1.0)
    service.runs(15.0)
    _, again = service.runs(5.0)
    assert again > 1.2 * strained
    assert not any(job.state is State.FAILED for job in jobs_of(either, service.ids))
