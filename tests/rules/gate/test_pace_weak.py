"""Weak upstreams: refusals at random, timeouts, rests, and what a pace keeps over a hold and a recovery.

The bounds are wide: they are about what happens, not about the numbers of the day.
"""

import heapq
from itertools import count
from random import Random

import pytest

from perdure.model.kinds import Kind, Sign
from perdure.model.nouns import replace
from perdure.rules.gate.pace import (
    Trouble,
    admits,
    after_answer,
    after_end,
    after_hold,
    after_refusal,
    after_starts,
    after_strain,
    opens_in_s,
    slow_start,
)
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.signs import WELL, Word
from tests.rules.gate.gate_kit import START, at, said
from tests.rules.gate.test_pace import paced, refused_often, started, steady

STANDARD = PaceSettings()
REFUSED = said(Kind.RATE_LIMITED)


def driven(upstream, seconds, *, pace=None, slots=20, isolated=True, seed=7):
    """Calls as fast as the pace allows; ``upstream`` answers with a word and how long that took."""
    chance, out, books, t = Random(seed).random, [], [], 0.0
    pace = pace or slow_start(STANDARD, START)
    while t < seconds:
        while out and out[0][0] <= t:
            _, sent_s, word = heapq.heappop(out)
            more = {"wait_s": 2.0, "isolated": isolated} if word.refuses else {}
            pace = after_end(pace, STANDARD, word, sent_at=at(sent_s), now=at(t), **more)
            books.append((t, word))
        for _ in range(min(admits(pace, STANDARD, at(t)), slots - len(out))):
            pace = after_starts(pace, STANDARD, 1, at(t))
            word, took_s = upstream(chance(), len(out))
            heapq.heappush(out, (t + took_s, t, word))
        t += 0.05
    return pace, books


def well_per_s(books, since_s, until_s):
    done = sum(since_s <= t < until_s and word is WELL for t, word in books)
    return done / (until_s - since_s)


# -- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_refusals_at_a_low_rate_do_not_collapse_the_pace(seed):
    """Five calls in a hundred, whatever the speed: there is nothing to be gained by going slowly."""

    def noisy(chance, _):
        return (REFUSED, 0.2) if chance < 0.05 else (WELL, 1.0)

    _, calm = driven(lambda *_: (WELL, 1.0), 120.0, seed=seed)
    _, books = driven(noisy, 120.0, seed=seed)
    assert well_per_s(books, 60.0, 120.0) > 0.5 * well_per_s(calm, 60.0, 120.0)


@pytest.fixture
def unlucky():
    """The second and the third call are refused, and nothing is afterwards."""
    calls = count(1)
    return lambda *_: (REFUSED, 0.2) if next(calls) in {2, 3} else (WELL, 1.0)


def test_refusals_among_the_first_calls_set_no_rate(unlucky):
    """What was measured by then is the speed of our own slow start, and would last for minutes."""
    pace, books = driven(unlucky, 30.0, isolated=False)
    _, calm = driven(lambda *_: (WELL, 1.0), 30.0)
    assert pace.rate_per_s is None
    assert well_per_s(books, 10.0, 30.0) > 0.9 * well_per_s(calm, 10.0, 30.0)


def test_a_rate_that_is_measured_from_three_calls_is_seen(unlucky, monkeypatch):
    monkeypatch.setattr("perdure.rules.gate.pace._KNOWN", 0.0)
    pace, books = driven(unlucky, 30.0, isolated=False)
    _, calm = driven(lambda *_: (WELL, 1.0), 30.0)
    assert pace.rate_per_s is not None
    assert well_per_s(books, 10.0, 30.0) < 0.5 * well_per_s(calm, 10.0, 30.0)


def test_each_refusal_among_the_first_calls_halves_what_may_be_in_flight():
    pace = replace(
        slow_start(STANDARD, START), allowance=6.0, in_flight=6, admitted=5.0, watched_s=1.0
    )
    pace = replace(pace, limit=Trouble(share=0.1))
    pace = after_refusal(pace, STANDARD, sent_at=at(0), now=at(1))
    assert (pace.allowance, pace.rate_per_s) == (3.0, None)
    pace = after_refusal(pace, STANDARD, sent_at=at(0), now=at(1))  # it knew nothing of the first
    assert pace.allowance == 3.0
    least = replace(pace, allowance=1.0, limit=Trouble(share=0.1))
    least = after_refusal(least, STANDARD, sent_at=at(2), now=at(2))
    assert (least.allowance, least.rate_per_s) == (STANDARD.start_calls, None)


def test_refusals_that_stay_when_calls_are_fewer_are_learned_as_noise():
    fell = Trouble(fell_at=START, still_until=at(1_000))
    pace = paced(10.0, limit=fell, in_flight=200)
    for n in range(1, 400):
        word = REFUSED if n % 10 == 0 else WELL
        pace = after_end(pace, STANDARD, word, sent_at=at(n), now=at(n), isolated=True)
    assert 0.03 < pace.limit.noise < 0.3
    assert pace.limit.fell_at == START  # nobody slowed down for them


