"""Replay seeds: `.venv/bin/python -m tests.sim 4711 4712`."""

import sys

from tests.sim.report import told
from tests.sim.run import run_seed


def main(seeds: list[int]) -> int:
    """Live through each; the exit status says whether one of them broke an invariant."""
    broken = False
    for seed in seeds:
        outcome = run_seed(seed)
        broken = broken or outcome.violation is not None
        print(told(outcome) if outcome.violation else f"seed {seed} holds")
        print(f"history {outcome.digest} of {outcome.entries} calls")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main([int(one) for one in sys.argv[1:]]))
