"""Slices of stated limits: two workers together never go above them, and neither keeps the other out for long."""

import pytest

from perdure.engine.gates import limit_shares
from perdure.engine.gates.limit_shares import NOBODY, slices_in
from perdure.model.gates import Slices
from perdure.model.outcomes import Death
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.limit_slices import LEASE_S, take_slice
from tests.engine.gating import FINE, Post, put, stage, upstream

PER_S = UpstreamLimits(calls_per_s=5.0)
AT_ONCE = UpstreamLimits(concurrency=6)


def limited(limits: UpstreamLimits, **more):
    return [upstream(limits=limits, **more)]


def shares(place) -> dict[int, float]:
    """What each worker has of the rates."""
    found = place.store.look_at_gates(("vendor",), worker=0, samples={}).slices
    return {
        no: part.share
        for one in found
        for no, part in slices_in(one.slices_json).items()
        if no != NOBODY
    }


def calls(place) -> dict[int, int]:
    """How many calls each worker may have out."""
    (found,) = place.store.look_at_gates(("vendor",), worker=0, samples={}).slices
    parts = slices_in(found.slices_json)
    return {no: part.calls for no, part in parts.items() if no != NOBODY}


def started_in(posts, seconds: float, *, step_s: float = 0.1, tokens: int | None = None) -> list:
    """Let the workers work; when, on the clock, each call began. Calls take one step."""
    starts = []
    for _ in range(round(seconds / step_s)):
        for post in posts:
            before = post.started
            post.turn()
            starts += [post.clock.monotonic()] * (post.started - before)
        posts[0].clock.push(step_s)
        for post in posts:
            post.end_all(FINE, tokens=tokens, elapsed_s=step_s)
    return starts


def most_within(starts: list[float], window_s: float) -> int:
    return max(sum(1 for other in starts if one <= other < one + window_s) for one in starts)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_together_keep_to_the_rate_and_use_it(anywhere, workers):
    posts = [Post(anywhere(), upstreams=limited(PER_S)) for _ in range(workers)]
    put(posts[0].place, 300)
    started_in(posts, 12.0)  # until the slices have settled
    starts = started_in(posts, 10.0)
    assert 43 <= len(starts) <= 55
    assert most_within(starts, 5.0) <= 25 + 5  # the rate, and a second of it saved up


def test_workers_that_do_not_look_at_each_others_slices_would_be_caught(anywhere, monkeypatch):
    def greedy(slices, me, wish, **more):
        return {**slices, **take_slice({}, me, wish, **more)}

    monkeypatch.setattr(limit_shares, "take_slice", greedy)
    posts = [Post(anywhere(), upstreams=limited(PER_S)) for _ in range(2)]
    put(posts[0].place, 300)
    started_in(posts, 6.0)
    assert len(started_in(posts, 10.0)) > 55


def test_both_workers_get_their_half(anywhere):
    posts = [Post(anywhere(), upstreams=limited(PER_S)) for _ in range(2)]
    put(posts[0].place, 300)
    started_in(posts, 15.0)
    assert shares(posts[0].place) == {post.worker: 0.5 for post in posts}


def test_in_flight_calls_are_never_more_than_the_limit_even_when_a_worker_joins(anywhere):
    first = Post(anywhere(), upstreams=limited(AT_ONCE))
    put(first.place, 200)
    for _ in range(12):
        first.turn(passing_s=0.5)
    assert len(first.running) == 6  # and they take long
    second = Post(anywhere(), upstreams=limited(AT_ONCE))
    for _ in range(30):
        for post in (first, second):
            post.turn(passing_s=0.5)
            assert len(first.running) + len(second.running) <= 6
    assert second.running == {}
    for _ in range(60):  # now they end, one by one
        for post in (first, second):
            for claim in list(post.running.values())[:1]:
                post.end(claim, FINE)
            post.turn(passing_s=0.25)
            assert len(first.running) + len(second.running) <= 6
    assert (len(first.running), len(second.running)) == (3, 3)


