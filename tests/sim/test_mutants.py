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

SEEDS = range(1, 201)  # most are found in the first three, the rarest in one of fifty


def first_broken(setting: Setting) -> Outcome | None:
    """The first of the seeds that breaks an invariant."""
    outcomes = (run_seed(seed, setting) for seed in SEEDS)
    return next((one for one in outcomes if one.violation), None)


@cache
def unmutated(seed: int, setting: Setting) -> Outcome:
    """What the real code makes of a seed."""
    return run_seed(seed, setting)


# One for each promise, in every run; the others share an invariant with one of them, or are those of the stores, which
# their contract finds in every run; all of them together take minutes.
_ALWAYS = {
    *THE_FOUR, *ASKED, *GATES[:5],
    *(one for one in BOOKS if one.name in ("a budget by chunk", "a stale record counts in its run", "a re-drive drops conflicts",
     "a run that is aborted after its last item is not sealed")),
}  # fmt: skip
_EVERY = [*THE_FOUR, *OTHERS, *ASKED, *UPKEEP, *OPERATORS, *STORES, *GATES, *BOOKS]


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=() if one in _ALWAYS else pytest.mark.long) for one in _EVERY],
    ids=lambda one: one.name,
)
def test_a_bug_that_is_put_back_is_found_by_name(mutant: Mutant, monkeypatch):
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        broken = first_broken(mutant.setting)
    assert broken is not None, f"not found in {len(SEEDS)} seeds"
    assert broken.violation is not None
    print(f"{mutant.name}: {broken.violation}; seed {broken.seed}")
    assert broken.violation.invariant in mutant.caught_by
    right = unmutated(broken.seed, mutant.setting)
    assert right.violation is None, told(right)
