"""Slow start, the measured rate, the climb and the fall; and the room that headers leave."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from perdure.model.errors import ConfigError
from perdure.model.nouns import replace
from perdure.rules.gate.pace import (
    CALM,
    Pace,
    Trouble,
    admits,
    after_answer,
    after_answer as pace_answered,
    after_failure,
    after_refusal,
    after_starts,
    after_strain,
    opens_in_s,
    slow_start,
)
from perdure.rules.gate.pace_settings import PaceSettings, settings_for_one_of
from perdure.rules.hints.calls_left import Room
from tests.rules.gate.gate_kit import START, at

STANDARD = PaceSettings()


def paced(rate_per_s, **changes):
    """A pace that fell at the start, with as much measured as it runs at."""
    given_by_default = {
        "at": START,
        "allowance": 1,
        "rate_per_s": rate_per_s,
        "tokens": 0.0,
        "admitted": rate_per_s * 10.0,
        "watched_s": 10.0,
        "refused_per_s": rate_per_s,
        "limit": Trouble(fell_at=START, still_until=START),
    }
    return Pace(**(given_by_default | changes))


def answered(pace, settings, now, room=None, *, sent_at=None):
    """An answer to a call that was sent just now, unless it is said when."""
    return pace_answered(pace, settings, sent_at=sent_at or now, now=now, room=room)


# Slow start.


def started(pace, seconds, *, trip_s=1.0, step_s=0.05, settings=STANDARD):
    """How many calls begin in each step and how many are in flight then, with answers after ``trip_s``."""
    trip, counts, in_flight = round(trip_s / step_s), [], []
    for step in range(round(seconds / step_s)):
        now = at(step * step_s)
        for _ in range(counts[step - trip] if step >= trip else 0):
            pace = answered(pace, settings, now)
        counts.append(admits(pace, settings, now))
        pace = after_starts(pace, settings, counts[-1], now)
        in_flight.append(pace.in_flight)
    return counts, in_flight


def test_slow_start_begins_with_one_call_and_doubles_with_every_round_trip():
    counts, _ = started(slow_start(STANDARD, START), 2.05)
    assert [count for count in counts if count] == [1, 2, 4]


def test_later_calls_of_a_slow_start_begin_one_after_the_other_and_not_in_waves():
    counts, in_flight = started(slow_start(STANDARD, START), 10.0)
    waves = [count / calls for count, calls in zip(counts, in_flight, strict=True) if calls > 20]
    assert max(waves) < 0.2
    assert in_flight[-1] > 200


def test_half_of_what_may_be_in_flight_and_as_many_as_a_start_has_may_always_begin_at_once():
    settings = PaceSettings(start_calls=8)
    pace = Pace(at=START, allowance=10, tokens=0.0, in_flight=3, admitted=20.0, watched_s=10.0)
    assert (admits(pace, settings, START), admits(pace, STANDARD, START)) == (5, 2)
    assert admits(replace(pace, room=Room(0, at(9))), settings, START) == 0


@pytest.mark.parametrize("workers", [1, 4, 100])
@pytest.mark.parametrize("turn_s", [0.3, 1.0, 3.0])
def test_a_worker_that_looks_seldom_grows_all_the_same(turn_s, workers):
    settings = settings_for_one_of(STANDARD, workers)
    pace, now_s = slow_start(settings, START), 0.0
    for _ in range(20):
        calls = admits(pace, settings, at(now_s))
        pace = after_starts(pace, settings, calls, at(now_s))
        now_s += turn_s
        for _ in range(calls):
            pace = answered(pace, settings, at(now_s))
    assert calls >= 500


@pytest.mark.parametrize("workers", [1, 4, 100])
@pytest.mark.parametrize("calls_max", [2, 3, 10, 50])
def test_a_slow_start_comes_to_all_the_calls_that_may_be_in_flight(calls_max, workers):
    settings = settings_for_one_of(PaceSettings(calls_max=calls_max), workers)
    _, in_flight = started(slow_start(settings, START), 60.0, trip_s=0.5, settings=settings)
    assert in_flight[-1] == calls_max


def test_a_slow_start_says_how_long_until_its_next_call():
    pace = Pace(at=START, allowance=50, tokens=0.0, in_flight=25, admitted=20.0, watched_s=10.0)
    assert opens_in_s(pace, STANDARD, START) == pytest.approx(1 / 12)  # six times two a second
    assert opens_in_s(replace(pace, in_flight=50), STANDARD, START) is None
    assert opens_in_s(replace(pace, admitted=5.9), STANDARD, START) == 0.0


def test_waiting_alone_allows_no_more():
    pace = after_starts(slow_start(STANDARD, START), STANDARD, 1, START)
    assert admits(pace, STANDARD, at(1e6)) == 0


def test_a_failure_frees_its_place_but_earns_no_other():
    pace = after_starts(slow_start(STANDARD, START), STANDARD, 1, START)
    pace = after_failure(pace, STANDARD, at(1))
    assert (admits(pace, STANDARD, at(1)), pace.allowance, pace.in_flight) == (1, 1, 0)


def test_calls_that_were_out_before_a_new_start_are_counted():
    pace = slow_start(STANDARD, START, in_flight=5)
    assert admits(pace, STANDARD, START) == 0
    for _ in range(5):
        pace = after_failure(pace, STANDARD, at(1))
    assert admits(pace, STANDARD, at(1)) == 1


def test_the_allowance_stops_at_the_most_calls_allowed():
    settings = PaceSettings(start_calls=3, calls_max=4)
    pace = after_starts(slow_start(settings, START), settings, 3, START)
    for _ in range(3):
        pace = answered(pace, settings, at(1))
    assert (pace.allowance, admits(pace, settings, at(1))) == (4, 4)


def test_more_endings_than_beginnings_make_no_negative_count():
    pace = after_failure(slow_start(STANDARD, START), STANDARD, at(1))
    assert pace.in_flight == 0


# Measuring.


def steady(rate_per_s, seconds, *, pace=None, settings=STANDARD, since_s=0.0):
    """One call always in flight, and successes at a constant rate."""
    pace = pace or after_starts(slow_start(settings, at(since_s)), settings, 1, at(since_s))
    for n in range(1, round(rate_per_s * seconds) + 1):
        now = at(since_s + n / rate_per_s)
        pace = after_starts(answered(pace, settings, now), settings, 1, now)
    return pace


@pytest.mark.parametrize("rate_per_s", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("seconds", [4.0, 40.0])
def test_a_steady_rate_is_measured_from_the_beginning(rate_per_s, seconds):
    measured = steady(rate_per_s, seconds).measured_per_s
    assert measured == pytest.approx(rate_per_s, rel=0.26 if rate_per_s < 1 else 0.1)


def test_the_recent_past_weighs_more():
    pace = steady(10.0, 60.0)
    pace = steady(2.0, 30.0, pace=pace, since_s=60.0)
    assert pace.measured_per_s == pytest.approx(2.0 + 8.0 * 0.0498, rel=0.05)  # e^-3 is left


def test_neither_idle_time_nor_a_held_gate_makes_an_upstream_look_slow():
    pace = after_failure(steady(10.0, 60.0), STANDARD, at(60))
    idle = after_starts(pace, STANDARD, 1, at(5_000))
    assert idle.measured_per_s == pytest.approx(pace.measured_per_s)


def test_nothing_is_measured_before_time_has_passed():
    assert slow_start(STANDARD, START).measured_per_s == 0.0


# Pacing.


def refused_often(pace, t, *, times=10, **more):
    """That many calls in a row are refused, all sent just before."""
    for _ in range(times):
        pace = after_refusal(pace, STANDARD, sent_at=at(t - 0.5), now=at(t), **more)
    return pace


def test_refusals_in_a_row_end_slow_start_at_the_measured_rate():
    pace = steady(8.0, 30.0)
    fell = refused_often(pace, 30.0)
    assert 0.5 * pace.measured_per_s <= fell.rate_per_s <= pace.measured_per_s
    assert fell.limit.fell_at == at(30)
    assert admits(fell, STANDARD, at(30)) == 0


def test_one_refusal_among_answers_ends_no_slow_start():
    pace = steady(8.0, 30.0)
    after_one = after_refusal(pace, STANDARD, sent_at=at(29), now=at(30), wait_s=2.0, isolated=True)
    assert (after_one.rate_per_s, after_one.allowance) == (None, pace.allowance)


def test_limits_before_any_success_begin_again_with_one_call():
    pace = after_starts(replace(slow_start(STANDARD, START), allowance=20), STANDARD, 20, START)
    pace = refused_often(pace, 1.0)
    assert (pace.rate_per_s, pace.allowance, pace.limit.fell_at) == (None, 1, at(1))


def test_a_limit_after_nothing_but_failures_begins_again_instead_of_crawling():
    pace = paced(20.0, in_flight=2)
    pace = after_refusal(
        after_failure(pace, STANDARD, at(500)), STANDARD, sent_at=at(1), now=at(500)
    )
    assert (pace.rate_per_s, pace.allowance) == (None, 1)


def test_one_episode_makes_one_fall():
    pace = paced(20.0, in_flight=3, admitted=50.0)
    pace = after_refusal(pace, STANDARD, sent_at=at(1), now=at(2))
    fallen = pace.rate_per_s
    pace = after_refusal(pace, STANDARD, sent_at=at(1.9), now=at(3))
    assert (pace.rate_per_s, pace.limit.fell_at) == (pytest.approx(fallen, rel=0.03), at(2))
    pace = after_refusal(pace, STANDARD, sent_at=at(2), now=at(4))
    assert pace.limit.fell_at == at(4)


def test_calls_start_at_the_rate():
    pace, begun = paced(10.0), []
    for tick in range(1, 101):
        count = admits(pace, STANDARD, at(tick / 20))
        pace = after_starts(pace, STANDARD, count, at(tick / 20))
        pace = replace(pace, in_flight=0)
        begun.append(count)
    assert sum(begun) == 50
    assert set(begun) == {0, 1}


def test_little_is_saved_up_while_nobody_asks():
    assert admits(paced(100.0), STANDARD, at(60)) == 25
    assert admits(paced(0.5), STANDARD, at(60)) == 1


def test_calls_begun_beyond_the_rate_are_a_debt():
    pace = after_starts(paced(10.0), STANDARD, 20, START)
    pace = replace(pace, in_flight=0)
    assert admits(pace, STANDARD, at(2.0)) == 0
    assert admits(pace, STANDARD, at(2.1)) == 1


def test_calls_in_flight_are_bounded_while_paced_too():
    settings = PaceSettings(calls_max=10)
    assert admits(paced(1000.0, in_flight=8), settings, at(1)) == 2
    assert admits(paced(1000.0, in_flight=12), settings, at(1)) == 0


def climbed_in_a_second(*, quiet_s=0.0, **changes):
    """By which share, with 10 calls a second that were refused last so long ago."""
    fell = Trouble(fell_at=at(-quiet_s), still_until=at(-quiet_s))
    changes = {"in_flight": 1, "limit": fell, "admitted": 1e3} | changes
    return after_failure(paced(10.0, **changes), STANDARD, at(1)).rate_per_s / 10.0 - 1.0


def test_near_the_rate_that_was_refused_it_climbs_slowly_and_faster_the_longer_it_is_quiet():
    climbs = [climbed_in_a_second(quiet_s=quiet_s) for quiet_s in (0.0, 30.0, 270.0)]
    assert climbs[0] == pytest.approx(STANDARD.climb_per_s, rel=0.1)
    assert climbs[1] == pytest.approx(2 * STANDARD.climb_per_s, rel=0.1)
    assert climbs[2] == pytest.approx(10 * STANDARD.climb_per_s, rel=0.1)


def test_below_the_rate_that_was_refused_it_is_soon_back_but_not_at_it():
    assert climbed_in_a_second(refused_per_s=20.0) > 0.2
    fell = paced(10.0, in_flight=1, admitted=1e6, refused_per_s=20.0)
    back = after_failure(fell, STANDARD, at(60))
    assert 18.0 < back.rate_per_s < 20.0


def test_beyond_the_rate_that_was_refused_it_climbs_sooner_while_few_are_refused():
    assert climbed_in_a_second(refused_per_s=9.0) > 0.02
    often = Trouble(share=0.2, fell_at=START, still_until=START)
    assert climbed_in_a_second(refused_per_s=9.0, limit=often) < 0.01


def test_a_fall_remembers_the_middle_between_the_rate_and_what_was_admitted():
    pace = paced(20.0, admitted=100.0, in_flight=3)
    assert after_refusal(pace, STANDARD, sent_at=at(0), now=at(0)).refused_per_s == pytest.approx(
        15.0
    )


def test_after_a_slow_start_what_was_refused_is_a_guess_and_the_rate_doubles_within_a_minute():
    fell = refused_often(after_starts(steady(10.0, 30.0), STANDARD, 1, at(30)), 30.0, wait_s=0.1)
    assert fell.refused_per_s == pytest.approx(1.45 * fell.rate_per_s)
    calm = replace(fell, limit=replace(fell.limit, share=0.0))
    later = steady(fell.rate_per_s, 60.0, pace=calm, since_s=30.0)
    assert later.rate_per_s > 1.8 * fell.rate_per_s


def test_the_rate_does_not_climb_while_nobody_waits_for_it():
    """But for the tenth of a second until it had one call saved up."""
    assert after_starts(paced(10.0), STANDARD, 1, at(100)).rate_per_s == pytest.approx(
        10.0, rel=1e-3
    )


def test_a_crawl_with_quick_answers_climbs_while_the_pace_itself_keeps_calls_waiting():
    """It climbed only while a call was in flight: 20 ms of every three seconds, so 25 s of refusals cost an hour."""
    pace = replace(
        paced(0.3, admitted=3.0), refused_per_s=0.3, limit=replace(paced(0.3).limit, share=0.6)
    )
    t, calls = 0.0, 0
    while t < 300.0 and pace.rate_per_s < 10.0:
        t += opens_in_s(pace, STANDARD, at(t)) + 0.001
        pace = after_starts(pace, STANDARD, 1, at(t))
        t, calls = t + 0.02, calls + 1
        pace = after_answer(pace, STANDARD, sent_at=at(t - 0.02), now=at(t))
    assert pace.rate_per_s >= 10.0
    assert t < 240.0


def test_the_rate_never_climbs_above_twice_the_measured_rate():
    pace = paced(10.0, in_flight=1, admitted=60.0)
    assert after_failure(pace, STANDARD, at(60)).rate_per_s == 10.0  # 6/s measured, and fading
    pace = steady(10.0, 30.0)
    fell = refused_often(after_starts(pace, STANDARD, 1, at(30)), 30.0)
    climbed = steady(10.0, 300.0, pace=fell, since_s=30.0)
    assert climbed.rate_per_s <= 2.0 * 10.0 * 1.1
    assert climbed.rate_per_s > 15.0


def test_the_rate_is_never_below_what_is_measured():
    pace = answered(paced(2.0, in_flight=1, admitted=80.0), STANDARD, at(0.1))
    assert pace.rate_per_s == pytest.approx(pace.measured_per_s, rel=0.02)
    assert pace.rate_per_s > 7.0


# Room.


def with_room(remaining, reset_s, limit=None, *, rate_per_s=None):
    pace = paced(rate_per_s) if rate_per_s else replace(slow_start(STANDARD, START), allowance=500)
    pace = after_starts(replace(pace, tokens=1.0), STANDARD, 1, START)
    return answered(pace, STANDARD, START, Room(remaining, at(reset_s), limit))


def starts_within(pace, seconds):
    """Calls begun in that time by someone who looks often, with answers that come at once."""
    begun = 0
    for tick in range(round(seconds * 50)):
        now = at(tick / 50)
        count = admits(pace, STANDARD, now)
        pace = replace(after_starts(pace, STANDARD, count, now), in_flight=0)
        begun += count
    return begun


def test_what_remains_lasts_until_the_reset_before_any_limit_was_met():
    assert starts_within(with_room(100, 10.0), 10.0) in (99, 100)
    assert starts_within(with_room(100, 10.0), 5.0) in (49, 50, 51)


def test_room_of_nothing_stops_until_the_reset():
    pace = with_room(0, 10.0)
    assert admits(pace, STANDARD, START) == 0
    assert admits(pace, STANDARD, at(9.9)) == 0
    assert admits(pace, STANDARD, at(10)) == 501


def test_room_lowers_a_rate_and_never_raises_it():
    assert starts_within(with_room(10, 10.0, rate_per_s=5.0), 10.0) in (9, 10)
    assert starts_within(with_room(1000, 10.0, rate_per_s=5.0), 10.0) in (49, 50, 51)


@pytest.mark.parametrize(
    ("remaining", "reset_s", "limit"),
    [
        (100, 0.0, None),  # over
        (100, -5.0, None),
        (100, 61.0, None),  # a quota, not a rate
        (51, 10.0, 100),  # ample
    ],
)
def test_room_that_says_nothing_about_the_next_minute_is_not_heeded(remaining, reset_s, limit):
    assert with_room(remaining, reset_s, limit).room is None


def test_room_is_heeded_once_half_of_it_is_used():
    assert with_room(50, 10.0, 100).room == Room(50, at(10), 100)


@pytest.mark.parametrize("reset_s", [0.5, 60.0])
def test_room_is_heeded_for_any_reset_within_a_minute(reset_s):
    assert with_room(50, reset_s).room is not None


def test_room_that_says_nothing_replaces_an_older_one():
    pace = answered(with_room(50, 10.0), STANDARD, START, Room(90, at(10), 100))
    assert pace.room is None


def test_calls_of_the_slow_start_are_no_debt_when_room_is_first_told():
    pace = after_starts(replace(slow_start(STANDARD, START), allowance=200), STANDARD, 100, START)
    pace = answered(pace, STANDARD, at(1), Room(100, at(11)))
    assert pace.tokens == 1.0


def test_an_answer_without_room_keeps_what_the_last_one_said():
    pace = with_room(50, 10.0)
    assert answered(pace, STANDARD, at(1)).room == Room(50, at(10))


# Settings, and every input.

BAD_SETTINGS = [
    ({"calls_max": 0}, "pace.calls_max is 0; it must be a whole number between 1 and 1000000"),
    (
        {"start_calls": 1001},
        "pace.start_calls is 1001; it must be a whole number between 1 and 1000",
    ),
    ({"rate_min_per_s": 0.0}, "pace.rate_min_per_s is 0.0; it must be a number between 0.001 and"),
    ({"climb_per_s": 1.1}, "pace.climb_per_s is 1.1; it must be a number between 0 and 1"),
    ({"quicken_s": 0.0}, "pace.quicken_s is 0.0; it must be a number between 0.1 and"),
    ({"measured_times_max": 0.9}, "pace.measured_times_max is 0.9; it must be a number between 1"),
    ({"measure_s": 0.0}, "pace.measure_s is 0.0; it must be a number between 0.1 and"),
    ({"burst_s": -1.0}, "pace.burst_s is -1.0; it must be a number between 0 and 60"),
    ({"room_share": 2.0}, "pace.room_share is 2.0; it must be a number between 0 and 1"),
    ({"room_s_max": -0.1}, "pace.room_s_max is -0.1; it must be a number between 0 and"),
    ({"find_s": 0.0}, "pace.find_s is 0.0; it must be a number between 0.1 and"),
    ({"rest_s": 17.0}, "pace.rest_s is 17.0; it must be a number between 0 and 16"),
    ({"strain_share": 1.5}, "pace.strain_share is 1.5; it must be a number between 0 and 1"),
    ({"slack_share": -1.0}, "pace.slack_share is -1.0; it must be a number between 0 and 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SETTINGS)
def test_a_bad_setting_is_named_with_its_value_and_range(changes, message):
    with pytest.raises(ConfigError) as told:
        PaceSettings(**changes)
    assert str(told.value).startswith(message)


MOST = {
    "calls_max": 1_000_000,
    "start_calls": 1_000,
    "rate_min_per_s": 1_000.0,
    "climb_per_s": 1.0,
    "quicken_s": 86_400.0,
    "measured_times_max": 100.0,
    "measure_s": 3_600.0,
    "burst_s": 60.0,
    "room_share": 1.0,
    "room_s_max": 86_400.0,
    "find_s": 86_400.0,
    "rest_s": 16.0,
    "strain_share": 1.0,
    "slack_share": 1.0,
}


@pytest.mark.parametrize("name", MOST)
def test_settings_pass_at_their_limits_and_not_beyond(name):
    PaceSettings(**{name: MOST[name]})
    beyond = MOST[name] + (1 if isinstance(MOST[name], int) else 0.5)
    with pytest.raises(ConfigError, match=f"pace.{name} is"):
        PaceSettings(**{name: beyond})


moments = st.floats(-10.0, 300.0).map(at) | st.datetimes(timezones=st.just(UTC))
rooms = st.builds(Room, st.integers(-5, 10**9), moments, st.none() | st.integers(0, 10**9))
happenings = st.lists(
    st.tuples(
        st.sampled_from(
            ["began", "began", "answered", "answered", "failed", "refused", "strained"]
        ),
        moments,
        st.integers(0, 50),
        st.none() | rooms,
        moments,
    ),
    max_size=40,
)


@given(happenings)
def test_any_happening_at_any_time_leaves_a_pace_within_its_bounds(happened):
    pace = slow_start(STANDARD, START)
    for name, now, calls, room, sent_at in happened:
        before = pace
        match name:
            case "began":
                pace = after_starts(pace, STANDARD, min(calls, admits(pace, STANDARD, now)), now)
            case "answered":
                pace = answered(pace, STANDARD, now, room, sent_at=sent_at)
            case "failed":
                pace = after_failure(pace, STANDARD, now)
            case "strained":
                pace = after_strain(pace, STANDARD, sent_at=sent_at, now=now)
            case "refused":
                call = {"sent_at": sent_at, "now": now, "wait_s": calls / 5.0}
                pace = after_refusal(pace, STANDARD, **call, isolated=room is None)
        back_s = (before.at - now).total_seconds()
        assert pace.at == (before.at if 0 <= back_s <= 5 else now)
        assert 0 <= pace.in_flight <= STANDARD.calls_max
        assert 1 <= pace.allowance <= STANDARD.calls_max
        assert 0 <= admits(pace, STANDARD, now) <= STANDARD.calls_max - pace.in_flight
        rose = pace.rate_per_s is not None and pace.rate_per_s > (before.rate_per_s or 0.0)
        if rose and name != "refused":
            assert pace.rate_per_s <= 2.0 * pace.measured_per_s * (1 + 1e-9)


def test_time_that_runs_backwards_counts_as_none():
    pace = paced(10.0, in_flight=1)
    assert after_failure(pace, STANDARD, at(-5)) == replace(pace, in_flight=0)
    assert admits(pace, STANDARD, datetime.min.replace(tzinfo=UTC)) == 0


def test_a_clock_that_was_put_back_counts_from_there():
    pace = after_failure(paced(10.0, in_flight=1), STANDARD, at(-3600))
    assert (admits(pace, STANDARD, at(-3600)), admits(pace, STANDARD, at(-3599.9))) == (0, 1)


# Several workers, and when to look again.


def test_a_worker_with_a_small_share_does_not_take_its_calls_own_speed_for_a_rate():
    level = PaceSettings(climb_per_s=0.0)
    pace, t = paced(0.5, tokens=1.0), 0.0
    for _ in range(60):
        t += opens_in_s(pace, level, at(t)) + 1e-6
        pace = answered(after_starts(pace, level, 1, at(t)), level, at(t + 0.4))
        t += 0.4
    assert pace.measured_per_s == pytest.approx(0.5, rel=0.15)


def test_an_hour_without_jobs_does_not_make_the_upstream_look_slow():
    pace = paced(10.0, tokens=1.0)
    assert after_starts(pace, STANDARD, 1, at(3600)).measured_per_s == pytest.approx(10.0, rel=0.05)


def test_workers_that_share_an_upstream_climb_together_as_one_would():
    for workers in (1, 4, 16):
        own = settings_for_one_of(STANDARD, workers)
        assert own.climb_per_s * workers == pytest.approx(STANDARD.climb_per_s)
        assert own.measure_s == pytest.approx(STANDARD.measure_s * workers**0.5)
    assert settings_for_one_of(STANDARD, 0) == STANDARD
    assert settings_for_one_of(STANDARD, 10**9).measure_s == 3_600.0


def test_workers_that_start_together_stay_nearer_to_what_each_has_measured_but_can_all_grow():
    times = [settings_for_one_of(STANDARD, workers).wave_times for workers in (1, 4, 9, 100)]
    assert times == [6.0, 3.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("pace", "opens_s"),
    [
        (slow_start(STANDARD, START), 0.0),
        (replace(slow_start(STANDARD, START), in_flight=1), None),  # slow start: a result must come
        (paced(10.0, tokens=0.0), 0.1),
        (paced(10.0, tokens=-1.0), 0.2),
        (paced(10.0, tokens=1.0), 0.0),
        (paced(10.0, tokens=0.0, in_flight=STANDARD.calls_max), None),
        (paced(10.0, room=Room(0, at(7))), 7.0),  # nothing left until the reset
    ],
)
def test_a_pace_says_how_long_until_the_next_call(pace, opens_s):
    found = opens_in_s(pace, STANDARD, START)
    assert found == (None if opens_s is None else pytest.approx(opens_s))
    if found:
        assert admits(pace, STANDARD, at(found - 0.01)) == 0
        assert admits(pace, STANDARD, at(found + 0.001)) >= 1


@pytest.mark.parametrize(("wait_s", "still_s"), [(2.0, 40.0), (3_600.0, 900.0)])
def test_the_longer_the_pause_that_a_limit_costs_the_later_the_next_climb(wait_s, still_s):
    pace = paced(10.0, in_flight=1, limit=CALM)
    fell = after_refusal(pace, STANDARD, sent_at=at(0), now=at(0), wait_s=wait_s)
    fell = replace(fell, in_flight=1, admitted=1e6, watched_s=10.0)
    still = replace(admitting(fell, still_s), admitted=1e6)
    assert still.rate_per_s == fell.rate_per_s
    assert admitting(still, still_s + 5.0).rate_per_s > fell.rate_per_s


def admitting(pace, t):
    """The pace brought forward to then, with a call in flight."""
    return replace(after_failure(replace(pace, in_flight=2), STANDARD, at(t)), in_flight=1)
