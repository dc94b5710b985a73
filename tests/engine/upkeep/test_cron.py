"""Rhythms: which moments a schedule's text means, odd hours and leap days included (T4)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import hypothesis
import pytest
from hypothesis import example, given, strategies as st

from perdure.engine.upkeep.cron import NEVER, Cron, Every, rhythm_in, rhythm_of
from perdure.model.errors import ConfigError

MINUTE = timedelta(minutes=1)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def upcoming(rhythm, start: datetime, count: int) -> list[datetime]:
    found = []
    for _ in range(count):
        start = rhythm.after(start)
        found.append(start)
    return found


# -- intervals -------------------------------------------------------------------------------

INTERVALS = [
    ("15m", "2030-01-01 00:00", "2030-01-01 00:15"),
    ("15m", "2030-01-01 00:14:59.999999", "2030-01-01 00:15"),
    ("15m", "2030-01-01 00:15", "2030-01-01 00:30"),
    ("1h30m", "2030-01-01 00:00", "2030-01-01 01:30"),
    ("24h", "2030-01-01 12:00", "2030-01-02 00:00"),
    ("7d", "2030-01-01 12:00", "2030-01-03 00:00"),  # Thursdays: so began 1970
    ("30s", "2029-12-31 23:59:45", "2030-01-01 00:00"),
    ("1.5s", "2030-01-01 00:00", "2030-01-01 00:00:01.5"),
    ("1s", "2038-01-19 03:14:07", "2038-01-19 03:14:08"),  # where 32 bits end
    ("24h", "2028-02-28 12:00", "2028-02-29 00:00"),
    ("1h", "1969-12-31 23:30", "1970-01-01 00:00"),
    ("24h", "9999-12-31 12:00", "9999-12-31 23:59:59"),  # there is no next year
]


@pytest.mark.parametrize(("spec", "after", "expected"), INTERVALS)
def test_an_interval_falls_due_at_multiples_since_1970(spec, after, expected):
    assert rhythm_of(spec).after(moment(after)) == moment(expected)


def test_all_who_read_the_same_interval_agree_whenever_they_start():
    rhythm = rhythm_of("7m")
    starts = [moment("2030-01-01 00:00") + timedelta(seconds=13 * n) for n in range(400)]
    found = {rhythm.after(start) for start in starts}
    first, *_ = ordered = sorted(found)
    assert ordered == [first + timedelta(minutes=7 * n) for n in range(len(ordered))]


# -- cron, in UTC, against a slow twin ---------------------------------------------------------

FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # Two different numbers: cronsim 2.8 reads 5-5/2 as 5/2, which Debian's cron does not.
    ends = st.sets(number, min_size=2, max_size=2).map(sorted)
    ranged = ends.map(lambda two: f"{two[0]}-{two[1]}")
    step = st.integers(1, 30)
    return st.one_of(
        st.just("*"),
        number.map(str),
        ranged,
        step.map(lambda n: f"*/{n}"),
        st.tuples(ranged, step).map(lambda two: f"{two[0]}/{two[1]}"),
        st.lists(number, min_size=2, max_size=4).map(lambda many: ",".join(map(str, many))),
    )


EXPRESSIONS = st.tuples(*(field(*bounds) for bounds in FIELDS)).map(" ".join)


def numbers(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        plain, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if plain == "*" else plain).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def slowly(expression: str, start: datetime, minutes: int) -> list[datetime]:
    """What a walk over every minute finds; as the manual page says it."""
    texts = expression.split()
    minute, hour, day, month, weekday = (
        numbers(text, *bounds) for text, bounds in zip(texts, FIELDS, strict=True)
    )
    both = texts[2].startswith("*") or texts[4].startswith("*")

    def means(one: datetime) -> bool:
        if one.minute not in minute or one.hour not in hour or one.month not in month:
            return False
        by_day, by_weekday = one.day in day, one.isoweekday() % 7 in {n % 7 for n in weekday}
        return (by_day and by_weekday) if both else (by_day or by_weekday)

    first = start.replace(second=0, microsecond=0) + MINUTE
    return [one for n in range(minutes) if means(one := first + n * MINUTE)]


@given(EXPRESSIONS, st.floats(0, 80 * 86_400))
@hypothesis.settings(max_examples=100)
def test_cron_finds_what_a_walk_over_every_minute_finds(expression, seconds):
    start = moment("2027-12-20 00:00") + timedelta(seconds=seconds)
    try:
        rhythm = rhythm_of(expression)
    except ConfigError:
        assert slowly(expression, start, minutes=3000) == []
        return
    expected = slowly(expression, start, minutes=3000)[:20]
    assert upcoming(rhythm, start, len(expected)) == expected
    if len(expected) < 20:
        last = expected[-1] if expected else start
        assert rhythm.after(last) > start + 2999 * MINUTE


# -- time zones ------------------------------------------------------------------------------

# Berlin: on 2030-03-31 02:00 CET becomes 03:00 CEST, on 2030-10-27 03:00 CEST becomes 02:00 CET.
# Each row: expression, zone, a moment before, and the next moments in UTC.
ODD_DAYS = [
    # A job at a fixed time in the missing hour runs when the hour would be over.
    ("30 2 * * *", "Europe/Berlin", "2030-03-29 12:00",
     ["2030-03-30 01:30", "2030-03-31 01:00", "2030-04-01 00:30"]),
    # ... once, also when it would have run there several times.
    ("0,30 2 * * *", "Europe/Berlin", "2030-03-30 12:00",
     ["2030-03-31 01:00", "2030-04-01 00:00", "2030-04-01 00:30"]),
    # A job at a fixed time in the doubled hour runs in the first of the two.
    ("30 2 * * *", "Europe/Berlin", "2030-10-26 12:00",
     ["2030-10-27 00:30", "2030-10-28 01:30"]),
    # ... and not again, asked from within the second one.
    ("30 2 * * *", "Europe/Berlin", "2030-10-27 01:10", ["2030-10-28 01:30"]),
    ("30 2 * * *", "Europe/Berlin", "2030-10-27 01:30", ["2030-10-28 01:30"]),
    # What runs often goes on at its pace: real time passes, whatever clocks say.
    ("*/30 * * * *", "Europe/Berlin", "2030-10-26 23:50",
     ["2030-10-27 00:00", "2030-10-27 00:30", "2030-10-27 01:00", "2030-10-27 01:30",
      "2030-10-27 02:00"]),
    ("*/30 * * * *", "Europe/Berlin", "2030-03-31 00:20",
     ["2030-03-31 00:30", "2030-03-31 01:00", "2030-03-31 01:30"]),
    ("15 * * * *", "Europe/Berlin", "2030-03-31 00:10",
     ["2030-03-31 00:15", "2030-03-31 01:15", "2030-03-31 02:15"]),
    # Working days at seven, in winter and in summer.
    ("0 7 * * 1-5", "Europe/Berlin", "2030-03-29 05:59",
     ["2030-03-29 06:00", "2030-04-01 05:00", "2030-04-02 05:00"]),
    # Half an hour (Lord Howe), and at midnight (Cairo: on 2030-04-26 there is no 00:00).
    ("45 1 * * *", "Australia/Lord_Howe", "2030-04-06 00:00",
     ["2030-04-06 14:45", "2030-04-07 15:15"]),
    ("0 0 * * *", "Africa/Cairo", "2030-04-25 12:00",
     ["2030-04-25 22:00", "2030-04-26 21:00"]),
    ("*/30 * * * *", "Africa/Cairo", "2030-04-25 21:29",
     ["2030-04-25 21:30", "2030-04-25 22:00", "2030-04-25 22:30"]),
    # A zone without such days.
    ("0 9 * * *", "Asia/Kolkata", "2030-03-31 03:30", ["2030-04-01 03:30"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ODD_DAYS)
def test_odd_hours_make_no_double_and_no_missed_moment(expression, zone, after, expected):
    rhythm = rhythm_of(expression, timezone=zone)
    assert upcoming(rhythm, moment(after), len(expected)) == [moment(one) for one in expected]


CALENDAR = [
    ("0 0 29 2 *", "2030-01-01 00:00", ["2032-02-29 00:00", "2036-02-29 00:00"]),
    ("0 0 29 2 *", "2096-03-01 00:00", ["2104-02-29 00:00"]),  # 2100 is no leap year
    ("0 12 29 2 *", "2028-02-29 11:59", ["2028-02-29 12:00"]),
    ("0 0 1 1 *", "2029-12-31 23:59:59.999999", ["2030-01-01 00:00", "2031-01-01 00:00"]),
    ("59 23 31 12 *", "2030-01-01 00:00", ["2030-12-31 23:59"]),
    ("0 0 31 * *", "2030-01-31 00:00", ["2030-03-31 00:00", "2030-05-31 00:00"]),
    ("0 0 L 2 *", "2030-01-01 00:00", ["2030-02-28 00:00", "2031-02-28 00:00"]),
    ("0 9 * * MON#1", "2030-01-01 00:00", ["2030-01-07 09:00", "2030-02-04 09:00"]),
    ("0 0 13 * 5", "2030-09-01 00:00", ["2030-09-06 00:00", "2030-09-13 00:00"]),  # either
    ("14 3 19 1 *", "2038-01-19 03:13", ["2038-01-19 03:14"]),
    ("0 0 * * *", "9999-12-31 00:00", ["9999-12-31 23:59:59"]),
]


@pytest.mark.parametrize(("expression", "after", "expected"), CALENDAR)
def test_leap_days_ends_of_years_and_far_years(expression, after, expected):
    rhythm = rhythm_of(expression)
    assert upcoming(rhythm, moment(after), len(expected)) == [moment(one) for one in expected]


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC"]
NEAR_CHANGES = st.sampled_from(
    ["2030-03-10 07:00", "2030-03-31 01:00", "2030-04-06 15:00", "2030-04-25 22:00",
     "2030-10-05 15:30", "2030-10-27 01:00", "2030-10-31 21:00", "2030-11-03 06:00"]
).map(moment)  # fmt: skip


@given(
    EXPRESSIONS,
    st.sampled_from(ZONES),
    NEAR_CHANGES,
    st.lists(st.integers(-400, 400), min_size=2, max_size=2),
)
@example("* 0 * * *", "Australia/Lord_Howe", moment("2030-04-06 15:00"), [0, 30])
@hypothesis.settings(max_examples=300)
def test_the_moments_are_the_same_from_wherever_they_are_looked_for(
    expression, zone, change, offsets
):
    try:
        rhythm = rhythm_of(expression, timezone=zone)
    except ConfigError:
        return
    early, late = (change + n * MINUTE for n in sorted(offsets))
    first, second = rhythm.after(early), rhythm.after(late)
    assert early < first <= second
    assert late < second
    if first > late:
        assert first == second


@given(
    st.one_of(EXPRESSIONS, st.integers(1, 100_000).map(lambda n: f"{n}s")),
    st.sampled_from(ZONES),
    NEAR_CHANGES,
    st.integers(0, 2000),
)
@hypothesis.settings(max_examples=200)
def test_the_latest_moment_is_the_last_that_has_passed(spec, zone, change, minutes):
    try:
        rhythm = rhythm_of(spec, timezone=None if spec.endswith("s") else zone)
    except ConfigError:
        return
    since = rhythm.after(change - timedelta(hours=6))
    now = since + minutes * MINUTE
    latest = rhythm.latest(now, since=since)
    assert since <= latest <= now
    assert rhythm.after(latest) > now
    assert latest == since or rhythm.after(latest - timedelta(microseconds=1)) == latest


def test_the_latest_moment_after_years_away_is_found_at_once(monkeypatch):
    """Every minute of ten years is 5 million moments; a few hundred are looked at."""
    looked = []
    moments = Cron._moments

    def counting(self, after):
        for one in moments(self, after):
            looked.append(one)
            yield one

    monkeypatch.setattr(Cron, "_moments", counting)
    rhythm = rhythm_of("* * * * *", timezone="Europe/Berlin")
    now = moment("2040-05-05 05:05:05")
    assert rhythm.latest(now, since=moment("2030-05-05 05:05")) == moment("2040-05-05 05:05")
    assert len(looked) < 400


def test_a_rhythm_without_a_further_moment_stays_at_the_last_one():
    since = moment("2030-01-07 09:00")
    assert rhythm_of("0 9 * * 1").latest(since, since=since) == since


# -- texts -----------------------------------------------------------------------------------

READ = [
    ("15m", None, "every 15m"),
    ("900s", None, "every 15m"),
    ("1h30m", None, "every 1h30m"),
    ("90000s", None, "every 1d1h"),
    ("1.5s", None, "every 1.5s"),
    (" 10s ", None, "every 10s"),
    ("0 7 * * 1-5", None, "cron 0 7 * * 1-5 in UTC"),
    ("0  7 * * mon-fri", "Europe/Berlin", "cron 0 7 * * MON-FRI in Europe/Berlin"),
]


@pytest.mark.parametrize(("spec", "zone", "text"), READ)
def test_a_rhythm_can_be_read_again_from_its_words(spec, zone, text):
    rhythm = rhythm_of(spec, timezone=zone)
    assert rhythm.text == text
    assert rhythm_in(text) == rhythm


@pytest.mark.parametrize(
    "text",
    ["", "every", "every soon", "cron * * * * *", "cron x in UTC", "hourly", "every 15m in UTC"],
)
def test_words_of_another_version_are_not_guessed_at(text):
    assert rhythm_in(text) is None


REFUSED = [
    ("", None, "1 to 200 printable characters"),
    (" ", None, "0 fields"),
    (15, None, "1 to 200 printable characters"),
    ("x" * 201, None, "1 to 200 printable characters"),
    ("* * *\n* *", None, "printable"),
    ("15", None, "is no interval; write an interval such as 30s, 15m or 1h30m"),
    ("15 m", None, "has 2 fields"),
    ("every 15m", None, "has 2 fields"),
    ("@daily", None, "is no interval"),
    ("-5m", None, "is no interval"),
    ("0.5s", None, "between 1 s and 366 days"),
    ("0s", None, "between 1 s and 366 days"),
    ("9000h", None, "between 1 s and 366 days"),
    ("* * * *", None, "has 4 fields"),
    ("0 0 7 * * 1-5", None, "has 6 fields"),
    ("60 * * * *", None, "bad minute"),
    ("0 24 * * *", None, "bad hour"),
    ("0 0 0 * *", None, "bad day-of-month"),
    ("0 0 * 13 *", None, "bad month"),
    ("0 0 * * 8", None, "bad day-of-week"),
    ("0 0 ? * *", None, "bad day-of-month"),
    ("5-1 * * * *", None, "bad minute"),
    ("*/0 * * * *", None, "bad minute"),
    ("0 0 30 2 *", None, "never falls due: no month 2 has a day 30; check its day and month"),
    ("0 0 31 feb,4 *", None, "never falls due: no month FEB,4 has a day 31"),
    ("0 0 31 x *", None, "bad month"),
    ("* * */20 * 1L", None, "never falls due"),
    ("15m", "Europe/Berlin", "leave timezone out"),
    ("0 7 * * *", "Europe/Atlantis", "is not known here"),
    ("0 7 * * *", "", "is not known here"),
    ("0 7 * * *", "../UTC", "is not known here"),
    ("0 7 * * *", 5, "is not known here"),
]


@pytest.mark.parametrize(("spec", "zone", "words"), REFUSED)
def test_a_bad_spec_is_refused_with_words_that_help(spec, zone, words):
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        rhythm_of(spec, timezone=zone)


@given(st.text(alphabet="0123456789*/,-#LW MONTUE?@hms.", max_size=30))
@hypothesis.settings(max_examples=500)
def test_any_text_is_a_rhythm_or_refused(text):
    try:
        rhythm = rhythm_of(text)
    except ConfigError:
        return
    assert rhythm.after(moment("2030-01-01 00:00")) <= NEVER
    assert rhythm_in(rhythm.text) == rhythm


def test_rhythms_are_values():
    assert rhythm_of("15m") == Every(900_000_000)
    assert rhythm_of("0 7 * * *") == Cron("0 7 * * *", ZoneInfo("UTC"))
