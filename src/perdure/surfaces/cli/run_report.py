"""The report of a run as text: tables, and bars for the retries."""

from collections.abc import Mapping, Sequence

from perdure.app.surface.store_session import Report
from perdure.surfaces.cli.tables import NANO, day_at, dollars, percent, seconds, table

_BAR_CHARS = 40


def report_lines(report: Report) -> list[str]:
    """All of it, a line each; sections are apart by an empty line."""
    sections = [_head(report), _retries(report), _errors(report), _stages(report), _waste(report)]
    lines: list[str] = []
    for section in sections:
        lines += ["", *section] if lines else section
    return lines


def _head(report: Report) -> list[str]:
    run, counts = report.run, report.run.counts
    failed = f"{counts.failed:,} failed ({percent(report.failed_share)} of those processed)"
    rest = f"{counts.cancelled:,} cancelled, {counts.open:,} open"
    ended = f"ended {day_at(run.ended_at)}" if run.ended_at else "not over"
    return [
        f"run {run.name} (number {run.no}) of pipeline {run.pipeline}: {run.status.value}, {ended}",
        f"{counts.total:,} items: {counts.succeeded:,} succeeded, {failed}, {rest}",
    ]


def _retries(report: Report) -> list[str]:
    found = report.figures.retries
    ended = sum(found.values())
    if not ended:
        return ["retries: no item has ended yet"]
    rows = [
        (retries, f"{found.get(retries, 0):,}", percent(found.get(retries, 0) / ended), bar)
        for retries, bar in bars(found)
    ]
    return [
        f"retries that items needed: {percent(report.retried_share)} of them needed one or more",
        *_in(table(("retries", "items", "share", ""), rows, left=("",))),
        *_waits(report),
    ]


def _waits(report: Report) -> list[str]:
    """What the retries leave out: attempts that were not counted, because somebody asked for a later one."""
    count, waited_s = report.figures.waits, report.figures.waited_s
    if not count:
        return []
    return [
        f"waits, which are no retries: {count:,} attempts were put off, {seconds(waited_s)} in all"
    ]


def bars(found: Mapping[int, int]) -> list[tuple[int, str]]:
    """Every count of retries from none to the most, and a bar for each that is not nothing."""
    most = max(found.values())
    return [(retries, _bar(found.get(retries, 0), most)) for retries in range(max(found) + 1)]


def _bar(count: int, most: int) -> str:
    return "█" * max(1, round(_BAR_CHARS * count / most)) if count else ""


def _errors(report: Report) -> list[str]:
    found = report.figures.errors
    if not found:
        return ["errors: none"]
    heads = ("attempts", "final", "kind", "code")
    rows = [(f"{one.attempts:,}", f"{one.final:,}", one.kind, one.code or "-") for one in found]
    return [
        "errors by kind and code; final ones ended their item",
        *_in(table(heads, rows, left=("kind", "code"))),
    ]


def _stages(report: Report) -> list[str]:
    found = report.figures.stages
    if not found:
        return ["stages: no attempt yet"]
    heads = (
        "stage",
        "attempts",
        "succeeded",
        "retried",
        "failed",
        "others",
        "retry rate",
        "failure rate",
        "p50",
        "p95",
        "cost",
        "wasted",
    )
    rows = [
        (
            one.stage,
            f"{one.attempts:,}",
            f"{one.succeeded:,}",
            f"{one.retried:,}",
            f"{one.failed:,}",
            f"{one.attempts - one.succeeded - one.retried - one.failed:,}",
            percent(one.retried / one.attempts),
            percent(one.failed / one.attempts),
            seconds(one.p50_s),
            seconds(one.p95_s),
            dollars(one.cost_nusd / NANO),
            dollars(one.wasted_nusd / NANO),
        )
        for one in found
    ]
    return [
        "stages; durations are of attempts that succeeded; others were put off, interrupted or cancelled",
        *_in(table(heads, rows, left=("stage",))),
    ]


def _waste(report: Report) -> list[str]:
    figures = report.figures
    spent = f"{dollars(figures.wasted_nusd / NANO)} of {dollars(figures.cost_nusd / NANO)}"
    share = percent(report.wasted_share)
    times = (
        ("p50", figures.success_p50_s),
        ("p95", figures.success_p95_s),
        ("mean", figures.success_mean_s),
    )
    return [
        f"wasted: {figures.wasted_attempts:,} of {figures.attempts:,} attempts ({share}), {spent}",
        f"output that did not fit: {figures.invalid_outputs:,} attempts ({percent(report.invalid_share)})",
        f"raw output kept: of {figures.attempts_captured:,} attempts ({percent(report.captured_share)})",
        "time to success: " + ", ".join(f"{name} {seconds(value)}" for name, value in times),
    ]


def _in(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
