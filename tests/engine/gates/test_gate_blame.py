"""Whose fault it was: a bug of one's own moves no gate, any answer proves an upstream, and no probe holds it for ever."""

from collections.abc import Callable

import pytest

from perdure.engine.gates.changes import hold_by_person, probe_by_person
from perdure.model.events import EventName
from perdure.model.gates import GateState
from perdure.model.jobs import Claim
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.outcomes import Evidence, Origin, Outcome, Raised
from perdure.model.states import FailedReason, State
from perdure.rules.evidence import evidence_of
from perdure.rules.gate.gate import GateSettings, HoldCause
from tests.engine.gating import (
    DOWN,
    FINE,
    QUICK,
    STANDARD,
    Post,
    counters,
    failed,
    gate,
    jobs_of,
    put,
    stage,
    upstream,
)

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING
KEY = "key-1"
SAID = Deed("ann", "to see whether it works")


def bug(error: Exception) -> Raised:
    """The stage's own code raised this."""
    return Raised(replace(evidence_of(error), origin=Origin.OWN))


OWN = bug(IndexError("list index out of range"))
BUGS = [OWN, bug(KeyError("title")), bug(ValueError("not a number"))]
NEITHER = {"internal": failed(Kind.INTERNAL), "cancelled": failed(Kind.CANCELLED), "own bug": OWN}


def standard(place, **more) -> Post:
    """The recommended policy behind a gate with the recommended settings."""
    gates = [upstream(gate=GateSettings(), **more)]
    return Post(place, stage(policy=STANDARD), upstreams=gates, concurrency=32)


def served(post: Post, turns: int, answer: Callable[[Claim], Outcome]) -> list[int]:
    """Every half second all that run end as they are answered, failures sooner; how many ran each time."""
    counts = []
    for _ in range(turns):
        running = post.turn(passing_s=0.3)
        counts.append(len(running))
        post.place.clock.push(0.2)
        for claim in running:
            outcome = answer(claim)
            post.end(claim, outcome, elapsed_s=0.2 if outcome is FINE else 0.1)
    post.turn()
    return counts


def until_probing(post: Post) -> Claim:
    for _ in range(1_000):
        post.turn(passing_s=0.1)
        if PROBING in (gate(post.place).state, gate(post.place, KEY).state):
            return next(iter(post.running.values()))
    raise AssertionError("no probe went out")


# -- a bug of one's own ------------------------------------------------------------------


def test_items_that_all_meet_a_bug_of_ones_own_hold_nothing_and_fail_by_their_policy(either):
    post = standard(either)
    ids = put(either, 30)
    counts = served(post, 20, lambda claim: BUGS[claim.no % 3])
    assert counts[:5] == [1, 2, 4, 4, 6]  # as with answers: they are no reason to go slowly
    assert (gate(either).state, post.moves()) == (FLOWING, [])
    jobs = jobs_of(either, ids)
    assert {(job.state, job.failed_reason) for job in jobs} == {
        (State.FAILED, FailedReason.EXHAUSTED)
    }
    assert {job.counters.failures for job in jobs} == {2}  # as the row of `unknown` says
    either.clean()


def test_a_bug_of_ones_own_in_every_tenth_item_keeps_nobody_back(either):
    post = standard(either)
    ids = put(either, 60)
    served(post, 20, lambda claim: OWN if claim.no % 10 == 0 else FINE)
    assert post.moves() == []
    jobs = jobs_of(either, ids)
    assert sum(job.state is State.SUCCEEDED for job in jobs) == 54
    assert {job.state for job in jobs if job.no % 10 == 0} == {State.FAILED}


def test_the_same_exception_of_a_librarys_code_still_counts_against_the_upstream(either):
    """The twin: nobody knows it, and it may well be the upstream's."""
    post = standard(either)
    put(either, 30)
    foreign = Raised(replace(evidence_of(IndexError("")), origin=Origin.LIBRARY))
    served(post, 14, lambda claim: foreign)
    assert gate(either).cause is HoldCause.TRIP


# -- answers that do not fit -------------------------------------------------------------


