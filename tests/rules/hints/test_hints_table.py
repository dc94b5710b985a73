"""The published table of hints is executed: every row right, none early, none a crash."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.model.outcomes import Evidence
from perdure.rules.evidence import evidence_of
from perdure.rules.hints.wait_hints import Hint, server_verdict, wait_hint

PAGE = (Path(__file__).parents[3] / "docs" / "hints.md").read_text(encoding="utf-8")
NOW = datetime(2026, 7, 29, 12, tzinfo=UTC)
ROWS_MIN = 60
VERDICTS = {"retry": True, "do not": False, "none": None}

# The values on which the retry code of others was seen to fail, and the further cases beside them.
NASTY = [
    "retry-after: 2.5", "retry-after: -3", "retry-after: 3600", "retry-after: 86400000", "retry-after: inf",
    "retry-after: «9×400»", "retry-after: Fri, 31 Dec 99999 23:59:59 GMT", "retry-after: 5s",
    "retry-after: 2026-07-29T12:00:37Z", "retry-after-ms: 1500", "retry-after-ms: -1",
    "retry-after-ms: nan", "retry-after-ms: inf", "x-ratelimit-reset-requests: 6m0s",
    "retry-after: 5, 10", "retry-after: +5", "retry-after: ５", "retry-after: 5␠␠␠",
    "status: 200", "status: 301", "status: 413", "retry-after: Wed, 29 Jul 2026 12:00:37",
    "retry-after: Friday, 29-Jul-77 12:00:00 GMT", "date: Wed, 29 Jul 2026 11:55:00 GMT",
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of a table: the line it stands in, what is given, and what must come out."""

    line: int
    given: tuple[str, ...]
    answer: str
    why: str


def rows(page: str, title: str) -> list[Row]:
    """The rows of every table whose second column has that title."""
    return list(_rows(page, f"| given | {title} | why |"))


def _rows(page: str, head: str) -> Iterator[Row]:
    inside = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line == head:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            given, answer, why = (cell.strip() for cell in line.strip("|").split(" | "))
            yield Row(number, tuple(re.findall(r"`([^`]+)`", given)), answer, why)


def spelled_out(text: str) -> str:
    """The table's marks for blanks, tabs and long runs replaced by what they stand for."""
    run = re.compile(r"«(.)×(\d+)»")
    return run.sub(
        lambda found: found[1] * int(found[2]), text.replace("␠", " ").replace("␉", "\t")
    )


def evidence_of_row(row: Row) -> Evidence:
    headers, facts, message = [], [], ""
    status, wait_s = None, None
    for item in row.given:
        name, _, value = item.partition(":")
        value = spelled_out(value.removeprefix(" "))
        if name == "stage":
            wait_s = float(value)
        elif name == "status":
            status = int(value)
        elif name == "message":
            message = value
        elif name.startswith("body."):
            facts.append((name.removeprefix("body."), value))
        else:
            headers.append((name, value))
    return Evidence(
        message=message, status=status, headers=tuple(headers), facts=tuple(facts), wait_s=wait_s
    )


def fault(row: Row, reader: Callable[[Evidence, datetime], Hint | None]) -> str | None:
    """What is wrong with a reader's answer: a crash, too early, or wrong; None if it is right."""
    try:
        hint = reader(evidence_of_row(row), NOW)
    except Exception as error:
        return f"line {row.line}: crashed with {error!r}"
    if row.answer == "ignored":
        return None if hint is None else f"line {row.line}: {hint} instead of ignored"
    wanted_s = float(row.answer)
    if hint is None or hint.seconds < wanted_s - 1e-6:
        return f"line {row.line}: early: {hint} instead of {wanted_s}"
    if hint.seconds > wanted_s + 1e-6:
        return f"line {row.line}: {hint} instead of {wanted_s}"
    return None


HINTS = rows(PAGE, "seconds")
SAID = rows(PAGE, "verdict")


