"""A worker that is a guest in somebody else's process: it works as any other, and leaves the process alone.

It takes no signals and never ends the process. Slots that it has lost stay lost: they are not filled
until they come back, and that is told once; nobody may recycle a process that is not ours. Its event loop has a
thread of its own, which nobody has to wait for: what runs there may not end.

When the main thread ends, so does the work: the interpreter is on its way out, executors refuse what they are
given, and new threads and processes may not be had (Python 3.12 and later). Nothing more is claimed then;
what runs may finish while other threads of the host still do.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  its hook for the end of the main thread has to be older than ours
import threading
from contextlib import suppress
from weakref import WeakSet

from perdure.engine.worker.worker import Worker
from perdure.model.errors import WorkerDead
from perdure.model.events import EventName

_END_S_MAX = 4.0  # for the event loop to end after the last write: cancelled stages tidy up


class Guest(Worker):
    """One life of an embedded worker."""

    _crowded = False

    def live(self, over: threading.Event) -> bool:
        """Work until told to stop, or declared dead: then True. ``over`` is set after the last write."""
        self._over = over
        self._dead = False
        self._failed: OSError | RuntimeError | None = None
        _guests.add(self)
        thread = threading.Thread(target=self._turn, name="perdure-events", daemon=True)
        thread.start()
        over.wait()
        if self._failed is not None:
            raise self._failed
        if not self._dead:
            thread.join(_END_S_MAX)
        return self._dead

    def _turn(self) -> None:
        try:
            asyncio.run(self._main())
        except (OSError, RuntimeError) as error:
            if not self._over.is_set():  # it has not begun
                self._failed = error
                self._over.set()
            elif threading.main_thread().is_alive():  # else there are no threads to tidy up with
                raise

    def _recycle_step(self, now: float) -> None:
        lost, _ = self._lost(now)
        crowded = lost >= self._seat.concurrency
        if crowded and not self._crowded:
            self._observers.tell(
                EventName.SLOTS_LOST,
                worker=self._seat.worker, lost=lost, concurrency=self._seat.concurrency,
            )  # fmt: skip
        self._crowded = crowded

    def _ended(self, last: Exception | None) -> None:
        self._dead = isinstance(last, WorkerDead)
        self._store.close()
        self._over.set()
        self._on_events(self._finish.set)


_guests: WeakSet[Guest] = WeakSet()


def _main_thread_ends() -> None:
    for guest in list(_guests):
        guest.drain()


def _watch_the_main_thread() -> None:
    """Be called when the main thread ends: `atexit` comes only when all other threads have ended, too."""
    register = getattr(threading, "_register_atexit", None)  # as executors do, as of 3.9
    if register is not None:
        with suppress(RuntimeError):  # it has ended already
            register(_main_thread_ends)


_watch_the_main_thread()
