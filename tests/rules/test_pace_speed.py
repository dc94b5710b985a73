"""What a pace says of its speed, what a hold leaves of it, and that each end of a call comes to its own rule."""

from dataclasses import replace

import pytest

from perdure.model.kinds import Kind
from perdure.rules.pace import (
    DEAR_S,
    STILL_S_MIN,
    Pace,
    answered,
    ended,
    in_force,
    opens_in_s,
    refused,
    resumed,
    rises,
    started,
    strained,
)
from perdure.rules.pace_settings import PaceSettings
from perdure.rules.room import Room
from perdure.rules.trouble import Trouble
from tests.rules.gate_kit import START, at, said

STANDARD = PaceSettings()


def running(**changes):
    """Ten calls a second, as measured; the pace fell at the start and may rise at once."""
    given_by_default = {
        "at": START,
        "allowance": 1.0,
        "rate_per_s": 10.0,
        "admitted": 100.0,
        "watched_s": 10.0,
        "refused_per_s": 10.0,
        "limit": Trouble(fell_at=START, still_until=START),
    }
    return Pace(**(given_by_default | changes))


# The rate in force.


def test_the_rate_in_force_is_that_of_the_pace_and_none_in_slow_start():
    assert in_force(running(), STANDARD, START) == 10.0
    assert in_force(started(STANDARD, START), STANDARD, START) is None


def test_the_rate_in_force_has_climbed_since_it_was_last_looked_at():
    assert in_force(running(in_flight=1, refused_per_s=20.0), STANDARD, at(1)) > 11.0


def test_room_that_must_last_is_the_rate_in_force_until_its_reset():
    pace = running(room=Room(20, at(10)))
    assert in_force(pace, STANDARD, START) == 2.0
    assert in_force(pace, STANDARD, at(10)) == 10.0


def test_a_slow_rate_still_says_when_the_next_call_may_start():
    assert opens_in_s(running(rate_per_s=0.5, tokens=0.0), STANDARD, START) == 2.0


# When it rises, and how fast.


def test_a_pace_that_starts_slowly_or_never_fell_has_no_rate_that_rises():
    assert rises(started(STANDARD, START), STANDARD, START) is None
    assert rises(running(rate_per_s=None), STANDARD, START) is None
    assert rises(running(limit=Trouble()), STANDARD, START) is None


@pytest.mark.parametrize(
    ("rate_per_s", "share_per_s"),
    [(10.0, 0.25), (5.0, 0.75), (19.0, 0.012), (20.0, 0.012), (30.0, 0.012)],
)
def test_well_below_what_was_refused_it_rises_soon_and_from_there_on_slowly(
    rate_per_s, share_per_s
):
    pace = running(rate_per_s=rate_per_s, refused_per_s=20.0)
    assert rises(pace, STANDARD, at(40)) == (at(40), pytest.approx(share_per_s))


def test_it_rises_when_it_no_longer_stands_still_and_faster_the_longer_that_is_after_the_fall():
    pace = running(limit=Trouble(fell_at=START, still_until=at(60)))
    assert rises(pace, STANDARD, at(40)) == (at(60), pytest.approx(0.016))
    assert rises(pace, STANDARD, at(80)) == (at(80), pytest.approx(0.02))
    unbounded = running(limit=Trouble(fell_at=START))
    assert rises(unbounded, STANDARD, at(40)) == (at(40), pytest.approx(0.012))


def test_a_fall_that_a_wrong_clock_puts_into_the_future_does_not_make_it_sink():
    pace = running(limit=Trouble(fell_at=at(100), still_until=START))
    assert rises(pace, STANDARD, START) == (START, pytest.approx(0.004))


# After a hold.


def starting(**changes):
    """Slow start with five admitted calls a second, and a debt."""
    given_by_default = {"rate_per_s": None, "admitted": 50.0, "refused_per_s": 7.0, "tokens": -3.0}
    return running(**(given_by_default | changes))


def test_after_a_dear_hold_the_pace_goes_on_at_what_was_measured_and_stands_still_for_a_while():
    pace = resumed(starting(), STANDARD, held_s=30.0, now=at(60))
    assert (pace.rate_per_s, pace.refused_per_s, pace.tokens) == (5.0, 0.0, 1.0)
    assert (pace.limit.fell_at, pace.limit.still_until) == (at(60), at(60 + STILL_S_MIN))


