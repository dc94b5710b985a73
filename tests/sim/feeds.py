"""Which runs there are in a seed: their items, budgets, and how they are fed."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure.model.kinds import Kind

PIPELINES = ("long", "short")
# What happens to runs and to bulk operations, and how often at most within the chaos of one seed.
RUN_DEEDS = {"run_pause": 5, "run_resume": 40, "run_cancel": 5, "bulk_stop": 6}
WITHOUT_LIMITS: dict[str, Any] = {"failure_budget": None, "kinds": {}, "cost_max_usd": None}


@dataclass(frozen=True, slots=True)
class Feed:
    """One run and who feeds it. ``keyed`` items have keys that jobs outside of the run may have too."""

    name: str
    pipeline: str
    items: int
    options: dict[str, Any] = field(default_factory=dict)
    owner: str = ""
    keyed: bool = False
    feeders: int = 1  # at once, each with all of the items
    backlog_max: int | None = None
    begins_s: float = 0.0


def feeds_of(rng: Random, chaos_s: float) -> tuple[Feed, ...]:
    """Draw them: mostly one or two, some of which fail too much."""
    return tuple(
        Feed(
            f"run{number}",
            rng.choice(PIPELINES),
            rng.choice((0, 1, 5, 12, 25)),
            _options(rng),
            owner=rng.choice(("", "", "ann")),
            keyed=rng.random() < 0.4,
            feeders=rng.choice((1, 1, 2)),
            backlog_max=rng.choice((None, 1, 4)),
            begins_s=rng.uniform(0.0, chaos_s / 3),
        )
        for number in range(rng.choice((0, 1, 2, 2)))
    )


def _options(rng: Random) -> dict[str, Any]:
    kinds = {kind.value: rng.choice((0.0, 0.2, 0.5)) for kind in (Kind.NETWORK, Kind.TIMEOUT)}
    completed_at = rng.choice((0.5, 0.95, 1.0))
    return {
        "failure_budget": rng.choice((None, 0.0, 0.1, 0.3, 0.6)),
        "check_every": rng.choice((1, 2, 5, 10)),
        "sample_min": rng.choice((1, 3, 6)),
        "rate_limits": rng.random() < 0.7,
        "kinds": kinds if rng.random() < 0.3 else {},
        "completed_at": completed_at,
        "partial_at": completed_at * rng.random(),
        "cost_max_usd": rng.choice((None, None, 0.02, 0.1)),
    }
