"""The calls of one App: their row in the store, their threads, and the time that their callers give them.

The wait is the caller's and hard. When it is over, an async stage is cancelled and a thread is given
up on; what they still say is heard by nobody. Trades with the store are not interrupted: a caller that
is cancelled meanwhile stays until the answer has come, and `CancelledError` is raised after that. They
are bounded all the same: `ANSWER_S` after the wait, or after the caller has gone, we stop waiting for
the store and say that we do not know.

The row in `workers` is one for each process and App. Nobody beats for it; its lease is so long that
nobody declares it dead while a call may be under way, since it is replaced after half of it. `close`
ends it, also when the process exits; after a kill it is declared dead when its lease has run out.
"""

import asyncio
import atexit
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, TypeVar

from perdure.app.calling.own_loop import OwnLoop, SharedStageProcesses
from perdure.app.files.policies import policy_at
from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.progress import ProgressBoard
from perdure.engine.attempt.threads import NoThread, Pool, Threads
from perdure.engine.call import Call, CallTerms, Over, Step, Try
from perdure.engine.gates.caller_gates import CallerGates
from perdure.engine.gates.upstreams import Upstreams
from perdure.engine.observe import Observers
from perdure.engine.pauses import Pauses
from perdure.engine.run import Stopping, run
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.errors import (
    CallerError,
    StoreError,
    StoreUnavailable,
    WorkerDead,
)
from perdure.model.jobs import NewJob, OnLost
from perdure.model.outcomes import Death, Interrupted, Outcome, Raised, TimedOut
from perdure.model.workers import NewWorker, Role
from perdure.ports import Clock, Store
from perdure.rules.field_checks import instance
from perdure.rules.policy import Policy, Profile
from perdure.stores.opening import Opened

WAIT_S_MAX = 3_600.0  # nobody waits longer for an answer; enqueue instead
LEASE_S = 6 * 3_600.0  # more than twice the longest wait
ANSWER_S = 5.0  # for the last trade with the store, after the wait
TELL_S = 0.25  # between two looks for what stages say of their progress
STOP_S = 0.25  # for an async stage to end after it was cancelled
_THREADS_MAX = 64  # sync stages of calls at once; what comes later waits for one
_TRADES_MAX = 8  # at once with the store, as many as it has connections
_CANCELLED = "asyncio.exceptions.CancelledError"

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]


def terms_of(
    policy: str | os.PathLike[str] | Policy | None, wait_s: float, on_lost: str
) -> CallTerms:
    """What a caller asks for, checked; without a policy it is gateway-sync."""
    named = "gateway-sync" if policy is None else policy
    chosen = policy_at(named) if isinstance(named, str | os.PathLike) else named
    instance("policy", chosen, Policy)
    if chosen.profile is not Profile.SYNC:
        raise CallerError(
            f"policy {chosen.name!r} is not for callers that wait; a call needs one of profile 'sync', "
            "as gateway-sync"
        )
    given: object = wait_s
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise CallerError(f"wait_s is {given!r}; give a number of seconds")
    if not 0 < given <= WAIT_S_MAX:
        raise CallerError(f"wait_s {given!r} must lie between 0 and {WAIT_S_MAX:.0f}")
    if on_lost not in tuple(OnLost):
        raise CallerError(f"on_lost is {on_lost!r}; one of: {', '.join(OnLost)}")
    return CallTerms(chosen, float(given), OnLost(on_lost), named=policy is not None)


