"""The supervisor of a worker, put together: it loads nothing of what its children work with."""

import math
import os
import select
import signal
import socket
from collections.abc import Sequence
from types import FrameType

from perdure.app.session.opening import open_store, when_there
from perdure.app.worker.metrics_port import MetricsPort
from perdure.config import Config
from perdure.engine.clock import SystemClock
from perdure.engine.observe import Observers
from perdure.engine.supervise.oom import OomCounter
from perdure.engine.supervise.supervisor import Lanes, Spawn, Supervisor
from perdure.model.errors import StoreUnavailable
from perdure.model.events import EventName
from perdure.model.jobs import Lane
from perdure.observers.log import flush_logs, log_event, write_logs
from perdure.ports import Observer, Store

_LAST_WORD_S = 2.0  # for an answer of the store after the grace


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

    def drain(*_: object) -> None:
        # A store that is silent would keep us for longer than the grace.
        signal.setitimer(signal.ITIMER_REAL, max(supervisor.drain(), _LAST_WORD_S), _LAST_WORD_S)

    signal.signal(signal.SIGALRM, lambda *_: supervisor.interrupt())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
    for _ in range(orders.given):
        drain()
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake us
    while not supervisor.done:
        supervisor.once()
        if port is not None:
            port.look()
        _rest(wake_read, min(0.25, config.lease_ttl_s / 20))  # so that beats are punctual
    store.close()
    if port is not None:
        port.close()
    if supervisor.untold:
        raise _ended_untold(supervisor.untold)
    return supervisor.exit_status or 0


def _ended_untold(workers: Sequence[int]) -> StoreUnavailable:
    numbers = ", ".join(map(str, workers))
    return StoreUnavailable(
        f"the store was away to the end, so it does not know that worker {numbers} was stopped; the lease runs out by "
        "itself, and what was in hand is run again by another worker, with a crash counted"
    )


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
    wait_s_max = max(config.lease_ttl_s / 3, 0.1)
    opened = when_there(
        lambda: open_store(url, wait_s_max=wait_s_max, connections=config.connections),
        config.store_wait_s,
        observers,
    )
    return opened.store


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
