"""What a pace says of its speed, what a hold leaves of it, and that each end of a call comes to its own rule."""

from math import e, exp

import pytest

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.rules.gate.pace import (
    DEAR_S,
    STILL_S_MIN,
    Pace,
    admits,
    after_answer,
    after_end,
    after_hold,
    after_refusal,
    after_starts,
    after_strain,
    in_force,
    opens_in_s,
    rises,
    slow_start,
)
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.pace_trouble import CALM, Trouble
from perdure.rules.hints.calls_left import Room
from tests.rules.gate.gate_kit import START, at, said

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
    assert in_force(slow_start(STANDARD, START), STANDARD, START) is None


def test_the_rate_in_force_has_climbed_since_it_was_last_looked_at():
    assert in_force(running(in_flight=1, refused_per_s=20.0), STANDARD, at(1)) > 11.0


def test_room_that_must_last_is_the_rate_in_force_until_its_reset():
    pace = running(room=Room(20, at(10)))
    assert in_force(pace, STANDARD, START) == 2.0
    assert in_force(pace, STANDARD, at(10)) == 10.0


def test_a_slow_rate_still_says_when_the_next_call_may_start():
    assert opens_in_s(running(rate_per_s=0.5, tokens=0.0), STANDARD, START) == 2.0


def climbing(**changes):
    """Ten calls a second after twenty were refused; far more was admitted, so nothing bounds the climb."""
    return running(**({"in_flight": 1, "refused_per_s": 20.0, "admitted": 1_000.0} | changes))


def test_it_nears_the_rate_that_was_refused_and_stops_just_below():
    assert in_force(climbing(), STANDARD, at(4)) == pytest.approx(20.0 - 10.0 / e)
    assert in_force(climbing(find_s=8.0), STANDARD, at(8)) == pytest.approx(20.0 - 10.0 / e)
    assert in_force(climbing(), STANDARD, at(13)) == pytest.approx(18.4)
    still = climbing(limit=Trouble(fell_at=START, still_until=at(2)))
    assert in_force(still, STANDARD, at(2)) == 10.0
    assert in_force(still, STANDARD, at(6)) == pytest.approx(20.0 - 10.0 / e)


@pytest.mark.parametrize("rate_per_s", [19.0, 20.0, 21.0])
def test_near_the_rate_that_was_refused_it_climbs_slowly(rate_per_s):
    pace = climbing(rate_per_s=rate_per_s)
    assert in_force(pace, STANDARD, at(4)) == pytest.approx(rate_per_s * (1 + 4 * 0.0034))


def test_well_beyond_it_climbs_faster_unless_refusals_are_many():
    beyond = climbing(rate_per_s=30.0)
    assert in_force(beyond, STANDARD, at(4)) == pytest.approx(30.0 * (1 + 4 / 48))
    many = Trouble(share=0.1, fell_at=START, still_until=START)
    slow = climbing(rate_per_s=30.0, limit=many)
    assert in_force(slow, STANDARD, at(4)) == pytest.approx(30.0 * (1 + 4 * 0.0034))


def test_near_it_climbs_as_if_beyond_where_some_are_refused_at_any_speed():
    for noise, share_per_s in ((0.04, 0.0034), (0.05, 1 / 48)):
        noisy = Trouble(share=0.05, noise=noise, fell_at=START, still_until=START)
        pace = climbing(rate_per_s=20.0, limit=noisy)
        assert in_force(pace, STANDARD, at(4)) == pytest.approx(20.0 * (1 + 4 * share_per_s))


def test_well_beyond_it_climbs_no_more_slowly_than_near_it_however_long_a_pause_was_told():
    beyond = climbing(rate_per_s=30.0, find_s=300.0)
    assert in_force(beyond, STANDARD, at(4)) == pytest.approx(30.0 * (1 + 4 * 0.0034))


# When it rises, and how fast.


def test_a_pace_that_starts_slowly_or_never_fell_has_no_rate_that_rises():
    assert rises(slow_start(STANDARD, START), STANDARD, START) is None
    assert rises(running(rate_per_s=None), STANDARD, START) is None
    assert rises(running(limit=Trouble()), STANDARD, START) is None