def crawling(noise, *, knee=None):
    """A call in two seconds, after a spell in which so many were refused at any speed."""
    limit = Trouble(share=0.5, noise=noise, fell_at=START, still_until=at(1_000))
    return paced(0.5, limit=limit, knee=knee, room=None)


def admitted_until(pace, calls):
    for n in range(1, calls + 1):
        pace = after_starts(pace, STANDARD, 1, at(2 * n))
        pace = after_answer(pace, STANDARD, sent_at=at(2 * n), now=at(2 * n + 0.02))
    return pace


def test_after_a_spell_a_few_admitted_calls_end_the_crawl():
    """The rate would stand still for minutes; that the spell lasts is less likely than one in a hundred."""
    over = admitted_until(crawling(0.5), 8)
    assert (over.rate_per_s, over.refused_per_s) == (None, 0.0)
    assert over.limit == Trouble(luck=over.limit.luck)
    assert admitted_until(crawling(0.5), 4).rate_per_s == 0.5
    assert admitted_until(crawling(0.5, knee=6.0), 8).knee == 6.0  # what it could bear is kept
    assert admitted_until(over, 5).allowance == over.allowance + 5  # it starts slowly


def test_after_a_spell_the_start_is_not_bound_by_the_crawl_until_a_call_is_refused():
    over = replace(admitted_until(crawling(0.5), 8), allowance=9.0, tokens=0.0, admitted=20.0)
    assert admits(over, STANDARD, over.at) == 9
    refused = after_refusal(over, STANDARD, sent_at=over.at, now=over.at, isolated=True)
    assert (refused.rate_per_s, admits(refused, STANDARD, over.at)) == (None, 4)
    held = after_hold(over, STANDARD, held_s=9.0, now=over.at)
    kept = after_answer(held, STANDARD, sent_at=over.at, now=over.at)
    assert kept.rate_per_s is not None


def test_after_a_limit_that_was_met_no_run_of_answers_ends_the_pace():
    assert admitted_until(crawling(0.1), 200).rate_per_s is not None


def test_a_burst_of_refusals_makes_a_pace_fall_whatever_was_noise():
    pace = paced(20.0, admitted=100.0, limit=Trouble(noise=0.05), in_flight=50)
    fell = refused_often(pace, 1.0, isolated=False)
    assert fell.rate_per_s < 15.0
    assert fell.limit.fell_at == at(1)


def test_a_limit_that_calls_run_into_is_followed():
    """Ten calls a second are admitted and no more; the rate finds that and stays there."""
    tokens = {"t": 0.0, "left": 10.0}

    def limited(_, __):
        return (WELL, 1.0) if tokens["left"] >= 1.0 else (REFUSED, 0.1)

    pace, t, chance, out, done, turned_away = slow_start(STANDARD, START), 0.0, 0, [], 0, 0
    while t < 200.0:
        tokens["left"] = min(tokens["left"] + 0.5, 10.0)
        while out and out[0][0] <= t:
            _, sent_s, word = heapq.heappop(out)
            call = {"sent_at": at(sent_s), "now": at(t)}
            pace = after_end(pace, STANDARD, word, **call, isolated=word.refuses and done > 20)
            done, turned_away = done + (word is WELL), turned_away + word.refuses
        for _ in range(min(admits(pace, STANDARD, at(t)), 100 - len(out))):
            pace = after_starts(pace, STANDARD, 1, at(t))
            word, took_s = limited(chance, len(out))
            tokens["left"] -= word is WELL
            heapq.heappush(out, (t + took_s, t, word))
        t += 0.05
    assert done > 1_400
    assert turned_away < 0.2 * done


def test_where_most_are_refused_and_nobody_says_until_when_no_call_starts_for_a_while():
    pace = paced(10.0, tokens=1.0, in_flight=5)
    first = after_refusal(pace, STANDARD, sent_at=at(1), now=at(1))
    rest_s = opens_in_s(first, STANDARD, at(1))
    assert rest_s >= STANDARD.rest_s
    second = after_refusal(first, STANDARD, sent_at=at(2), now=at(2))
    assert opens_in_s(second, STANDARD, at(2)) > 1.5 * rest_s
    well = after_answer(second, STANDARD, sent_at=at(3), now=at(3))
    again = after_refusal(well, STANDARD, sent_at=at(4), now=at(4))
    assert opens_in_s(again, STANDARD, at(4)) < 1.5 * rest_s


def test_the_rest_grows_no_further_than_its_bound():
    pace = paced(10.0, in_flight=90)
    for n in range(1, 60):
        pace = replace(pace, admitted=100.0, watched_s=10.0)
        pace = after_refusal(pace, STANDARD, sent_at=at(n), now=at(n))
    assert opens_in_s(pace, STANDARD, at(59)) < 30.0


