"""Mistakes of other circuit breakers, and a test of each that our gates do not make it.

============================================================== ===================================
the mistake                                                    shown by
============================================================== ===================================
a share of too few calls: the first failure opens it           ``test_minimum…``
a caller's own mistakes and rate limits open it                ``test_ignored_kinds…``
a slow answer from before the outage passes for news           ``test_counted_at_send…``
results of an earlier era close it, or open it again           ``test_earlier_era…``
a probe that never comes back leaves it half open for ever     ``test_probe_lease…``
an exception of ours in the probe leaves it stuck              ``test_not_the_providers…``
half open lets every waiting call through                      ``test_one_probe…``
a second trip or hint shortens the pause                       ``test_again…``
an upstream that hangs is not failing                          ``test_slow_calls…``
nobody can hold it or let it flow by hand                      ``test_by_hand…``
each process has its own, and a restart forgets                ``test_shared_and_durable…``
a pause freezes deadlines in one place and not in another      ``test_deadlines…``
============================================================== ===================================
"""

import pytest

from perdure.engine.gates import gatekeeper
from perdure.engine.gates.changes import hold_by_person, release_by_person
from perdure.model.gates import GateState
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.outcomes import Returned
from perdure.model.states import FailedReason, State
from perdure.rules.gate import hold
from perdure.rules.gate.gate import Step
from perdure.rules.gate.window import reading
from tests.engine.gating import (
    DOWN,
    FINE,
    QUICK,
    STANDARD,
    Post,
    failed,
    gate,
    jobs_of,
    put,
    stage,
    upstream,
)
from tests.engine.upkeep.upkeeping import upkeep

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING


def until_probing(post: Post):
    for _ in range(200):
        post.turn(passing_s=0.2)
        if gate(post.place).state is PROBING:
            return next(iter(post.running.values()))
    raise AssertionError("no probe went out")


def test_minimum_calls_three_failures_of_three_are_not_enough(either):
    post = Post(either, concurrency=3)
    put(either, 12)
    post.turn()
    post.end_all(DOWN)
    post.turn(passing_s=0.1)
    assert gate(either).state is FLOWING
    post.end(next(iter(post.running.values())), DOWN)
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD  # the fourth is what QUICK asks for


@pytest.mark.parametrize(
    "kind", [Kind.RATE_LIMITED, Kind.INVALID_REQUEST, Kind.CANCELLED, Kind.INTERNAL]
)
def test_ignored_kinds_neither_trip_it_nor_hide_an_outage(either, kind):
    post = Post(either)
    put(either, 60)
    for _ in range(3):
        post.turn(passing_s=0.1)
        post.end_all(failed(kind))
    post.turn(passing_s=0.1)
    assert gate(either).state is FLOWING
    failing = 0
    while failing < 4:  # who refuses everything is called by one at a time
        running = post.turn(passing_s=20.0)
        bad = running[-(4 - failing) :]
        failing += len(bad)
        for claim in running:
            post.end(claim, DOWN if claim in bad else failed(kind))
    post.turn(passing_s=0.1)
    reason = gate(either).reason
    assert reason.startswith("4 of the last 4 calls that count failed")
    assert "left out" not in reason or kind.value in reason


def test_counted_at_send_a_slow_answer_from_before_is_no_news(either):
    """Eight calls were sent before the outage and are answered in its midst: the window has moved on."""
    post = Post(either, concurrency=16, upstreams=[upstream(gate=_wide(16))])
    put(either, 40)
    early = post.turn()[:8]
    later = [claim for claim in post.running.values() if claim not in early]
    for claim in later:
        post.end(claim, FINE)
    post.turn(passing_s=1.0)
    for claim in [one for one in post.running.values() if one not in early]:
        post.end(claim, DOWN)
    for claim in early[:7]:
        post.end(claim, FINE)  # as many successes, of calls sent earlier
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD


def _wide(calls: int):
    """So many calls at once, judged by half of the last eight."""
    window = replace(QUICK.window, fail_share=0.5)
    return replace(QUICK, window=window, pace=replace(QUICK.pace, start_calls=calls))


def test_earlier_era_a_late_success_does_not_let_it_flow_and_a_late_failure_does_not_trip_it(
    either,
):
    post = Post(either, concurrency=16, upstreams=[upstream(gate=_wide(16))])
    put(either, 60)
    running = post.turn()
    for claim in running[:8]:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD
    late = running[8:]
    for claim in late[:4]:
        post.end(claim, FINE)
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD
    for claim in late:
        post.running.pop(claim.no, None)
    probe = until_probing(post)
    post.end(probe, FINE)
    post.turn()
    flowing = gate(either)
    assert flowing.state is FLOWING
    for claim in late[4:]:
        post.end(claim, DOWN)  # sent before the trip, and failed only now
    post.turn(passing_s=0.1)
    assert gate(either) == flowing


def test_probe_lease_a_probe_that_never_comes_back_is_replaced(either):
    post = Post(either)
    put(either, 12)
    post.trip()
    first = until_probing(post)
    post.running.clear()
    post.turn(passing_s=QUICK.lease_s + 1.0)
    assert gate(either).state is HELD
    assert until_probing(post).id != first.id


@pytest.mark.parametrize("kind", [Kind.INTERNAL, Kind.CONFIG_MISSING, Kind.RESOURCE_EXHAUSTED])
def test_not_the_providers_exception_in_the_probe_leaves_it_undecided_and_not_stuck(either, kind):
    post = Post(either)
    put(either, 12)
    post.trip()
    post.end(until_probing(post), failed(kind))
    post.turn()
    assert gate(either).state is HELD  # neither let through nor held against it
    post.end(until_probing(post), FINE)
    post.turn()
    assert gate(either).state is FLOWING


