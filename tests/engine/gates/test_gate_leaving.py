"""A worker that leaves: its gates keep it no longer than its jobs do."""

import pytest

from perdure.model.errors import StoreUnavailable
from perdure.model.kinds import Kind
from perdure.rules.gate.limit_allowance import UpstreamLimits
from tests.engine.gating import FINE, Post, failed, put, stage, upstream


def test_a_worker_that_drains_with_nothing_in_hand_asks_nothing_of_a_store_that_is_away(either):
    post = Post(either)
    post.turn()
    post.clock.push(5.0)
    post.store.away = True
    with pytest.raises(StoreUnavailable):  # twin: one that works on has to know
        post.pump.once()
    post.pump.drain()
    assert post.pump.once() is None
    assert post.pump.empty


def test_slices_that_cannot_be_given_back_keep_nobody(either):
    post = Post(either, upstreams=[upstream(limits=UpstreamLimits(calls_per_s=5.0))])
    put(either, 1)
    for _ in range(8):
        post.turn(passing_s=0.5)
        post.end_all(FINE)
    assert post.started == 1
    post.store.away = True
    post.gates.leave()


def test_only_a_stage_that_succeeded_has_a_call_set_aside_for_the_next(either):
    post = Post(either, stage("one", upstream=None), stage("two"))
    put(either, 2)
    post.turn()
    post.end_all(failed(Kind.NETWORK))
    post.pump._gather()
    (passage,) = post.gates._traffic.values()
    assert passage.promised == 0
    while not post.running:
        post.turn(passing_s=1.0)
    post.end_all(FINE)
    post.pump._gather()
    assert passage.promised == 2  # one for each