def test_a_worker_that_never_pauses_gives_a_newcomer_its_part_as_its_calls_end(anywhere):
    """What it has in flight it keeps; but it starts no more than its part, or it would have as many for ever."""
    first = Post(anywhere(), upstreams=limited(AT_ONCE))
    put(first.place, 300)
    for _ in range(12):
        first.turn(passing_s=0.5)
    second = Post(anywhere(), upstreams=limited(AT_ONCE))
    for _ in range(12):
        for post in (first, second):
            post.turn(passing_s=0.6)  # limits are parted while all of its calls are in flight
            post.end_all(FINE)
            post.turn()
            assert len(first.running) + len(second.running) <= 6
    assert (len(first.running), len(second.running)) == (3, 3)
    assert calls(first.place) == {first.worker: 3, second.worker: 3}


def test_a_dead_workers_slice_is_free_when_its_lease_is_over(anywhere):
    dying, left = (Post(anywhere(), upstreams=limited(PER_S)) for _ in range(2))
    put(dying.place, 300)
    started_in([dying, left], 12.0)
    assert shares(left.place)[left.worker] == 0.5
    started_in([left], LEASE_S + 7.0)
    assert shares(left.place) == {left.worker: 1.0}
    assert len(started_in([left], 10.0)) >= 45


def test_a_worker_that_is_known_to_be_dead_has_no_slice_any_more(anywhere):
    """Its jobs are given to others, and one of these needs its part of the limit for them."""
    dying, left = (Post(anywhere(), upstreams=limited(AT_ONCE)) for _ in range(2))
    put(dying.place, 200)
    for _ in range(8):
        dying.turn(passing_s=0.5)
    left.turn(passing_s=0.5)
    assert (len(dying.running), len(left.running)) == (6, 0)
    dying.store.end_worker(dying.worker, Death("exited", signal="SIGKILL"))
    for _ in range(3):  # looks, a second apart
        left.turn(passing_s=1.0)
    assert len(left.running) == 6
    assert calls(left.place) == {left.worker: 6}


def test_every_survivor_gets_its_part_of_what_the_dead_had_whoever_noticed_it(anywhere):
    dying, first, second = (Post(anywhere(), upstreams=limited(AT_ONCE)) for _ in range(3))
    put(dying.place, 300)
    posts = [dying, first, second]
    for _ in range(30):
        for post in posts:
            post.turn(passing_s=0.2)
            post.end_all(FINE)
    assert calls(first.place) == dict.fromkeys([one.worker for one in posts], 2)
    first.store.end_worker(dying.worker, Death("gone"))
    for _ in range(10):
        for post in (first, second):
            post.turn(passing_s=0.2)
            post.end_all(FINE)
    assert calls(first.place) == {first.worker: 3, second.worker: 3}


def test_a_dead_worker_that_does_not_know_it_takes_nothing_from_the_living(anywhere):
    dead, left = (Post(anywhere(), upstreams=limited(AT_ONCE)) for _ in range(2))
    put(dead.place, 200)
    for post in (dead, left):
        post.turn(passing_s=0.5)
    left.store.end_worker(dead.worker, Death("silent"))
    for _ in range(12):
        dead.gates.once()
        left.turn(passing_s=1.0)
        left.end_all(FINE)
    assert calls(left.place)[left.worker] == 6


def test_a_worker_that_leaves_gives_its_slice_back_at_once(anywhere):
    leaving, left = (Post(anywhere(), upstreams=limited(PER_S)) for _ in range(2))
    put(leaving.place, 300)
    started_in([leaving, left], 12.0)
    leaving.turn()
    leaving.end_all(FINE)
    leaving.pump.drain()
    leaving.turn()
    leaving.gates.once()
    leaving.gates.leave()
    assert leaving.worker not in shares(left.place)


def test_a_worker_without_work_leaves_all_to_the_other(anywhere):
    busy, idle = (Post(anywhere(), upstreams=limited(PER_S)) for _ in range(2))
    idle.turn()
    put(busy.place, 300)
    started_in([busy], 12.0)
    assert shares(busy.place)[busy.worker] == 1.0


def test_tokens_are_estimated_before_a_call_and_corrected_after_it(either):
    """1,000 tokens a second; calls take 500, which nobody knew before the first."""
    limits = UpstreamLimits(tokens_per_s=1_000.0)
    post = Post(either, upstreams=limited(limits, tokens_per_call=50))
    put(either, 300)
    started_in([post], 10.0, tokens=500)
    starts = started_in([post], 20.0, tokens=500)
    assert 34 <= len(starts) <= 44


