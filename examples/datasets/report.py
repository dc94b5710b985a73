"""The history of a data set, asked in SQL and drawn: `python -m examples.datasets.report NAME --usage http://…/usage -o report.html`.

The questions are in history/, as SQL that any client of the store can ask. With the provider's own count of calls, its bill is checked.
"""

import argparse
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
from examples.datasets.app import app
from examples.datasets.build import status_of

from perdure import PerdureError, Run

HISTORY = Path(__file__).with_name("history")
WIDTH, BAR, NAMES = 640, 18, 150  # pixels
SUMMED = ("calls", "their calls", "unheard", "charged", "they charged", "usd", "their usd")
USD_DIGITS = 6  # what is beyond is rounding
Rows = Sequence[Mapping[str, Any]]


def ask(question: str, **numbers: int) -> Rows:
    """The answer to one of the questions in history/, on either store."""
    sql = (HISTORY / f"{question}.sql").read_text()
    for name, number in numbers.items():
        sql = sql.replace(f":{name}", str(int(number)))
    if app.url.startswith("sqlite:///"):
        path = Path(app.url.removeprefix("sqlite:///")).resolve()
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(app.url, row_factory=dict_row) as connection:
        return connection.execute(sql).fetchall()


def reconcile(ours: Rows, theirs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Our calls and theirs side by side, by the number of the call about its sample; the last line is about all of them."""
    nothing = {"calls": 0, "charged": 0, "unheard": 0, "cost_usd": 0, "dearest_usd": 0}
    by_number = {str(one["number"]): one for one in ours}
    lines = []
    for number in sorted({*by_number, *theirs}, key=int):
        our, their = by_number.get(number, nothing), theirs.get(number, nothing)
        calls = (our["calls"], their["calls"], our["unheard"], our["charged"], their["charged"])
        usd = (round(float(one["cost_usd"]), 9) for one in (our, their))
        told = dict(zip(SUMMED, (*map(int, calls), *usd), strict=True))
        lines.append({"call": number, **told, "dearest usd": round(float(our["dearest_usd"]), 9)})
    sums = {name: round(sum(one[name] for one in lines), 9) for name in SUMMED}
    dearest = max((one["dearest usd"] for one in lines), default=0.0)
    return [*lines, {"call": "all", **sums, "dearest usd": dearest}]


def disputes(lines: Rows) -> list[str]:
    """What a bill says that our history cannot explain.

    They charge for answers that never reached us, so they may have charged for more calls than we know of, but for no more than
    those that nobody heard an answer to, and for each no more dollars than for the dearest answer that was heard: what a lost one
    cost only they know.
    """
    sums, found = lines[-1], []
    if not sums["calls"] - sums["unheard"] <= sums["their calls"] <= sums["calls"]:
        found.append(f"{sums['calls']} calls are ours, {sums['their calls']} theirs")
    more = sums["they charged"] - sums["charged"]
    if not 0 <= more <= sums["unheard"]:
        found.append(f"{sums['charged']} calls cost us, they charged {sums['they charged']}")
    dearer = round(sums["their usd"] - sums["usd"], USD_DIGITS)
    most = round(max(more, 0) * sums["dearest usd"], USD_DIGITS)
    if not 0 <= dearer <= most:
        said = f"our calls cost {sums['usd']} USD, they charged {sums['their usd']} USD"
        found.append(f"{said}; lost answers explain at most {most} USD")
    return found


def bars(title: str, values: Mapping[str, float]) -> str:
    """A bar for each value, as SVG."""
    most, height = max([*values.values(), 1e-9]), BAR * (len(values) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img">',
        f'<title>{escape(title)}</title><text y="14" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(values.items(), 1):
        y, width = BAR * (place + 0.5), (WIDTH - NAMES - 80) * value / most
        lines += [
            f'<text x="{NAMES - 6}" y="{y + 12:g}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{NAMES}" y="{y + 1:g}" width="{width:.1f}" height="{BAR - 4}" fill="#47a"/>',
            f'<text x="{NAMES + width + 6:.1f}" y="{y + 12:g}">{value:,g}</text>',
        ]
    return "\n".join([*lines, "</svg>"])


def table(rows: Rows) -> str:
    """Rows as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0]) if rows else ""
    cells = ("".join(f"<td>{escape(str(one))}</td>" for one in row.values()) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def page(run: Run, bill: Rows, *, checked: bool) -> str:
    """The report; where the bill was checked against the provider's count, with what is to be said of it."""
    said = (disputes(bill) or ["The bill is explained."]) if checked else []
    stages = ask("stages", run=run.no)
    retries = {f"{one['retries']} retries": one["samples"] for one in ask("retries", run=run.no)}
    errors = {one["kind"]: int(one["attempts"]) for one in ask("errors", run=run.no)}
    rates = {one["stage"]: round(100 * one["retry_rate"], 2) for one in stages}
    calls, usd = {}, {}
    for one in bill[:-1]:
        for whose, side in (("ours", ""), ("theirs", "their ")):
            name = f"call {one['call']}, {whose}"
            calls[name], usd[name] = one[f"{side}calls"], one[f"{side}usd"]
    parts = [
        "<!doctype html><meta charset='utf-8'><title>Data set</title>",
        "<style>body, text { font: 13px sans-serif } td { text-align: right; padding: 0 8px }</style>",
        f"<h1>{escape(run.name)}</h1>",
        table([status_of(run.view())]),
        bars("samples by retries needed", retries),
        bars("attempts by error", errors),
        bars("retries in 100 attempts, by stage", rates),
        table(stages),
        bars("calls of the model, by number of the call about a sample", calls),
        bars("dollars, by number of the call about a sample", usd),
        "<h2>The bill, by number of the call about a sample</h2>",
        table(bill),
        *(f"<p>{escape(one)}</p>" for one in said),
    ]
    return "\n".join(parts)


def main() -> int:
    """Write the report; 1 when the bill says what our history cannot explain."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("name", help="the data set, by name, number or id")
    options.add_argument("--usage", help="the provider's own count: a URL or a file")
    options.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    asked = options.parse_args()
    checked, usage = asked.usage is not None, {}
    try:
        run = app.get_run(asked.name)
        if checked:
            where = asked.usage if "://" in asked.usage else Path(asked.usage).resolve().as_uri()
            with urlopen(where, timeout=60.0) as answer:
                usage = msgspec.json.decode(answer.read(), type=dict[str, dict[str, float]])
        bill = reconcile(ask("billing", run=run.no), usage)
        asked.output.write_text(page(run, bill, checked=checked))
    except (msgspec.MsgspecError, KeyError) as wrong:
        print(f"report: {asked.usage} is no count of calls: {wrong}", file=sys.stderr)
        return 2
    except (PerdureError, OSError, ValueError) as wrong:
        print(f"report: {wrong}", file=sys.stderr)
        return 2
    for one in bill:
        print("  ".join(f"{name} {value}" for name, value in one.items()))
    found = disputes(bill) if checked else []
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
