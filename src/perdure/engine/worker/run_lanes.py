"""What a worker does about runs between its turns: it learns which lanes they have, and looks after them."""

import math
from collections.abc import Callable

from perdure.engine.stages import Catalogue
from perdure.ports import Store

_TOLD_S = 0.05  # after a word that there is work; it may be in a run that is new
_LEARN_S = 0.25
_LOOK_S = 0.2  # a budget is overspent by what ends in between


class RunLanes:
    """Lanes of runs come and go while a worker works."""

    def __init__(
        self, store: Store, catalogue: Catalogue, look: Callable[[], object] | None
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._look = look
        self._known: frozenset[int] = frozenset()
        self._learned_at = -math.inf
        self._looked_at = -math.inf

    def learn(self, now: float, *, told: bool) -> bool:
        """Know the lanes of all runs that are not over, if it was a while ago that we did; whether there are others."""
        if now - self._learned_at < (_TOLD_S if told else _LEARN_S):
            return False
        found = self._store.run_lanes()
        missing = self._catalogue.learn(found)
        if missing:  # the pipeline has got a stage since the run was made
            self._store.lanes(missing)
            found = self._store.run_lanes()
            self._catalogue.learn(found)
        self._learned_at = now
        before, self._known = self._known, frozenset(found)
        return not self._known <= before

    def look(self, now: float) -> bool:
        """Look after runs of which jobs have ended here; False when that was done a moment ago."""
        if now - self._looked_at < _LOOK_S:
            return False
        self._looked_at = now
        if self._look is not None:
            self._look()
        return True

    def rest_s_max(self, now: float, *, stirred: bool) -> float:
        """When we have to be back: soon, if something that was seen is yet to be looked after."""
        soon = self._looked_at + _LOOK_S if stirred else math.inf
        return max(0.0, min(soon, self._learned_at + 4 * _LEARN_S) - now)
