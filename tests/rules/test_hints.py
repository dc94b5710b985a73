"""Wait hints: what is plain is believed, garbage is ignored, and nothing ever crashes."""

import math

import pytest
from hypothesis import example, given, strategies as st

from perdure.model.outcomes import Evidence
from perdure.rules.hints import seconds_of, wait_hint_s

PLAIN = [
    ("0", 0.0),
    ("1", 1.0),
    ("120", 120.0),
    ("0.5", 0.5),
    ("007", 7.0),
    (" 30 ", 30.0),
    ("\t30", 30.0),
    ("999999999999", 999_999_999_999.0),
    ("1.123456789", 1.123456789),
]
GARBAGE = [
    "", " ", "-1", "-0", "+5", "inf", "Infinity", "-inf", "nan", "NaN", "1e3", "1E3", "1_000",
    "0x10", "0b1", "1,5", "1.", ".5", "1.2.3", "5s", "5 s", "soon", "٣", "３０", "²", "5\n", "5\x00",
    "\ud800", "1" * 13, "1.1234567890", "None", "true",
    "Wed, 21 Oct 2026 07:28:00 GMT", "2026-10-21T07:28:00Z",
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), PLAIN)
def test_plain_seconds_are_believed(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_ignored(text):
    assert seconds_of(text) is None


@given(st.text() | st.from_regex(r"[0-9eE+._ -]{0,20}"))
@example("9" * 400)
def test_any_text_gives_a_finite_wait_or_none(text):
    found = seconds_of(text)
    assert found is None or (math.isfinite(found) and found >= 0)


@given(st.floats(0, 1e11, allow_nan=False))
def test_what_a_server_prints_is_what_we_read(seconds):
    text = f"{seconds:.9f}"
    assert seconds_of(text) == float(text)


def raised(*headers: tuple[str, str], wait_s: float | None = None) -> Evidence:
    return Evidence(("builtins.Exception",), headers=headers, wait_s=wait_s)


def test_the_header_is_read():
    assert wait_hint_s(raised(("date", "x"), ("retry-after", "17"))) == 17.0


def test_a_header_of_garbage_is_no_hint():
    assert wait_hint_s(raised(("retry-after", "tomorrow"))) is None


def test_without_a_hint_there_is_none():
    assert wait_hint_s(raised()) is None
    assert wait_hint_s(raised(("x-request-id", "5"))) is None


def test_what_the_stage_says_itself_goes_first():
    assert wait_hint_s(raised(("retry-after", "17"), wait_s=3.0)) == 3.0
    assert wait_hint_s(raised(wait_s=0.0)) == 0.0


@pytest.mark.parametrize("wait_s", [-1.0, math.inf, -math.inf, math.nan])
def test_a_stage_can_say_garbage_too(wait_s):
    assert wait_hint_s(raised(wait_s=wait_s)) is None


@given(st.none() | st.floats(), st.lists(st.tuples(st.just("retry-after"), st.text()), max_size=3))
def test_any_evidence_gives_a_finite_wait_or_none(wait_s, headers):
    found = wait_hint_s(raised(*headers, wait_s=wait_s))
    assert found is None or (math.isfinite(found) and found >= 0)