def name_of(row: Row) -> str:
    return f"line-{row.line}"


@pytest.mark.parametrize("row", HINTS, ids=name_of)
def test_every_row_of_the_published_table_comes_out_as_written(row):
    assert fault(row, wait_hint) is None


class Answered(Exception):
    """An error as a client raises it, with the response that it got."""

    def __init__(self, given: Evidence) -> None:
        super().__init__(given.message)
        headers = dict(given.headers)
        self.response = SimpleNamespace(status_code=given.status or 429, headers=headers)
        self.body = dict(given.facts) or None


def can_be_answered(row: Row) -> bool:
    """Whether a client with one value for each header could see it."""
    given = evidence_of_row(row)
    return given.wait_s is None and len(dict(given.headers)) == len(given.headers)


@pytest.mark.parametrize("row", [row for row in HINTS if can_be_answered(row)], ids=name_of)
def test_every_row_comes_out_the_same_when_it_arrives_in_an_exception(row):
    seen = evidence_of(Answered(evidence_of_row(row)))
    assert fault(row, lambda _, now: wait_hint(seen, now)) is None


@pytest.mark.parametrize("row", SAID, ids=name_of)
def test_every_verdict_of_the_published_table_comes_out_as_written(row):
    assert server_verdict(evidence_of_row(row)) is VERDICTS[row.answer]


def test_the_table_is_as_long_as_promised_and_each_row_says_why():
    assert len(HINTS) >= ROWS_MIN
    assert all(row.given and row.answer and row.why for row in HINTS + SAID)


def test_no_row_stands_twice():
    given = [row.given for row in HINTS]
    assert len(given) == len(set(given))


def test_every_value_known_to_break_others_is_in_the_table():
    given = {item for row in HINTS for item in row.given}
    assert [value for value in NASTY if value not in given] == []


def test_the_page_and_the_test_agree_on_the_time():
    assert f"`{NOW:%Y-%m-%dT%H:%M:%SZ}`, a {NOW:%A}" in PAGE


# -- broken twins: readers with the faults of others are caught ------------------------------


def trusting(evidence: Evidence, now: datetime) -> Hint | None:
    """Whatever `float` takes is a number of seconds."""
    text = evidence.header("retry-after")
    return None if text is None else Hint(float(text), "retry-after")


def deaf(evidence: Evidence, now: datetime) -> Hint | None:
    return None


def hasty(evidence: Evidence, now: datetime) -> Hint | None:
    """No wait is longer than a minute."""
    hint = wait_hint(evidence, now)
    return None if hint is None else Hint(min(hint.seconds, 60.0), hint.source)


def patient(evidence: Evidence, now: datetime) -> Hint | None:
    """Garbage is a day."""
    return wait_hint(evidence, now) or Hint(86_400.0, "garbage")


BROKEN = [(trusting, "crashed"), (deaf, "early"), (hasty, "early"), (patient, "instead of ignored")]


@pytest.mark.parametrize(("reader", "word"), BROKEN)
def test_a_broken_reader_is_caught(reader, word):
    faults = [found for row in HINTS if (found := fault(row, reader)) is not None]
    assert any(word in found for found in faults)


def test_a_reader_that_is_late_is_caught():
    def late(evidence: Evidence, now: datetime) -> Hint | None:
        hint = wait_hint(evidence, now)
        return None if hint is None else Hint(hint.seconds + 1, hint.source)

    assert all(fault(row, late) for row in HINTS if row.answer != "ignored")


def test_rows_are_read_with_their_marks():
    page = "| given | seconds | why |\n| --- | --- | --- |\n| `a: «9×3»␠` `stage: inf` | 5 | so |\n\n| x | y | z |\n"
    (row,) = rows(page, "seconds")
    assert row == Row(3, ("a: «9×3»␠", "stage: inf"), "5", "so")
    assert evidence_of_row(row) == Evidence(headers=(("a", "999 "),), wait_s=math.inf)
