"""Say that suspects wait, where nobody may come for them: a worker inside another process does not run them.

A job that was in hand when a process died runs again in a process of its own, beside few others or alone. An
embedded worker has no such process to give, and must not try it in its host's. The jobs wait for a worker that
was started with ``perdure worker``, and nothing of them is lost; this warning is what there is to see.
"""

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.chore import NOTHING, Swept
from perdure.model.events import EventName
from perdure.ports import Clock, Store

LOOK_S = 5.0
PATIENCE_S = 15.0  # a supervisor that is there has a child for them by then


class SuspectsLeft:
    """Warns once, until no suspect waits any more."""

    name = "suspects left"

    def __init__(
        self, store: Store, catalogue: Catalogue, *, clock: Clock, observers: Observers
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
        self._observers = observers
        self._look_at = 0.0
        self._since: float | None = None
        self._told = False

    def once(self) -> Swept:
        """Look every few seconds."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return NOTHING
        self._look_at = now + LOOK_S
        if not self._store.suspects(self._catalogue.lane_nos()):
            self._since, self._told = None, False
            return NOTHING
        self._since = now if self._since is None else self._since
        if not self._told and now - self._since >= PATIENCE_S:
            self._told = True
            self._observers.tell(EventName.SUSPECTS_LEFT, waited_s=round(now - self._since, 1))
        return NOTHING
