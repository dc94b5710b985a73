"""The virtual clock: it moves when it is pushed, and only then, and only forwards."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from perdure.ports import Clock
from perdure.testing import VirtualClock


def test_it_stands_still_until_it_is_pushed():
    clock: Clock = VirtualClock()
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())


def test_wall_and_monotonic_time_move_together():
    clock = VirtualClock()
    before, start_s = clock.now(), clock.monotonic()
    clock.push(1.5)
    clock.push_us(7)
    assert clock.now() - before == timedelta(seconds=1.5, microseconds=7)
    assert clock.monotonic() - start_s == pytest.approx(1.500007)
    assert clock.passed_us == 1_500_007


def test_it_begins_where_it_is_told_and_speaks_utc():
    start = datetime(2031, 5, 6, 12, tzinfo=timezone(timedelta(hours=2)))
    assert VirtualClock(start).now() == start
    assert VirtualClock(start).now().tzinfo is UTC


def test_it_never_goes_back():
    with pytest.raises(ValueError, match="cannot go back"):
        VirtualClock().push(-0.001)


def test_a_start_without_a_time_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        VirtualClock(datetime(2031, 5, 6))  # noqa: DTZ001
