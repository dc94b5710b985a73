"""A worker's copy of a gate is up to a second old: what it settles is judged by the gate as it is."""

import pytest

from perdure.model.errors import StoreUnavailable
from perdure.model.gates import GateState
from tests.engine.gating import DOWN, Post, counters, gate, put


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
