"""The working process of a worker, put together; its supervisor is in `supervision`."""

import gc
import os
import random
import threading
from collections.abc import Callable, Collection

from perdure.app.session.opening import open_store
from perdure.app.session.session import Session
from perdure.app.worker.bulk_thread import BulkWork
from perdure.app.worker.upkeep_parts import gatekeeper_of, upkeep_of
from perdure.config import Config
from perdure.engine.clock import SystemClock
from perdure.engine.worker.pump import WorkerIdentity
from perdure.engine.worker.worker import Worker, WorkerSettings
from perdure.model.limits import SUSPECTS_TOGETHER_MAX
from perdure.model.workers import Role
from perdure.observers.log import flush_logs, write_logs
from perdure.observers.process_figures import ProcessFigures
from perdure.observers.shared_figures import cells_in

_SUSPECT_IDLE_S = 20.0
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
