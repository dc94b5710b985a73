"""Whatever a server sends: a finite wait in range or none, never an error, never early."""

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import assume, example, given, strategies as st

from perdure.model.nouns import replace
from perdure.model.outcomes import Evidence
from perdure.rules.hints.durations import asked_in_words_s, duration_s
from perdure.rules.hints.moments import http_moment, rfc3339_moment
from perdure.rules.hints.ratelimit_header import exhausted_for_s
from perdure.rules.hints.wait_hints import Hint, server_verdict, wait_hint

Asked = Callable[[Evidence, datetime], Hint | None]

HEADERS = [
    "date", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms",
    "x-ratelimit-reset-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-tokens", "x-ratelimit-reset", "x-ratelimit-remaining", "ratelimit", "x-should-retry",
    "anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-requests-remaining",
]  # fmt: skip
FACTS = [
    "retryDelay", "retryAfterMs", "retryAfterSeconds", "quotaResetDelay", "quotaResetTimeStamp", "resets_at", "message",
    "retryable", "quotaId",
]  # fmt: skip
SOURCES = {*HEADERS, *FACTS, "stage", "message"}

# -- anything at all --------------------------------------------------------------------------

SENSIBLE = [
    "0", "5", "2.5", "1500", "86400000", "1785326437", "1785326437500", "253402300799", "6m0s", "12ms", "53s",
    "45.837906927s", "Wed, 29 Jul 2026 12:00:37 GMT", "Wednesday, 29-Jul-26 12:00:37 GMT", "Wed Jul 29 12:00:37 2026",
    "Fri, 31 Dec 9999 23:59:60 GMT", "2026-07-29T12:00:37.123456789Z", "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59", '"default";r=0;t=30', '"a";r=0;t=5, "b";r=0;t=999999999999999', "true", "false",
    "Please retry after 37 seconds", "try again in 1m30s", "retry in 10h17m5.7s", "please wait 999999999999999 days",
]  # fmt: skip
PIECES = [
    *'0123456789.,:;=+-_eE"\\ \t\n\x00/()?@*TZzsmhdnuµμ', "０", "٣", "²", "ſ", "inf", "nan", "9" * 30, "9" * 400, "ms", "r=0",
    "t=", "GMT", "Wed, ", "29 Jul 2026 ", "-Jul-", "12:00:37", "2026-07-29", "retry in ", " and ", "seconds", "«", "\ud800",
]  # fmt: skip


def spoiled(chance: Random) -> str:
    """A sensible value with something put into it, or cut out of it."""
    text = chance.choice(SENSIBLE)
    at = chance.randint(0, len(text))
    return text[:at] + pieced(chance) + text[at + chance.randint(0, 2) :]


def pieced(chance: Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(0, 8)))


def from_bytes(chance: Random) -> str:
    return chance.randbytes(chance.randint(0, 40)).decode("latin-1")


def from_anywhere(chance: Random) -> str:
    return "".join(chr(chance.randrange(0x110000)) for _ in range(chance.randint(0, 20)))


def value(chance: Random) -> str:
    ways = (lambda one: one.choice(SENSIBLE), spoiled, spoiled, pieced, from_bytes, from_anywhere)
    return chance.choice(ways)(chance)


def stated(chance: Random) -> object:
    odd = (-1.0, math.inf, -math.inf, math.nan, 1e300, 5, 10**400, "5", True, 2.5)
    return chance.choice(odd) if chance.random() < 0.1 else None


def evidence_by(seed: int) -> Evidence:
    """Any evidence. Lots drawn here are many times faster than a strategy for each value."""
    chance = Random(seed)
    named = [(chance.choice(HEADERS), value(chance)) for _ in range(chance.randint(0, 6))]
    odd = [(from_anywhere(chance), value(chance)) for _ in range(chance.randint(0, 1))]
    facts = [(chance.choice(FACTS), value(chance)) for _ in range(chance.randint(0, 3))]
    return Evidence(
        message=value(chance),
        headers=tuple(named + odd),
        facts=tuple(facts),
        wait_s=stated(chance),
    )


seeds = st.integers(0, 2**64)
moments = st.datetimes(timezones=st.just(UTC))


