"""A worker inside somebody else's process, with a keeper beside it.

Always true:

* It has a thread with an event loop of its own, on which async stages run; the host's threads, event loops
  and signals are left alone, and the process is never ended.
* One row in `workers` at a time, which the keeper makes and beats for (`engine/supervise/keeper.py`), so it is never without
  a beat from its first moment on. A keeper that ends too early is replaced, and keeps the same row.
* Declared dead (the host was stopped for too long, or cut off), it begins anew under another row; what it
  had in hand by then is refused by its token.
* Jobs that were in hand when a process died are not claimed: they could take the host with them. They wait
  for a worker that was started with ``perdure worker``, and after a while a warning says so.

How it ends: `close` stops claiming, lets stages finish within the grace, gives the rest back, which counts
as nothing, and then has the keeper end the row. If the process ends without it, ``atexit`` gives back at once.
If the process is killed, the keeper says so. A process that was forked off has no worker: it is its parent's.
"""

import asyncio
import atexit
import logging
import os
import random
import threading
from collections.abc import Collection
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from perdure.app.session.session import Session
from perdure.app.worker.bulk_thread import BulkWork
from perdure.app.worker.keeper_process import KeeperProcess
from perdure.app.worker.lane_names import check_served, names
from perdure.app.worker.upkeep_parts import gatekeeper_of, upkeep_of
from perdure.config import Config, check_times
from perdure.engine.clock import SystemClock
from perdure.engine.pauses import Pauses
from perdure.engine.stages import Catalogue
from perdure.engine.supervise.proc import has_proc
from perdure.engine.worker.embedded import live
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.errors import ConfigError, PerdureError, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.workers import Role
from perdure.stores import opening
from perdure.stores.opening import Opened

log = logging.getLogger("perdure")

_MARGIN_S = 5.0  # beyond the grace, for the last writes
_AGAIN_S_MAX = 10.0


