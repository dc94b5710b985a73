"""The processes of a worker: the supervisor and the working process, put together."""

import gc
import math
import os
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import FrameType

from perdure.app.session.opening import open_store
from perdure.app.session.session import Session
from perdure.app.worker.bulk_thread import BulkWork
from perdure.app.worker.metrics_port import MetricsPort
from perdure.app.worker.parts import gatekeeper_of, upkeep_of
from perdure.config import Config
from perdure.engine.clock import SystemClock
from perdure.engine.observe import Observers
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.supervisor import Lanes, Spawn, Supervisor
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.errors import StoreUnavailable
from perdure.model.events import EventName
from perdure.model.jobs import Lane
from perdure.model.limits import SUSPECTS_TOGETHER_MAX
from perdure.model.workers import Role
from perdure.observers.figure_cells import cells_in
from perdure.observers.log import flush_logs, log_event, write_logs
from perdure.observers.process_figures import ProcessFigures
from perdure.ports import Observer, Store

_SUSPECT_IDLE_S = 20.0
_AGAIN_S, _AGAIN_S_MAX = 0.1, 1.0  # between looks for a store that is away at the start
_NEW_OBJECTS = 20_000  # between collections; thousands of jobs in flight are no garbage


def work(
    session: Session,
    *,
    worker: int,
    role: Role,
    config: Config,
    lifeline: int,
    queues: Collection[str] = (),
    categories: Collection[str] = (),
    figures: tuple[int, int] | None = None,
) -> int:
    """Be a working process; ``lifeline`` is the pipe that closes when the supervisor is gone.

    With ``queues`` or ``categories`` only their lanes are served. ``figures`` is the file and the piece of it in which it
    counts what it does.
    """
    gc.freeze()  # what was loaded stays; it need not be walked over again and again
    gc.set_threshold(_NEW_OBJECTS, 20, 100)
    write_logs(form=config.log_format, level=config.log_level)
    concurrency = {
        Role.SUSPECTS: min(SUSPECTS_TOGETHER_MAX, config.concurrency),
        Role.ALONE: 1,
    }.get(role, config.concurrency)
    opened = open_store(session.url, connections=config.connections)
    if figures is not None:
        counting = ProcessFigures(cells_in(*figures))
        session.observers.add(counting, turns=counting.add_turn)
    catalogue = session.catalogue
    if queues or categories:
        catalogue = catalogue.only(queues=queues, categories=categories)
    gates = gatekeeper_of(session, opened, catalogue, worker)
    bulks = BulkWork(session, catalogue, worker)
    process = Worker(
        opened.store,
        catalogue,
        WorkerIdentity(worker, role.isolation, concurrency),
        WorkerSettings(
            concurrency=concurrency,
            grace_s=config.grace_s,
            poll_s=config.poll_s,
            tick_s=config.tick_s,
            idle_s_max=None if role is Role.MAIN else _SUSPECT_IDLE_S,
            capture_kept_s=config.capture_kept_s,
            tracebacks=config.keeps_tracebacks,
        ),
        clock=SystemClock(),
        chance=random.Random(),
        observers=session.observers,
        upkeep=upkeep_of(session, opened, catalogue, worker, config, gates=gates, bulks=bulks.ring)
        if role is Role.MAIN
        else None,
        reader=opened.reader if role is Role.MAIN else None,
        gates=gates,
    )
    watch = threading.Thread(target=_watch, args=(lifeline, process.drain_now), daemon=True)
    watch.start()
    try:
        return process.main()
    finally:
        flush_logs()


def _watch(lifeline: int, gone: Callable[[], None]) -> None:
    os.read(lifeline, 1)  # returns at end of file: the supervisor holds the other end
    gone()