def test_a_few_failures_among_answers_that_do_not_fit_hold_nothing(either):
    post = standard(either)
    put(either, 80)
    calls = iter(range(1_000))
    unfit, sick = failed(Kind.INVALID_OUTPUT), failed(Kind.UPSTREAM_ERROR)
    served(post, 16, lambda claim: sick if next(calls) % 12 == 0 else unfit)
    assert next(calls) > 100
    assert (gate(either).state, post.moves()) == (FLOWING, [])


BAD_REQUEST = Raised(Evidence(("vendor.BadRequest",), "no such field", status=400))


@pytest.mark.parametrize(
    "answer", [failed(Kind.INVALID_OUTPUT), BAD_REQUEST], ids=["unfit", "http 400"]
)
def test_any_answer_to_a_probe_opens_the_gate(either, answer):
    post = Post(either, stage(policy=STANDARD))
    put(either, 12)
    tripped(post)
    post.end(until_probing(post), answer)
    post.turn()
    assert gate(either).state is FLOWING
    changed = post.notes.of(EventName.GATE_CHANGED)[-1]
    assert "probe 1 of 1 was answered" in str(changed["reason"])


# -- probes that say nothing -------------------------------------------------------------


def in_vain(post: Post, answer: Outcome, times: int) -> list[Claim]:
    """So many probes that say nothing, one after the other."""
    claims = []
    for _ in range(times):
        claims.append(until_probing(post))
        post.end(claims[-1], answer)
        post.turn()
    return claims


def tripped(post: Post) -> None:
    post.trip()
    post.running.clear()  # of these nothing is heard any more


@pytest.mark.parametrize("name", NEITHER)
def test_after_three_probes_that_say_nothing_the_gate_flows_by_itself_and_says_why(either, name):
    slow = replace(QUICK, pace=replace(QUICK.pace, start_calls=1))
    post = Post(either, upstreams=[upstream(gate=slow)])
    put(either, 20)
    tripped(post)
    in_vain(post, DOWN, 4)  # so that the gap has grown to ten seconds
    assert gate(either).gap == 5
    probes = in_vain(post, NEITHER[name], 1)
    held = gate(either)
    assert held.state is HELD
    assert (held.held_until - either.clock.now()).total_seconds() == pytest.approx(2.0, abs=0.1)
    probes += in_vain(post, NEITHER[name], 1)
    assert probes[0].id != probes[1].id
    in_vain(post, NEITHER[name], 1)
    running = post.turn(passing_s=0.1)
    assert gate(either).state is FLOWING
    assert len(running) == 1  # slowly
    probed = str(post.notes.of(EventName.GATE_PROBED)[-1]["reason"])
    assert probed.endswith("3 in a row, so calls start again, slowly")
    flowed = post.notes.of(EventName.GATE_CHANGED)[-1]
    assert (flowed["move"], flowed["reason"]) == (
        "resume",
        "flowing: 3 probes in a row said nothing about the upstream",
    )


def test_an_upstream_that_is_still_down_when_calls_start_again_is_held_again(either):
    post = Post(either)
    put(either, 20)
    tripped(post)
    in_vain(post, OWN, 3)
    post.turn(passing_s=0.1)
    assert gate(either).state is FLOWING
    post.end_all(DOWN)
    assert post.trip().cause is HoldCause.TRIP


def test_a_credentials_gate_is_not_freed_by_probes_that_say_nothing(either):
    post = standard(either, credential=KEY)
    put(either, 20)
    post.end(post.turn()[0], failed(Kind.QUOTA_WINDOW, wait_s=10.0))
    post.turn()
    assert gate(either, KEY).cause is HoldCause.CREDENTIAL
    in_vain(post, failed(Kind.INTERNAL), 5)
    post.turn(passing_s=0.1)
    assert gate(either, KEY).state is HELD
    post.end(until_probing(post), failed(Kind.INVALID_OUTPUT))
    post.turn()
    assert gate(either, KEY).state is FLOWING


def test_what_a_person_holds_is_not_freed_by_probes_that_say_nothing(either):
    post = Post(either)
    put(either, 20)
    hold_by_person(either.reader, either.control, "vendor", Deed("ann", "maintenance"))
    for _ in range(4):
        probe_by_person(either.reader, either.control, "vendor", SAID)
        in_vain(post, OWN, 1)
    assert post.turn(passing_s=5_000.0) == []
    assert (gate(either).state, gate(either).cause) == (HELD, HoldCause.PERSON)


