"""The gatekeeper: two workers on one store hold a sick upstream's queue, and nobody pays for the outage."""

from math import inf

import pytest

from perdure.engine.gates.changes import hold_by_person
from perdure.model.events import EventName
from perdure.model.gates import GateState
from perdure.model.jobs import ClaimOrder
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.states import FailedReason, State
from perdure.rules.gate.gate import HoldCause
from tests.engine.gating import (
    DOWN,
    FINE,
    QUICK,
    STANDARD,
    VENDOR,
    Post,
    counters,
    failed,
    gate,
    jobs_of,
    line_of,
    put,
    stage,
    upstream,
)
from tests.engine.upkeep.upkeeping import KILLED, upkeep

HELD, FLOWING, PROBING = GateState.HELD, GateState.FLOWING, GateState.PROBING


def probing(post: Post):
    """A held gate's probe is out; the claim that it is."""
    post.trip()
    post.running.clear()
    for _ in range(200):
        running = post.turn(passing_s=0.2)
        if gate(post.place).state is PROBING:
            (claim,) = running
            return claim
    raise AssertionError("no probe went out")


# -- holding -----------------------------------------------------------------------------


def test_two_workers_calls_are_judged_as_one(anywhere):
    """Three failures each are too few for either, and enough for both."""
    first, second = anywhere(), anywhere()
    settings = replace(QUICK, window=replace(QUICK.window, calls_min=6))
    posts = [
        Post(place, upstreams=[upstream(gate=settings)], concurrency=3) for place in (first, second)
    ]
    put(
        first, 6
    )  # none is left: a call in the air that outlasts these failures would speak for the upstream
    for post in posts:
        assert len(post.turn()) == 3
    posts[0].end_all(DOWN)
    posts[0].turn(passing_s=0.1)
    assert gate(first).state is FLOWING  # the twin: half of the calls say nothing yet
    posts[0].running.clear()
    posts[0].turn(passing_s=1.0)  # tells the others
    posts[1].turn()
    posts[1].end_all(DOWN)
    posts[1].turn(passing_s=0.1)
    held = gate(first)
    assert (held.state, held.cause) == (HELD, HoldCause.TRIP)
    assert held.reason == "6 of the last 6 calls that count failed"
    assert posts[1].moves() == ["trip"]


def test_while_held_nothing_is_claimed_and_no_attempt_is_spent(either):
    post = Post(either, concurrency=4)
    ids = put(either, 20)
    post.trip()
    called = post.started
    for _ in range(4):
        assert post.turn(passing_s=0.2) == []
    assert post.started == called
    assert post.store.waiting(ClaimOrder(post.worker, 1, tuple(either.lanes.values()))) is None
    jobs = jobs_of(either, ids)
    assert {job.state for job in jobs} == {State.QUEUED}
    assert sum(job.counters.starts for job in jobs) == called
    either.clean()


def test_a_failure_that_settles_while_held_is_a_wait(either):
    post = Post(either, concurrency=8)
    ids = put(either, 8)
    running = post.turn()
    for claim in running[:4]:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD
    for claim in running[4:]:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    jobs = jobs_of(either, ids)
    assert sorted((job.counters.failures, job.counters.waits) for job in jobs) == (
        [(0, 1)] * 5 + [(1, 0)] * 3  # the one that tripped it was already a wait
    )
    either.clean()


def test_what_is_not_the_upstreams_fault_costs_an_attempt_even_while_held(either):
    post = Post(either)
    put(either, 5)
    *down, ours = post.turn()
    for claim in down:
        post.end(claim, DOWN)
    post.turn(passing_s=0.1)
    assert gate(either).state is HELD
    post.end(ours, failed(Kind.INTERNAL))
    post.turn()
    assert counters(either, ours.id).failures == 1


def test_deadlines_are_absolute_so_one_that_passes_while_held_fails_the_job(either):
    """Documented: a held gate stops calls, not clocks."""
    post = Post(either, concurrency=4)
    put(either, 4)
    post.trip()
    late = put(either, 1, deadline_s=30.0)[0]
    kept = put(either, 1)[0]
    either.clock.push(31)
    upkeep(either, post.worker, catalogue=post.catalogue).once()
    job = either.see(late)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.EXPIRED)
    assert job.counters.starts == 0
    assert either.see(kept).state is State.QUEUED
    either.clean()


# -- what may be claimed -----------------------------------------------------------------


def two_upstreams(place) -> tuple[Post, dict[str, int]]:
    """One pipeline behind each of two upstreams, which start slowly, and one behind none."""
    slow = replace(QUICK, pace=replace(QUICK.pace, start_calls=2))
    lines = [
        line_of(place, stage("ask", "other"), pipeline="h"),
        line_of(place, stage("sum", None), pipeline="i"),
    ]
    post = Post(place, lines=lines, upstreams=[upstream(gate=slow), upstream("other", gate=slow)])
    lanes = {
        "vendor": post.line.lane_nos["one"],
        "other": lines[0].lane_nos["ask"],
        "none": lines[1].lane_nos["sum"],
    }
    post.gates.once()
    return post, lanes


