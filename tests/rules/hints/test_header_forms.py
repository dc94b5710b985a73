"""The forms of a hint, each by itself: numbers, durations, words, dates, and the structured field."""

from datetime import UTC, datetime

import pytest

from perdure.rules.hints.durations import asked_in_words_s, duration_s, number_of, whole_number_of
from perdure.rules.hints.moments import http_moment, rfc3339_moment
from perdure.rules.hints.ratelimit_header import exhausted_for_s

NOW = datetime(2026, 7, 29, 12, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)


NUMBERS = ["0", "1", "007", " 30 ", "\t30", "0.5", "1.123456789", "999999999999"]
NOT_NUMBERS = [
    "", " ", "-1", "-0", "+5", "inf", "nan", "1e3", "1E3", "1_000", "0x10", "1,5", "1.", ".5", "1.2.3", "5s",
    "5 s", "1 2", "٣", "３０", "²", "5\n", "5\x00", "\ud800", "\xa05", "None", "true",
]  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_plain_numbers_are_read(text):
    assert number_of(text) == float(text)
    assert whole_number_of(text) == (None if "." in text else float(text))


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_everything_else_is_no_number(text):
    assert number_of(text) is None
    assert whole_number_of(text) is None


DURATIONS = [
    ("6m0s", 360.0), ("1s", 1.0), ("12ms", 0.012), ("2m59.56s", 179.56), ("1h2m3s", 3723.0), ("1.5h", 5400.0),
    ("1d", 86_400.0), ("7us", 7e-6), ("7µs", 7e-6), ("7μs", 7e-6), ("250ns", 2.5e-7), ("1s1s", 2.0), (" 1s\t", 1.0),
    ("45.837906927s", 45.837906927), ("1s" * 16, 16.0),
    ("", None), ("s", None), ("1", None), ("1.s", None), (".5s", None), ("-1s", None), ("+1s", None), ("1 s", None),
    ("1S", None), ("1m30", None), ("1e3s", None), ("1_0s", None), ("１s", None), ("1w", None), ("1s" * 17, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations_are_read_as_go_prints_them(text, seconds):
    assert duration_s(text) == seconds


WORDS = [
    ("retry in 1s", 1.0), ("Retry In 1S", 1.0), ("RE-TRY AFTER 2 HOURS", 7200.0), ("try after 1 hr", 3600.0),
    ("try again in about 5 mins", 300.0), ("try your request again in 3 secs.", 3.0),
    ("try the request again after at least 2 hrs", 7200.0), ("retry again in approximately 1 msec", 0.001),
    ("retry in around 500 milliseconds!", 0.5), ("retry in 1 millisecond", 0.001), ("retry in 3 msecs", 0.003),
    ("retry in 1 day, 2 hours and 5 minutes", 93_900.0), ("retry in 2 days, and 1 min", 172_860.0),
    ("retry in 1h 2m 3s", 3723.0), ("retry in 7us", 7e-6), ("retry in 7µs", 7e-6), ("retry in 7μs", 7e-6),
    ("retry in 9ns", 9e-9), ("retry in 1d", 86_400.0), ("retry in 1 sec", 1.0), ("retry in 1 minute", 60.0),
    ("retry in 1 hour", 3600.0), ("please wait for 1.5 seconds", 1.5), ("you must wait 2 s", 2.0),
    ("you should wait at least 2 s", 2.0), ("(retry in 5s)", 5.0), ('"retry in 5s"', 5.0), ("retry in 5s.", 5.0),
    ("retry in 5s, or else", 5.0), ("retry in 5s and 3 others", 5.0), ("try again in 5s, retry in 3s", 5.0),
    ("retry in 999999999999999.5s", 999_999_999_999_999.5),
    ("retry in 1s 2s 3s 4s 5s 6s 7s 8s", 36.0),
    ("", None), ("retry", None), ("retry in", None), ("retry in 5", None), ("retry in 5 stages", None), ("retry in5s", None),
    ("retry in 5s.5", None), ("retry in 5s5", None), ("retry in 5s-10s", None), ("retry in 5s_", None), ("retry in +5s", None),
    ("retry in .5s", None), ("retry in 5  s", None), ("retry in 1_0s", None), ("retry in 5ſ", None),
    ("retry in 9999999999999999s", None), ("entry in 5s", None), ("i will wait 5s", None), ("await 5s", None),
    ("subplease wait 5s", None), ("retry at 5s", None), ("try it in 5s", None), ("retry in 1.2.3s", None),
    ("retry in 1." + "1" * 16 + "s", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), WORDS)
def test_words_are_read_when_they_ask_for_a_wait(text, seconds):
    assert asked_in_words_s(text) == (
        None if seconds is None else pytest.approx(seconds, rel=1e-12)
    )


HTTP_DATES = [
    ("Sun, 06 Nov 1994 08:49:37 GMT", utc(1994, 11, 6, 8, 49, 37)),
    ("Sunday, 06-Nov-94 08:49:37 GMT", utc(1994, 11, 6, 8, 49, 37)),
    ("Sun Nov  6 08:49:37 1994", utc(1994, 11, 6, 8, 49, 37)),
    ("Sun Nov 16 08:49:37 1994", utc(1994, 11, 16, 8, 49, 37)),
    ("Sunday, 06-Nov-1994 08:49:37 GMT", utc(1994, 11, 6, 8, 49, 37)),
    ("6 Nov 1994 08:49:37 Z", utc(1994, 11, 6, 8, 49, 37)),
    ("Sun,06 Nov 1994 08:49:37 UT", utc(1994, 11, 6, 8, 49, 37)),
    ("Sun, 06 Nov 1994 08:49:37 -0530", utc(1994, 11, 6, 14, 19, 37)),
    ("Sun, 06 Nov 1994 08:49:37 +05:30", utc(1994, 11, 6, 3, 19, 37)),
    ("Sat, 31 Dec 2016 23:59:60 GMT", utc(2017, 1, 1)),
    ("Fri, 31 Dec 9999 23:59:60 GMT", None),
    ("Sat, 01 Jan 0001 00:30:00 +0100", None),
    ("Sat, 01 Jan 0000 00:00:00 GMT", None),
    ("Sun, 06 Nov 1994 08:49:61 GMT", None),
    ("Sun, 06 Nov 1994 08:60:37 GMT", None),
    ("Sun, 06 Nov 1994 24:00:00 GMT", None),
    ("Sun, 06 Nov 1994 08:49:37 EST", None),
    ("Sun, 06 Nov 1994 08:49:37 +2400", None),
    ("Sun, 06 Nov 1994 08:49 GMT", None),
    ("Sun, 32 Nov 1994 08:49:37 GMT", None),
    ("Sunday, 29-Feb-25 08:49:37 GMT", None),
    ("Sun, ０6 Nov 1994 08:49:37 GMT", None),
    ("Sun, 06 Nov 1994 08:49:37 GMT\n", None),
    ("Sun Nov  6 08:49:37 1994 GMT", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "moment"), HTTP_DATES)
def test_the_dates_of_http_are_read(text, moment):
    assert http_moment(text, NOW) == moment


TWO_DIGITS = [
    (utc(2026, 7, 29, 12), "Wed, 29-Jul-76 12:00:00", 2076),
    (utc(2026, 7, 29, 12), "Wed, 29-Jul-76 12:00:01", 1976),
    (utc(2026, 7, 29, 12, 0, 1), "Wed, 29-Jul-76 12:00:01", 2076),
    (utc(2026, 7, 29, 12), "Wed, 29-Jul-76 12:01:00", 1976),
    (utc(2026, 7, 29, 12), "Wed, 29-Jul-76 13:00:00", 1976),
    (utc(2026, 7, 29, 12), "Wed, 30-Jul-76 00:00:00", 1976),
    (utc(2026, 7, 29, 12), "Wed, 01-Aug-76 00:00:00", 1976),
    (utc(2026, 7, 29, 12), "Wed, 01-Jan-77 00:00:00", 1977),
    (utc(2026, 7, 29, 12), "Wed, 31-Dec-25 00:00:00", 2025),
    (utc(2026, 7, 29, 12), "Wed, 01-Jan-00 00:00:00", 2000),
    (utc(2090, 1, 1), "Wed, 01-Jan-05 00:00:00", 2105),
    (utc(2000, 1, 1), "Wed, 01-Jan-99 00:00:00", 1999),
    (utc(2199, 12, 31), "Wed, 01-Jan-49 00:00:00", 2249),
]  # fmt: skip


@pytest.mark.parametrize(("now", "text", "year"), TWO_DIGITS)
def test_two_digits_name_the_latest_year_not_more_than_fifty_years_ahead(now, text, year):
    assert http_moment(text, now).year == year


def test_two_digits_that_lead_beyond_the_year_9999_name_no_year():
    assert http_moment("Wed, 01-Jan-05 00:00:00", utc(9990, 1, 1)) is None


RFC_3339 = [
    ("2026-07-29T12:00:37Z", utc(2026, 7, 29, 12, 0, 37)),
    ("2026-07-29t12:00:37z", utc(2026, 7, 29, 12, 0, 37)),
    ("2026-07-29 12:00:37", utc(2026, 7, 29, 12, 0, 37)),
    (" 2026-07-29T12:00:37Z\t", utc(2026, 7, 29, 12, 0, 37)),
    ("2026-07-29T14:30:37+02:30", utc(2026, 7, 29, 12, 0, 37)),
    ("2026-07-29T09:30:37-0230", utc(2026, 7, 29, 12, 0, 37)),
    ("2026-07-29T12:00:37.5Z", utc(2026, 7, 29, 12, 0, 37, 500_000)),
    ("2026-07-29T12:00:37.000001Z", utc(2026, 7, 29, 12, 0, 37, 1)),
    ("2026-07-29T12:00:37.0000010Z", utc(2026, 7, 29, 12, 0, 37, 1)),
    ("2026-07-29T12:00:37.000001001Z", utc(2026, 7, 29, 12, 0, 37, 2)),
    ("2026-07-29T12:00:37.9999999Z", utc(2026, 7, 29, 12, 0, 38)),
    ("9999-12-31T23:59:59.999999Z", LAST),
    ("9999-12-31T23:59:59.9999999Z", None),
    ("9999-12-31T23:59:59-00:01", None),
    ("0001-01-01T00:00:00+00:01", None),
    ("0000-01-01T00:00:00Z", None),
    ("2026-02-30T00:00:00Z", None),
    ("2026-07-29", None),
    ("2026-07-29T12:00Z", None),
    ("2026-07-29T12:00:37.Z", None),
    ("2026-07-29T12:00:37 Z", None),
    ("+2026-07-29T12:00:37Z", None),
    ("12026-07-29T12:00:37Z", None),
    ("２026-07-29T12:00:37Z", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "moment"), RFC_3339)
def test_the_internet_s_own_moments_are_read_and_rounded_up(text, moment):
    assert rfc3339_moment(text) == moment


FIELDS = [
    ('"a";r=0;t=30', 30.0), ('"a"; r=0; t=30', 30.0), ("a;r=0;t=30", 30.0), ('"a";t=30;r=0', 30.0),
    ('"a";r=0;t=0', 0.0), ('"a";r=0;t=999999999999999', 999_999_999_999_999.0), ('"a";r=0;t=1;t=2', 2.0),
    ('"a";r=0;t=1,"b";r=0;t=2', 2.0), ('"a";r=0;t=2\t,\t"b";r=0;t=1', 2.0), ('"a";r=1;t=9,"b";r=0;t=1', 1.0),
    (r'"a\"\\b";r=0;t=3', 3.0), ('"";r=0;t=3', 3.0), (' "a";r=0;t=3 ', 3.0),
    ('"a";r=0;t=3;x;y=?1;z=:aGk=:;w=1.5;v=@17;u=tok/en;s="q, ;"', 3.0),
    ("", None), ('"a"', None), ('"a";r=0', None), ('"a";t=3', None), ('"a";r;t=3', None), ('"a";r=1;t=3', None),
    ('"a";r=0;t=3.5', None), ('"a";r=0.0;t=3', None), ('"a";r=0;t=-3', None), ('"a";r=0;t="3"', None), ('"a";r=0;t=+3', None),
    ('"a";r=0;t=3,', None), (',"a";r=0;t=3', None), ('"a";r=0;t=3 x', None), ('"a;r=0;t=3', None), ('"a";r=0;t=', None),
    ('"a" ;r=0;t=3', None), ('"a";R=0;t=3', None), ('"ä";r=0;t=3', None), ('("a");r=0;t=3', None), ("5;r=0;t=3", None),
    ('"a";r=0;t=9999999999999999', None), ('"a";r=0;t=3, "b";r=0;t=4,, "c";r=0;t=5', None), (r'"a\x";r=0;t=3', None),
    ('"a";r=0;t=3;x=?2', None), ('"a";r=0;t=3\n', None), ('"a";r=0;t=３', None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), FIELDS)
def test_the_structured_field_is_read_as_a_whole_or_not_at_all(text, seconds):
    assert exhausted_for_s(text) == seconds


def test_a_structured_field_may_list_thirty_two_quotas_and_no_more():
    listed = ", ".join(f'"q{n}";r=0;t={n}' for n in range(33))
    assert exhausted_for_s(listed) is None
    assert exhausted_for_s(listed.removesuffix(', "q32";r=0;t=32')) == 31.0
