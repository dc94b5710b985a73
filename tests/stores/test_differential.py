"""The stores and the model, driven in step by chance: any difference in what they say is a failure."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from perdure.testing import VirtualClock
from tests.stores.machine import InStep
from tests.stores.reference import open_model
from tests.stores.rigs import PostgresRig, SqliteRig
from tests.stores.sides import Side, Sides

SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example)


def in_step(make_sides: Callable[[VirtualClock], Sides], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: InStep(make_sides),
        settings=settings(
            max_examples=examples, stateful_step_count=steps, suppress_health_check=SLOW
        ),
    )


def two(clock: VirtualClock) -> Sides:
    return Sides([Side("model", open_model(clock)), Side("sqlite", SqliteRig().open(clock))])


def all_three(rig: PostgresRig) -> Callable[[VirtualClock], Sides]:
    def make(clock: VirtualClock) -> Sides:
        return Sides([*two(clock).all, Side("postgres", rig.open(clock))])

    return make


@pytest.mark.timeout(
    900
)  # to find the shortest way to a difference takes longer than to see that there is none
def test_sqlite_and_the_model_do_not_differ():
    in_step(two, examples=15, steps=30)


@pytest.mark.timeout(900)
def test_all_three_do_not_differ(postgres_rig):
    in_step(all_three(postgres_rig), examples=6, steps=30)


@pytest.mark.long
def test_sqlite_and_the_model_do_not_differ_for_long():
    in_step(two, examples=1500, steps=80)


@pytest.mark.long
def test_all_three_do_not_differ_for_long(postgres_rig):
    in_step(all_three(postgres_rig), examples=400, steps=60)
