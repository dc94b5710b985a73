"""Where the engine looks for the world: the simulated kernel, virtual time, and the batch sizes of a seed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.engine import claim as claim_module, enqueue as enqueue_module
from perdure.engine.batch import feeding as feeding_module
from perdure.engine.gates import upstreams as upstreams_module
from perdure.engine.operate import bulks as bulks_module
from perdure.engine.supervise import supervisor as supervisor_module
from perdure.engine.upkeep import (
    expired_jobs as expired_module,
    lost_workers as lost_module,
    prune as prune_module,
    run_watch as runs_module,
)
from perdure.engine.worker import loop as loop_module
from perdure.stores.sqlite import claim as claiming_module, store as store_module
from tests.sim.completing import join
from tests.sim.process import Kernel
from tests.sim.swarm import Setup
from tests.sim.world import World


@contextmanager
def installed(world: World, setup: Setup, kernel: Kernel) -> Iterator[None]:
    """The simulated kernel and the seed's batch sizes, where the engine looks for them."""
    batches = setup.batches
    places: list[tuple[Any, str, Any]] = [
        (supervisor_module, "os", kernel),
        (loop_module, "Wakeup", object),  # replaced by one of the strand before it is used
        (loop_module, "monotonic", world.clock.monotonic),
        (upstreams_module, "PROBE_MORE_S", setup.outside.probe_more_s),
        (claim_module, "CLAIM_BATCH_MAX", batches["claim"]),
        (claiming_module, "PROMOTE_BATCH_MAX", batches["promote"]),
        (store_module, "join", join),
        (lost_module, "LOST_BATCH_MAX", batches["lost"]),
        (expired_module, "EXPIRED_BATCH_MAX", batches["expired"]),
        (prune_module, "STEP_ROWS", batches["prune"]),
        (prune_module, "REST_S", setup.rests_s),
        (enqueue_module, "ENQUEUE_BATCH_MAX", batches["enqueue"]),
        (bulks_module, "PAGE_ROWS", batches["bulk"]),
        (feeding_module, "_CHUNK", batches["feed"]),
        (runs_module, "_PAGE", batches["cancel"]),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    log = logging.getLogger("perdure")
    listener, kept = _Listener(world), (log.level, log.propagate)
    for module, name, value in places:
        setattr(module, name, value)
    log.addHandler(listener)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(kept[0])
        log.propagate = kept[1]
        for module, name, value in before:
            setattr(module, name, value)


class _Listener(logging.Handler):
    """A logged error is a turn that failed for a reason nobody foresaw."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.broken("E1", record.getMessage())
