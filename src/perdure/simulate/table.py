"""The table: as plain text for a terminal, as Markdown for documents, as plain data for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from perdure.simulate.measure import Measured, Row
from perdure.simulate.replies import TOKENS_IN, TOKENS_OUT

HEADS = (
    "strategy",
    "wasted/success",
    "drain ÷ bound",
    "peak ÷ limit",
    "early",
    "lost",
    "left over",
    "tokens wasted/success",
    "fairness",
)
_MET, _MISSED = "✓", "✗"


def cells(one: Measured) -> tuple[str, ...]:
    """A strategy's numbers as they are shown."""
    return (
        one.title,
        _waste(one),
        _drain(one),
        "–" if one.peak is None else f"{one.peak:.1f}",
        f"{one.early:,}",
        _count(one.lost),
        _count(one.left_over),
        "–" if not one.done else f"{one.tokens / one.done:,.0f}",
        "–" if one.jain is None else f"{one.jain:.2f}",
    )


def text_lines(row: Row) -> Iterator[str]:
    """A scenario for a terminal."""
    table = [HEADS, *(_without_stars(cells(one)) for one in row.measures)]
    widths = [max(len(line[n]) for line in table) for n in range(len(HEADS))]
    yield f"{row.scenario.name}  {row.scenario.title}"
    for line in table:
        first, *others = (
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  " + "  ".join([first, *others]).rstrip()
    for aim in row.aims:
        yield f"  {_MET if aim.met else _MISSED} {aim.text}"


def markdown_lines(row: Row) -> Iterator[str]:
    """A scenario for a document."""
    yield f"### {row.scenario.name}: {row.scenario.title}"
    yield ""
    gate = row.measures[0]
    yield f"{gate.jobs:,} jobs, {gate.seeds} seeds for the gates and the oracle."
    yield ""
    yield from _markdown(HEADS, [cells(one) for one in row.measures])
    yield ""
    for aim in row.aims:
        yield f"- {_MET if aim.met else _MISSED} {aim.text}"


def summary_lines(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each scenario: the gates, and whether each aim is met."""
    heads = (
        "",
        "scenario",
        "wasted/success",
        "(worst)",
        "drain ÷ bound",
        "(worst)",
        "early",
        "lost",
        "aims",
    )
    lines = []
    for row in rows:
        gate = row.measures[0]
        missed = [aim.text.partition(" ")[0] for aim in row.aims if not aim.met]
        lines.append(
            (
                row.scenario.name,
                row.scenario.title,
                f"{gate.waste:.3f}",
                f"{gate.waste_worst:.3f}",
                "–" if gate.drain is None else f"{gate.drain:.2f}",
                "–" if gate.drain_worst is None else f"{gate.drain_worst:.2f}",
                f"{gate.early}",
                _count(gate.lost + gate.left_over),
                f"{_MISSED} {', '.join(missed)}" if missed else _MET,
            )
        )
    yield from _markdown(heads, lines)


def form(row: Row) -> dict[str, Any]:
    """A scenario as plain data."""
    return {
        "scenario": row.scenario.name,
        "title": row.scenario.title,
        "aims": [asdict(aim) for aim in row.aims],
        "strategies": [
            {**asdict(one), "title": one.title.replace("*", "")} for one in row.measures
        ],
        "tokens_per_call": TOKENS_IN + TOKENS_OUT,
    }


def _without_stars(line: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.replace("*", "") for cell in line)


def _count(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def _waste(one: Measured) -> str:
    if not one.done:
        return "nothing done"
    return f"{one.waste:.3f}" if one.waste < 1 else f"{one.waste:,.1f}"


def _drain(one: Measured) -> str:
    if not one.done:
        return "–"
    if one.drain is None:
        return f"stuck at {100 * one.done / one.jobs:.0f} %"
    return f"{one.drain:.2f}" if one.lost < one.jobs / 100 else f"({one.drain:.2f})"


def _markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for line in lines:
        yield f"| {' | '.join(line)} |"
