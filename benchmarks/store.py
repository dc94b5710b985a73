"""What the stores can do: throughput beside raw loops and pgqueuer, claims while tables grow, an old snapshot.

Three contenders per store do the same work through the same driver. *Ours* is the store behind its port, as
the engine calls it. *Same rows* is a loop of hand-written SQL that leaves the same information behind. *Narrow* is
the smallest table that one could call a queue. Only the calls to enqueue and to take a turn are on the clock;
what an engine would build around them is not, for nobody. The engine's own worker and pgqueuer's run whole.

Ratios within one run are what counts: all configurations run once per round, in turns, and the report says how
fast the machine was in each round.

    PYTHONPATH=. python benchmarks/store.py [--quick | --long] [--json FILE] [--only PART] [--store SCHEME] [--beside CHECKOUT]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.stores import costs, growth, rates, report, snapshot
from benchmarks.stores.costs import CostSizes
from benchmarks.stores.places import SETTINGS, Places, versions
from benchmarks.stores.rates import Sizes
from tests.servers.postgres import Server

PARTS = ("rates", "costs", "growth", "lanes", "snapshot")
SCHEMES = ("sqlite", "postgresql")
USUAL = Sizes(3, {10: 4_000, 50: 10_000, 200: 20_000, 500: 20_000}, 10_000, 500, 10_000, 1_000)
QUICK = Sizes(1, {10: 200, 200: 2_000}, 1_000, 50, 2_000, 100)
COSTS = CostSizes(3, 6_000, (100, 500, 1_500))
COSTS_QUICK = CostSizes(1, 200, (100,), ("plain", "all"))
GROWTH = (1_000, 10_000, 100_000, 1_000_000)
GROWTH_QUICK = (1_000, 10_000)
GROWTH_LONG = (*GROWTH, 10_000_000)
SAMPLES, SAMPLES_QUICK = 250, 10
SNAPSHOT_JOBS, SNAPSHOT_JOBS_QUICK, SNAPSHOT_JOBS_LONG = 100_000, 4_000, 300_000


def main() -> None:
    """Measure, print tables, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    size = arguments.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="see that it runs; numbers mean nothing")
    size.add_argument("--long", action="store_true", help="growth to 10^7, a snapshot of 300,000")
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument(
        "--beside",
        metavar="CHECKOUT",
        type=Path,
        help="costs: measure that checkout in turns with this",
    )
    arguments.add_argument("--only", choices=PARTS, action="append", help="parts to run")
    arguments.add_argument("--store", choices=SCHEMES, action="append", help="stores to measure")
    given = arguments.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server(settings=SETTINGS) as server:
        places = Places(server, Path(folder))
        found: dict[str, Any] = {"versions": versions(server), "server settings": SETTINGS}
        for part in given.only or PARTS:
            measured = _PARTS[part](places, given.store or SCHEMES, given)
            if measured:
                found[part] = measured
                print(report.PARTS[part](measured), flush=True)
    found["took_s"] = round(time.monotonic() - begun_s)
    print(report.about(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def _rates(places: Places, schemes: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    return rates.measured(places, schemes, QUICK if given.quick else USUAL)


def _growth(places: Places, schemes: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    sizes = GROWTH_LONG if given.long else GROWTH_QUICK if given.quick else GROWTH
    samples = SAMPLES_QUICK if given.quick else SAMPLES
    return {
        scheme: {kind: growth.grown(places, scheme, kind, sizes, samples) for kind in growth.KINDS}
        for scheme in schemes
    }


def _lanes(places: Places, schemes: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    samples = SAMPLES_QUICK if given.quick else SAMPLES
    return {scheme: growth.laned(places, scheme, samples) for scheme in schemes}


def _snapshot(
    places: Places, schemes: tuple[str, ...], given: argparse.Namespace
) -> dict[str, Any]:
    if "postgresql" not in schemes:
        return {}
    jobs = SNAPSHOT_JOBS_LONG if given.long else SNAPSHOT_JOBS
    return snapshot.measured(places, SNAPSHOT_JOBS_QUICK if given.quick else jobs)


def _costs(places: Places, schemes: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    sizes = COSTS_QUICK if given.quick else COSTS
    return costs.measured(places, schemes, sizes, given.beside)


_PARTS = {
    "rates": _rates,
    "costs": _costs,
    "growth": _growth,
    "lanes": _lanes,
    "snapshot": _snapshot,
}

if __name__ == "__main__":
    main()