@pytest.mark.parametrize(
    ("rate_per_s", "share_per_s"),
    [(10.0, 0.25), (5.0, 0.75), (19.0, 0.007), (20.0, 0.007), (30.0, 1 / 48)],
)
def test_well_below_what_was_refused_and_well_beyond_it_rises_soon_and_between_slowly(
    rate_per_s, share_per_s
):
    pace = running(rate_per_s=rate_per_s, refused_per_s=20.0)
    assert rises(pace, STANDARD, at(40)) == (at(40), pytest.approx(share_per_s))


def test_it_rises_when_it_no_longer_stands_still_and_faster_the_longer_that_is_after_the_fall():
    pace = running(limit=Trouble(fell_at=START, still_until=at(60)))
    assert rises(pace, STANDARD, at(40)) == (at(60), pytest.approx(0.009))
    assert rises(pace, STANDARD, at(80)) == (at(80), pytest.approx(0.011))
    unbounded = running(limit=Trouble(fell_at=START))
    assert rises(unbounded, STANDARD, at(40)) == (at(40), pytest.approx(0.007))


def test_a_fall_that_a_wrong_clock_puts_into_the_future_does_not_make_it_sink():
    pace = running(limit=Trouble(fell_at=at(100), still_until=START))
    assert rises(pace, STANDARD, START) == (START, pytest.approx(0.003))


# The fall.

NOW = {"sent_at": START, "now": START}


def test_a_fall_leads_to_what_was_measured_and_remembers_the_middle_of_both_as_refused():
    fell = after_refusal(running(rate_per_s=20.0), STANDARD, **NOW, wait_s=7.0)
    assert (fell.rate_per_s, fell.refused_per_s, fell.find_s) == (10.0, 15.0, 7.0)
    assert after_refusal(running(), STANDARD, **NOW, wait_s=1.0).find_s == STANDARD.find_s
    assert after_refusal(running(find_s=60.0), STANDARD, **NOW).find_s == STANDARD.find_s


def test_where_nobody_says_until_when_the_rest_doubles():
    fell = after_refusal(running(rests=2), STANDARD, **NOW)
    assert (fell.rests, fell.tokens, fell.limit.still_until) == (3, -20.0, at(40))


@pytest.mark.parametrize(
    ("share", "isolated", "goes_on"),
    [(0.0, False, False), (0.1, False, False), (0.2, True, True), (0.25, True, False)],
)
def test_a_slow_start_goes_on_while_few_are_refused(share, isolated, goes_on):
    pace = starting(limit=Trouble(share=share), refused_per_s=9.0)
    found = after_refusal(pace, STANDARD, **NOW, isolated=isolated)
    assert found.rate_per_s == (None if goes_on else 5.0)
    assert found.refused_per_s == pytest.approx(9.0 if goes_on else 1.45 * 5.0)
    assert found.allowance == pace.allowance


@pytest.mark.parametrize(
    ("admitted", "share", "isolated", "halved"),
    [
        (19.0, 0.25, True, True),  # many in a start, and hardly any before: that may be chance
        (20.0, 0.25, True, False),
        (19.0, 0.2, False, False),
        (9.0, 0.1, False, True),  # what was measured of so few is the start's own speed
        (9.0, 0.25, False, False),
    ],
)
def test_a_start_that_has_measured_little_goes_on_with_half_of_its_calls(
    admitted, share, isolated, halved
):
    pace = starting(limit=Trouble(share=share), admitted=admitted, allowance=16.0)
    found = after_refusal(pace, STANDARD, **NOW, isolated=isolated)
    assert (found.rate_per_s, found.allowance) == (
        (None, 8.0) if halved else (pace.measured_per_s, 16.0)
    )


@pytest.mark.parametrize(
    ("limit", "falls"),
    [
        (Trouble(0.9, 0.0, START, START), True),
        (Trouble(0.9, 0.0, START, at(9)), False),  # it stands still already
        (Trouble(0.1, 0.2, START, START), False),  # as many as at a slower pace
    ],
)
def test_an_isolated_refusal_makes_no_fall_where_that_would_be_of_no_use(limit, falls):
    pace = running(rate_per_s=20.0, limit=limit)
    assert after_refusal(pace, STANDARD, **NOW, isolated=True).rate_per_s == (
        10.0 if falls else 20.0
    )
    assert after_refusal(pace, STANDARD, **NOW).rate_per_s == 10.0