class EmbeddedWorker:
    """A worker that works while its block runs; made by `App.working`."""

    def __init__(
        self,
        session: Session,
        config: Config,
        *,
        queues: Collection[str] = (),
        categories: Collection[str] = (),
    ) -> None:
        check_times(config)
        self._session = session
        self._config = config
        self._queues = names("queues", queues)
        self._categories = names("categories", categories)
        self._starting = threading.RLock()  # a signal may have it closed in the middle of a start
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._life: _Life | None = None
        self._pid = os.getpid()
        self.left_untold = False  # closed, and the store could not be told what became of its work

    def start(self) -> Self:
        """Begin to work; the store must answer."""
        if not has_proc():
            raise ConfigError(
                "a worker inside this process needs /proc, which is where its keeper sees whether the "
                "process runs; on this system, start one beside it: perdure worker APP"
            )
        self._session.check_writable()
        if not self._session.lanes:
            raise ConfigError("this app declares no pipeline; there is nothing to work on")
        check_served("this app", self._session.lanes, self._queues, self._categories)
        with self._starting:
            if self._thread is not None or self._closing.is_set():
                raise ConfigError(
                    "this worker has been started before; make another one: app.working()"
                )
            self._life = self._begin()
            self._thread = self._on_a_thread(self._life)
            self._session.workers_here.append(self._why_idle)
            atexit.register(self._at_exit)
        return self

    def _on_a_thread(self, life: "_Life") -> threading.Thread:
        thread = threading.Thread(target=self._live, name="perdure-working", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            life.close(orderly=True)
            raise StoreUnavailable(
                f"a worker inside this process needs a thread, and there is none: {error}"
            ) from error
        return thread

    def close(self) -> None:
        """Stop claiming, let stages finish within the grace, and give the rest back."""
        self._close(orders=1)

    def _why_idle(self) -> str:
        """Why no job is claimed here, in a word; empty while claims flow."""
        life = self._life
        if life is None or life.over.is_set():
            return "worker_stopped"
        return life.worker.why_idle(self._config.lease_ttl_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            return await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            # The thread goes on by itself, and nobody else will close this.
            self._closing.set()
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _at_exit(self) -> None:
        self._close(orders=2)

    def _close(self, *, orders: int) -> None:
        if self._pid != os.getpid():
            return
        with self._starting:  # it may be cancelled while it starts
            thread, life = self._thread, self._life
        if thread is None or life is None:
            return
        atexit.unregister(self._at_exit)
        self._closing.set()
        if self._why_idle in self._session.workers_here:
            self._session.workers_here.remove(self._why_idle)
        grace_s = self._config.grace_s if orders == 1 else 0.0
        has_waited = False
        try:
            life.drain(orders)
            has_waited = life.over.wait(grace_s + _MARGIN_S) or True
        finally:
            if not has_waited:  # a second Ctrl-C, say: give back at once
                life.drain(2)
                life.over.wait(_MARGIN_S)
            self.left_untold = not life.over.is_set()
            if self.left_untold:  # the pump may still write, and its keeper stays with it
                log.error(
                    "worker stopped, and the store, which was away to the end, does not know what it had in hand; "
                    "that is run again by another worker"
                )
            else:
                thread.join(_MARGIN_S)  # not for ever: a stage may block the event loop
                life.close(orderly=True)

    # -- the thread ----------------------------------------------------------------------

    def _live(self) -> None:
        """One life after the other; there is a second one only after a death."""
        life = self._life
        while life is not None:
            if self._closing.is_set():  # while it was being made
                life.drain(2)
            again = self._live_once(life)
            self._life = life = self._begin_again() if again else None

    def _live_once(self, life: "_Life") -> bool:
        """One life to its end; whether another one has to follow."""
        try:
            dead = live(life.worker, life.over)
        except (OSError, RuntimeError) as error:
            # No file or thread for its event loop: nothing has begun.
            self._session.observers.store_is_away(StoreUnavailable(str(error)))
            life.over.set()
            life.close(orderly=True)
            return True
        life.close(orderly=not dead)
        return dead

    def _begin_again(self) -> "_Life | None":
        pauses = Pauses(0.1, _AGAIN_S_MAX, 2.0)
        while not self._closing.wait(pauses.next_s()):
            try:
                return self._begin()
            except (PerdureError, OSError, RuntimeError) as away:  # no files or threads left, say
                self._session.observers.store_is_away(StoreUnavailable(str(away)))
        return None

    def _begin(self) -> "_Life":
        config, session = self._config, self._session
        with ExitStack() as undo:
            opened = opening.open_store(
                session.url,
                SystemClock(),
                create=True,
                wait_s_max=10.0,
                connections=config.connections,
            )
            undo.callback(opened.close)
            catalogue = self._catalogue_served()
            kept = KeeperProcess(session.url, config)
            undo.callback(kept.close, orderly=True)
            worker = kept.start()
            bulks = BulkWork(session, catalogue, worker)
            life = _Life(self._worker(opened, catalogue, worker, bulks), kept, opened, bulks)
            undo.pop_all()
        return life

    def _worker(self, opened: Opened, catalogue: Catalogue, no: int, bulks: BulkWork) -> Worker:
        config, session = self._config, self._session
        gates = gatekeeper_of(session, opened, catalogue, no)
        worker = Worker(
            opened.store,
            catalogue,
            WorkerIdentity(no, Role.MAIN.isolation, config.concurrency),
            WorkerSettings(
                concurrency=config.concurrency,
                grace_s=config.grace_s,
                poll_s=config.poll_s,
                tick_s=config.tick_s,
                capture_kept_s=config.capture_kept_s,
                tracebacks=config.keeps_tracebacks,
            ),
            clock=SystemClock(),
            chance=random.Random(),
            observers=session.observers,
            upkeep=upkeep_of(
                session,
                opened,
                catalogue,
                no,
                config,
                gates=gates,
                leaves_suspects=True,
                bulks=bulks.ring,
            ),
            reader=opened.reader,
            gates=gates,
        )
        session.observers.tell(
            EventName.WORKER_STARTED, worker=no, role=Role.MAIN.value, pid=os.getpid()
        )
        return worker

    def _catalogue_served(self) -> Catalogue:
        catalogue = self._session.catalogue
        if self._queues or self._categories:
            return catalogue.only(queues=self._queues, categories=self._categories)
        return catalogue


class _Life:
    """One row, its keeper, and the worker that works under it."""

    def __init__(
        self, worker: Worker, kept: KeeperProcess, opened: Opened, bulks: BulkWork
    ) -> None:
        self._bulks = bulks
        self.worker = worker
        self.over = threading.Event()  # after the last write
        self._kept = kept
        self._opened = opened

    def close(self, *, orderly: bool) -> None:
        """Disconnect and let the keeper go; a second time is nothing."""
        self._bulks.close()
        self._opened.close()
        self._kept.close(orderly=orderly)

    def drain(self, orders: int) -> None:
        if orders == 1:
            self.worker.drain()
        else:
            self.worker.drain_now()