def test_what_a_job_says_of_its_tokens_beats_the_mean(either):
    limits = UpstreamLimits(tokens_per_s=100.0)
    post = Post(either, upstreams=limited(limits, tokens_per_call=10))
    put(either, 1, tokens=1_000)
    put(either, 20, tokens=10)
    starts = started_in([post], 9.0)
    assert len(starts) <= 10  # the large one was let in, and has to be paid off first


def test_a_slice_that_somebody_took_first_is_read_again_and_nothing_breaks(anywhere):
    post = Post(anywhere(), upstreams=limited(PER_S))
    put(post.place, 50)
    other = anywhere()
    post.gates.once()
    real, refused = post.store.change_slices, []

    def beaten(slices: Slices) -> bool:
        assert other.store.change_slices(Slices("vendor", slices.generation, "{}"))
        post.store.change_slices = real
        refused.append(slices)
        return real(slices)

    post.store.change_slices = beaten
    post.turn(passing_s=5.1)
    assert len(refused) == 1
    post.turn(passing_s=0.1)
    post.turn(passing_s=0.5)
    assert post.running
    assert shares(other) == {post.worker: 1.0}


def test_slices_of_another_version_are_written_anew(either):
    assert either.store.change_slices(Slices("vendor", 0, '{"a": 1}'))
    post = Post(either, upstreams=limited(PER_S))
    put(either, 5)
    post.turn()
    assert shares(either) == {post.worker: 1.0}


def test_a_job_does_not_carry_on_behind_an_upstream_that_has_no_room(either):
    post = Post(
        either,
        stage("one", None),
        stage("two"),
        concurrency=4,
        upstreams=limited(UpstreamLimits(concurrency=2)),
    )
    put(either, 8)
    post.turn()
    assert {claim.stage for claim in post.running.values()} == {"one"}
    post.turn(passing_s=1.1)
    post.end_all(FINE)
    for _ in range(10):
        post.turn(passing_s=0.3)
        behind = [claim for claim in post.running.values() if claim.stage == "two"]
        assert len(behind) <= 2
        for claim in post.running.values():
            if claim.stage == "one":
                post.end(claim, FINE)
                break
    assert len(behind) == 2
    assert post.gates.may_carry_on("vendor") is False
    assert post.gates.may_carry_on(None) is True
    either.clean()


def test_a_worker_without_a_free_slot_does_not_keep_a_call_that_another_could_start(anywhere):
    once = limited(UpstreamLimits(concurrency=1))
    full = Post(anywhere(), stage(), stage("free", upstream=None), upstreams=once, concurrency=1)
    idle = Post(anywhere(), stage(), stage("free", upstream=None), upstreams=once)
    full.place.put(lane=full.place.lanes["free"], stage="free")
    assert len(full.turn()) == 1  # its only slot, for as long as the test lasts
    put(idle.place, 100)
    starts = []
    for _ in range(40):
        full.turn()
        starts += started_in([idle], 1.0)
    assert len(starts) == 2 * 100  # both stages of all
    assert shares(idle.place).get(full.worker, 0.0) == 0.0


def test_an_upstream_of_a_low_rate_is_called_at_once_after_a_long_idle_time(anywhere):
    post = Post(anywhere(), upstreams=limited(UpstreamLimits(calls_per_s=4 / 60)))
    for _ in range(30):
        post.turn(passing_s=1.0)
    put(post.place, 3)
    assert len(started_in([post], 2.0)) == 1
    assert len(started_in([post], 12.0)) == 0
    assert len(started_in([post], 4.0)) == 1


def test_a_worker_that_begins_anew_does_not_wait_for_what_was_saved_before(anywhere):
    slow = limited(UpstreamLimits(calls_per_s=4 / 60))
    first = Post(anywhere(), upstreams=slow)
    put(first.place, 9)
    started_in([first], 3.0)
    assert first.started == 1
    for _ in range(3):  # restarted every 20 s, when 15 s are what a call takes
        post = Post(anywhere(), upstreams=slow)
        first.clock.push(20.0)
        started_in([post], 2.0)
        assert post.started == 1


def test_an_idle_worker_does_not_write_its_slices_again_and_again(anywhere):
    post = Post(anywhere(), upstreams=limited(PER_S))
    put(post.place, 1)
    started_in([post], 10.0)
    written = []
    real = post.store.change_slices
    post.store.change_slices = lambda slices: written.append(slices) or real(slices)
    for _ in range(60):
        post.turn(passing_s=1.0)
    assert len(written) <= 12
