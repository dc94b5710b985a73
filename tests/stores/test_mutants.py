"""Real bugs of other queues, put back on purpose, are found by the contract; without them it passes."""

import pytest

from tests.stores.mutants import MUTANTS, Mutant
from tests.stores.rigs import broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_bug_that_is_put_back_is_found(rig, mutant: Mutant, monkeypatch):
    assert broken(rig, mutant.killed_by) == {}
    with monkeypatch.context() as patch:
        mutant.plant(patch, rig)
        found = broken(rig, mutant.killed_by)
    print(f"{mutant.name} on {rig.name}: found by {len(found)} of {len(mutant.killed_by)}")
    assert set(found) == set(mutant.killed_by)
    assert {type(error) for error in found.values()} == {AssertionError}
