"""A worker that is a guest in somebody else's process: it works as any other, and leaves the process alone.

It takes no signals and never ends the process. Threads that it has lost stay lost: the slots are not filled
until they come back, and that is told once; nobody may recycle a process that is not ours.
"""

import asyncio
import threading

from perdure.engine.worker import Worker
from perdure.model.errors import WorkerDead
from perdure.model.events import EventName


class Guest(Worker):
    """One life of an embedded worker."""

    _crowded = False

    def live(self, over: threading.Event) -> bool:
        """Work until told to stop, or declared dead: then True. ``over`` is set after the last write."""
        self._over = over
        self._dead = False
        asyncio.run(self._main())
        return self._dead

    def _recycle_step(self, now: float) -> None:
        lost = self._threads.lost
        if lost and lost == self._seat.concurrency and not self._crowded:
            self._observers.tell(
                EventName.SLOTS_LOST,
                worker=self._seat.worker, lost=lost, concurrency=self._seat.concurrency,
            )  # fmt: skip
        self._crowded = lost == self._seat.concurrency

    def _ended(self, last: Exception | None) -> None:
        self._dead = isinstance(last, WorkerDead)
        self._store.close()
        self._over.set()
        self._on_events(self._finish.set)
