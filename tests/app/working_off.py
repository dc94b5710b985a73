"""Being a worker without a process: for tests that want a job to have been run, and no more."""

import asyncio
from random import Random

from perdure import App
from perdure.engine.record import Ending
from perdure.engine.run import Stopping, run
from perdure.engine.threads import Threads
from perdure.engine.walk import settle
from perdure.model.jobs import ClaimOrder
from perdure.model.workers import NewWorker, Role


def worked_off(app: App) -> None:
    """Be a worker for all that is due, until nothing is."""
    app.ready()
    store = app.opened.store
    worker = store.add_worker(NewWorker(f"test-{Random().random()}", "test", Role.MAIN, 60.0))
    order = ClaimOrder(worker, 10, app.catalogue.lane_nos())
    threads = Threads(1)
    while claims := store.turn([], order, by=worker).claims:
        for claim in claims:
            line = app.catalogue.line(claim.pipeline)
            stage = line.stage(claim.stage)
            outcome = asyncio.run(run(claim, stage, threads, Stopping()))
            record = settle(Ending(claim, outcome, 0.1, worker), line, stage, chance=0.5)
            store.turn([record], None, by=worker)
