"""What a job costs: CPU time of client and server and bytes of the log, for enqueueing, for claim and record, and for a retry.

Each measurement is a process of its own on an empty store, so that the code of another checkout can be measured in
turns with this one: that is how a change of the schema is weighed. Another checkout is measured by its own copy of this
file, where it has one: names change.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stores.ours import Ours, OursOnPostgres, on
from benchmarks.stores.places import Places
from benchmarks.stores.work import Item, Rate, drain, fill

from perdure.model.jobs import NewJob
from perdure.model.runs import NewRun

HERE = Path(__file__).resolve().parents[2]
SHAPES = ("plain", "key", "run", "owner", "all")
OWNERS = 1_000
RETRY = "retry"
WHATS = ("claim + record", RETRY)


@dataclass(frozen=True, slots=True)
class CostSizes:
    """How often, how many jobs, and at which batch sizes."""

    rounds: int
    jobs: int
    slots: tuple[int, ...]
    shapes: tuple[str, ...] = SHAPES


def measured(
    places: Places, schemes: Sequence[str], sizes: CostSizes, beside: Path | None
) -> dict[str, Any]:
    """By store, shape and batch size, what a job costs with this code and, in turns, with that of another checkout."""
    codes = {"now": HERE} | ({} if beside is None else {"before": beside})
    found: dict[str, Any] = {}
    for _ in range(sizes.rounds):
        for scheme, shape, slots in _settings(schemes, sizes):
            for name, code in codes.items():
                told = _told(places, code, scheme, shape, slots, sizes.jobs)
                lot = found.setdefault(scheme, {}).setdefault(f"{shape} {slots}", {})
                for what, costs in told.items():
                    for unit, cost in costs.items():
                        lot.setdefault(what, {}).setdefault(unit, {}).setdefault(name, []).append(
                            cost
                        )
    return {
        scheme: {
            setting: {
                what: {
                    unit: {name: round(statistics.median(values), 1) for name, values in by.items()}
                    for unit, by in units.items()
                }
                for what, units in whats.items()
            }
            for setting, whats in settings.items()
        }
        for scheme, settings in found.items()
    }


def _settings(schemes: Sequence[str], sizes: CostSizes) -> Iterator[tuple[str, str, int]]:
    for scheme in schemes:
        for shape in sizes.shapes:
            for slots in sizes.slots:
                yield scheme, shape, slots


def _told(
    places: Places, code: Path, scheme: str, shape: str, slots: int, jobs: int
) -> dict[str, dict[str, float]]:
    root = code if (code / "benchmarks/stores/costs.py").exists() else HERE
    path = os.pathsep.join(map(str, (code / "src", root, HERE)))
    told: dict[str, dict[str, float]] = {}
    for what in WHATS:
        with places.fresh(scheme) as url:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.stores.costs", url, shape, what, str(slots), str(jobs)],
                env=os.environ | {"PYTHONPATH": path}, cwd=root, check=True, stdout=subprocess.PIPE,
            )  # fmt: skip
        told |= json.loads(done.stdout)
    return told


class _Shaped:
    """Our store, with jobs of one shape."""

    def __init__(self, ours: Ours, shape: str) -> None:
        self._ours = ours
        self._shape = shape
        self._run = (
            ours.opened.control.add_run(NewRun(f"{time.time_ns():032x}", "", "p", "r")).no
            if shape in ("run", "all")
            else None
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)

    def prepared(self, batch: Sequence[Item]) -> list[NewJob]:
        """New jobs, each with what its shape says."""
        keyed, owned = self._shape in ("key", "all"), self._shape in ("owner", "all")
        return [
            NewJob(
                one.id, "p", self._ours.lanes[0], "one", one.payload_json,
                owner=f"owner {place % OWNERS}" if owned else "",
                key=one.id if keyed else None, run=self._run,
            )
            for place, one in enumerate(batch)
        ]  # fmt: skip


def _cost(rate: Rate, log_bytes: int | None) -> dict[str, float]:
    assert rate.client_us is not None
    found = {"client us": rate.client_us}
    if rate.server_us is not None:
        found["server us"] = rate.server_us
    if log_bytes is not None:
        found["log bytes"] = log_bytes / rate.jobs
    return found


def one(url: str, shape: str, what: str, slots: int, jobs: int) -> dict[str, dict[str, float]]:
    """Enqueue and drain, or let each job fail once; what a job has cost."""
    ours = on(url)
    contender: Any = _Shaped(ours, shape)
    place = _log_at(ours)
    filled = _cost(fill(contender, jobs, batch=slots), _log_since(ours, place))
    place = _log_at(ours)
    rate = drain(contender, jobs, slots, failing=what == RETRY)
    found = {what: _cost(rate, _log_since(ours, place))}
    ours.close()
    return found if what == RETRY else {"enqueue": filled, **found}


def _log_at(ours: Ours) -> str | None:
    return ours.log_at() if isinstance(ours, OursOnPostgres) else None


def _log_since(ours: Ours, place: str | None) -> int | None:
    return ours.log_since(place) if isinstance(ours, OursOnPostgres) and place else None


if __name__ == "__main__":
    print(json.dumps(one(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]))))