def check(hint: Hint | None, now: datetime) -> None:
    """A finite wait that is not negative and ends before the calendar does, or none."""
    if hint is None:
        return
    assert math.isfinite(hint.seconds)
    assert hint.seconds >= 0.0
    assert now + timedelta(seconds=hint.seconds) <= datetime.max.replace(tzinfo=UTC)
    assert hint.source in SOURCES or hint.source.startswith("anthropic-ratelimit-")


Property = Callable[[int], None]


def hold(holds: Property, times: int) -> None:
    """A property of so many seeds, drawn anew in each run; nothing smaller is looked for, as a seed has no smaller one."""
    for _ in range(times):
        seed = random.getrandbits(64)
        try:
            holds(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


CATCH = 5_000  # tries, at most, to see that a twin is broken


def moment_within(first_year: int, last_year: int, chance: Random) -> datetime:
    """Any moment of these years; one of eight is among their first or last few seconds."""
    first = datetime(first_year, 1, 1, tzinfo=UTC)
    span_us = (datetime.max.replace(year=last_year, tzinfo=UTC) - first) // timedelta.resolution
    near_us = chance.choice((0, 1, 999_999, chance.randrange(10_000_000)))
    ahead_us = chance.choice((near_us, span_us - near_us, *[chance.randint(0, span_us)] * 14))
    return first + ahead_us * timedelta.resolution


def total(asked: Asked) -> Property:
    """The property as a test of any reader."""

    def holds(seed: int) -> None:
        evidence = evidence_by(seed)
        now = moment_within(1, 9999, Random(seed + 1))
        check(asked(evidence, now), now)
        assert server_verdict(evidence) in (True, False, None)

    return holds


def test_any_evidence_gives_a_finite_wait_in_range_or_none():
    hold(total(wait_hint), 5_000)


@pytest.mark.long
def test_a_hundred_thousand_random_sets_of_headers_give_a_finite_wait_in_range_or_none():
    hold(total(wait_hint), 100_000)


def trusting(evidence: Evidence, now: datetime) -> Hint | None:
    """Whatever `float` takes is believed."""
    text = evidence.header("retry-after")
    try:
        return None if text is None else Hint(float(text), "retry-after")
    except ValueError:
        return None


def test_a_reader_that_believes_everything_is_caught():
    with pytest.raises((AssertionError, OverflowError)):
        hold(total(trusting), CATCH)


@given(st.text() | seeds.map(lambda seed: value(Random(seed))))
@example("9" * 400)
@example("retry in 999999999999999.999999999999999 days " * 8)
def test_each_reader_takes_any_text(text):
    waits = (duration_s(text), asked_in_words_s(text), exhausted_for_s(text))
    assert all(found is None or found >= 0 for found in waits)
    for moment in (rfc3339_moment(text), http_moment(text, datetime(2026, 7, 29, tzinfo=UTC))):
        assert moment is None or moment.utcoffset() == timedelta(0)


# -- never early ------------------------------------------------------------------------------

GARBAGE = [
    "",
    "-1",
    "nan",
    "inf",
    "1e3",
    "+5",
    "５",
    "5 s",
    "soon",
    "Fri, 31 Dec 99999 23:59:59 GMT",
    "5, x",
]
ASKING = ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms"]
ZONES = [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9, minutes=30))]

