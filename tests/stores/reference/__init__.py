"""The slow reference model of a store: obviously right rather than fast."""

from dataclasses import dataclass

from perdure.ports import Clock
from tests.stores.reference.completing import Lent
from tests.stores.reference.control import ModelControl
from tests.stores.reference.reader import ModelReader
from tests.stores.reference.store import ModelStore
from tests.stores.reference.tables import Tables


@dataclass(frozen=True, slots=True)
class Model:
    """One connection to a reference model; any number may look at the same tables."""

    store: ModelStore
    control: ModelControl
    reader: ModelReader
    tables: Tables

    def again(self) -> "Model":
        """Another connection to the same tables."""
        return _connected(self.tables)

    def lend(self) -> Lent:
        """A transaction of somebody's own on the same tables."""
        return Lent(self.tables)


def open_model(clock: Clock) -> Model:
    """A fresh, empty reference model."""
    return _connected(Tables(clock))


def _connected(tables: Tables) -> Model:
    return Model(ModelStore(tables), ModelControl(tables), ModelReader(tables), tables)
