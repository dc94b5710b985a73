"""Being a worker without a process: for tests that want a job to have been run, and no more."""

import asyncio
from random import Random

from perdure import App
from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.completion import completions_of
from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.threads import Threads
from perdure.engine.clock import SystemClock
from perdure.engine.record import Ending
from perdure.engine.run import Stopping, run
from perdure.engine.settle import Finished, settle
from perdure.engine.worker.pump import Pump, WorkerIdentity
from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.workers import NewWorker, Role
from tests.engine.kit import Played


def worked_off(app: App) -> None:
    """Be a worker for all that is due, until nothing is."""
    app.ready()
    store = app._session.opened.store
    worker = store.add_worker(NewWorker(f"test-{Random().random()}", "test", Role.MAIN, 60.0))
    order = ClaimOrder(worker, 10, app._session.catalogue.lane_nos())
    threads = Threads(1)
    while claims := store.turn([], order, by=worker).claims:
        for claim in claims:
            line = app._session.catalogue.pipeline(claim.pipeline)
            stage = line.stage(claim.stage)
            outcome = asyncio.run(run(claim, stage, threads, Stopping()))
            record = settle(Ending(claim, outcome, 0.1, worker), line, stage, chance=0.5)
            store.turn([record], None, by=worker)


def pumped_off(app: App, *, concurrency: int = 4) -> None:
    """As `worked_off`, with a real pump, for stages that complete their jobs themselves."""
    app.ready()
    store, catalogue, clock = app._session.opened.store, app._session.catalogue, SystemClock()
    worker = store.add_worker(NewWorker(f"test-{Random().random()}", "test", Role.MAIN, 60.0))
    capture_factory = CaptureFactory(clock, Random(), kept_s=None)
    completions = completions_of(store, catalogue, worker, capture_factory, clock)
    begun: list[Claim] = []
    runner = Played()
    runner.start = begun.extend  # type: ignore[method-assign]
    pump = Pump(
        store,
        catalogue,
        WorkerIdentity(worker, 0, concurrency),
        runner,
        chance=Random(),
        observers=app._session.observers,
        completions=completions,
    )
    threads = Threads(concurrency)
    while pump.once() == 0.0 or begun or not pump.empty:
        while begun:
            claim = begun.pop(0)
            stage = catalogue.stage(claim.pipeline, claim.stage)
            notes = AttemptNotes(completer=completions.of(claim, clock.monotonic()))
            outcome = asyncio.run(run(claim, stage, threads, Stopping(), notes=notes))
            kept = capture_factory.captures_of(outcome, notes.asides)
            runner.finished.append(Finished(claim, outcome, 0.1, notes.usage, notes.told, kept))