def supervise(
    url: str,
    *,
    config: Config,
    spawn: Spawn,
    lanes: Sequence[Lane] = (),
    observers: Sequence[Observer] = (),
    port: MetricsPort | None = None,
) -> int:
    """Be a supervisor until told to stop; the exit status. ``lanes`` are those that its children serve."""
    write_logs(form=config.log_format, level=config.log_level)
    told = Observers([log_event, *observers])
    if port is not None:
        told.add(port.figures, turns=port.figures.add_turn)
        told.tell(EventName.METRICS_SERVED, address=port.address)
        port.look()
    try:
        return _supervise(url, config, spawn, lanes, told, port)
    finally:
        flush_logs()  # whoever says more after this says it below


def _supervise(
    url: str,
    config: Config,
    spawn: Spawn,
    lanes: Sequence[Lane],
    told: Observers,
    port: MetricsPort | None,
) -> int:
    orders = _Orders()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, orders.heed)
    store = _opened_in_time(url, config, told, orders)
    if store is None:
        return 0
    supervisor = _supervisor(store, config, spawn, lanes, told)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.drain())
    for _ in range(orders.given):
        supervisor.drain()
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake us
    while not supervisor.done:
        supervisor.once()
        if port is not None:
            port.look()
        _rest(wake_read, min(0.25, config.lease_ttl_s / 20))  # so that beats are punctual
    store.close()
    if port is not None:
        port.close()
    return supervisor.exit_status or 0


def _supervisor(
    store: Store, config: Config, spawn: Spawn, lanes: Sequence[Lane], observers: Observers
) -> Supervisor:
    return Supervisor(
        store=store,
        spawn=spawn,
        clock=SystemClock(),
        observers=observers,
        name=f"{socket.gethostname()}:{os.getpid()}",
        ttl_s=config.lease_ttl_s,
        grace_s=config.grace_s,
        processes=config.processes,
        oom=OomCounter(),
        lanes=_numbers(store, lanes) if lanes else None,
    )


class _ToldToStop(BaseException):
    """A signal came, and nothing has begun that would have to be ended. Nobody on the way takes it for a failure of theirs."""


class _Orders:
    """Signals until there is a supervisor: they end the wait for the store, and are kept for it after that."""

    def __init__(self) -> None:
        self.given = 0
        self.waiting = False

    def heed(self, number: int, frame: FrameType | None) -> None:
        """A signal has come."""
        self.given += 1
        if self.waiting:
            raise _ToldToStop


def _opened_in_time(
    url: str, config: Config, observers: Observers, orders: _Orders
) -> Store | None:
    """The store; None when told to stop while it was away."""
    try:
        try:
            orders.waiting = True
            return _await_store(url, config, observers)
        finally:
            orders.waiting = False
    except _ToldToStop:
        return None


def _await_store(url: str, config: Config, observers: Observers) -> Store:
    """The store; one that is away is waited for: when a machine starts, ours may be up before the server's."""
    give_up_at, pause_s = time.monotonic() + config.store_wait_s, _AGAIN_S
    while True:
        try:
            wait_s_max = max(config.lease_ttl_s / 3, 0.1)
            return open_store(url, wait_s_max=wait_s_max, connections=config.connections).store
        except StoreUnavailable as away:
            if not away.may_pass or time.monotonic() + pause_s > give_up_at:
                raise
            wait = f"it is waited for up to {config.store_wait_s:g} s"
            observers.store_is_away(StoreUnavailable(f"{away}; {wait}"))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _AGAIN_S_MAX)


def _numbers(store: Store, wanted: Sequence[Lane]) -> Lanes:
    """The numbers of lanes, asked of the store when they are first needed: it may be away at the start."""
    known: list[int] = []
    homes = {(lane.queue, lane.category, lane.pipeline, lane.stage) for lane in wanted}

    def numbers() -> Sequence[int]:
        if not known:
            known.extend(store.lanes(wanted).values())
        return [
            *known,
            *(
                no
                for no, lane in store.run_lanes().items()
                if (lane.queue, lane.category, lane.pipeline, lane.stage) in homes
            ),
        ]

    return numbers


def _rest(wake: int, seconds: float) -> None:
    poll = select.poll()  # not select: with many files open, numbers are beyond its reach
    poll.register(wake, select.POLLIN)
    if poll.poll(math.ceil(seconds * 1000)):
        os.read(wake, 4096)
