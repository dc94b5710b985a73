"""What a pace learns of refusals and timeouts: how often they are met, and whether they are noise."""

from math import exp

import pytest

from perdure.model.nouns import replace
from perdure.rules.gate.pace_trouble import CALM, Trouble
from tests.rules.gate.gate_kit import at

FELL = CALM.after_fall(at(10), 5.0)  # stands still from 10 s to 15 s


def after(trouble, *met, sent_s=0.0):
    """So many calls have ended, that were sent at this second."""
    for one in met:
        trouble = trouble.after_call(one, at(sent_s))
    return trouble


def test_nothing_is_known_before_the_first_call():
    assert Trouble(share=0.0, noise=0.0, fell_at=None, still_until=None) == CALM


def test_each_call_is_a_twentieth_of_the_share():
    assert after(CALM, True).share == pytest.approx(0.05)
    assert after(CALM, True, True).share == pytest.approx(0.0975)
    assert after(CALM, True, False).share == pytest.approx(0.0475)


def test_the_share_comes_to_be_that_of_the_latest_calls():
    assert after(CALM, *[True] * 200).share == pytest.approx(1.0, abs=0.001)
    assert after(CALM, *[True] * 200, *[False] * 200).share == pytest.approx(0.0, abs=0.001)


def test_before_a_fall_nothing_is_learned_of_noise():
    assert after(CALM, *[True] * 50).noise == 0.0


@pytest.mark.parametrize(
    ("sent_s", "noise"),
    [(9.999, 0.0), (10.0, 0.05), (14.999, 0.05), (15.0, 0.0), (99.0, 0.0)],
)
def test_noise_is_what_calls_meet_that_were_sent_while_the_pace_stood_still(sent_s, noise):
    assert after(FELL, True, sent_s=sent_s).noise == pytest.approx(noise)


def test_noise_is_learned_of_a_call_that_met_it_twice_as_fast_as_of_one_that_did_not():
    known = Trouble(noise=0.5, fell_at=at(10), still_until=at(15))
    assert after(known, True, sent_s=12).noise == pytest.approx(0.525)
    assert after(known, False, sent_s=12).noise == pytest.approx(0.4875)


@pytest.mark.parametrize("sent_s", [0.0, 20.0])
def test_at_another_speed_noise_fades_with_each_call_that_goes_well_and_with_no_other(sent_s):
    known = Trouble(noise=0.5, fell_at=at(10), still_until=at(15))
    assert after(known, False, sent_s=sent_s).noise == pytest.approx(0.49)
    assert after(known, True, sent_s=sent_s).noise == 0.5


def test_noise_that_was_met_three_times_while_the_pace_stood_still_fades_slowly_until_the_next_fall():
    twice = replace(after(FELL, True, True, sent_s=12), noise=0.5)
    assert after(twice, False, sent_s=20).noise == pytest.approx(0.49)
    thrice = replace(after(twice, True, True, True, sent_s=12), noise=0.5)
    assert after(thrice, False, sent_s=20).noise == pytest.approx(0.4975)
    assert after(thrice.after_fall(at(20), 5.0), False, sent_s=30).noise == pytest.approx(0.49)
    elsewhere = replace(after(FELL, True, True, True, sent_s=20), noise=0.5)
    assert after(elsewhere, False, sent_s=20).noise == pytest.approx(0.49)


@pytest.mark.parametrize(
    ("quiet_s", "left"), [(0.0, 1.0), (60.0, 1.0), (65.0, exp(-1)), (70.0, exp(-2))]
)
def test_a_share_is_forgotten_with_time_from_a_minute_after_the_fall_on(quiet_s, left):
    assert Trouble(share=0.5, fell_at=at(0)).share_lately(at(quiet_s)) == pytest.approx(0.5 * left)
    assert Trouble(share=0.5).share_lately(at(quiet_s)) == 0.5


@pytest.mark.parametrize(
    ("sent_s", "stands"), [(9.9, False), (10.0, True), (14.9, True), (15.0, False)]
)
def test_a_pace_stands_from_its_fall_until_it_may_rise(sent_s, stands):
    assert FELL.stands(at(sent_s)) is stands
    assert not CALM.stands(at(sent_s))


def test_a_fall_without_an_end_and_an_end_without_a_fall_are_no_standing_still():
    assert not Trouble(fell_at=at(0)).stands(at(1))
    assert not Trouble(still_until=at(9)).stands(at(1))


@pytest.mark.parametrize(("sent_s", "news"), [(9.999, False), (10.0, True), (11.0, True)])
def test_only_a_call_that_was_sent_after_the_fall_brings_news(sent_s, news):
    assert FELL.is_news(at(sent_s)) is news
    assert CALM.is_news(at(sent_s))


@pytest.mark.parametrize(
    ("share", "noise", "is_noise"),
    [
        (0.05, 0.0, False),  # nothing has been learned yet
        (0.1, 0.5, True),
        (0.5, 0.5, True),
        (0.75, 0.5, True),  # as much more as is no limit
        (0.76, 0.5, False),
        (0.3, 0.1, True),  # three times as often may be chance
        (0.31, 0.1, False),
        (0.2, 0.01, False),
    ],
)
def test_what_is_met_hardly_more_often_than_at_a_slower_pace_is_noise(share, noise, is_noise):
    assert Trouble(share=share, noise=noise).is_noise(0.25) is is_noise


def test_a_fall_keeps_what_is_known_and_says_until_when_the_pace_stands():
    known = Trouble(share=0.3, noise=0.2, fell_at=at(1), still_until=at(2))
    assert known.after_fall(at(10), 5.0) == Trouble(0.3, 0.2, at(10), at(15))
    assert known.after_call(False, at(0)).fell_at == at(1)
    assert known.after_call(False, at(0)).still_until == at(2)


# A spell, and its end.


@pytest.mark.parametrize(("noise", "calls"), [(0.5, 7), (0.3, 13), (0.15, 29)])
def test_a_spell_is_over_when_chance_would_hardly_let_so_many_calls_pass(noise, calls):
    """At half of the calls 0.5^7 is less than one in a hundred."""
    spell = Trouble(noise=noise)
    passed = [spell]
    for _ in range(calls):
        passed.append(replace(passed[-1], noise=noise).after_call(False, at(0)))
    assert [one.is_over for one in passed[-2:]] == [False, True]
    assert not after(passed[-1], True).is_over  # one more, and it lasts


def test_little_noise_is_no_spell_that_could_end():
    assert not after(Trouble(noise=0.149), *[False] * 1_000).is_over