def test_an_order_has_a_part_for_each_upstream_with_less_room_than_there_are_slots(either):
    post, lanes = two_upstreams(either)
    order = post.gates.fit_order(ClaimOrder(post.worker, 8, tuple(lanes.values())))
    assert order.lanes == (lanes["none"],)
    assert sorted((part.lanes, part.slots) for part in order.parts) == sorted(
        [((lanes["vendor"],), 2), ((lanes["other"],), 2)]
    )


def test_where_there_is_room_for_all_slots_the_order_stays_as_it_is(either):
    post, lanes = two_upstreams(either)
    order = ClaimOrder(post.worker, 2, tuple(lanes.values()))
    assert post.gates.fit_order(order) == order
    assert post.gates.fit_order(None) is None


def test_upstreams_take_turns_for_the_last_slots(either):
    post, lanes = two_upstreams(either)
    behind = (lanes["vendor"], lanes["other"])
    first = {
        post.gates.fit_order(ClaimOrder(post.worker, 3, behind)).parts[0].lanes for _ in range(4)
    }
    assert first == {(lanes["vendor"],), (lanes["other"],)}


def test_an_order_for_nothing_but_held_lanes_is_none(either):
    post, lanes = two_upstreams(either)
    hold_by_person(either.reader, either.control, VENDOR, Deed("ann", "a pause"))
    post.gates.look()
    assert post.gates.fit_order(ClaimOrder(post.worker, 8, (lanes["vendor"],))) is None
    order = post.gates.fit_order(ClaimOrder(post.worker, 8, tuple(lanes.values())))
    assert [part.lanes for part in order.parts] == [(lanes["other"],)]


def test_a_held_upstream_keeps_nobody_elses_jobs_back(either):
    post, lanes = two_upstreams(either)
    put(either, 20)
    put(either, 4, pipeline="h", lane=lanes["other"], stage="ask")
    hold_by_person(either.reader, either.control, VENDOR, Deed("ann", "a pause"))
    for _ in range(4):
        post.turn(passing_s=0.3)
        post.end_all(FINE)
    assert either.reader.books().succeeded == 4


def test_a_worker_without_upstreams_has_nothing_to_keep(either):
    post = Post(either, stage(upstream=None), upstreams=[])
    put(either, 8)
    assert len(post.turn()) == 8
    assert post.gates.rest_s() == inf
    assert either.reader.gates() == []


def test_the_rest_ends_with_the_hold_or_with_the_next_look(either):
    post = Post(either)
    put(either, 8)
    held = post.trip()
    post.gates.look()
    left_s = (held.held_until - either.clock.now()).total_seconds()
    assert post.gates.rest_s() == pytest.approx(min(left_s, 1.0))
    either.clock.push(left_s - 0.2)
    post.gates.look()
    assert post.gates.rest_s() == pytest.approx(0.2)


# -- probing -----------------------------------------------------------------------------


def test_one_probe_goes_out_however_many_jobs_and_workers_there_are(anywhere):
    posts = [Post(anywhere()), Post(anywhere())]
    put(posts[0].place, 30)
    posts[0].trip()
    for post in posts:
        post.running.clear()
    for _ in range(30):
        for post in posts:
            post.turn(passing_s=0.1)
    assert gate(posts[0].place).state is PROBING
    assert sum(len(post.running) for post in posts) == 1


def test_the_least_tried_job_goes_and_its_failure_is_not_counted(either):
    post = Post(either)
    put(either, 12)
    seen = set[str]()
    claim = probing(post)
    for _ in range(3):
        before = counters(either, claim.id)
        post.end(claim, DOWN)
        post.turn()
        after = counters(either, claim.id)
        assert (after.failures, after.waits) == (before.failures, before.waits)
        assert after.probes == before.probes + 1
        seen.add(claim.id)
        while gate(either).state is not PROBING:
            post.turn(passing_s=0.5)
        (claim,) = post.running.values()
    assert len(seen | {claim.id}) == 4
    assert gate(either).gap == 4


def test_a_probe_that_was_heard_of_late_was_answered_when_it_ended(either):
    post = Post(either)
    put(either, 12)
    claim = probing(post)
    post.clock.push(3.0)
    post.end(claim, FINE, elapsed_s=0.5)
    post.turn()
    row = gate(either)
    assert row.state is FLOWING
    assert (post.clock.now() - row.answered_at).total_seconds() >= 2.5