class CallerRow:
    """The caller's own row in `workers`, made when it is first needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._held: tuple[Store, int] | None = None
        self._replace_at = 0.0
        self._pid = os.getpid()

    def no(self, store: Store, *, not_this: int | None = None) -> int:
        """The number of the row; a new one when it is old, or is the one that was refused."""
        with self._one_at_a_time:
            fresh = self._held is not None and self._clock.monotonic() < self._replace_at
            if self._held is not None and fresh and self._held[1] != not_this:
                return self._held[1]
            name = f"{socket.gethostname()}:{os.getpid()}"
            no = store.add_worker(NewWorker(secrets.token_hex(16), name, Role.CALLER, LEASE_S))
            if self._held is None:
                atexit.register(self.end)
            self._held = (store, no)
            self._replace_at = self._clock.monotonic() + LEASE_S / 2
            return no

    def end(self) -> None:
        """Say that we have left, as well as we can: what we still held is settled at once then."""
        if self._pid != os.getpid():
            return  # a process that was forked off ends, too; the row is its parent's
        with self._one_at_a_time:
            if self._held is not None:
                atexit.unregister(self.end)
                store, no = self._held
                self._held = None
                with suppress(StoreError):
                    store.end_worker(no, Death("stopped"))


class Calls:
    """What all calls of an App share. ``pause`` is how a retry is waited for.

    ``capture_kept_s`` is how long raw output is kept; None is for ever. ``tracebacks`` are put aside if it says so.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        chance: Random,
        observers: Observers,
        upstreams: Upstreams | None = None,
        pause: Pause = asyncio.sleep,
        capture_kept_s: float | None = None,
        tracebacks: bool = False,
    ) -> None:
        self.clock = clock
        self.pause = pause
        self.threads = Threads(_THREADS_MAX)
        self.trades = Pool(_TRADES_MAX, "perdure-call")
        self.process_pool = SharedStageProcesses()
        self.board = ProgressBoard(observers)
        self.capture_factory = CaptureFactory(
            clock, chance, kept_s=capture_kept_s, tracebacks=tracebacks
        )
        self.unheard: set[asyncio.Task[Outcome]] = set()  # stages that do not end when told to
        self._chance = chance
        self._observers = observers
        self._upstreams = upstreams or Upstreams()
        self._caller_row = CallerRow(clock)
        self._loop = OwnLoop("perdure-calls")
        self._pid = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked off: rows, threads and loop are its parent's."""
        return self._pid == os.getpid()

    async def call(
        self,
        opened: Callable[[], Opened],
        laid: LaidPipeline,
        job: Callable[[], NewJob],
        terms: CallTerms,
        begun: Callable[[str], object] = lambda id: None,
    ) -> Over:
        """Run a job of this pipeline now. ``opened`` and ``job`` may wait for the store; ``begun`` hears the job's id once it is stored."""
        began_s = self.clock.monotonic()

        def begin_call() -> tuple[Call, Step]:
            new, found = job(), opened()
            worker = self._caller_row.no(found.store)
            make = partial(
                Call,
                found.store,
                found.reader,
                laid,
                new,
                terms,
                clock=self.clock,
                chance=self._chance,
                observers=self._observers,
                began_s=began_s,
                gates=partial(self._gates, found),
            )
            try:
                call = make(worker=worker)
                return call, call.begin()
            except WorkerDead:  # we were suspended for hours
                call = make(worker=self._caller_row.no(found.store, not_this=worker))
                return call, call.begin()

        return await _Waiting(self, terms, began_s, begun).run_to_end(begin_call)

    def _gates(self, opened: Opened, stage: Stage) -> CallerGates | None:
        upstream = self._upstreams.of(stage)
        if upstream is None:
            return None
        return CallerGates(opened.reader, opened.control, upstream, f"caller {os.getpid()}")

    def blocking(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine for a caller that has no event loop, and wait for it."""
        if asyncio._get_running_loop() is not None:
            raise CallerError("this thread has an event loop; write: await pipe.call_async(...)")
        return self._loop.run(make())

    def send(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the loop of those who have none, and do not wait for it; it can be cancelled."""
        return self._loop.send(make())

    @property
    def closing(self) -> bool:
        """Whether whoever calls this is a blocking caller, and the App is being closed under it."""
        return self._loop.is_ending_here

    def close(self) -> None:
        """Interrupt blocking callers, then end the children and the row."""
        if self.is_of_this_process:
            self._loop.close()
            self.process_pool.end()
            self._caller_row.end()


class _Waiting:
    """One caller that waits: keeps its time, and remembers that it has gone."""

    def __init__(
        self, shared: Calls, terms: CallTerms, began_s: float, begun: Callable[[str], object]
    ) -> None:
        self._shared = shared
        self._begun = begun
        self._clock = shared.clock
        self._until_s = began_s + terms.wait_s + ANSWER_S
        self._gone: asyncio.CancelledError | None = None
        self._call: Call
        self._job_id: str | None = None

    async def run_to_end(self, begin: Callable[[], tuple[Call, Step]]) -> Over:
        """All steps of the call."""
        try:
            self._call, step = await self._trade(begin)
            self._job_id = step.claim.id if isinstance(step, Try) else step.job_id
            self._begun(self._job_id)
            while isinstance(step, Try):
                step = await self._try(step)
        except StoreError as error:
            if self._gone is None:
                raise
            raise self._error_of_leaving() from error
        if self._gone is not None:
            raise self._error_of_leaving()
        return step

    def _error_of_leaving(self) -> BaseException:
        """What a caller that has gone is told."""
        gone = self._gone
        assert gone is not None
        if not self._shared.closing:
            return gone
        id = self._job_id
        if id is None:
            return CallerError("the app was closed before the store had answered a call")
        return CallerError(
            f"the app was closed while the call of job {id} waited; see: perdure jobs show {id}"
        )

    async def _try(self, step: Try) -> Step:
        if step.pause_s:
            await self._rest(step.pause_s)
        call, started_s = self._call, self._clock.monotonic()
        outcome, completer = (
            None,
            call.completion(step.claim, started_s, self._shared.capture_factory),
        )
        notes = AttemptNotes(
            tell=partial(self._shared.board.note, step.claim),
            completer=completer,
            tracebacks=self._shared.capture_factory.tracebacks,
        )
        if self._gone is None and call.left_s > 0:
            outcome = await self._outcome(step, notes)
        notes.end()
        self._shared.board.drop(step.claim)
        elapsed_s = self._clock.monotonic() - started_s
        if outcome is None and self._gone is not None:
            return await self._settle(partial(call.leave, elapsed_s, notes.usage), step)
        end = call.end_wait if outcome is None else partial(call.end_stage, outcome)
        kept = self._shared.capture_factory.captures_of(
            outcome or TimedOut(elapsed_s), notes.asides
        )
        return await self._settle(partial(end, elapsed_s, notes.usage, kept), step)

    async def _outcome(self, step: Try, notes: AttemptNotes) -> Outcome | None:
        """How the stage ended, or None when it was stopped."""
        stopping, shared = Stopping(), self._shared
        task = asyncio.create_task(
            run(
                step.claim,
                step.stage,
                shared.threads,
                stopping,
                notes=notes,
                process_pool=shared.process_pool,
            )
        )
        while not task.done() and self._gone is None and (left_s := self._call.left_s) > 0:
            await self._wait({task}, min(left_s, TELL_S))
            shared.trades.submit(shared.board.once, self._clock.monotonic())
        if not task.done():
            stopping.order()
            task.cancel()
            await self._wait({task}, STOP_S, heedless=True)
        if not task.done():
            self._shared.unheard.add(task)
            task.add_done_callback(self._shared.unheard.discard)
            return None
        outcome = Interrupted() if task.cancelled() else task.result()
        return None if self._was_stopped(outcome) else outcome

    def _was_stopped(self, outcome: Outcome) -> bool:
        """Whether the stage was told to end; a loop that closes tells it without asking us."""
        if self._gone is not None and isinstance(outcome, Raised):
            return _CANCELLED in outcome.evidence.names
        return isinstance(outcome, Interrupted)

    async def _settle(self, settle: Callable[[], Step], step: Try) -> Step:
        """Trade the end of a stage; what may have been lost on the way is sent again while there is time."""
        pauses = Pauses(0.05, 1.0, 2.0)
        while True:
            pause_s = pauses.next_s()
            try:
                return await self._trade(settle)
            except StoreUnavailable as away:
                if self._clock.monotonic() + pause_s >= self._until_s:
                    raise _unknown(away, step) from away
            except StoreError as error:
                raise _unknown(error, step) from error
            await self._wait(set(), pause_s, heedless=True)
            settle = self._call.resend

    async def _trade(self, work: Callable[[], T]) -> T:
        """Trade with the store, off the event loop; a caller that goes meanwhile stays for the answer."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._shared.trades, work)
        except NoThread as refused:
            raise StoreUnavailable(
                f"there is no thread to reach the store with: {refused}"
            ) from refused
        while not future.done():
            left_s = self._until_s - self._clock.monotonic()
            if left_s <= 0:
                future.add_done_callback(lambda late: late.cancelled() or late.exception())
                raise StoreUnavailable(
                    "the store has not answered in time; whether it has done what was asked is not known"
                )
            await self._wait({future}, left_s)
        return future.result()

    async def _rest(self, pause_s: float) -> None:
        try:
            await self._shared.pause(pause_s)
        except asyncio.CancelledError as gone:
            self._leave(gone)

    async def _wait(
        self, futures: set[asyncio.Future[Any]], wait_s: float, *, heedless: bool = False
    ) -> None:
        """Wait until they are done, time is over, or the caller goes; if heedless, even then."""
        until_s = self._clock.monotonic() + wait_s
        while (left_s := until_s - self._clock.monotonic()) > 0:
            try:
                if futures:
                    await asyncio.wait(futures, timeout=left_s)
                else:
                    await asyncio.sleep(left_s)
            except asyncio.CancelledError as gone:
                self._leave(gone)
                if heedless:
                    continue
            return

    def _leave(self, gone: asyncio.CancelledError) -> None:
        if self._gone is None:
            self._gone = gone
            self._until_s = min(self._until_s, self._clock.monotonic() + ANSWER_S)


def _unknown(error: StoreError, step: Try) -> StoreError:
    """The error that says that we do not know what is recorded; it never claims a result that may not count."""
    claim = step.claim
    return type(error)(
        f"stage {claim.stage!r} of job {claim.id} has ended, and whether that is recorded is not known "
        f"({error}); see: perdure jobs show {claim.id}. If it is not, the job is taken from this caller "
        "when its limit has passed"
    )
