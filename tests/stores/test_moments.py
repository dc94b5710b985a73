"""Moments are whole microseconds: exact there and back, and a wait is never shortened."""

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

from hypothesis import given, strategies as st

from perdure.stores.moments import from_us, maybe_us, seconds_us, to_us

moments = st.datetimes(timezones=st.just(UTC))


@given(moments)
def test_a_moment_comes_back_as_it_went(moment):
    assert from_us(to_us(moment)) == moment


@given(moments, moments)
def test_moments_keep_their_order(one, other):
    assert (one < other) == (to_us(one) < to_us(other))


@given(st.floats(0, 1e9))
def test_a_length_is_never_shortened_and_at_most_a_microsecond_too_long(seconds):
    us = Fraction(seconds_us(seconds))
    exact = Fraction(seconds * 1_000_000)
    assert exact <= us < exact + 1


def test_a_zone_does_not_change_the_moment():
    here = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert from_us(to_us(here)) == here
    assert from_us(to_us(here)).tzinfo is UTC


def test_no_moment_is_none():
    assert maybe_us(None) is None
    assert maybe_us(0) == datetime(1970, 1, 1, tzinfo=UTC)