def test_with_less_than_the_least_rate_measured_it_begins_again():
    least = after_refusal(running(admitted=0.1), STANDARD, **NOW)
    assert least.rate_per_s == 0.01
    less = after_refusal(running(admitted=0.09, allowance=9.0), STANDARD, **NOW)
    assert (less.rate_per_s, less.allowance) == (None, 1)
    assert (less.limit.fell_at, less.limit.still_until) == (START, START)


# After a hold.


def starting(**changes):
    """Slow start with five admitted calls a second, and a debt."""
    given_by_default = {"rate_per_s": None, "admitted": 50.0, "refused_per_s": 7.0, "tokens": -3.0}
    return running(**(given_by_default | changes))


def test_after_a_dear_hold_the_pace_goes_on_at_what_was_measured_and_stands_still_for_a_while():
    pace = after_hold(starting(), STANDARD, held_s=30.0, now=at(60))
    assert (pace.rate_per_s, pace.refused_per_s, pace.tokens) == (5.0, 0.0, 1.0)
    assert (pace.limit.fell_at, pace.limit.still_until) == (at(60), at(60 + STILL_S_MIN))


@pytest.mark.parametrize(("held_s", "find_s", "expected"), [(30.0, 4.0, 30.0), (5.0, 9.0, 9.0)])
def test_the_dearer_the_hold_the_slower_the_way_back(held_s, find_s, expected):
    settings = PaceSettings(find_s=find_s)
    assert after_hold(starting(), settings, held_s=held_s, now=at(60)).find_s == expected


def test_a_hold_is_dear_and_a_rate_measured_from_their_bounds_on():
    assert after_hold(starting(), STANDARD, held_s=DEAR_S, now=at(60)).rate_per_s == 5.0
    assert after_hold(starting(), STANDARD, held_s=DEAR_S - 0.1, now=at(60)).rate_per_s is None
    least = starting(admitted=0.1)
    assert after_hold(least, STANDARD, held_s=30.0, now=at(60)).rate_per_s == 0.01
    less = starting(admitted=0.09)
    assert after_hold(less, STANDARD, held_s=30.0, now=at(60)).rate_per_s is None


# Each end of a call.

CALL = {"sent_at": at(0.5), "now": at(1)}
BUSY = running(in_flight=5, rests=2, strain=Trouble(0.6, 0.1, at(0), at(9)))


def test_an_answer_hands_on_the_room_that_it_tells_of():
    room = Room(3, at(30), 100)
    found = after_end(BUSY, STANDARD, said(None), **CALL, room=room)
    assert found == after_answer(BUSY, STANDARD, **CALL, room=room)
    assert found.room == room


@pytest.mark.parametrize("told", [{}, {"wait_s": 7.0}, {"isolated": True}])
def test_a_refusal_hands_on_the_pause_and_whether_it_is_isolated(told):
    found = after_end(BUSY, STANDARD, said(Kind.RATE_LIMITED), **CALL, **told)
    assert found == after_refusal(BUSY, STANDARD, **CALL, **told)


def test_the_words_of_a_refusal_make_a_difference():
    plain, told, alone = (
        after_end(BUSY, STANDARD, said(Kind.RATE_LIMITED), **CALL, **more)
        for more in ({}, {"wait_s": 7.0}, {"isolated": True})
    )
    assert told.limit.still_until == at(141)
    assert (plain.rests, told.rests, alone.rests) == (3, 2, 2)


def test_a_call_that_was_taken_on_and_failed_counts_as_admitted_and_earns_no_other():
    found = after_end(BUSY, STANDARD, said(Kind.UPSTREAM_ERROR), **CALL)
    assert found == after_answer(BUSY, STANDARD, **CALL, well=False)
    assert found.allowance == BUSY.allowance
    assert found.rests == 0


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.OVERLOADED])
def test_a_strain_is_told_when_its_call_was_sent(kind):
    found = after_end(BUSY, STANDARD, said(kind), **CALL)
    assert found == after_strain(BUSY, STANDARD, **CALL)
    before = replace(BUSY, strain=Trouble(0.6, 0.1, at(0.7), at(9)))
    assert after_end(before, STANDARD, said(kind), **CALL).knee is None
    assert found.knee == 2.5


