"""The thread in which a worker goes through bulk operations; it lives while there are some.

It has a connection of its own, because a pipeline's check of whether a source exists may take its time. Should
it end with an error, or with its process, the operations stand where they were, and the next one that sees them goes on.
"""

import threading

from perdure.app.session.session import Session
from perdure.engine.clock import SystemClock
from perdure.engine.operate.bulks import Bulks
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.bulk_duty import BulkSteps
from perdure.engine.upkeep.rounds import knowledge
from perdure.model.errors import StoreError
from perdure.model.events import EventName
from perdure.stores import opening

_ROUNDS_IDLE_MAX = 20  # rounds without anything to do, after which the thread goes


class BulkWork:
    """Goes through the bulk operations whose stages this worker knows."""

    def __init__(self, session: Session, catalogue: Catalogue, worker: int) -> None:
        self._session = session
        self._catalogue = catalogue
        self._worker = worker
        self._duty = f"bulks {knowledge(catalogue, ())}"
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def ring(self) -> None:
        """There are operations under way."""
        alive = self._thread is not None and self._thread.is_alive()
        if not alive and not self._closing.is_set():
            self._thread = threading.Thread(target=self._work, name="perdure-bulks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Take no further step."""
        self._closing.set()

    def _work(self) -> None:
        try:
            opened = opening.open_store(
                self._session.url,
                SystemClock(),
                create=False,
                wait_s_max=10.0,
                connections=self._session.settings.config.connections,
            )
        except StoreError as away:
            self._note_failure(away)
            return
        try:
            bulks = Bulks(
                opened.store,
                opened.control,
                opened.reader,
                self._catalogue,
                self._session.observers,
                self._session.checks,
            )
            steps = BulkSteps(
                bulks, opened.control, opened.reader, worker=self._worker, duty=self._duty
            )
            self._rounds(steps)
        except StoreError as away:
            self._note_failure(away)
        finally:
            opened.close()

    def _rounds(self, steps: BulkSteps) -> None:
        idle = 0
        while idle < _ROUNDS_IDLE_MAX:
            wait_s = steps.once()
            idle = 0 if wait_s == 0 else idle + 1
            if self._closing.wait(wait_s):
                return

    def _note_failure(self, away: StoreError) -> None:
        self._session.observers.tell(EventName.CHORE_FAILED, chore="bulks", reason=str(away))
