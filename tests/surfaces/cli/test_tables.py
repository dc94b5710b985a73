"""Plain tables and short texts: aligned, on one line, and nothing that a terminal obeys."""

import pytest

from perdure.surfaces.cli.tables import dollars, seconds, shorten, so_many, table


def test_columns_are_aligned_and_the_last_one_costs_the_others_nothing():
    rows = [(1, "a", "x" * 30), (1_000, "bcd", "y")]
    assert table(("count", "kind", "example"), rows, left=("kind", "example")) == [
        "count  kind  example",
        "    1  a     " + "x" * 30,
        " 1000  bcd   y",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines \t here", "two lines here"),
        ("\x1b[2J\x07boom", "�[2J�boom"),
        ("x" * 11, "x" * 9 + "…"),
        ("", ""),
    ],
)
def test_a_short_text_is_one_line_that_no_terminal_obeys(text, shown):
    assert shorten(text, 10 if text.startswith("x") else 40) == shown


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [(None, "-"), (0.0123, "12.3 ms"), (1.5, "1.50 s"), (119.9, "119.90 s"), (600, "10.0 min")],
)
def test_durations_are_shown_in_fitting_units(value_s, shown):
    assert seconds(value_s) == shown


def test_one_is_no_plural():
    assert [so_many(count, "job") for count in (0, 1, 2_000)] == ["0 jobs", "1 job", "2,000 jobs"]


@pytest.mark.parametrize(
    ("value_usd", "shown"),
    [
        (0, "$0.0000"),
        (0.000045, "$0.000045"),
        (0.00089999, "$0.0009"),
        (0.0012345, "$0.0012"),
        (1234.5, "$1,234.5000"),
        (1e-9, "$0.000000001"),
    ],
)
def test_small_money_is_never_shown_as_none(value_usd, shown):
    assert dollars(value_usd) == shown
