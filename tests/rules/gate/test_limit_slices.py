"""Slices: never more than the whole, fair between those who want, and free again when a lease is over."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings, strategies as st

from perdure.rules.gate.limit_slices import (
    LEASE_S,
    Slice,
    Wish,
    fair_shares,
    fair_units,
    take_slice,
    usable,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MUCH = Wish(1.0, 1_000)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_the_first_gets_all_of_it():
    assert take_slice({}, 1, MUCH, concurrency=10, now=NOW)[1] == Slice(
        after(LEASE_S), 1.0, 1_000, 1.0, 10
    )


def test_a_newcomer_gets_nothing_until_the_others_give_back_and_then_its_half():
    slices = take_slice({}, 1, MUCH, concurrency=10, now=NOW)
    slices = take_slice(slices, 2, MUCH, concurrency=10, now=after(1))
    assert (slices[2].share, slices[2].calls) == (0.0, 0)
    slices = take_slice(slices, 1, MUCH, concurrency=10, now=after(2))
    assert (slices[1].share, slices[1].calls) == (0.5, 5)
    slices = take_slice(slices, 2, MUCH, concurrency=10, now=after(3))
    assert (slices[2].share, slices[2].calls) == (0.5, 5)


def test_what_a_dead_worker_had_is_free_when_its_lease_is_over():
    slices = take_slice({}, 1, MUCH, concurrency=10, now=NOW)
    before = take_slice(slices, 2, MUCH, concurrency=10, now=after(LEASE_S - 0.1))
    assert before[2].share == 0.0
    assert take_slice(slices, 2, MUCH, concurrency=10, now=after(LEASE_S))[2].share == 1.0


def test_calls_that_are_out_are_given_back_when_they_have_ended():
    slices = take_slice({}, 1, MUCH, concurrency=10, now=NOW)
    slices = take_slice(slices, 2, MUCH, concurrency=10, now=after(1))
    slices = take_slice(slices, 1, MUCH, concurrency=10, now=after(2), in_flight=8)
    assert slices[1].calls == 8
    assert take_slice(slices, 2, MUCH, concurrency=10, now=after(3))[2].calls == 2
    slices = take_slice(slices, 1, MUCH, concurrency=10, now=after(4), in_flight=3)
    assert slices[1].calls == 5


def test_who_has_more_calls_out_than_its_part_starts_none_until_they_are_fewer():
    slices = take_slice({}, 1, MUCH, concurrency=10, now=NOW)
    assert usable(slices, 1, concurrency=10, now=NOW) == 10
    slices = take_slice(slices, 2, MUCH, concurrency=10, now=after(1))
    slices = take_slice(slices, 1, MUCH, concurrency=10, now=after(2), in_flight=8)
    assert (slices[1].calls, usable(slices, 1, concurrency=10, now=after(2))) == (8, 5)
    slices = take_slice(slices, 2, MUCH, concurrency=10, now=after(3))
    assert usable(slices, 2, concurrency=10, now=after(3)) == 2
    assert usable(slices, 3, concurrency=10, now=after(3)) == 0
    assert usable(slices, 1, concurrency=10, now=after(2 + LEASE_S)) == 0
    assert usable(slices, 2, concurrency=None, now=after(3)) == 0


def test_who_wants_nothing_leaves_all_to_the_others():
    slices = take_slice({}, 1, Wish(0.0, 0), concurrency=10, now=NOW)
    assert take_slice(slices, 2, MUCH, concurrency=10, now=NOW)[2].calls == 10


def test_one_call_at_a_time_goes_to_one_worker_and_not_to_half_of_each():
    wanted = {1: 5, 2: 5, 3: 5}
    assert sorted(fair_units(1, wanted).values()) == [0, 0, 1]


wants = st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1)


@given(wants)
def test_fair_parts_are_max_min(wanted):
    parts = fair_shares(wanted)
    assert sum(parts.values()) <= 1.0 + 1e-9
    for worker, part in parts.items():
        assert part <= wanted[worker] + 1e-12
        if part < wanted[worker] - 1e-9:  # who gets less than it wants gets as much as anybody
            assert part >= max(parts.values()) - 1e-9
            assert sum(parts.values()) >= 1.0 - 1e-9


@given(st.integers(0, 50), st.dictionaries(st.integers(1, 9), st.integers(0, 60), min_size=1))
def test_fair_units_lose_none(total, wanted):
    parts = fair_units(total, wanted)
    assert sum(parts.values()) == min(total, sum(wanted.values()))
    assert all(0 <= part <= wanted[worker] for worker, part in parts.items())


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.floats(0, 1), st.integers(0, 20), st.floats(0, 20)),
        max_size=30,
    )
)
def test_at_no_moment_do_the_slices_come_to_more_than_the_whole(takings):
    slices, moment = {}, 0.0
    for worker, share, calls, passed_s in takings:
        moment += passed_s
        slices = take_slice(slices, worker, Wish(share, calls), concurrency=12, now=after(moment))
        running = [one for one in slices.values() if one.until > after(moment)]
        assert sum(one.share for one in running) <= 1.0 + 1e-9
        assert sum(one.calls for one in running) <= 12
