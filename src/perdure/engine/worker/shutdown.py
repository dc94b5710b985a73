"""How a working process ends: on SIGTERM, when it has had nothing to do, or to begin anew.

SIGTERM or SIGINT, the supervisor's own end and a suspects' child that is idle are orders to drain. The worker then
claims nothing more, lets stages finish within the grace, gives the rest back, which counts as nothing, and disconnects
after the last write. A second order ends the grace. A supervisor passes its own signals on to its children and goes on
beating for them (`engine/supervise/supervisor.py`); the signals themselves are taken in `Worker.main` and
`app/worker/processes.py`.

How it begins anew: when a slot has been lost for as long as the grace, or all of them are, the process drains by itself
and ends with a status that asks its supervisor for another one. Nothing is counted for it. A process that is not ours
is never ended: there it is told, once, that all slots are lost, and they are not filled until they come back.

Declared dead by the store, a worker stops without a word, because no word of it counts. A thread that will not end
cannot keep the process alive: the last act is `os._exit`.
"""

import logging
import os
import threading
from contextlib import suppress

from perdure.engine.observe import Observers
from perdure.engine.worker.pump import Pump, WorkerIdentity
from perdure.engine.worker.stage_runner import StageRunner
from perdure.model.events import EventName
from perdure.model.workers import EXIT_RECYCLED

log = logging.getLogger("perdure")

EXIT_DEAD = 17
_FLUSH_S_MAX = 6.0  # more than our own log takes


class Shutdown:
    """The end of one worker. Whoever wants it says so with `order`; all else is for the pump's thread."""

    def __init__(
        self,
        pump: Pump,
        runner: StageRunner,
        identity: WorkerIdentity,
        *,
        grace_s: float,
        idle_s_max: float | None,
        observers: Observers,
        now: float,
    ) -> None:
        self._pump = pump
        self._runner = runner
        self._identity = identity
        self._grace_s = grace_s
        self._idle_s_max = idle_s_max
        self._observers = observers
        self._orders = 0
        self._orders_seen = 0
        self._recycling = False
        self._all_lost = False
        self._give_back_at = 0.0
        self._busy_at = now

    def order(self, times: int = 1) -> None:
        """Drain; the second order gives everything back at once. Safe in a signal handler."""
        self._orders += times

    @property
    def has_news(self) -> bool:
        """Whether there is an order that no step has seen."""
        return self._orders > self._orders_seen

    @property
    def leaving(self) -> bool:
        """Whether this worker is on its way out."""
        return self._orders > 0 or self._recycling

    @property
    def exit_status(self) -> int:
        """What the process has to end with, if it ends in order."""
        return EXIT_RECYCLED if self._recycling else 0

    def once(self, now: float, *, recycles: bool) -> None:
        """Take the next step towards the end, if there is to be one; ``recycles`` if the process may be ended."""
        lost, lost_at = self._runner.slots_lost(now)
        if not recycles:
            self._tell_all_lost(lost)
        elif (
            lost
            and not self.leaving
            and (lost >= self._identity.concurrency or now - lost_at >= self._grace_s)
        ):
            self._recycle(lost)
        self._orders_seen = self._orders
        if self.leaving:
            self._drain(now)

    def has_ended(self, now: float) -> bool:
        """Whether the last write was made; one that has been idle for too long claims nothing more."""
        if not self._pump.empty:
            self._busy_at = now
        if self._idle_s_max is not None and now - self._busy_at > self._idle_s_max:
            self._pump.drain()
            self._orders = max(self._orders, 1)
        return self._pump.draining and self._pump.empty

    def _tell_all_lost(self, lost: int) -> None:
        worker, concurrency = self._identity.worker, self._identity.concurrency
        before, self._all_lost = self._all_lost, lost >= concurrency
        if self._all_lost and not before:
            self._observers.tell(
                EventName.SLOTS_LOST, worker=worker, lost=lost, concurrency=concurrency
            )

    def _recycle(self, lost: int) -> None:
        self._recycling = True
        worker, concurrency = self._identity.worker, self._identity.concurrency
        self._observers.tell(
            EventName.WORKER_RECYCLED, worker=worker, lost=lost, concurrency=concurrency
        )

    def _drain(self, now: float) -> None:
        if not self._pump.draining:
            self._pump.drain()
            self._give_back_at = now + self._grace_s
            self._observers.tell(
                EventName.WORKER_DRAINING,
                worker=self._identity.worker,
                in_hand=len(self._pump.in_hand),
                grace_s=self._grace_s,
            )
        hopeless = self._recycling and self._runner.blocked  # nothing can finish meanwhile
        if self._orders > 1 or now >= self._give_back_at or hopeless:
            self._runner.stop_all()
            self._pump.give_back()


def exit_at_last(status: int, *, after_s: float = 1.0) -> None:
    """Leave for certain: what still runs has been given back, and its words no longer count."""
    timer = threading.Timer(after_s, _leave, (status,))
    timer.daemon = True
    timer.start()


def _leave(status: int) -> None:
    """What was logged is written first, for as long as that may take: the log's lines have a thread of their own."""
    flushing = threading.Thread(target=_flush_log, daemon=True)
    with suppress(RuntimeError):  # no thread is to be had, or the process is at its end
        flushing.start()
        flushing.join(_FLUSH_S_MAX)
    os._exit(status)


def _flush_log() -> None:
    for one in log.handlers:
        one.flush()
