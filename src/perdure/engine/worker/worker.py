"""The working process: an event loop that runs stages and a pump thread that trades with the store.

Who owns what: the main thread has the event loop and all that runs on it (`stage_runner.py`); the pump thread has the
store connection, the claims in hand and the drain (`pump.py`, `shutdown.py`). The lease is not ours: our supervisor
beats for us from its own process, so neither a blocked loop nor a held GIL loses it.

A blocked event loop: jobs that were claimed and have not begun are given back, and none is claimed until it turns
again. What blocks it may yet end; if it does not, it is overrun in the end (`upkeep/overrun_attempts.py`), which makes
it a lost slot. What never began is given back before it could be taken for overrun.
"""

import asyncio
import math
import signal
from collections.abc import Callable
from random import Random

from msgspec import Struct

from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.completion import completions_of
from perdure.engine.gates.gatekeeper import Gatekeeper
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import Upkeep
from perdure.engine.worker.lanes import RunLanes, UnknownLanes
from perdure.engine.worker.loop import Loop
from perdure.engine.worker.pump import Pump, WorkerIdentity
from perdure.engine.worker.shutdown import EXIT_DEAD, Shutdown, exit_at_last
from perdure.engine.worker.stage_runner import StageRunner
from perdure.model.errors import StoreError, WorkerDead
from perdure.model.events import EventName
from perdure.ports import Clock, Reader, Store

_SWEEP_S = 1.0
_BLOCKED_S_MIN = 5.0  # a grace may be shorter, but a moment's work on the loop is no trouble
_COMPARE_S = 60.0  # between two looks for jobs that nobody here knows


class WorkerSettings(Struct, frozen=True):
    """How one working process works.

    ``idle_s_max`` ends a process that has had nothing to do. ``blocked_s_max`` is how long its event loop may be
    silent, and a run that was taken from it may last: as long as the grace, if it is not given. ``capture_kept_s`` is
    how long raw output is kept; None is for ever. ``tracebacks`` are put aside if it says so.
    """

    concurrency: int
    grace_s: float
    poll_s: float
    tick_s: float
    idle_s_max: float | None = None
    blocked_s_max: float | None = None
    capture_kept_s: float | None = None
    tracebacks: bool = False

    @property
    def patience_s(self) -> float:
        """How long we wait for an event loop, or a stage, that ought to answer."""
        if self.blocked_s_max is not None:
            return self.blocked_s_max
        return max(self.grace_s, _BLOCKED_S_MIN)


