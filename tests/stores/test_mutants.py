"""Real bugs of other queues, put back on purpose, are found by the contract; without them it passes."""

import inspect
import re

import pytest

from perdure.stores import job_lists, tally_reads
from tests.stores import mutants
from tests.stores.mutants import MUTANTS, OWN_AFFAIR, STATEMENTS, Mutant
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


_WHOSE = re.compile(r"owner\s*=\s*(?!excluded|owner)\S+")


def test_every_statement_that_asks_whose_it_is_has_a_mutant_that_does_not():
    """A statement that is added with an owner in it fails here until it has one."""
    texts = {
        name: text
        for source in (
            *map(vars, STATEMENTS.values()),
            tally_reads.TALLY,
            vars(job_lists),
            vars(tally_reads),
        )
        for name, text in source.items()
        if isinstance(text, str) and not name.startswith("__")
    }
    asking = {name for name, text in texts.items() if _WHOSE.search(text)}
    planted = set(re.findall(r'"(\w+)"', inspect.getsource(mutants)))
    assert len(asking) > 25
    assert asking - set(OWN_AFFAIR) - planted == set()
    assert set(OWN_AFFAIR) <= asking