def test_a_probe_that_says_nothing_is_followed_by_one_with_another_job(either):
    """It counts as a failure of its job, not as a probe; the job is ready again before the next is due."""
    post = Post(either)
    put(either, 12)
    claim = probing(post)
    seen = [claim.id]
    for _ in range(2):
        post.end(claim, failed(Kind.INTERNAL))
        post.turn()
        while gate(either).state is not PROBING:
            post.turn(passing_s=0.5)
        (claim,) = post.running.values()
        seen.append(claim.id)
    assert len({*seen}) == 3


def test_a_probe_that_succeeds_lets_the_gate_flow_and_its_job_is_done(either):
    post = Post(either)
    put(either, 12)
    claim = probing(post)
    post.end(claim, FINE)
    post.turn()
    assert gate(either).state is FLOWING
    assert either.see(claim.id).state is State.SUCCEEDED
    assert post.moves() == ["trip", "flow"]
    assert post.moves(EventName.GATE_PROBED) == ["lease"]


def test_as_many_probes_as_flow_after_says_must_succeed(either):
    post = Post(either, upstreams=[upstream(gate=replace(QUICK, flow_after=3))])
    put(either, 20)
    claim = probing(post)
    for done in range(1, 4):
        post.end(claim, FINE)
        post.turn()
        if done < 3:
            assert gate(either).passes == done
            assert gate(either).state is not FLOWING
            while not post.running:
                post.turn(passing_s=0.06)
            (claim,) = post.running.values()
    assert gate(either).state is FLOWING


def test_after_a_recovery_calls_start_slowly(either):
    slow = replace(QUICK, pace=replace(QUICK.pace, start_calls=1))
    post = Post(either, upstreams=[upstream(gate=slow)])
    put(either, 80)
    for _ in range(8):  # it has been fast before
        post.turn(passing_s=0.1)
        post.end_all(FINE)
    claim = probing(post)
    post.end(claim, FINE)
    counts = []
    for _ in range(3):
        counts.append(len(post.turn(passing_s=0.1)))
        post.end_all(FINE)
    assert counts == [1, 2, 4]


def test_a_probe_whose_lease_ends_does_not_freeze_the_gate(either):
    post = Post(either)
    put(either, 12)
    lost = probing(post)
    post.running.clear()  # nobody will ever hear of it
    assert post.turn(passing_s=30.0) == []
    assert gate(either).state is PROBING
    post.turn(passing_s=31.0)
    assert gate(either).state is HELD
    assert post.moves(EventName.GATE_PROBED) == ["lease", "lose"]
    while not post.running:
        post.turn(passing_s=0.2)
    (second,) = post.running.values()
    generation = gate(either).generation
    post.end(lost, FINE)  # a late word of the lost one
    post.turn()
    assert (gate(either).state, gate(either).generation) == (PROBING, generation)
    post.end(second, FINE)
    post.turn()
    assert gate(either).state is FLOWING


def test_a_dead_workers_probe_is_lost_as_soon_as_its_jobs_are_settled(anywhere):
    dying, other = Post(anywhere()), Post(anywhere())
    put(dying.place, 12)
    other.turn()
    other.end_all(FINE)
    claim = probing(dying)
    dying.place.store.end_worker(dying.worker, KILLED)  # before the other has seen the lease
    upkeep(other.place, other.worker, catalogue=other.catalogue, gates=other.gates).once()
    other.turn(passing_s=1.0)
    other.turn()
    assert gate(other.place).state is HELD
    assert counters(other.place, claim.id).crashes == 1
    while not other.running:
        other.turn(passing_s=0.2)
    assert gate(other.place).state is PROBING


@pytest.mark.parametrize("kind", [Kind.INVALID_REQUEST, Kind.INTERNAL, Kind.RATE_LIMITED])
def test_a_probe_that_says_nothing_about_the_upstream_leaves_the_gate_undecided(either, kind):
    post = Post(either)
    put(either, 12)
    claim = probing(post)
    gap = gate(either).gap
    post.end(claim, failed(kind))
    post.turn()
    assert (gate(either).state, gate(either).gap) == (HELD, gap)
    assert post.moves(EventName.GATE_PROBED) == ["lease", "undecided"]
    post.running.clear()
    while gate(either).state is not PROBING:
        post.turn(passing_s=0.2)


def test_a_pause_that_a_probe_is_asked_for_is_kept(either):
    """A 503 with Retry-After: the next probe does not go before that."""
    post = Post(either, stage(policy=STANDARD))
    put(either, 12)
    claim = probing(post)
    post.end(claim, failed(Kind.OVERLOADED, wait_s=50.0))
    post.turn()
    post.running.clear()
    for _ in range(49):
        assert post.turn(passing_s=1.0) == []
    while not post.running:
        post.turn(passing_s=0.5)
    assert gate(either).state is PROBING
