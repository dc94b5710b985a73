"""The table that people read."""

from typing import Any

from benchmarks.stores.report import table
from benchmarks.workers.measures import TIMED

AIMS = {
    ("drain, 1 process", "pgqueuer"): 2.0,
    ("retry", "pgqueuer"): 8.0,
    ("drain, 1 process", "huey"): 10.0,
}
PICK_UP_P99_MS = 10.0


def told(found: dict[str, Any]) -> str:
    """Every store: each measurement, ours first, and by how much we are ahead of each peer."""
    noise = found["noise"]
    parts = [table(("round", *noise[0]), [(n, *one.values()) for n, one in enumerate(noise, 1)])]
    stores = [scheme for scheme in ("sqlite", "postgresql") if scheme in found]
    parts += [f"== {scheme}\n{_store(found[scheme])}" for scheme in stores]
    return "\n\n".join(parts) + "\n"


def _store(found: dict[str, Any]) -> str:
    names = list(next(iter(found.values())))
    rows = []
    for what, by_name in found.items():
        for unit in ("p50_ms", "p95_ms", "p99_ms") if what in TIMED else (_unit(what),):
            values = {name: by_name[name][unit] for name in names if name in by_name}
            row: list[object] = [f"{what}, {unit.replace('_s', '/s').replace('_', ' ')}"]
            row += [f"{values[name]:,.1f}" if name in values else "-" for name in names]
            if (what, unit) == ("pick-up", "p99_ms") and values["perdure"] > PICK_UP_P99_MS:
                row[0] = f"{row[0]} (aim {PICK_UP_P99_MS:g})"
            row += [_ahead(what, unit, values, peer) for peer in names[1:]]
            rows.append(row)
    return table(("", *names, *(f"ahead of {peer}" for peer in names[1:])), rows)


def _unit(what: str) -> str:
    return "mib" if what == "memory" else "jobs_s"


def _ahead(what: str, unit: str, values: dict[str, float], peer: str) -> str:
    if peer not in values:
        return "-"
    ratio = values["perdure"] / values[peer]
    ratio = ratio if unit == "jobs_s" else 1 / ratio
    aim = AIMS.get((what, peer), 1.0)
    return f"{ratio:.1f}x {'ok' if ratio >= aim else f'(aim {aim:g}x)'}"
