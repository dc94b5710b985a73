"""What one actor is connected to."""

from collections.abc import Callable
from dataclasses import dataclass

from perdure.ports import Control, Reader, Store
from tests.sim.process import Process
from tests.sim.strand import Strand


@dataclass(frozen=True, slots=True)
class Connected:
    """The three sides of the store, each at the other end of the wire."""

    store: Store
    control: Control
    reader: Reader


Connect = Callable[[Strand, Process | None], Connected]
