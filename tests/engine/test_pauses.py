"""Pauses grow while nothing moves, and a store that is away is tried for so long and no longer."""

from perdure.engine.pauses import Absence, Pauses


def test_pauses_grow_up_to_a_quarter_of_a_second_and_begin_short_again_when_something_moves():
    pauses = Pauses()
    seen = [pauses.next_s() for _ in range(20)]
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.005, 0.25)
    pauses.begin()
    assert pauses.next_s() == 0.005


def test_a_pause_is_no_longer_than_the_time_that_is_left():
    assert Pauses().next_s(0.001) == 0.001


def test_pauses_may_begin_and_end_elsewhere_and_grow_faster():
    pauses = Pauses(0.1, 1.0, 2.0)
    assert [pauses.next_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_an_absence_is_too_long_after_its_time_and_one_that_has_ended_counts_no_more():
    now = 0.0
    absence = Absence(60.0, lambda: now)
    assert not absence.is_too_long()
    now = 60.0
    assert not absence.is_too_long()
    now = 60.1
    assert absence.is_too_long()
    absence.end()
    assert not absence.is_too_long()
    now = 120.2
    assert absence.is_too_long()
