"""The plot of the tour: a pure function of its seed that holds what the tour promises."""

from collections import Counter

import pytest

from perdure.demo.script import ITEMS_MIN, STAGES, Fault, Script, write_script
from perdure.demo.stages import HURRIED

SENT = tuple(fault for fault in Fault if fault not in (Fault.CRASH, Fault.SIGKILL))
SEEDS = range(40)


def all_faults(script: Script) -> Counter[Fault]:
    """Everything that the upstream does when each item asks until it gets a good answer."""
    met: Counter[Fault] = Counter()
    for item in range(1, script.items + 1):
        for stage in STAGES:
            seen = 0
            while (fault := script.fault(item, stage, seen)) is not None:
                met[fault] += 1
                seen += 1
                if fault is Fault.REFUSED:
                    break
    return met


def test_the_same_seed_writes_the_same_script():
    assert write_script(seed=7, items=300) == write_script(seed=7, items=300)


def test_another_seed_strikes_other_items():
    one, other = write_script(seed=7, items=300), write_script(seed=8, items=300)
    assert one.plans != other.plans


@pytest.mark.parametrize("items", [ITEMS_MIN, 60, 1_000])
def test_every_fault_is_in_every_script(items):
    for seed in SEEDS:
        script = write_script(seed=seed, items=items)
        met = all_faults(script)
        assert set(met) == set(SENT), f"seed {seed}"
        assert met[Fault.REFUSED] == 2, f"seed {seed}"
        assert script.poison not in (None, *script.refused), f"seed {seed}"


@pytest.mark.parametrize("without", SENT)
def test_a_fault_that_is_left_out_strikes_nobody_and_changes_no_other(without):
    whole = all_faults(write_script(seed=3, items=200))
    part = all_faults(write_script(seed=3, items=200, without=[without]))
    del whole[without]
    assert part == whole


def test_without_the_crash_no_item_is_poison():
    assert write_script(seed=3, items=200, without=[Fault.CRASH]).poison is None


def test_no_ordinary_item_meets_more_faults_than_its_policy_has_tries():
    for seed in SEEDS:
        script = write_script(seed=seed, items=1_000)
        worst = max(len(plan) for plan in script.plans.values())
        assert worst < HURRIED.attempts_max, f"seed {seed}"


def test_the_poison_and_the_refused_items_meet_nothing_else():
    for seed in SEEDS:
        script = write_script(seed=seed, items=100)
        doomed = {script.poison, *script.refused}
        assert not doomed & {item for item, _ in script.plans}, f"seed {seed}"


def test_some_item_is_sure_to_meet_three_kinds_of_failure():
    for seed in SEEDS:
        script = write_script(seed=seed, items=ITEMS_MIN)
        assert any(len(set(plan)) >= 3 for plan in script.plans.values()), f"seed {seed}"
