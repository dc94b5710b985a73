"""Throughput of our stores beside the raw loops and the peer; every configuration once per round."""

import gc
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.stores import engine, peer, raw_postgres, raw_sqlite
from benchmarks.stores.ours import OursOnPostgres, OursOnSqlite
from benchmarks.stores.places import Places, calibration
from benchmarks.stores.work import Contender, Rate, drain, fill

LIMIT_SLOTS = 200  # of the raw loop that is called the limit
CONTENDERS: dict[str, dict[str, Callable[[str], Contender]]] = {
    "sqlite": {
        "ours": OursOnSqlite,
        "same rows": raw_sqlite.SameRows,
        "narrow": raw_sqlite.Narrow,
    },
    "postgresql": {
        "ours": OursOnPostgres,
        "same rows": raw_postgres.SameRows,
        "narrow": raw_postgres.Narrow,
    },
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; ``slots`` are batch sizes with the jobs to drain at each."""

    rounds: int
    slots: dict[int, int]
    retries: int
    singles: int
    peer_jobs: int
    peer_retries: int


def measured(places: Places, schemes: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    """All rates of all rounds, by store, contender and what was done."""
    found: dict[str, Any] = {scheme: defaultdict(lambda: defaultdict(list)) for scheme in schemes}
    noise = []
    for _ in range(sizes.rounds):
        noise.append(calibration(places.folder))
        for scheme in schemes:
            for name, make in CONTENDERS[scheme].items():
                _round(places, scheme, make, sizes, found[scheme][name])
            _engine_round(places, scheme, sizes, found[scheme]["our worker"])
        if "postgresql" in schemes:
            _peer_round(places, sizes, found["postgresql"])
    return {
        "noise": noise,
        **{
            scheme: {
                name: {what: summary(rates) for what, rates in by_what.items()}
                for name, by_what in found[scheme].items()
            }
            for scheme in schemes
        },
    }


def _round(
    places: Places,
    scheme: str,
    make: Callable[[str], Contender],
    sizes: Sizes,
    found: dict[str, list[Rate]],
) -> None:
    for slots, jobs in sizes.slots.items():
        with _opened(places, scheme, make) as contender:
            bulk = fill(contender, jobs)
            if slots == LIMIT_SLOTS:
                found["bulk enqueue"].append(bulk)
            found[f"drain {slots}"].append(drain(contender, jobs, slots))
    with _opened(places, scheme, make) as contender:
        fill(contender, sizes.retries)
        rate = drain(contender, sizes.retries, LIMIT_SLOTS, failing=True)
        found["retry"].append(rate)
    with _opened(places, scheme, make) as contender:
        found["single enqueue"].append(fill(contender, sizes.singles, batch=1))


@contextmanager
def _opened(places: Places, scheme: str, make: Callable[[str], Contender]) -> Iterator[Contender]:
    with places.fresh(scheme) as url:
        contender = make(url)
        gc.collect()  # the garbage of one is not paid for by the next
        try:
            yield contender
        finally:
            contender.close()


def _engine_round(places: Places, scheme: str, sizes: Sizes, found: dict[str, list[Rate]]) -> None:
    with places.fresh(scheme) as url:
        found["drain"].append(engine.measure(url, sizes.peer_jobs, failing=False))
    with places.fresh(scheme) as url:
        found["retry"].append(engine.measure(url, sizes.peer_retries, failing=True))


def _peer_round(places: Places, sizes: Sizes, found: dict[str, dict[str, list[Rate]]]) -> None:
    rates = peer.measured(
        places, jobs=sizes.peer_jobs, retries=sizes.peer_retries, singles=sizes.singles
    )
    for what, rate in rates.items():
        found[f"pgqueuer ({peer.DRIVER})"][what].append(rate)


def summary(rates: Sequence[Rate]) -> dict[str, Any]:
    """The median and all values."""
    made: dict[str, Any] = {
        "jobs_s": round(statistics.median(one.jobs_s for one in rates)),
        "jobs_s_all": [round(one.jobs_s) for one in rates],
    }
    if rates[0].client_us is not None:
        made["client_us"] = _middle(one.client_us for one in rates)
    if rates[0].server_us is not None:
        made["server_us"] = _middle(one.server_us for one in rates)
    if rates[0].client_us is not None:
        made["cpu_us"] = round(made["client_us"] + made.get("server_us", 0.0), 2)
    return made


def _middle(values: Iterator[float | None]) -> float:
    return round(statistics.median(one for one in values if one is not None), 2)