def test_a_probe_that_says_nothing_costs_its_job_what_its_policy_says(either):
    post = Post(either, stage(policy=STANDARD))
    put(either, 12)
    tripped(post)
    (claim,) = in_vain(post, failed(Kind.INTERNAL), 1)
    assert either.see(claim.id).state is State.FAILED  # a defect fails at once, held or not
    before = counters(either, until_probing(post).id)
    (other,) = in_vain(post, OWN, 1)
    assert counters(either, other.id).failures == before.failures + 1


# -- items that always fail ----------------------------------------------------------------

SICK = failed(Kind.UPSTREAM_ERROR)


def until_ended(post: Post, ids: list[str], answer: Callable[[Claim], Outcome]) -> None:
    for _ in range(200):
        served(post, 10, answer)
        if all(job.state in (State.SUCCEEDED, State.FAILED) for job in jobs_of(post.place, ids)):
            return
    raise AssertionError("some never end")


@pytest.mark.parametrize("every", [6, 18], ids=["ten of sixty", "three of fifty-four"])
def test_items_that_always_fail_end_when_nothing_else_is_left_to_probe_with(either, every):
    post = standard(either)
    ids = put(either, 60 // every * every)
    until_ended(post, ids, lambda claim: SICK if claim.no % every == 1 else FINE)
    jobs = jobs_of(either, ids)
    assert {job.failed_reason for job in jobs if job.no % every == 1} == {FailedReason.EXHAUSTED}
    assert {job.state for job in jobs if job.no % every != 1} == {State.SUCCEEDED}
    assert "trip" in post.moves()
    told = [str(fields["reason"]) for fields in post.notes.of(EventName.GATE_PROBED)]
    assert any("of a job that has failed while others were answered" in text for text in told)
    counted = [
        one.why_json
        for job in jobs
        for one in either.reader.attempts(job.no)
        if one.counted == "failures"
    ]
    assert any("others were answered since this job first failed" in why for why in counted)
    either.clean()


def test_an_outage_takes_no_attempt_of_jobs_that_only_failed_in_it(either):
    """The twin: others were answered, but before these began to fail."""
    post = standard(either)
    put(either, 30)
    served(post, 10, lambda claim: FINE)
    ids = put(either, 12)
    served(post, 20, lambda claim: SICK)
    assert gate(either).state is not FLOWING
    before = [counters(either, id).failures for id in ids]
    served(post, 1_200, lambda claim: SICK)
    assert [counters(either, id).failures for id in ids] == before
    assert {job.state for job in jobs_of(either, ids)} == {State.QUEUED}


def test_an_answer_that_came_before_a_job_failed_and_was_heard_of_later_is_no_proof_against_it(
    either,
):
    """A turn that came late made it seem newer than the failure, and an outage took attempts."""
    post = standard(either)
    put(either, 30)
    served(post, 10, lambda claim: FINE)
    ids = put(either, 12)
    running = post.turn(passing_s=0.5)
    good = running[0]
    for claim in running[1:]:
        post.end(claim, SICK, elapsed_s=0.2)
    post.clock.push(5.0)
    post.end(good, FINE, elapsed_s=0.1)
    served(post, 20, lambda claim: SICK)
    assert gate(either).state is not FLOWING
    before = [counters(either, id).failures for id in ids]
    served(post, 1_200, lambda claim: SICK)
    assert [counters(either, id).failures for id in ids] == before


def test_while_others_wait_they_are_the_probes_and_a_job_that_failed_before_loses_nothing(either):
    post = standard(either)
    (old, *_) = put(either, 30)
    served(post, 10, lambda claim: SICK if claim.id == old and claim.counters.starts == 1 else FINE)
    ids = put(either, 40)
    put_again = failed(Kind.UPSTREAM_ERROR)
    served(post, 300, lambda claim: put_again)
    assert gate(either).state is not FLOWING
    assert {job.state for job in jobs_of(either, ids)} == {State.QUEUED}
