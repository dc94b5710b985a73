"""What the HTTP API costs: creates beside a bare handler, a mixed load, listeners, what time tells of an id, and growth.

The aims: under load no error of the server but shedding, memory that does not grow, books that balance; 200 listeners for
no more reads of the store than one; nobody can tell another's job from one that never was by the time to the answer; and
among a million jobs no list, show, group or stats answer takes more than twice as long as among a thousand.

    PYTHONPATH=. python benchmarks/http_api.py [--quick] [--json FILE] [--store SCHEME] [--only WHAT]
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.serving import answers, measures
from benchmarks.serving.measures import Sizes
from benchmarks.stores import report
from benchmarks.stores.places import SETTINGS, Places, versions
from tests.servers.postgres import Server

SCHEMES = ("sqlite", "postgresql")
MEASURES = {
    "creates": measures.creates,
    "load": measures.load,
    "listeners": measures.listeners,
    "telling": measures.telling,
    "answers": answers.answers,
}
QUICK = Sizes(
    creates=40, rounds=1, load_s=1.0, listen_s=0.5, calm_s=0.5, listeners=5, tries=40, lines=4,
    crowds=(1_000, 2_000), answers=3,
)  # fmt: skip
GROWTH_MAX = 1.1
READS_MAX = 1.5
AREA_OFF_MAX = 0.05
SLOWER_MAX = 2.0


def main() -> None:
    """Measure, print tables, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--quick", action="store_true", help="see that it runs; numbers mean nothing"
    )
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument("--store", choices=SCHEMES, action="append", help="stores to measure")
    arguments.add_argument("--only", choices=MEASURES, action="append", help="what to measure")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else Sizes()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server(settings=SETTINGS) as server:
        places = Places(server, Path(folder), log_files=1 if given.quick else 64)
        found: dict[str, Any] = {"versions": versions(server), "server settings": SETTINGS}
        for scheme in given.store or SCHEMES:
            found[scheme] = {
                what: MEASURES[what](places, scheme, sizes) for what in given.only or MEASURES
            }
            print(told(scheme, found[scheme]), flush=True)
    found["took_s"] = round(time.monotonic() - begun_s)
    print(report.about(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def told(scheme: str, found: dict[str, Any]) -> str:
    """A line for each figure, and whether its aim is met."""
    lines = [f"== {scheme}"]
    if creates := found.get("creates"):
        ours, bare = creates["ours"], creates["bare"]
        lines.append(
            f"creates: {ours['per_s']:,.0f} a second ({ours['cpu_us']:,.0f} CPU µs each), bare {bare['per_s']:,.0f} "
            f"({bare['cpu_us']:,.0f}): {ours['per_s'] / bare['per_s']:.0%}"
        )
    if load := found.get("load"):
        early, late = load["memory_mib"]
        lines += [
            f"load: {load['statuses']}; shed {load['shed']}",
            f"  errors: {load['errors']}; aim 0: {_verdict(load['errors'] == 0)}",
            f"  memory: {early:g} MiB, then {late:g}; aim {GROWTH_MAX:g} x: {_verdict(late <= GROWTH_MAX * early)}",
            f"  books: {load['books']}; aim balanced: {_verdict(load['books'] == 'balanced')}",
        ]
    if listeners := found.get("listeners"):
        (_, one), (count, many) = listeners.items()
        lines.append(
            f"listeners: 1 takes {one['cpu_share']:.1%} of a core, {count} take {many['cpu_share']:.1%}; "
            f"all heard {many['heard_share']:.0%}"
        )
        if not math.isnan(reads := many["transactions_per_s"]):
            few = one["transactions_per_s"]
            lines.append(
                f"  transactions a second: {few:.1f} and {reads:.1f}; aim {READS_MAX:g} x: {_verdict(reads <= READS_MAX * few)}"
            )
    if telling := found.get("telling"):
        off = abs(telling["auc"] - 0.5)
        lines.append(
            f"known from unknown ids by time: area {telling['auc']:.3f} of {telling['tries']:,} tries; "
            f"aim 0.5 ± {AREA_OFF_MAX:g}: {_verdict(off <= AREA_OFF_MAX)}"
        )
    if found.get("answers"):
        lines += _answers_told(found["answers"])
    return "\n".join(lines) + "\n"


def _answers_told(found: dict[str, dict[str, float]]) -> list[str]:
    """A line for each answer, and how many are within what is aimed at."""
    lines, slow = [], 0
    for path, p95 in found.items():
        (few, before), (many, after) = p95.items()
        slow += after > SLOWER_MAX * before
        lines.append(
            f"  {path}: p95 {before:.2f} ms at {int(few):,} jobs, {after:.2f} at {int(many):,}: {after / before:.2f} x"
        )
    verdict = f"answers: {len(found) - slow} of {len(found)} within {SLOWER_MAX:g} x; aim all: {_verdict(slow == 0)}"
    return [verdict, *lines]


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
