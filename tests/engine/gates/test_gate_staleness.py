"""A worker's copy of a gate is up to a second old: what it settles is judged by the gate as it is."""

from random import Random

import pytest

from perdure.engine.gates.changes import change_of
from perdure.engine.observe import Observers
from perdure.engine.upkeep.overrun_attempts import OverrunAttempts
from perdure.model.errors import StoreUnavailable
from perdure.model.gates import GateState
from perdure.model.jobs import Counters, Overrun
from perdure.model.operations import Deed
from perdure.rules.gate.gate import Gate, GateMove, HoldCause, Step
from tests.engine.gating import DOWN, Post, counters, gate, line_of, put, stage, upstream


def two_with_calls_out(anywhere) -> tuple[Post, Post]:
    """Two workers with four calls each, all sent before anything went wrong."""
    posts = [Post(anywhere(), concurrency=4) for _ in range(2)]
    put(posts[0].place, 8)
    for post in posts:
        assert len(post.turn()) == 4
    return posts[0], posts[1]


def test_a_failure_is_a_wait_when_another_worker_has_tripped_the_gate_since_we_looked(anywhere):
    first, second = two_with_calls_out(anywhere)
    first.end_all(DOWN)
    first.turn(passing_s=0.1)
    assert gate(first.place).state is GateState.HELD
    late = list(second.running.values())
    second.end_all(DOWN)
    second.turn()  # 0.1 s after its last look: sooner than the next one is due
    assert {counters(second.place, claim.id).failures for claim in late} == {0}
    assert {counters(second.place, claim.id).waits for claim in late} == {1}


def test_a_look_that_the_store_does_not_answer_loses_nothing(anywhere):
    first, second = two_with_calls_out(anywhere)
    first.end_all(DOWN)
    first.turn(passing_s=0.1)
    late = list(second.running.values())
    second.end_all(DOWN)
    second.store.away = True
    with pytest.raises(StoreUnavailable):
        second.turn()
    second.store.away = False
    second.turn()
    ended = [counters(second.place, claim.id) for claim in late]
    assert [one.failures for one in ended] == [
        1,
        1,
        1,
        0,
    ]  # as it knew it: the fourth trips its copy
    assert [one.waits for one in ended] == [0, 0, 0, 1]
    second.place.clean()


def test_a_hanging_call_of_another_worker_that_is_ended_while_the_gate_is_held_is_a_wait(anywhere):
    holder, sweeper = Post(anywhere()), Post(anywhere())
    put(holder.place, 30)
    (hanging, *_) = holder.turn()
    sweeper.trip()
    now = sweeper.clock.now()

    def settled(gates) -> Counters:
        chore = OverrunAttempts(
            sweeper.store,
            sweeper.catalogue,
            sweeper.worker,
            margin_s=1.0,
            patience_s=1.0,
            clock=sweeper.clock,
            chance=Random(7),
            observers=Observers(),
            gates=gates,
        )
        return chore.record_of(Overrun(hanging, holder.worker, now)).counters

    held = settled(sweeper.gates)
    assert (held.failures, held.waits) == (0, 1)
    assert settled(None).failures == 1  # twin: who knows no gates counts it


def test_a_credential_and_one_of_its_upstreams_that_wait_for_each_other_both_flow_again(either):
    """Nobody has a job behind the upstream that flows, and the one behind which all wait is held as well."""
    both = [upstream("busy", credential="key"), upstream("idle", credential="key")]
    post = Post(either, stage(upstream="busy"), upstreams=both)
    idle = line_of(either, stage("other", upstream="idle"), pipeline="h")
    post = Post(either, stage(upstream="busy"), upstreams=both, lines=[idle])
    put(either, 5)
    now = either.clock.now()
    for name, parent in (("busy", "key"), ("key", None)):
        held = Gate(
            name,
            GateState.HELD,
            1,
            since_at=now,
            cause=HoldCause.CREDENTIAL,
            reason="billing",
            held_until=now,
            probe_first=True,
            gap=1,
            counts_from=1,
        )
        change = change_of(Step(held, GateMove.HINT, "billing"), parent, now)
        assert either.control.change_gate(change, Deed("test"))
    for _ in range(100):
        post.turn(passing_s=0.25)
        post.end_all()
    assert post.started == 5
    assert {gate(either, name).state for name in ("busy", "idle", "key")} == {GateState.FLOWING}
