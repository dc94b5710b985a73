"""What a batch of seeds has shown, in words, and what a broken one says about itself."""

from collections import Counter
from dataclasses import dataclass, field

from tests.sim.run import Outcome
from tests.sim.swarm import KINDS

# What the engine must have answered at least once in a batch, or the faults did not reach it.
ANSWERS = (
    "answers given again",
    "attempts that cost something",
    "beats refused",
    "budgets looked at",
    "bulk operations done: discard",
    "bulk operations done: redrive",
    "bulk operations running by a person",
    "bulk operations stopped by a person",
    "cancels acknowledged",
    "changes of a gate that came second",
    "chunks sent again",
    "claims found lost",
    "dead letters discarded",
    "dead letters driven again",
    "deaths reported",
    "duties that another has",
    "duties that changed hands",
    "gates held: credential",
    "gates held: hint",
    "gates held: person",
    "gates held: trip",
    "gates released",
    "gates that flow by themselves",
    "gates that give up probing",
    "jobs found in an open transaction",
    "jobs handed over by their callers",
    "jobs of lost callers settled",
    "jobs pruned",
    "late results refused: stale",
    "lives begun anew",
    "moments missed and made up for by one job",
    "pauses that one job made alone",
    "pauses told to a gate",
    "probes",
    "probes by health checks",
    "probes lost",
    "probes that failed",
    "probes that let a gate flow",
    "probes that say nothing",
    "probes that succeeded, of several",
    "records that stages wrote",
    "rescues in time",
    "runs made aborted",
    "runs made cancelled",
    "runs made completed",
    "runs made failed",
    "runs made partial_success",
    "runs made paused",
    "runs sealed",
    "slices that another was quicker to take",
    "ticks",
    "ticks that came second",
    "turns of dead workers refused",
    "waiting jobs expired",
    "waits for a weak upstream",
    "workers declared dead",
    "writes refused by a full store",
)


@dataclass(slots=True)
class Batch:
    """Seeds that were lived through."""

    seeds: int = 0
    jobs: int = 0
    calls: int = 0
    simulated_s: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.seeds += 1
        self.jobs += outcome.jobs
        self.calls += outcome.entries
        self.simulated_s += outcome.simulated_s
        self.struck += outcome.struck
        self.seen += outcome.seen

    def absent(self) -> list[str]:
        """Faults that never struck and answers that were never given."""
        return [one for one in KINDS if not self.struck[one]] + [
            one for one in ANSWERS if not self.seen[one]
        ]

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {self.struck[kind]:,}" for kind in KINDS)
        answers = ", ".join(f"{name} {count:,}" for name, count in sorted(self.seen.items()))
        return (
            f"simulation: {self.seeds} seeds, {self.simulated_s / 3600:.1f} simulated hours, "
            f"{self.jobs:,} jobs, {self.calls:,} store calls, "
            f"{self.struck.total():,} faults\n  struck: {faults}\n  seen: {answers}"
        )


def told(outcome: Outcome) -> str:
    """A broken seed: what is wrong, what came before, and how to see it again."""
    return "\n".join(
        [
            f"seed {outcome.seed} breaks {outcome.violation}",
            "the last events:",
            *outcome.tail,
            *(["the last events of that job:", *outcome.about] if outcome.about else []),
            f"replay: .venv/bin/python -m tests.sim {outcome.seed}",
        ]
    )