@pytest.mark.parametrize("more", [{"wait_s": 2.0}, {"isolated": True}])
def test_a_refusal_with_a_hint_or_an_isolated_one_asks_for_no_rest(more):
    pace = after_refusal(paced(10.0, in_flight=5), STANDARD, sent_at=at(1), now=at(1), **more)
    assert opens_in_s(pace, STANDARD, at(1)) < STANDARD.rest_s


# -- after a hold ------------------------------------------------------------------------


def test_after_a_dear_hold_the_slow_start_goes_on_at_the_measured_rate():
    pace = replace(steady(8.0, 30.0), in_flight=0)
    rate = after_hold(pace, STANDARD, held_s=30.0, now=at(60)).rate_per_s
    assert rate == pytest.approx(pace.measured_per_s, rel=0.1)


def test_after_a_cheap_hold_or_with_nothing_measured_the_pace_goes_on_as_it_was():
    pace = steady(8.0, 30.0)
    assert after_hold(pace, STANDARD, held_s=1.0, now=at(31)).rate_per_s is None
    assert (
        after_hold(slow_start(STANDARD, START), STANDARD, held_s=30.0, now=at(31)).rate_per_s
        is None
    )
    kept = after_hold(paced(5.0), STANDARD, held_s=30.0, now=at(31)).rate_per_s
    assert kept == pytest.approx(5.0, rel=1e-3)


# -- strain ------------------------------------------------------------------------------


def timed_out(pace, t, times, *, sent_s=None):
    sent_at = at(t if sent_s is None else sent_s)
    for _ in range(times):
        pace = after_strain(pace, STANDARD, sent_at=sent_at, now=at(t))
    return pace


def busy(calls=40):
    """So many calls in flight after half a minute of ten answers a second."""
    return replace(steady(10.0, 30.0), in_flight=calls, allowance=float(calls))


def test_timeouts_of_many_calls_leave_fewer_in_flight_and_answers_bring_more():
    pace = busy()
    fell = timed_out(pace, 30.0, 20)
    assert 10 <= fell.allowance <= 25
    assert admits(fell, STANDARD, at(30)) == 0
    grown = fell
    for _ in range(40):
        grown = after_answer(
            after_starts(grown, STANDARD, 1, at(31)), STANDARD, sent_at=at(31), now=at(32)
        )
    assert fell.allowance + 1 <= grown.allowance <= fell.allowance + 5  # a round trip or two


def test_one_timeout_changes_nothing_and_one_episode_halves_once():
    pace = busy()
    assert timed_out(pace, 30.0, 1).allowance == pace.allowance
    fell = timed_out(pace, 30.0, 20)
    assert fell.allowance < pace.allowance
    assert timed_out(fell, 31.0, 8, sent_s=29.0).allowance == fell.allowance


def test_timeouts_of_an_upstream_that_has_answered_nothing_are_the_gates_question():
    pace = replace(slow_start(STANDARD, START), in_flight=40, allowance=40.0)
    fell = timed_out(pace, 30.0, 20)
    assert (fell.allowance, fell.knee) == (40.0, None)


def test_what_an_upstream_could_bear_is_kept_over_a_recovery():
    fell = timed_out(busy(), 30.0, 20)
    _, in_flight = started(slow_start(STANDARD, START, before=fell), 12.0)
    _, forgotten = started(slow_start(STANDARD, START), 12.0)
    assert in_flight[:60] == forgotten[:60]  # three round trips
    assert in_flight[-1] <= 2 * fell.knee < forgotten[-1] / 4
    assert in_flight[-1] - in_flight[-21] <= 2


# -- what each kind means for the pace ---------------------------------------------------

WORDS = [
    *map(said, [None, *Kind]),
    Word(Sign.NEITHER, Kind.UNKNOWN),
    Word(Sign.GOOD, Kind.NOT_FOUND),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda one: f"{one.sign}-{one.label}")
def test_in_slow_start_a_call_earns_another_unless_the_upstream_is_to_blame(word):
    pace = after_starts(slow_start(STANDARD, START), STANDARD, 1, START)
    after = after_end(pace, STANDARD, word, sent_at=START, now=at(1))
    assert after.in_flight == 0
    earns = word.sign is not Sign.BAD and not word.refuses
    assert (after.allowance > pace.allowance) is earns


@pytest.mark.parametrize(
    ("kind", "admitted"),
    [
        (None, True),
        (Kind.INVALID_OUTPUT, True),
        (Kind.UPSTREAM_ERROR, True),  # admitted, and then it went wrong
        (Kind.AMBIGUOUS, True),
        (Kind.RATE_LIMITED, False),
        (Kind.TIMEOUT, False),
        (Kind.NETWORK, False),
        (Kind.INTERNAL, True),  # it was not turned away
    ],
)
def test_admitted_calls_are_measured_and_no_others(kind, admitted):
    pace = after_starts(slow_start(STANDARD, START), STANDARD, 1, START)
    after = after_end(pace, STANDARD, said(kind), sent_at=START, now=at(1))
    assert (after.measured_per_s > 0) is admitted
