"""The working process: an event loop that runs stages and a pump thread that trades with the store.

Who owns what: the main thread has the event loop and every async stage; sync stages have threads;
the pump thread has the store connection, the claims in hand and the drain. The lease is not ours:
our supervisor beats for us from its own process, so neither a blocked loop nor a held GIL loses it.

How it ends: told to drain, it claims nothing more, lets stages finish within the grace, gives the
rest back, which counts as nothing, and disconnects after the last write. Told again, it gives back
at once. Declared dead by the store, it stops without a word, because no word of it counts. A
thread that will not end cannot keep the process alive: the last act is `os._exit`.

How it begins anew: a sync stage that ignores its timeout keeps its thread, and the slot with it; so does
an async one that the store has taken from us and that swallows its cancellation. When one has been lost for
as long as the grace, or all of them are, the process drains by itself and ends with a status that asks its
supervisor for another one. Nothing is counted for it.

A blocked event loop: the pump asks it every now and then whether it still turns. When it has not
answered for a while, jobs that were claimed and have not begun are given back, and none is claimed until it
does. What blocks it may yet end; if it does not, it is overrun in the end (`chores/overrun.py`), which makes it
a lost slot. What never began is given back before it could be taken for overrun.
"""

import asyncio
import math
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from perdure.engine.attempt.captures import Shelf
from perdure.engine.attempt.completion import completions_of
from perdure.engine.attempt.context import Desk
from perdure.engine.attempt.progress import Board
from perdure.engine.attempt.stage_processes import Hands
from perdure.engine.attempt.threads import Threads
from perdure.engine.attempt.timeout import Limits
from perdure.engine.gates.gatekeeper import Checked, Gatekeeper
from perdure.engine.gates.health import word_of_health
from perdure.engine.gates.upstreams import Upstream
from perdure.engine.observe import Observers
from perdure.engine.run import Stopping, run
from perdure.engine.settle import Finished
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import Upkeep
from perdure.engine.worker.loop import Loop
from perdure.engine.worker.loop_watch import Pulse
from perdure.engine.worker.pump import Pump, Seat
from perdure.engine.worker.run_lanes import RunLanes
from perdure.engine.worker.unknown_lanes import Strangers
from perdure.model.errors import BugError, WorkerDead
from perdure.model.events import EventName
from perdure.model.jobs import Claim
from perdure.model.outcomes import Interrupted, Outcome, Usage
from perdure.model.workers import EXIT_RECYCLED
from perdure.ports import Clock, Reader, Store