def test_strained_calls_leave_half_of_them_in_flight_and_never_fewer_than_a_start_has():
    many = replace(BUSY, in_flight=41, allowance=60.0)
    fell = after_strain(many, STANDARD, **CALL)
    assert (fell.in_flight, fell.allowance, fell.knee) == (40, 20.5, 20.5)
    assert (fell.strain.fell_at, fell.strain.still_until) == (at(1), at(1))
    assert fell.strain.share == pytest.approx(0.62)
    few = after_strain(BUSY, PaceSettings(start_calls=4), **CALL)
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
    found = after_strain(pace, STANDARD, **CALL)
    assert (found.allowance, found.knee) == (60.0, None)
    assert found.strain.fell_at == pace.strain.fell_at
    assert found.strain.share > pace.strain.share


def test_an_answer_is_heard_of_both_troubles():
    pace = replace(BUSY, limit=replace(BUSY.limit, share=0.4))
    found = after_answer(pace, STANDARD, **CALL)
    assert found.strain.share == pytest.approx(0.57)
    assert found.limit.share == pytest.approx(0.38)


def test_a_new_start_keeps_what_the_upstream_could_bear_and_nothing_else():
    kept = slow_start(STANDARD, at(9), in_flight=2, before=replace(BUSY, knee=7.0))
    assert kept == replace(slow_start(STANDARD, at(9), in_flight=2), knee=7.0)


def test_a_start_that_a_probe_has_proved_is_slow_and_ends_at_the_rate_of_before():
    before = replace(BUSY, rate_per_s=5.0, limit=Trouble(share=0.2), knee=None)
    pace = slow_start(STANDARD, at(9), before=before, proved=True)
    waves, t = [], 9.0
    for _ in range(8):
        waves.append(admits(pace, STANDARD, at(t)))
        pace = after_starts(pace, STANDARD, waves[-1], at(t))
        for _ in range(waves[-1]):
            pace = after_answer(pace, STANDARD, sent_at=at(t), now=at(t + 0.2))
        t += 0.2
    assert waves == [1] * 8  # a call in 0.2 s, where a start without a rate doubles each time
    assert pace.rate_per_s == 5.0
    assert pace.limit.noise == 0.0
    later = after_answer(pace, STANDARD, sent_at=at(t), now=at(t + 5))
    assert later.rate_per_s > 5.0


@pytest.mark.parametrize(
    ("changes", "proved"),
    [
        ({"rate_per_s": 5.0}, False),  # a person has released it, or nobody knows
        ({"rate_per_s": None}, True),  # there was none
        ({"rate_per_s": 5.0, "limit": Trouble(share=0.25)}, True),  # it may have been a crawl
    ],
)
def test_a_start_forgets_a_rate_that_nobody_vouches_for(changes, proved):
    before = replace(BUSY, limit=CALM, knee=None)
    pace = slow_start(STANDARD, at(9), before=replace(before, **changes), proved=proved)
    assert pace == slow_start(STANDARD, at(9))


@pytest.mark.parametrize(("allowance", "grown"), [(3.0, 4.0), (4.0, 4.25), (8.0, 8.125)])
def test_from_the_knee_on_an_answer_earns_one_more_call_with_every_round_trip(allowance, grown):
    pace = replace(BUSY, allowance=allowance, knee=4.0)
    assert after_answer(pace, STANDARD, **CALL).allowance == grown


def test_an_answer_to_a_call_from_before_the_fall_does_not_end_the_row_of_rests():
    fell = replace(BUSY, limit=Trouble(fell_at=at(0.7), still_until=at(9)))
    assert after_answer(fell, STANDARD, **CALL).rests == BUSY.rests


@pytest.mark.parametrize(("tokens", "busy_s"), [(1.0, 0.0), (0.5, 0.05), (-2.0, 0.3)])
def test_time_without_calls_counts_as_watched_while_the_pace_itself_keeps_them_waiting(
    tokens, busy_s
):
    later = after_starts(running(tokens=tokens), STANDARD, 0, at(10))
    assert later.admitted == pytest.approx(100.0 * exp(-busy_s / STANDARD.measure_s))