@pytest.mark.parametrize(("held_s", "find_s", "expected"), [(30.0, 4.0, 30.0), (5.0, 9.0, 9.0)])
def test_the_dearer_the_hold_the_slower_the_way_back(held_s, find_s, expected):
    settings = PaceSettings(find_s=find_s)
    assert resumed(starting(), settings, held_s=held_s, now=at(60)).find_s == expected


def test_a_hold_is_dear_and_a_rate_measured_from_their_bounds_on():
    assert resumed(starting(), STANDARD, held_s=DEAR_S, now=at(60)).rate_per_s == 5.0
    assert resumed(starting(), STANDARD, held_s=DEAR_S - 0.1, now=at(60)).rate_per_s is None
    least = starting(admitted=0.1)
    assert resumed(least, STANDARD, held_s=30.0, now=at(60)).rate_per_s == 0.01
    less = starting(admitted=0.09)
    assert resumed(less, STANDARD, held_s=30.0, now=at(60)).rate_per_s is None


# Each end of a call.

CALL = {"sent_at": at(0.5), "now": at(1)}
BUSY = running(in_flight=5, rests=2, strain=Trouble(0.6, 0.1, at(0), at(9)))


def test_an_answer_hands_on_the_room_that_it_tells_of():
    room = Room(3, at(30), 100)
    found = ended(BUSY, STANDARD, said(None), **CALL, room=room)
    assert found == answered(BUSY, STANDARD, **CALL, room=room)
    assert found.room == room


@pytest.mark.parametrize("told", [{}, {"wait_s": 7.0}, {"isolated": True}])
def test_a_refusal_hands_on_the_pause_and_whether_it_is_isolated(told):
    found = ended(BUSY, STANDARD, said(Kind.RATE_LIMITED), **CALL, **told)
    assert found == refused(BUSY, STANDARD, **CALL, **told)


def test_the_words_of_a_refusal_make_a_difference():
    plain, told, alone = (
        ended(BUSY, STANDARD, said(Kind.RATE_LIMITED), **CALL, **more)
        for more in ({}, {"wait_s": 7.0}, {"isolated": True})
    )
    assert told.limit.still_until == at(141)
    assert (plain.rests, told.rests, alone.rests) == (3, 2, 2)


def test_a_call_that_was_taken_on_and_failed_counts_as_admitted_and_earns_no_other():
    found = ended(BUSY, STANDARD, said(Kind.UPSTREAM_ERROR), **CALL)
    assert found == answered(BUSY, STANDARD, **CALL, well=False)
    assert found.allowance == BUSY.allowance
    assert found.rests == 0


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.OVERLOADED])
def test_a_strain_is_told_when_its_call_was_sent(kind):
    found = ended(BUSY, STANDARD, said(kind), **CALL)
    assert found == strained(BUSY, STANDARD, **CALL)
    before = replace(BUSY, strain=Trouble(0.6, 0.1, at(0.7), at(9)))
    assert ended(before, STANDARD, said(kind), **CALL).knee is None
    assert found.knee == 2.5


def test_strained_calls_leave_half_of_them_in_flight_and_never_fewer_than_a_start_has():
    many = replace(BUSY, in_flight=41, allowance=60.0)
    fell = strained(many, STANDARD, **CALL)
    assert (fell.in_flight, fell.allowance, fell.knee) == (40, 20.5, 20.5)
    assert (fell.strain.fell_at, fell.strain.still_until) == (at(1), at(1))
    assert fell.strain.share == pytest.approx(0.62)
    few = strained(BUSY, PaceSettings(start_calls=4), **CALL)
    assert (few.allowance, few.knee) == (4.0, 4.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"strain": Trouble(0.4, 0.1, at(0), at(9))},  # too few of them
        {"strain": Trouble(0.6, 0.1, at(0.7), at(9))},  # it fell after the call was sent
        {"admitted": 0.05},  # it hardly answers at all
    ],
)
def test_a_strain_that_is_rare_or_no_news_or_an_outage_changes_no_speed(changes):
    pace = replace(BUSY, allowance=60.0, **changes)
    found = strained(pace, STANDARD, **CALL)
    assert (found.allowance, found.knee) == (60.0, None)
    assert found.strain.fell_at == pace.strain.fell_at
    assert found.strain.share > pace.strain.share