clock = st.datetimes(
    datetime(2002, 1, 1),  # noqa: DTZ001
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def http_dates(moment: datetime) -> list[str]:
    """The three spellings of one whole second, by other hands than ours."""
    return [
        format_datetime(moment, usegmt=True),
        moment.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
        time.asctime(moment.timetuple()),
    ]


def go_text(ns: int, style: int) -> str:
    """A whole number of nanoseconds as a duration, in one of several honest ways."""
    whole, rest = divmod(ns, 10**9)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    minutes, seconds = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    return (
        f"{whole}{fraction}s",
        f"{minutes}m{seconds}{fraction}s",
        f"{hours}h{minutes_left}m{seconds}{fraction}s",
        f"{hours}h{minutes_left}m{seconds}s{rest // 10**6}ms{rest // 1000 % 1000}us{rest % 1000}ns",
    )[style]


def spoken(ns: int, style: int) -> str:
    whole, rest = divmod(ns, 10**9)
    minutes, seconds = divmod(whole, 60)
    return (
        f"Please retry after {whole}.{rest:09d} seconds.",
        f"Try again in {minutes} minutes and {seconds}.{rest:09d} seconds",
        f"Rate limited; retry in {go_text(ns, 2)}",
        f"please wait {go_text(ns, 0)} before you try again",
    )[style]


def used_up(name: str, value: str) -> Evidence:
    return Evidence(headers=((name.replace("-reset", "-remaining"), "0"), (name, value)))


def header(name: str, value: str) -> Evidence:
    return Evidence(headers=((name, value),))


def fact(name: str, value: str) -> Evidence:
    return Evidence(facts=((name, value),))


def relative(chance: Random) -> tuple[Evidence, float]:
    """A wait in one of the forms that are relative, with the seconds that its text says."""
    wait_s = chance.choice(
        (chance.uniform(0, 100), chance.uniform(0, 1e6), chance.randint(0, 10**8))
    )
    ns, style = round(wait_s * 1e9), chance.randint(0, 3)
    seconds, whole = f"{wait_s:.6f}", f"{math.ceil(wait_s)}"
    ms, ms_whole = f"{wait_s * 1000:.3f}", f"{min(math.ceil(wait_s * 1000), 2**31 - 1)}"
    forms = [
        (header("retry-after", seconds), float(seconds)),
        (header("retry-after", whole), float(whole)),
        (header("retry-after-ms", ms), float(ms) / 1000),
        (header("x-ms-retry-after-ms", ms), float(ms) / 1000),
        (header("x-amz-retry-after", ms_whole), int(ms_whole) / 1000),
        (header("grpc-retry-pushback-ms", ms_whole), int(ms_whole) / 1000),
        (header("x-ratelimit-reset", seconds), float(seconds)),
        (header("ratelimit", f'"a";r=0;t={whole}'), float(whole)),
        (used_up("x-ratelimit-reset-tokens", go_text(ns + 1, style)), ns / 1e9),
        (used_up("x-ratelimit-reset-requests", f"{math.ceil(wait_s) + 1}"), math.ceil(wait_s) + 1),
        (fact("retryDelay", go_text(ns, 0)), ns / 1e9),
        (fact("retryAfterMs", ms), float(ms) / 1000),
        (fact("retryAfterSeconds", seconds), float(seconds)),
        (fact("quotaResetDelay", go_text(ns, style)), ns / 1e9),
        (fact("message", spoken(ns, style)), ns / 1e9),
        (Evidence(message=spoken(ns, style)), ns / 1e9),
    ]
    return chance.choice(forms)


def absolute(chance: Random, now: datetime) -> tuple[Evidence, float]:
    """A moment in one of its forms, with its distance from the server's time."""
    ahead_s, skew_s = chance.randint(0, 10**8), chance.randint(-86_400, 86_400)
    with_date = chance.random() < 0.5
    server_now = (now + timedelta(seconds=skew_s)).replace(microsecond=0) if with_date else now
    second = (server_now + timedelta(seconds=ahead_s + 1)).replace(microsecond=0)
    exact = server_now + timedelta(seconds=ahead_s, microseconds=chance.randint(0, 999_999))
    zoned = exact.astimezone(chance.choice(ZONES)).isoformat()
    to_second, to_exact = ((one - server_now).total_seconds() for one in (second, exact))
    text, epoch = chance.choice(http_dates(second)), str(int(second.timestamp()))
    forms = [
        (header("retry-after", text), to_second),
        (header("retry-after", epoch), to_second),
        (header("x-ratelimit-reset", text), to_second),
        (header("x-ratelimit-reset", epoch), to_second),
        (header("x-ratelimit-reset", f"{epoch}000"), to_second),
        (header("x-ratelimit-reset", zoned), to_exact),
        (used_up("anthropic-ratelimit-tokens-reset", zoned), to_exact),
        (fact("quotaResetTimeStamp", zoned), to_exact),
        (fact("resets_at", zoned), to_exact),
        (fact("resets_at", epoch), to_second),
    ]
    evidence, wait_s = chance.choice(forms)
    date = (("date", chance.choice(http_dates(server_now))),) if with_date else ()
    return replace(evidence, headers=(*date, *evidence.headers)), wait_s


def hinted(seed: int, now: datetime) -> tuple[Evidence, float]:
    """A valid hint, with garbage in some of the sources that are asked before it."""
    chance = Random(seed)
    evidence, wait_s = relative(chance) if chance.random() < 0.5 else absolute(chance, now)
    taken = {name for name, _ in evidence.headers}
    free = [name for name in ASKING if name not in taken]
    dirt = [(name, chance.choice(GARBAGE)) for name in chance.sample(free, k=chance.randint(0, 3))]
    return replace(evidence, headers=(*dirt, *evidence.headers)), wait_s


def punctual(asked: Asked) -> Property:
    def holds(seed: int) -> None:
        now = moment_within(2002, 2199, Random(seed + 1))
        evidence, wait_s = hinted(seed, now)
        hint = asked(evidence, now)
        assert hint is not None
        assert wait_s - 1e-6 <= hint.seconds <= wait_s + 1.0

    return holds


def test_a_valid_hint_in_any_form_is_never_undercut():
    hold(punctual(wait_hint), 3_000)


@pytest.mark.long
def test_a_hundred_thousand_valid_hints_are_never_undercut():
    hold(punctual(wait_hint), 100_000)


def hasty(evidence: Evidence, now: datetime) -> Hint | None:
    """Fractions of a second do not matter."""
    hint = wait_hint(evidence, now)
    return None if hint is None else Hint(float(math.floor(hint.seconds)), hint.source)


def clockless(evidence: Evidence, now: datetime) -> Hint | None:
    """The server's clock is as good as ours."""
    headers = tuple(pair for pair in evidence.headers if pair[0] != "date")
    return wait_hint(
        Evidence(evidence.names, evidence.message, None, headers, (), evidence.facts), now
    )


@pytest.mark.parametrize("asked", [hasty, clockless, trusting])
def test_a_reader_that_is_early_is_caught(asked):
    with pytest.raises(AssertionError):
        hold(punctual(asked), CATCH)


# -- round trips ------------------------------------------------------------------------------


@given(st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC)), st.integers(0, 1))  # noqa: DTZ001
def test_dates_of_http_survive_the_round_trip(moment, form):
    second = moment.replace(microsecond=0)
    text = http_dates(second)[2 * form]  # asctime writes no year below 1000 in four digits
    assert http_moment(text, datetime(2026, 7, 29, tzinfo=UTC)) == second


