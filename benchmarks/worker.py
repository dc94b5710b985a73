"""What whole workers can do: ours beside pgqueuer and procrastinate on PostgreSQL and beside huey on SQLite.

Ours is `perdure worker` as anybody starts it, with a supervisor, leases, fencing and an attempt row for each
attempt. All of them are processes of their own on a store that syncs to the disk. All configurations run
once per round, in turns; ratios within one run are what counts.

    PYTHONPATH=. python benchmarks/worker.py [--quick] [--json FILE] [--store SCHEME] [--only MEASURE] [--rounds N]
"""

import argparse
import dataclasses
import importlib.metadata
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.stores.places import SETTINGS, Places, versions
from benchmarks.workers.measures import MEASURES, TIMED, Sizes, measured, summary
from benchmarks.workers.pgqueuer_side import DRIVER
from benchmarks.workers.told import told
from tests.servers.postgres import Server

SCHEMES = ("sqlite", "postgresql")
USUAL = Sizes(
    rounds=3,
    jobs=20_000,
    jobs_slow=1_000,
    retries=5_000,
    retries_pgqueuer=2_000,
    retries_slow=300,
    singles=1_000,
    samples=100,
    steady=1_000,
    in_flight=5_000,
)
QUICK = Sizes(
    rounds=1,
    jobs=500,
    jobs_slow=100,
    retries=200,
    retries_pgqueuer=100,
    retries_slow=20,
    singles=20,
    samples=5,
    steady=50,
    in_flight=100,
)


def main() -> None:
    """Measure, print a table, and write JSON where it is wanted."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--quick", action="store_true", help="see that it runs; numbers mean nothing"
    )
    arguments.add_argument("--json", metavar="FILE", type=Path, help="write all values there")
    arguments.add_argument("--store", choices=SCHEMES, action="append", help="stores to measure")
    arguments.add_argument(
        "--only", choices=[*MEASURES, *TIMED], action="append", help="what to measure"
    )
    arguments.add_argument("--rounds", type=int, help="how often")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else USUAL
    if given.rounds:
        sizes = dataclasses.replace(sizes, rounds=given.rounds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and stop what we have started
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Server(settings=SETTINGS) as server:
        schemes = tuple(given.store or SCHEMES)
        values = measured(Places(server, Path(folder)), schemes, sizes, given.only or ())
        found = summed_up(values)
        about = {**versions(server), "pgqueuer's driver": DRIVER}
    for name in ("procrastinate", "huey"):
        about[name] = importlib.metadata.version(name)
    print(told(found))
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"took {time.monotonic() - begun_s:.0f} s", flush=True)
    if given.json:
        written = {"versions": about, "sizes": dataclasses.asdict(sizes), **found}
        given.json.write_text(json.dumps(written, indent=1) + "\n")


def summed_up(values: dict[str, Any]) -> dict[str, Any]:
    """Medians and percentiles of the rounds."""
    return {"noise": values["noise"]} | {
        scheme: {
            what: {name: summary(what, every) for name, every in by_name.items()}
            for what, by_name in values[scheme].items()
        }
        for scheme in SCHEMES
        if scheme in values
    }


if __name__ == "__main__":
    main()
