"""What a worker does about lanes between its turns: those of runs, which come and go, and those that it does not know."""

import math
from collections.abc import Callable

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.model.events import EventName
from perdure.ports import Reader, Store

_TOLD_S = 0.05  # after a word that there is work; it may be in a run that is new
_LEARN_S = 0.25
_LOOK_S = 0.2  # a budget is overspent by what ends in between


class RunLanes:
    """The lanes of runs, which a worker has to learn, and the runs themselves, which it looks after."""

    def __init__(
        self, store: Store, catalogue: Catalogue, look: Callable[[], object] | None
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._look = look
        self._known: frozenset[int] = frozenset()
        self._learned_at = -math.inf
        self._looked_at = -math.inf
        self._ended_seen = 0

    def learn(self, now: float, *, told: bool) -> bool:
        """Learn the lanes of all runs that are not over, unless we did so a moment ago; whether some are new to us."""
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

    def look(self, now: float, ended: int) -> None:
        """Look after runs if jobs of them have ended here since, unless that was done a moment ago.

        ``ended`` is how many have ended since we began.
        """
        if ended == self._ended_seen or now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        if self._look is not None:
            self._look()
        self._ended_seen = ended

    def rest_s_max(self, now: float, ended: int) -> float:
        """When we have to be back: soon, if something that was seen is yet to be looked after."""
        soon = self._looked_at + _LOOK_S if ended != self._ended_seen else math.inf
        return max(0.0, min(soon, self._learned_at + 4 * _LEARN_S) - now)


class UnknownLanes:
    """Waiting jobs that nobody here can run: left for a worker that knows them, and told once for each lane.

    A job waits in the lane of its queue, category, pipeline and stage. Where our catalogue has no such lane
    (a stage was renamed, a pipeline moved to another queue, a newer version enqueues already), the job is
    not failed: a worker that knows the lane may come. Until then this warning is what there is to see.
    """

    def __init__(self, reader: Reader, catalogue: Catalogue, observers: Observers) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._observers = observers
        self._warned_of: set[int] = set()

    def once(self) -> int:
        """Look once; how many lanes were new to us."""
        known = {
            (one.queue, one.category, one.pipeline, one.stage) for one in self._catalogue.lanes()
        }
        found = [
            view
            for view in self._reader.lanes()
            if (view.ready or view.later)
            and view.no not in self._warned_of
            and (view.lane.queue, view.lane.category, view.lane.pipeline, view.lane.stage)
            not in known
        ]
        for view in found:
            self._warned_of.add(view.no)
            lane = view.lane
            self._observers.tell(
                EventName.STAGE_UNKNOWN,
                pipeline=lane.pipeline,
                stage=lane.stage,
                queue=lane.queue,
                category=lane.category,
            )
        return len(found)