@given(clock, st.integers(-49 * 365 * 86_400, 49 * 365 * 86_400))
def test_dates_of_rfc_850_survive_the_round_trip_within_half_a_century(now, ahead_s):
    second = now.replace(microsecond=0) + timedelta(seconds=ahead_s)
    assert http_moment(http_dates(second)[1], now) == second


@given(moments, st.sampled_from(ZONES))
def test_moments_of_rfc_3339_survive_the_round_trip(moment, zone):
    assume(datetime(2, 1, 1, tzinfo=UTC) < moment < datetime(9999, 12, 30, tzinfo=UTC))
    assert rfc3339_moment(moment.astimezone(zone).isoformat()) == moment


@given(st.integers(0, 10**18), st.integers(0, 3))
def test_durations_survive_the_round_trip(ns, style):
    assert duration_s(go_text(ns, style)) == pytest.approx(ns / 1e9, rel=1e-12, abs=1e-15)


@given(st.integers(0, 10**15), st.integers(0, 3))
def test_spoken_durations_survive_the_round_trip(ns, style):
    assert asked_in_words_s(spoken(ns, style)) == pytest.approx(ns / 1e9, rel=1e-12, abs=1e-15)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9)), min_size=1, max_size=5))
def test_the_structured_field_survives_the_round_trip(quotas):
    text = ", ".join(f'"q{n}";r={left};t={reset_s}' for n, (left, reset_s) in enumerate(quotas))
    assert exhausted_for_s(text) == max((float(t) for left, t in quotas if left == 0), default=None)
