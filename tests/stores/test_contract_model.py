"""The contract, on the slow reference model: where both fail, the contract contradicts itself."""

from perdure.testing import Model, SharedStoreContract, VirtualClock, open_model


class TestModel(SharedStoreContract):
    def open(self, clock: VirtualClock) -> Model:
        self.model = open_model(clock)
        return self.model

    def open_again(self, clock: VirtualClock) -> Model:
        return self.model.again()
