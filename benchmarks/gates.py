"""What jobs behind a held gate cost the others: claims of another lane beside a million of them, looks, probes.

The aim: the 99th percentile of a claim beside a million held jobs is within twice of what it is beside a few.

    PYTHONPATH=. python benchmarks/gates.py [--quick] [--json FILE] [--store SCHEME]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.stores import gated, report
from benchmarks.stores.places import SETTINGS, Places, versions
from tests.servers.postgres import Server

SCHEMES = ("sqlite", "postgresql")
HELD, HELD_QUICK = 1_000_000, 2_000
SAMPLES, SAMPLES_QUICK = 1_000, 10
TIMES_MAX = 2.0


def main() -> None:
    """Measure, print tables, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--quick", action="store_true", help="see that it runs; numbers mean nothing"
    )
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument("--store", choices=SCHEMES, action="append", help="stores to measure")
    given = arguments.parse_args()
    held, samples = (HELD_QUICK, SAMPLES_QUICK) if given.quick else (HELD, SAMPLES)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server(settings=SETTINGS) as server:
        places = Places(server, Path(folder))
        found: dict[str, Any] = {"versions": versions(server), "server settings": SETTINGS}
        for scheme in given.store or SCHEMES:
            found[scheme] = gated.measured(places, scheme, held, samples)
            print(told(scheme, found[scheme]), flush=True)
    found["took_s"] = round(time.monotonic() - begun_s)
    print(report.about(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def told(scheme: str, found: dict[str, Any]) -> str:
    """A table for each deed, and whether the aim is met."""
    tables = [
        f"== {scheme}: {what}, beside so many held jobs, ms\n{report.times_told(by_rows)}\n"
        for what, by_rows in found.items()
    ]
    few, many = found["claim of 100"].values()
    times = many["p99_ms"] / few["p99_ms"]
    verdict = "met" if times <= TIMES_MAX else "MISSED"
    return "\n".join([*tables, f"p99 of a claim: {times:.2f} x; aim {TIMES_MAX:g} x: {verdict}\n"])


if __name__ == "__main__":
    main()
