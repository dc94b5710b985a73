"""Waiting jobs that nobody here can run: left for a worker that knows them, and said, once a lane.

A job waits in the lane of its queue, category, pipeline and stage. Where our catalogue has no such lane
(a stage was renamed, a pipeline moved to another queue, a newer version enqueues already), the job is
not failed: a worker that knows the lane may come. Until then this warning is what there is to see.
"""

from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.model.events import EventName
from perdure.ports import Reader


class Strangers:
    """Compares the lanes that have work with those that we know."""

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
                pipeline=lane.pipeline, stage=lane.stage, queue=lane.queue, category=lane.category,
            )  # fmt: skip
        return len(found)