EXIT_DEAD = 17
_SWEEP_S = 1.0
_TOGETHER = 100  # results that are worth a turn, though more are at hand
_BLOCKED_S_MIN = 5.0  # a grace may be shorter, but a moment's work on the loop is no trouble
_COMPARE_S = 60.0  # between two looks for jobs that nobody here knows


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one working process works.

    ``idle_s_max`` ends a process that has had nothing to do. ``blocked_s_max`` is how long its event loop may be
    silent, and a run that was taken from it may last: as long as the grace, if it is not given. ``capture_kept_s`` is
    how long raw output is kept; None is for ever.
    """

    concurrency: int
    grace_s: float
    poll_s: float
    tick_s: float
    idle_s_max: float | None = None
    blocked_s_max: float | None = None
    capture_kept_s: float | None = None

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
        seat: Seat,
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
        self._catalogue = catalogue
        self._seat = seat
        self._settings = settings
        self._clock = clock
        self._observers = observers
        self._runs: dict[int, tuple[asyncio.Task[None], Stopping]] = {}
        self._desks: dict[int, Desk] = {}
        self._shelf = Shelf(clock, chance, kept_s=settings.capture_kept_s)
        self._threads = Threads(seat.concurrency)
        self._hands = Hands()
        self._limits = Limits()
        self._checks: set[asyncio.Task[None]] = set()
        self._board = Board(observers)
        self._strangers = None if reader is None else Strangers(reader, catalogue, observers)
        self._completions = completions_of(store, catalogue, seat.worker, self._shelf, clock)
        self._pump = Pump(
            store, catalogue, seat,
            chance=chance, start=self._start, stop=self._stop_runs, observers=observers,
            lost_slots=self._unusable, spent=self._spent, gates=gates, completions=self._completions,
        )  # fmt: skip
        self._pulse = Pulse(self._on_events, every_s=settings.poll_s, blocked_s=settings.patience_s)
        self._gone: dict[int, float] = {}  # runs that were taken from us, and since when
        self._upkeep = upkeep
        self._runs_of = RunLanes(store, catalogue, None if upkeep is None else upkeep.look_at_runs)
        self._gates = gates
        self._let_check(gates)
        self._loop = Loop(
            self._step, changed=self._news, answers=lambda: store.held(seat.worker), ear=store.ear,
            tick_s=settings.tick_s, ended=self._ended, observers=observers,
        )  # fmt: skip
        self._events: asyncio.AbstractEventLoop
        self._finish = asyncio.Event()
        self._exit_status = 0
        self._orders = 0
        self._orders_seen = 0
        self._recycling = False
        self._blocked = False
        self._waking = False
        self._told = False
        self._give_back_at = 0.0
        self._swept_at = -_SWEEP_S
        self._checked_at = 0.0
        self._compared_at = -math.inf
        self._busy_at = clock.monotonic()

    def _let_check(self, gates: Gatekeeper | None) -> None:
        if gates is not None:
            gates.check = self._check

    def main(self) -> int:
        """Work until told to stop; the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.drain())
        asyncio.run(self._main())
        return self._exit_status

    def drain(self) -> None:
        """Stop claiming; the second order gives everything back at once. Safe in a signal handler."""
        self._orders += 1
        self._loop.wake()

    def drain_now(self) -> None:
        """As two orders: our supervisor is gone."""
        self._orders += 2
        self._loop.wake()

    async def _main(self) -> None:
        self._events = asyncio.get_running_loop()
        self._loop.start()
        await self._finish.wait()
        for task, _ in self._runs.values():
            task.cancel()
        await self._hands.close()

    # -- the pump thread -----------------------------------------------------------------

    def _step(self) -> float:
        now = self._clock.monotonic()
        self._pulse_step(now)
        self._recycle_step(now)
        self._drain_step(now)
        self._board.once(now)
        told, self._told = self._told, False
        wait_s = self._pump.once(told=told)
        if self._runs_of.learn(now, told=told):
            wait_s = 0.0
        if self._pump.stirred and self._runs_of.look(now):
            self._pump.stirred = False
        if self._upkeep is not None and now - self._swept_at >= _SWEEP_S:
            self._swept_at = now
            if self._upkeep.once():
                wait_s = 0.0
            if self._upkeep.more:
                self._swept_at = -math.inf  # the next round comes at once
        if now - self._checked_at >= self._settings.poll_s:
            self._checked_at = now
            self._pump.check_held()
            self._gone = {no: self._gone.get(no, now) for no in self._pump.gone}
        if self._strangers is not None and now - self._compared_at >= _COMPARE_S:
            self._compared_at = now
            self._strangers.once()
        if not self._pump.empty:
            self._busy_at = now
        self._finish_when_done(now)
        return min(self._rest_s_max(now), math.inf if wait_s is None else wait_s)

    def _rest_s_max(self, now: float) -> float:
        most_s = self._settings.poll_s if not self._leaving else 0.05
        most_s = min(most_s, self._runs_of.rest_s_max(now, stirred=self._pump.stirred))
        if self._gates is not None:
            most_s = min(most_s, self._gates.rest_s())
        if self._upkeep is None:
            return most_s
        return min(most_s, max(0.0, self._swept_at + _SWEEP_S - now))

    def _news(self) -> bool:
        changed = self._store.changed()
        heard = self._store.ear() is not None  # a word, not only a trace of somebody
        self._told = changed and heard
        return changed or self._orders > self._orders_seen

    @property
    def _leaving(self) -> bool:
        return self._orders > 0 or self._recycling

    def _pulse_step(self, now: float) -> None:
        """See whether the event loop turns; what has not begun on a blocked one is given back."""
        if self._pump.empty and not self._blocked:
            return
        self._pulse.look(now)
        blocked, self._blocked = self._blocked, self._pulse.blocked
        if not self._blocked:
            return
        unbegun = self._unbegun()
        if unbegun:
            self._stop_runs(unbegun)  # should it turn again, they end before their first step
            self._pump.give_back(unbegun, "the event loop is blocked", begun=False)
        if not blocked:
            self._observers.tell(
                EventName.LOOP_BLOCKED,
                worker=self._seat.worker, silent_s=self._pulse.silent_s, given_back=len(unbegun),
            )  # fmt: skip

    def _unbegun(self) -> list[int]:
        return [no for no in self._pump.in_hand if not self._has_begun(no)]

    def _has_begun(self, no: int) -> bool:
        held = self._runs.get(no)
        return held is not None and held[1].begun

    def _unusable(self) -> int:
        """Slots that cannot be filled, beside those that are taken."""
        return self._seat.concurrency if self._blocked else self._threads.lost

    def _lost(self, now: float) -> tuple[int, float]:
        """How many slots are lost, and since when."""
        if not self._gone and not self._threads.lost:
            return 0, now
        deaf = [at for at in self._gone.values() if now - at >= self._settings.patience_s]
        lost_at = self._threads.lost_at
        return self._threads.lost + len(deaf), min([*deaf, now if lost_at is None else lost_at])

    def _recycle_step(self, now: float) -> None:
        """Begin to leave when too much of us is lost."""
        lost, lost_at = self._lost(now)
        if not lost or self._leaving:
            return
        if lost >= self._seat.concurrency or now - lost_at >= self._settings.grace_s:
            self._recycling = True
            self._exit_status = EXIT_RECYCLED
            self._observers.tell(
                EventName.WORKER_RECYCLED,
                worker=self._seat.worker, lost=lost, concurrency=self._seat.concurrency,
            )  # fmt: skip

    def _drain_step(self, now: float) -> None:
        self._orders_seen = self._orders
        if not self._leaving:
            return
        if not self._pump.draining:
            self._pump.draining = True
            self._give_back_at = now + self._settings.grace_s
            self._observers.tell(
                EventName.WORKER_DRAINING, worker=self._seat.worker,
                in_hand=len(self._pump.in_hand), grace_s=self._settings.grace_s,
            )  # fmt: skip
        hopeless = self._recycling and self._blocked  # nothing can finish meanwhile
        if self._orders > 1 or now >= self._give_back_at or hopeless:
            self._stop_all_runs()
            for desk in list(self._desks.values()):
                desk.end()  # what it has not asked for by now is not asked for any more
            self._pump.give_back(self._unbegun(), begun=False)
            self._pump.give_back()

    def _finish_when_done(self, now: float) -> None:
        idle_s_max = self._settings.idle_s_max
        if idle_s_max is not None and now - self._busy_at > idle_s_max:
            self._pump.draining = True
            self._orders = max(self._orders, 1)
        if self._pump.draining and self._pump.empty:
            if self._gates is not None:
                self._gates.leave()
            self._loop.stop()

    def _ended(self, last: Exception | None) -> None:
        """The pump's last act, on its own thread: the event loop may be blocked for ever."""
        if isinstance(last, WorkerDead):
            self._exit_status = EXIT_DEAD
        self._store.close()
        self._on_events(self._finish.set)
        exit_at_last(self._exit_status)

    # -- the event loop ------------------------------------------------------------------

    def _start(self, claims: Sequence[Claim]) -> None:
        received_s = self._clock.monotonic()
        self._on_events(lambda: self._start_all(claims, received_s))

    def _start_all(self, claims: Sequence[Claim], received_s: float) -> None:
        for claim in claims:
            stopping, completer = Stopping(), self._completions.of(claim, received_s)
            desk = Desk(tell=partial(self._board.note, claim), completer=completer)
            task = asyncio.create_task(self._run_one(claim, stopping, desk, received_s))
            self._runs[claim.no] = (task, stopping)
            self._desks[claim.no] = desk

    def _spent(self, claim: Claim) -> Usage | None:
        desk = self._desks.get(claim.no)
        return None if desk is None else desk.usage

    async def _run_one(
        self, claim: Claim, stopping: Stopping, desk: Desk, received_s: float
    ) -> None:
        stage = self._catalogue.stage(claim.pipeline, claim.stage)
        if stage is None:
            raise BugError(f"claimed stage {claim.stage!r} of {claim.pipeline!r}, unknown here")
        stopping.begun = True
        if stopping.ordered:
            outcome: Outcome = Interrupted(begun=False)
        else:
            outcome = await run(
                claim, stage, self._threads, stopping,
                desk=desk, hands=self._hands, limits=self._limits,
            )  # fmt: skip
        elapsed_s = self._clock.monotonic() - received_s
        self._board.drop(claim)
        finished = self._pump.finished
        kept = self._shelf.kept(outcome, desk.asides)
        finished.append(Finished(claim, outcome, elapsed_s, desk.usage, desk.told, kept))
        held = self._runs.get(claim.no)
        if (
            held is not None and held[1] is stopping
        ):  # after its word: else it seems not to have begun
            del self._runs[claim.no], self._desks[claim.no]
        if not self._waking:  # after all that the event loop has at hand, so that they go together
            self._waking = True
            self._events.call_soon(self._wake)
        elif len(finished) == _TOGETHER:
            self._loop.wake()

    def _wake(self) -> None:
        self._waking = False
        self._loop.wake()

    def _check(self, upstream: Upstream, generation: int) -> None:
        self._on_events(lambda: self._start_check(upstream, generation))

    def _start_check(self, upstream: Upstream, generation: int) -> None:
        task = asyncio.create_task(self._checked(upstream, generation))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _checked(self, upstream: Upstream, generation: int) -> None:
        """Ask an upstream how it is, and leave the answer to the pump."""
        word = await word_of_health(upstream, self._threads, self._clock)
        if self._gates is not None:
            self._gates.checked.append(Checked(upstream.name, generation, word))
        self._loop.wake()

    def _stop_runs(self, nos: Sequence[int]) -> None:
        self._on_events(lambda: self._cancel_runs(nos))

    def _stop_all_runs(self) -> None:
        self._on_events(lambda: self._cancel_runs(list(self._runs)))

    def _cancel_runs(self, nos: Sequence[int]) -> None:
        for no in nos:
            found = self._runs.get(no)
            if found is not None:
                task, stopping = found
                stopping.ordered = True
                if stopping.begun:  # else it would end without its first step, and without a word
                    task.cancel()

    def _on_events(self, call: Callable[[], None]) -> None:
        self._events.call_soon_threadsafe(call)


def exit_at_last(status: int, *, after_s: float = 1.0) -> None:
    """Leave for certain: what still runs has been given back, and its words no longer count."""
    timer = threading.Timer(after_s, os._exit, (status,))
    timer.daemon = True
    timer.start()
