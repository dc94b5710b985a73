"""Allowances: what a slice of the limits saves up, what an estimate takes, and what its end gives back."""

from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from perdure.rules.gate.limit_allowance import (
    Allowance,
    Shares,
    UpstreamLimits,
    calls_admitted,
    correct_estimate,
    forward,
    opens_in_s,
    take_call,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEN = Shares(calls_per_s=10.0)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_without_limits_everything_may_start():
    assert not UpstreamLimits().any
    assert Shares.of(UpstreamLimits(), 0.0, 0) == Shares()
    assert calls_admitted(Allowance(NOW), Shares(), in_flight=10**6) == inf
    assert opens_in_s(Allowance(NOW), Shares()) == 0.0


def test_a_rate_admits_what_it_has_saved_and_no_more_than_a_second_of_it():
    saved = forward(Allowance(NOW), TEN, after(0.25))
    assert calls_admitted(saved, TEN, in_flight=0) == 2
    assert calls_admitted(forward(saved, TEN, after(60)), TEN, in_flight=0) == 10


def test_over_a_long_time_not_more_than_the_rate_starts():
    saved, calls = Allowance(NOW), 0
    for tick in range(1, 1_001):
        saved = forward(saved, TEN, after(tick / 100))
        for _ in range(int(calls_admitted(saved, TEN, in_flight=0))):
            saved, _ = take_call(saved, None)
            calls += 1
    assert 99 <= calls <= 100


def test_it_says_when_the_next_call_may_start():
    saved = forward(Allowance(NOW), TEN, after(0.05))
    assert opens_in_s(saved, TEN) == pytest.approx(0.05)
    assert opens_in_s(Allowance(NOW), Shares(calls_per_s=0.0)) == inf


def test_concurrency_counts_what_is_in_flight():
    shares = Shares.of(UpstreamLimits(concurrency=50), 0.5, 3)
    assert calls_admitted(Allowance(NOW), shares, in_flight=2) == 1
    assert calls_admitted(Allowance(NOW), shares, in_flight=5) == 0


def test_tokens_are_taken_by_estimate_and_corrected_by_what_was_used():
    shares = Shares(tokens_per_s=1_000.0)
    saved = forward(Allowance(NOW, mean_tokens=500.0), shares, after(1))
    assert calls_admitted(saved, shares, in_flight=0) == 2
    saved, estimate = take_call(saved, None)
    assert estimate == 500.0
    assert calls_admitted(saved, shares, in_flight=1) == 1
    assert (
        correct_estimate(saved, estimate, 900).tokens == 100.0
    )  # it took more: others wait for that
    assert correct_estimate(saved, estimate, 100).tokens == 900.0
    assert correct_estimate(saved, estimate, None) == saved


def test_a_jobs_own_estimate_goes_before_the_mean():
    saved = forward(Allowance(NOW, mean_tokens=10.0), Shares(tokens_per_s=1_000.0), after(1))
    after_it, estimate = take_call(saved, 800)
    assert (estimate, after_it.tokens) == (800.0, 200.0)


def test_a_call_larger_than_a_second_of_tokens_is_waited_for_and_then_starts():
    shares = Shares(tokens_per_s=100.0)
    saved = forward(Allowance(NOW, mean_tokens=500.0), shares, after(1))
    assert calls_admitted(saved, shares, in_flight=0) == 0
    assert opens_in_s(saved, shares) == pytest.approx(4.0)
    assert calls_admitted(forward(saved, shares, after(5)), shares, in_flight=0) == 1


def test_where_no_call_has_told_its_tokens_one_goes_to_find_out():
    shares = Shares(tokens_per_s=1_000.0)
    saved = forward(Allowance(NOW), shares, after(1))
    assert calls_admitted(saved, shares, in_flight=0) == 1
    assert correct_estimate(saved, 0.0, 300).mean_tokens == 300.0


def test_time_that_runs_backwards_saves_nothing():
    saved = forward(Allowance(after(10), calls=1.0), TEN, NOW)
    assert saved == Allowance(after(10), calls=1.0)
