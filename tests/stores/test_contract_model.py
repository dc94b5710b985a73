"""The contract, on the slow reference model: where both fail, the contract contradicts itself."""

from contextlib import contextmanager

from perdure.testing import SharedStoreContract, VirtualClock
from tests.stores.reference import Model, open_model


class TestModel(SharedStoreContract):
    def open(self, clock: VirtualClock) -> Model:
        self.model = open_model(clock)
        return self.model

    def open_again(self, clock: VirtualClock) -> Model:
        return self.model.again()

    @contextmanager
    def lend(self):
        own = self.model.lend()
        yield own
        own.rollback()
