"""Bugs put back on purpose are found, by name, within a few seeds, and the real code passes the seed that finds them."""

from functools import cache

import pytest

from tests.sim.bugs import ASKED, OPERATORS, STORES, UPKEEP
from tests.sim.gatebugs import GATES
from tests.sim.mutants import OTHERS, THE_FOUR, Mutant
from tests.sim.report import told
from tests.sim.run import Outcome, run_seed
from tests.sim.runbugs import BOOKS
from tests.sim.swarm import Setting

SEEDS = 200  # most are found in the first three, the rarest in one of fifty
# Where the search begins for those that are rare: the seed that found them last. It goes on from there where it no longer does.
_LAST_FOUND = {
    "rescue from a stale read (River before #1373)": 24,
    "no guard on record (Oban, PgQueuer, graphile-worker, SAQ)": 5,
    "a bulk cancel gives up what it meets held once": 3,
    "a stage completes whatever claim is the latest": 18,
    "a budget by chunk": 14,
    "a re-drive drops conflicts": 12,
    "a second hint shortens the first": 8,
    "a late result lets the gate flow": 5,
}


def first_broken(setting: Setting, begin: int) -> Outcome | None:
    """The first of the seeds that breaks an invariant."""
    outcomes = (run_seed(seed, setting) for seed in range(begin, begin + SEEDS))
    return next((one for one in outcomes if one.violation), None)


@cache
def unmutated(seed: int, setting: Setting) -> Outcome:
    """What the real code makes of a seed."""
    return run_seed(seed, setting)


# One for each promise, in every run; the others share an invariant with one of them, or are those of the stores, which
# their contract finds in every run; all of them together take minutes.
_ALWAYS = {
    *THE_FOUR,
    *ASKED,
    *GATES[:5],
    *(
        one
        for one in BOOKS
        if one.name
        in (
            "a budget by chunk",
            "a stale record counts in its run",
            "a re-drive drops conflicts",
            "a run that is aborted after its last item is not sealed",
        )
    ),
}
_EVERY = [*THE_FOUR, *OTHERS, *ASKED, *UPKEEP, *OPERATORS, *STORES, *GATES, *BOOKS]


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=() if one in _ALWAYS else pytest.mark.long) for one in _EVERY],
    ids=lambda one: one.name,
)
def test_a_bug_that_is_put_back_is_found_by_name(mutant: Mutant, monkeypatch):
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        broken = first_broken(mutant.setting, _LAST_FOUND.get(mutant.name, 1))
    assert broken is not None, f"not found in {SEEDS} seeds"
    assert broken.violation is not None
    print(f"{mutant.name}: {broken.violation}; seed {broken.seed}")
    assert broken.violation.invariant in mutant.caught_by
    right = unmutated(broken.seed, mutant.setting)
    assert right.violation is None, told(right)
