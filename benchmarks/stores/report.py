"""The tables that people read."""

from collections.abc import Callable, Sequence
from typing import Any

Rows = Sequence[Sequence[object]]
AIM_SHARE = 0.70
AIM_GROWTH = 2.0
LIMIT = "drain 200"
COST_UNITS = ("client us", "server us", "log bytes")
PEER_NAMES = {"drain": LIMIT}


def table(head: Sequence[str], rows: Rows) -> str:
    """Columns of text, the first to the left and the others to the right."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def rates_told(found: dict[str, Any]) -> str:
    """Rates and shares of every store, and the peer beside ours."""
    told = [table(("round", *found["noise"][0]), _noise(found["noise"]))]
    for scheme in ("sqlite", "postgresql"):
        if scheme in found:
            told.append(f"== {scheme}: jobs/s (CPU us per job)\n{_rates(found[scheme])}")
            told.append(f"== {scheme}: ours as a share of the raw loops\n{_shares(found[scheme])}")
    if "postgresql" in found:
        told.append(f"== beside pgqueuer: jobs/s\n{_peers(found['postgresql'])}")
    return "\n\n".join(told) + "\n"


def _noise(noise: Sequence[dict[str, float]]) -> Rows:
    return [(number, *one.values()) for number, one in enumerate(noise, start=1)]


def _rates(found: dict[str, Any]) -> str:
    names = [name for name in ("ours", "same rows", "narrow") if name in found]
    rows = [(what, *(_rate(found[name][what]) for name in names)) for what in found["ours"]]
    return table(("", *names), rows)


def _rate(one: dict[str, Any]) -> str:
    cpu = f" ({one['cpu_us']:.1f})" if "cpu_us" in one else ""
    return f"{one['jobs_s']:,}{cpu}"


def _shares(found: dict[str, Any]) -> str:
    rows = []
    for what, ours in found["ours"].items():
        row: list[object] = [what]
        for name in ("same rows", "narrow"):
            raw = found[name][what]
            row += [share(ours["jobs_s"], raw["jobs_s"]), share(raw["cpu_us"], ours["cpu_us"])]
            limit = found[name].get(LIMIT) if what.startswith("drain") else None
            row.append(share(ours["jobs_s"], limit["jobs_s"]) if limit else "")
        rows.append(row)
    head = ("", "same rows", "by CPU", "of its 200", "narrow", "by CPU", "of its 200")
    return table(head, rows) + f"\naim: {AIM_SHARE:.0%}"


def share(part: float, whole: float) -> str:
    """A share in per cent."""
    return f"{part / whole:.0%}"


def _peers(found: dict[str, Any]) -> str:
    peers = [name for name in found if name.startswith("pgqueuer")]
    rows = []
    for what in ("bulk enqueue", "single enqueue", "drain", "retry"):
        ours = found["ours"][PEER_NAMES.get(what, what)]["jobs_s"]
        worker = found["our worker"].get(what, {}).get("jobs_s")
        rates = [found[name][what]["jobs_s"] for name in peers]
        rows.append(
            (what, f"{ours:,}", f"{worker:,}" if worker else "", *(f"{one:,}" for one in rates),
             *(f"{ours / one:.1f}x" for one in rates))
        )  # fmt: skip
    head = ("", "our store", "our worker", *peers, *(f"store / {name}" for name in peers))
    return table(head, rows)


def growth_told(found: dict[str, Any]) -> str:
    """Claims beside growing numbers of rows, and how the largest compares with the smallest."""
    return "\n".join(
        f"== {scheme}: claim of 100 beside many {kind} jobs, ms\n{times_told(by_size)}\n"
        for scheme, by_kind in found.items()
        for kind, by_size in by_kind.items()
    )


def lanes_told(found: dict[str, Any]) -> str:
    """Claims that ask for a thousand lanes."""
    return "\n".join(
        f"== {scheme}: claim of 100 from many lanes, ms\n{times_told(by_name)}\n"
        for scheme, by_name in found.items()
    )


def times_told(found: dict[str, dict[str, float]]) -> str:
    """Percentiles on the wall and of the CPU, and how each compares with the first line."""
    names = ("p50_ms", "p99_ms", "cpu_p50_ms", "cpu_p99_ms")
    first = next(iter(found.values()))
    rows = [
        (f"{int(what):,}" if what.isdigit() else what, *(f"{times[name]:.2f}" for name in names),
         *(f"{times[name] / first[name]:.2f}x" if first[name] else "" for name in names))
        for what, times in found.items()
    ]  # fmt: skip
    head = ("rows", "p50", "p99", "CPU p50", "CPU p99", "p50 to first", "p99", "CPU p50", "CPU p99")
    return table(head, rows)


def snapshot_told(found: dict[str, Any]) -> str:
    """Drains under an old snapshot, by tenths."""
    rows = [
        (name, f"{one['jobs_s']:,}", *(f"{part:,}" for part in one["jobs_s_by_tenth"]))
        for name, one in found.items()
    ]
    parts = max(len(one["jobs_s_by_tenth"]) for one in found.values())
    rows = [(*row, *[""] * (parts + 2 - len(row))) for row in rows]
    head = ("", "jobs/s", *(f"{number}/10" for number in range(1, parts + 1)))
    jobs = next(iter(found.values()))["jobs"]
    return f"== a drain of {jobs:,} jobs under an old snapshot, PostgreSQL\n{table(head, rows)}\n"


def about(found: dict[str, Any]) -> str:
    """Versions, settings, and the time it took."""
    known = {**found["versions"], **found["server settings"]}
    return ", ".join(f"{name} {value}" for name, value in known.items()) + (
        f"; took {found['took_s']} s"
    )


def costs_told(found: dict[str, Any]) -> str:
    """Tables of costs, one for each store."""
    parts = []
    for scheme, settings in found.items():
        rows = []
        for setting, whats in settings.items():
            for what, units in whats.items():
                rows.append(
                    (f"{setting}: {what}", *(_shown(units.get(unit)) for unit in COST_UNITS))
                )
        parts.append(
            f"== {scheme}: what a job costs (before -> now)\n{table(('', *COST_UNITS), rows)}"
        )
    return "\n\n".join(parts) + "\n"


def _shown(by: dict[str, float] | None) -> str:
    if by is None:
        return "-"
    return " -> ".join(f"{by[name]:,.1f}" for name in ("before", "now") if name in by)


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "rates": rates_told,
    "costs": costs_told,
    "growth": growth_told,
    "lanes": lanes_told,
    "snapshot": snapshot_told,
}
