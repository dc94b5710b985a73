"""What goes wrong with which item: a pure function of the seed, so that a tour can be repeated."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from random import Random

STAGES = ("fetch", "extract", "store")
ITEMS_MIN = 20  # fewer leave no room for every fault and an undisturbed neighbour


class Fault(StrEnum):
    """Everything that the tour does to the work."""

    RATE_LIMIT = "429"
    UNAVAILABLE = "503"
    HANG = "timeout"
    MALFORMED = "malformed"
    REFUSED = "400"
    CRASH = "crash"
    SIGKILL = "sigkill"

    @property
    def in_words(self) -> str:
        """What it is, for people."""
        return _WORDS[self]


_WORDS = {
    Fault.RATE_LIMIT: "429 with Retry-After: 1",
    Fault.UNAVAILABLE: "503 service unavailable",
    Fault.HANG: "no answer until the stage timed out",
    Fault.MALFORMED: "malformed JSON with status 200",
    Fault.REFUSED: "400 for an item that can never succeed",
    Fault.CRASH: "working process killed by its item",
    Fault.SIGKILL: "worker killed with SIGKILL",
}

# Which share of the items meets which fault at which stage, once each.
SHARES: tuple[tuple[str, Fault, float], ...] = (
    ("fetch", Fault.UNAVAILABLE, 0.06),
    ("fetch", Fault.HANG, 0.02),
    ("extract", Fault.RATE_LIMIT, 0.10),
    ("extract", Fault.UNAVAILABLE, 0.04),
    ("extract", Fault.HANG, 0.03),
    ("extract", Fault.MALFORMED, 0.08),
    ("store", Fault.UNAVAILABLE, 0.03),
    ("store", Fault.RATE_LIMIT, 0.02),
)

_UNLUCKY = {
    ("fetch", Fault.UNAVAILABLE),
    ("extract", Fault.RATE_LIMIT),
    ("extract", Fault.HANG),
    ("extract", Fault.MALFORMED),
}

# The model is slow, the stores around it are not. Seconds, from and to.
LATENCY_S = {"fetch": (0.01, 0.05), "extract": (0.15, 0.55), "store": (0.01, 0.04)}

Plans = dict[tuple[int, str], tuple[Fault, ...]]


@dataclass(frozen=True, slots=True)
class Script:
    """The whole plot: items are numbered from 1, and each stage of each has its list of faults."""

    seed: int
    items: int
    poison: int | None
    refused: frozenset[int]
    plans: Plans

    def fault(self, item: int, stage: str, seen: int) -> Fault | None:
        """What the upstream does when it sees this item at this stage after ``seen`` times before."""
        if stage == "extract" and item in self.refused:
            return Fault.REFUSED
        plan = self.plans.get((item, stage), ())
        return plan[seen] if seen < len(plan) else None

    def latency_s(self, item: int, stage: str) -> float:
        """How long a good answer takes."""
        low_s, high_s = LATENCY_S[stage]
        return Random(f"{self.seed} latency {item} {stage}").uniform(low_s, high_s)


def write_script(*, seed: int, items: int, without: Iterable[Fault] = ()) -> Script:
    """The plot of a tour; ``without`` leaves faults out."""
    left_out = frozenset(without)
    chance = Random(f"{seed} cast {items}")
    poison = chance.randint(ceil(items * 0.05), ceil(items * 0.15))
    rest = [item for item in range(1, items + 1) if item != poison]
    refused = frozenset(chance.sample(rest, 2))
    ordinary = [item for item in rest if item not in refused]
    return Script(
        seed=seed,
        items=items,
        poison=None if Fault.CRASH in left_out else poison,
        refused=frozenset() if Fault.REFUSED in left_out else refused,
        plans=_plans(seed, ordinary, left_out),
    )


def _plans(seed: int, ordinary: list[int], left_out: frozenset[Fault]) -> Plans:
    lists: dict[tuple[int, str], list[Fault]] = {}
    early = ordinary[: ceil(len(ordinary) / 2)]
    unlucky = Random(f"{seed} unlucky").choice(early)  # one item that is sure to have a history
    for stage, fault, share in SHARES:
        drawn = Random(f"{seed} {stage} {fault}").sample(ordinary, ceil(share * len(ordinary)))
        chosen = {*drawn, unlucky} if (stage, fault) in _UNLUCKY else {*drawn} - {unlucky}
        for item in chosen if fault not in left_out else ():
            lists.setdefault((item, stage), []).append(fault)
    for (item, stage), plan in lists.items():
        Random(f"{seed} order {item} {stage}").shuffle(plan)
    return {place: tuple(plan) for place, plan in lists.items()}
