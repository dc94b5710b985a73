"""The contract as a kit: any runner may run it, it covers the ports, and a store that does nothing fails it."""

import inspect
import unittest

import pytest

from perdure.ports import Control, Reader, Store
from perdure.testing import SharedStoreContract, StoreContract, VirtualClock
from perdure.testing.store_contract import fresh_store
from perdure.testing.store_contract.fresh_store import raises
from tests.stores.reference import open_model


def names_of(contract: type) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


class OnModel(StoreContract):
    def open(self, clock):
        return open_model(clock)


def test_the_contract_needs_no_test_library():
    """Each test is a method without arguments between a setup and a teardown."""
    suite = unittest.TestSuite()
    for name in names_of(OnModel)[:20]:
        contract = OnModel()
        suite.addTest(
            unittest.FunctionTestCase(
                getattr(contract, name), contract.setup_method, contract.teardown_method
            )
        )
    outcome = unittest.TestResult()
    suite.run(outcome)
    assert (outcome.testsRun, outcome.failures, outcome.errors) == (20, [], [])


PARTS = [
    part for part in SharedStoreContract.__mro__ if part not in (object, fresh_store.OnAFreshStore)
]


def test_no_part_of_the_contract_overrides_a_test_of_another():
    named = [name for part in PARTS for name in vars(part) if name.startswith("test_")]
    assert len(named) == len(set(named)) == len(names_of(SharedStoreContract))


def test_no_part_of_the_contract_overrides_a_word_of_another():
    named = [
        name
        for part in PARTS
        for name, value in vars(part).items()
        if inspect.isfunction(value) and not name.startswith("__")
    ]
    assert sorted(name for name in set(named) if named.count(name) > 1) == []


@pytest.mark.parametrize("port", [Store, Control, Reader])
def test_every_operation_of_the_ports_is_called_by_the_contract(port):
    words = "\n".join(
        inspect.getsource(inspect.getmodule(part))
        for part in (*SharedStoreContract.__mro__, fresh_store.Place)
        if part.__module__.startswith("perdure.testing.store_contract")
    )
    side = {Store: "store", Control: "control", Reader: "reader"}[port]
    operations = [name for name in vars(port) if not name.startswith("_")]
    missing = [name for name in operations if f"{side}.{name}" not in words]
    assert missing == []


def test_a_store_of_which_nothing_is_known_must_be_opened_by_its_author():
    with pytest.raises(NotImplementedError):
        StoreContract().setup_method()


class Forgetful:
    """A store that says yes to everything and keeps nothing."""

    def __init__(self, model):
        self._model = model
        self.control, self.reader = model.control, model.reader

    @property
    def store(self):
        return self

    def enqueue(self, jobs, *, within=None):
        self._model.store.enqueue(jobs)
        made = self._model.store.enqueue(jobs)
        self._model.tables.jobs.clear()
        return made

    def __getattr__(self, name):
        return getattr(self._model.store, name)


def test_a_store_that_keeps_nothing_fails_the_contract():
    class OnForgetful(StoreContract):
        def open(self, clock):
            return Forgetful(open_model(clock))

    failed = []
    for name in names_of(OnForgetful):
        contract = OnForgetful()
        contract.setup_method()
        try:
            getattr(contract, name)()
        except Exception:
            failed.append(name)
    assert len(failed) > len(names_of(OnForgetful)) / 2


# -- the kit -----------------------------------------------------------------------------


def test_raises_lets_pass_what_is_raised_and_only_that():
    with raises(ValueError, saying="so"):
        raise ValueError("it is so")
    with pytest.raises(AssertionError, match="was not raised"), raises(ValueError):
        pass
    with pytest.raises(AssertionError, match="not 'other'"), raises(ValueError, saying="other"):
        raise ValueError("it is so")
    with pytest.raises(KeyError), raises(ValueError):
        raise KeyError("x")


def test_a_dump_of_everything_notices_each_kind_of_change():
    clock = VirtualClock()
    place = fresh_store.Place(open_model(clock), clock)
    worker = place.hire()
    job = place.dead_letter(worker)
    seen = [place.everything()]
    for change in (
        place.put,
        place.hire,
        place.begin_run,
        lambda: place.discard(job),
        lambda: place.lanes_of("another"),
        lambda: place.take(worker),
    ):
        change()
        seen.append(place.everything())
    assert all(one not in seen[:place] for place, one in enumerate(seen))
