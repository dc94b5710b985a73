"""Bugs put into the writing of a record in a stage's own transaction are found by the contract, on both stores."""

from collections.abc import Callable
from functools import partialmethod
from typing import Any

import pytest

from perdure.model.jobs import Record
from perdure.model.nouns import replace
from perdure.testing import SharedStoreContract
from tests.stores.mutants import STATEMENTS, STORES
from tests.stores.rigs import PostgresRig, SqliteFile, lent_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def contract(request) -> Callable[[], SharedStoreContract]:
    """The contract of a store to which a stage has a connection of its own."""
    if request.param == "sqlite":
        return SqliteFile
    rig: PostgresRig = request.getfixturevalue("postgres_rig")

    class OnPostgres(SharedStoreContract):
        def open(self, clock):
            return rig.open(clock)

        def open_again(self, clock):
            return rig.open_again(clock)

        def lend(self):
            return lent_postgres(rig.url)

    return OnPostgres


def found_by(contract: Callable[[], SharedStoreContract], names: tuple[str, ...]) -> set[str]:
    """Those of these tests that fail."""
    failed = set()
    for name in names:
        one = contract()
        one.setup_method()
        try:
            getattr(one, name)()
        except AssertionError:
            failed.add(name)
        finally:
            one.teardown_method()
    return failed


Plant = Callable[[pytest.MonkeyPatch], None]


def completing(change: Callable[..., Any]) -> Plant:
    """Another way to complete, on both stores."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for store in STORES.values():
            patch.setattr(store, "complete", partialmethod(change, store.complete))

    return plant


def reworded(**words: tuple[str, str, str]) -> Plant:
    """A clause of a statement in other words, by store."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for name, (statement, old, new) in words.items():
            text = getattr(STATEMENTS[name], statement)
            assert old in text
            patch.setattr(STATEMENTS[name], statement, text.replace(old, new))

    return plant


def apart(store: Any, right: Any, record: Record, *, by: int, within: object) -> Any:
    return store.turn([record], None, by=by).settled[0]


def unguarded(store: Any, right: Any, record: Record, *, by: int, within: Any) -> Any:
    asked = f"SELECT token FROM perdure_jobs WHERE no = {record.no}"
    ((token,),) = within.execute(asked).fetchall()
    return replace(
        right(store, replace(record, token=token), by=by, within=within), token=record.token
    )


MUTANTS = {
    "the record is written apart from the stage's rows": (
        completing(apart),
        (
            "test_a_record_in_a_stages_transaction_is_there_after_its_commit_and_not_before",
            "test_a_record_goes_with_its_stages_rollback_and_the_claim_stands",
            "test_a_connection_that_ends_without_a_commit_takes_the_record_along",
        ),
    ),
    "a record without the guard of its token": (
        completing(unguarded),
        (
            "test_an_attempt_that_was_overtaken_completes_nothing",
            "test_a_job_that_is_in_other_hands_is_not_completed_by_the_first",
            "test_a_cancelled_job_is_not_completed",
        ),
    ),
    "a record of a dead worker": (
        reworded(
            sqlite=("worker_alive", "AND dead_at IS NULL", ""),
            postgres=("record", "AND dead_at IS NULL AND %(lent)s", "AND %(lent)s"),
        ),
        ("test_a_worker_that_was_declared_dead_completes_nothing",),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_bug_in_completing_is_found(contract, mutant, monkeypatch):
    plant, killed_by = mutant
    assert found_by(contract, killed_by) == set()
    with monkeypatch.context() as patch:
        plant(patch)
        assert found_by(contract, killed_by) == set(killed_by)
