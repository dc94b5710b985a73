"""Fresh seeds in every run: no invariant is broken. Every kind of fault has struck: in storms, and in the long run.

The base of the seeds is drawn anew and printed; a broken seed prints how to see it again.
"""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.sim.harvests import whatever_with_runs
from tests.sim.mutants import THE_FOUR
from tests.sim.report import ANSWERS, Batch, told
from tests.sim.run import run_seed
from tests.sim.storms import STORMS
from tests.sim.swarm import KINDS, plain

LONG_S = float(os.environ.get("PERDURE_SIM_S", "3600"))
SEEDS = 6  # the long test has as many as an hour lets it
SEEDS_MAX = 600  # what is rarest strikes in one of twenty-five; so many are needed about never
STORM_SEEDS_MAX = 12  # in a storm what is rarest strikes in every second seed


def lived_through(go_on: Callable[[Batch], bool]) -> Batch:
    """Fresh seeds, each of which must hold, for as long as that is so."""
    first, batch = secrets.randbelow(10**9), Batch()
    while go_on(batch):
        outcome = run_seed(first + batch.seeds)
        batch.add(outcome)
        if outcome.violation is not None:
            pytest.fail(told(outcome), pytrace=False)
    print(f"seeds from {first}\n{batch}", file=sys.stderr)
    return batch


@pytest.mark.timeout(1200)
def test_fresh_seeds_break_no_invariant(capsys):
    with capsys.disabled():
        batch = lived_through(lambda batch: batch.seeds < SEEDS)
    assert batch.seeds == SEEDS
    assert batch.struck.total() > SEEDS


def test_every_kind_of_fault_strikes_in_some_storm_and_no_invariant_is_broken():
    """The same seeds each time: none of it is left to luck."""
    batch = Batch()
    for seed in range(1, 1 + STORM_SEEDS_MAX):
        for storm in STORMS:
            outcome = run_seed(seed, storm)
            assert outcome.violation is None, f"{storm.__name__}: {told(outcome)}"
            batch.add(outcome)
        if not set(KINDS) & set(batch.absent()):
            break
    print(batch)
    assert [kind for kind in batch.absent() if kind in KINDS] == []


@pytest.mark.long
@pytest.mark.timeout(LONG_S * 2 + 120)
def test_many_fresh_seeds_break_no_invariant_and_every_kind_of_fault_strikes(capsys):
    until = time.monotonic() + LONG_S
    with capsys.disabled():
        batch = lived_through(
            lambda batch: (
                time.monotonic() < until or (bool(batch.absent()) and batch.seeds < SEEDS_MAX)
            )
        )
    assert batch.absent() == []


@pytest.mark.parametrize("count", [1, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.timeout(1200)
def test_fresh_seeds_with_runs_and_all_that_people_do_to_them_break_no_invariant(count):
    first = secrets.randbelow(10**9)
    print(f"seeds from {first}")
    for seed in range(first, first + count):
        outcome = run_seed(seed, whatever_with_runs)
        assert outcome.violation is None, told(outcome)


def test_the_same_seed_is_the_same_history_and_another_seed_another_one():
    seed = secrets.randbelow(10**9)
    print(f"seed {seed}")
    first, again, other = run_seed(seed), run_seed(seed), run_seed(seed + 1)
    assert (first.digest, first.struck) == (again.digest, again.struck)
    assert first.digest != other.digest


def test_a_seed_is_the_same_history_in_another_process_with_another_hash_seed():
    seed = secrets.randbelow(10**9)
    print(f"seed {seed}")
    here = run_seed(seed)
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.sim", str(seed)],
        env=os.environ | {"PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert here.digest in replayed.stdout


def test_a_broken_seed_says_what_broke_what_came_before_and_how_to_see_it_again(monkeypatch):
    THE_FOUR[-1].plant(monkeypatch)
    broken = (one for one in map(run_seed, range(1, 50)) if one.violation)
    outcome = next(one for one in broken if one.violation.invariant == "S8")
    text = told(outcome)
    assert text.startswith(f"seed {outcome.seed} breaks S8 (crashes are counted and bounded")
    assert len(outcome.tail) > 10
    assert outcome.tail[-1] in text
    assert text.endswith(f"replay: .venv/bin/python -m tests.sim {outcome.seed}")


@pytest.mark.parametrize("kind", [*KINDS, *ANSWERS])
def test_a_batch_in_which_a_fault_never_struck_or_was_never_answered_is_not_accepted(kind):
    batch = Batch()
    for count in range(1, 3):
        batch.struck.update(dict.fromkeys(KINDS, count))
        batch.seen.update(dict.fromkeys(ANSWERS, count))
    assert batch.absent() == []
    del (batch.struck if kind in KINDS else batch.seen)[kind]
    assert batch.absent() == [kind]


def test_a_batch_of_quiet_worlds_is_not_accepted():
    batch = Batch()
    batch.add(run_seed(1, plain))
    assert set(KINDS) <= set(batch.absent())
    assert "workers declared dead" in batch.absent()