def test_one_probe_and_not_all_that_wait(anywhere):
    posts = [Post(anywhere(), concurrency=8) for _ in range(3)]
    put(posts[0].place, 100)
    posts[0].trip()
    for post in posts:
        post.end_all(FINE)
        post.turn()
        post.running.clear()
    calls = sum(post.started for post in posts)
    for _ in range(60):
        for post in posts:
            post.turn(passing_s=0.05)
        assert sum(len(post.running) for post in posts) <= 1
    assert sum(post.started for post in posts) == calls + 1


@pytest.mark.parametrize("second", [failed(Kind.OVERLOADED, wait_s=5.0), DOWN])
def test_again_what_comes_while_held_extends_the_pause_or_leaves_it(either, second):
    post = Post(either, stage(policy=STANDARD))
    put(either, 8)
    running = post.turn()
    post.end(running[0], failed(Kind.OVERLOADED, wait_s=60.0))
    post.turn()
    until = gate(either).held_until
    for claim in running[1:]:
        post.end(claim, second)
        post.turn(passing_s=0.1)
        assert gate(either).held_until >= until
    post.running.clear()
    while either.clock.now() < until:
        assert post.turn() == []
        either.clock.push(1.0)


def test_slow_calls_count(either):
    slow = replace(QUICK, window=replace(QUICK.window, slow_s=5.0))
    post = Post(either, upstreams=[upstream(gate=slow)])
    put(either, 40)
    post.turn()
    post.end_all(FINE, elapsed_s=4.9)
    post.turn(passing_s=4.9)
    assert gate(either).state is FLOWING
    post.clock.push(5.1)
    post.end_all(FINE, elapsed_s=5.1)
    post.turn()
    assert gate(either).reason == "8 of the last 8 calls that count took 5 s or more"


def test_by_hand_it_is_held_and_released_whatever_calls_say(either):
    post = Post(either)
    put(either, 40)
    running = post.turn()
    hold_by_person(either.reader, either.control, "vendor", Deed("ann", "maintenance"))
    for claim in running[:4]:
        post.end(claim, FINE)  # successes do not open it
    post.turn(passing_s=1.1)
    assert gate(either).state is HELD
    for claim in running[4:]:
        post.end(claim, failed(Kind.RATE_LIMITED, wait_s=90.0))
    release_by_person(either.reader, either.control, "vendor", Deed("ann", "it is over"))
    post.turn(passing_s=1.1)
    assert gate(either).state is FLOWING  # nor do failures of calls from before close it
    assert post.turn(passing_s=0.1)


def test_shared_and_durable_another_process_and_a_restart_find_it_as_it_was(anywhere):
    post = Post(anywhere())
    put(post.place, 40)
    post.trip()
    before = gate(post.place)
    restarted = Post(anywhere())
    assert restarted.turn(passing_s=0.1) == []
    assert gate(restarted.place) == before
    probe = until_probing(restarted)
    restarted.end(probe, FINE)
    restarted.turn()
    assert gate(post.place).state is FLOWING


def test_deadlines_are_absolute_and_held_time_counts(either):
    """Our decision: a gate holds jobs and not their clocks, and no attempt is spent on one that expires."""
    post = Post(either)
    ids = put(either, 8, deadline_s=60.0)
    post.turn()
    hold_by_person(either.reader, either.control, "vendor", Deed("ann", "maintenance"))
    for claim in list(post.running.values()):
        post.end(claim, Returned("1") if claim.no % 2 else DOWN)
    post.turn(passing_s=1.1)
    either.clock.push(61.0)
    upkeep(either, post.worker, catalogue=post.catalogue).once()
    late = [job for job in jobs_of(either, ids) if job.state is State.FAILED]
    assert len(late) == 4
    assert {job.failed_reason for job in late} == {FailedReason.EXPIRED}
    assert {job.counters.failures for job in late} == {0}
    either.clean()


# -- each mistake, made --------------------------------------------------------------------


def _never(gate, *_, **__):
    return Step(gate)


def _of_every_era(window, settings, *, counts_from, now):
    return reading(window, settings, counts_from=0, now=now)


def _any_failure(found, settings):
    return "one failed" if found.failed else None


def _shortening(gate, settings, *, until, **more):
    fresh = replace(gate, held_until=None, told_until=None)
    return hold.hint(fresh, settings, until=until, **more)


@pytest.mark.parametrize(
    ("where", "name", "wrong", "check"),
    [
        (hold, "sickness", _any_failure, test_minimum_calls_three_failures_of_three_are_not_enough),
        (
            hold,
            "reading",
            _of_every_era,
            test_earlier_era_a_late_success_does_not_let_it_flow_and_a_late_failure_does_not_trip_it,
        ),
        (
            gatekeeper,
            "lose_probe",
            _never,
            test_probe_lease_a_probe_that_never_comes_back_is_replaced,
        ),
        (gatekeeper, "trip", _never, test_slow_calls_count),
    ],
    ids=["minimum", "era", "lease", "slow"],
)
def test_a_breaker_with_the_mistake_would_be_caught(either, monkeypatch, where, name, wrong, check):
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        check(either)


def test_a_breaker_whose_second_hint_shortens_the_first_would_be_caught(either, monkeypatch):
    monkeypatch.setattr(gatekeeper, "hint", _shortening)
    with pytest.raises(AssertionError):
        test_again_what_comes_while_held_extends_the_pause_or_leaves_it(
            either, failed(Kind.OVERLOADED, wait_s=5.0)
        )