class Worker:
    """One working process."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        identity: WorkerIdentity,
        settings: WorkerSettings,
        *,
        clock: Clock,
        chance: Random,
        observers: Observers,
        upkeep: Upkeep | None = None,
        reader: Reader | None = None,
        gates: Gatekeeper | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._settings = settings
        self._clock = clock
        self._observers = observers
        self._upkeep = upkeep
        self._gates = gates
        self._loop = self._make_loop()
        capture_factory = CaptureFactory(
            clock, chance, kept_s=settings.capture_kept_s, tracebacks=settings.tracebacks
        )
        completions = completions_of(store, catalogue, identity.worker, capture_factory, clock)
        self._runner = StageRunner(
            catalogue,
            completions,
            capture_factory,
            concurrency=identity.concurrency,
            patience_s=settings.patience_s,
            every_s=settings.poll_s,
            clock=clock,
            observers=observers,
            wake=self._loop.wake,
        )
        self._pump = Pump(
            store,
            catalogue,
            identity,
            self._runner,
            chance=chance,
            observers=observers,
            gates=gates,
            completions=completions,
        )
        self._shutdown = self._make_shutdown()
        self._run_lanes = RunLanes(
            store, catalogue, None if upkeep is None else upkeep.look_at_runs
        )
        self._unknown_lanes = None if reader is None else UnknownLanes(reader, catalogue, observers)
        self._left: Callable[[int], None] = exit_at_last
        self._recycles = True
        self._exit_status = 0
        self._told = False
        self._swept_at = -_SWEEP_S
        self._checked_at = 0.0
        self._compared_at = -math.inf

    def _make_loop(self) -> Loop:
        return Loop(
            self._step,
            changed=self._news,
            answers=lambda: self._store.tokens_held(self._identity.worker),
            wake_fd=self._store.wake_fd,
            tick_s=self._settings.tick_s,
            ended=self._end,
            observers=self._observers,
        )

    def _make_shutdown(self) -> Shutdown:
        return Shutdown(
            self._pump,
            self._runner,
            self._identity,
            grace_s=self._settings.grace_s,
            idle_s_max=self._settings.idle_s_max,
            observers=self._observers,
            now=self._clock.monotonic(),
        )

    def main(self) -> int:
        """Be a process of our own until told to stop; the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.drain())
        asyncio.run(self.work(exit_at_last, recycles=True))
        return self._exit_status

    async def work(self, left: Callable[[int], None], *, recycles: bool) -> None:
        """Work until told to stop, with this event loop.

        ``left`` is called on the pump's thread, with the exit status, after the last write: the event loop may be
        blocked for ever. ``recycles`` says whether the process may be ended to win back slots that are lost.
        """
        self._left, self._recycles = left, recycles
        await self._runner.serve(self._loop.start)

    def why_idle(self, silent_s_max: float) -> str:
        """Why it claims nothing, in a word; empty while it does. Its pump may be silent for so long."""
        if self._pump.draining:
            return "worker_draining"
        if self._loop.silent_s > silent_s_max:
            return "worker_silent"
        lost = self._runner.slots_unusable >= self._identity.concurrency
        return "slots_lost" if lost else ""

    def drain(self) -> None:
        """Stop claiming; the second order gives everything back at once. Safe in a signal handler."""
        self._shutdown.order()
        self._loop.wake()

    def drain_now(self) -> None:
        """As two orders: our supervisor is gone."""
        self._shutdown.order(2)
        self._loop.wake()

    # -- the pump thread -----------------------------------------------------------------

    def _step(self) -> float:
        now = self._clock.monotonic()
        self._pulse_step(now)
        self._shutdown.once(now, recycles=self._recycles)
        self._runner.tell_progress(now)
        told, self._told = self._told, False
        wait_s = self._pump.once(told=told)
        ended = self._shutdown.has_ended(now)
        try:
            if self._do_chores(now, told):
                wait_s = 0.0
        except WorkerDead:
            raise
        except StoreError:
            if not ended:  # else nothing is in our hands, and others do them
                raise
        if ended:
            if self._gates is not None:
                self._gates.leave()
            self._loop.stop()
        return min(self._rest_s_max(now), math.inf if wait_s is None else wait_s)

    def _do_chores(self, now: float, told: bool) -> bool:
        """Learn lanes, sweep, and see what was taken from us, each when it is due; whether there is more to claim now."""
        more = self._run_lanes.learn(now, told=told)
        self._run_lanes.look(now, self._pump.run_jobs_ended)
        if self._upkeep is not None and now - self._swept_at >= _SWEEP_S:
            self._swept_at = now
            more = self._upkeep.once() > 0 or more
            if self._upkeep.more:
                self._swept_at = -math.inf  # the next round comes at once
        if now - self._checked_at >= self._settings.poll_s:
            self._checked_at = now
            self._runner.note_taken(self._pump.check_held(), now)
        if self._unknown_lanes is not None and now - self._compared_at >= _COMPARE_S:
            self._compared_at = now
            self._unknown_lanes.once()
        return more

    def _rest_s_max(self, now: float) -> float:
        most_s = self._settings.poll_s if not self._shutdown.leaving else 0.05
        most_s = min(most_s, self._run_lanes.rest_s_max(now, self._pump.run_jobs_ended))
        if self._gates is not None:
            most_s = min(most_s, self._gates.rest_s())
        if self._upkeep is None:
            return most_s
        return min(most_s, max(0.0, self._swept_at + _SWEEP_S - now))

    def _news(self) -> bool:
        changed = self._store.has_changed()
        heard = self._store.wake_fd() is not None  # a message, not only the trace of a write
        self._told = changed and heard
        return changed or self._shutdown.has_news

    def _pulse_step(self, now: float) -> None:
        """See whether the event loop turns; what has not begun on a blocked one is given back."""
        if self._pump.empty and not self._runner.blocked:
            return
        found_blocked = self._runner.look(now)
        if not self._runner.blocked:
            return
        given_back = self._pump.give_back_unbegun("the event loop is blocked")
        if found_blocked:
            self._observers.tell(
                EventName.LOOP_BLOCKED,
                worker=self._identity.worker,
                silent_s=self._runner.silent_s,
                given_back=given_back,
            )

    def _end(self, last: Exception | None) -> None:
        """The pump's last act, on its own thread."""
        self._exit_status = (
            EXIT_DEAD if isinstance(last, WorkerDead) else self._shutdown.exit_status
        )
        self._store.close()
        try:
            self._left(self._exit_status)
        finally:
            self._runner.end()
