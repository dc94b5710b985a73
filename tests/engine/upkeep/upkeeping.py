"""A worker's upkeep on a real store, for the tests of its chores."""

from random import Random
from typing import Any

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import Upkeep, UpkeepSettings
from perdure.model.operations import Retention
from perdure.model.outcomes import Death
from perdure.testing.store_contract.fresh_store import TTL_S, Place
from tests.engine.kit import Notes, line_on

KILLED = Death("exited", signal="SIGKILL")
MARGIN_S = 30.0


def upkeep(
    place: Place,
    worker: int,
    *,
    catalogue: Catalogue | None = None,
    notes: Notes | None = None,
    retention: Retention | None = None,
    patience_s: float = 0.0,
    **more: Any,
) -> Upkeep:
    """The upkeep of a worker that knows the place's pipeline, and keeps everything unless told otherwise."""
    return Upkeep(
        place,
        Catalogue([line_on(place)]) if catalogue is None else catalogue,
        worker,
        UpkeepSettings(retention or Retention(), margin_s=MARGIN_S, patience_s=patience_s),
        clock=place.clock,
        chance=Random(1),
        observers=Observers([notes] if notes else []),
        **more,
    )


def live(place: Place, workers: list[int], seconds: float) -> None:
    """Let time pass while these are beaten for."""
    for _ in range(int(seconds / (TTL_S / 3)) + 1):
        place.clock.push(TTL_S / 3)
        place.store.beat(workers)
