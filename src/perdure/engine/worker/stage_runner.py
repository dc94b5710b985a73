"""The event-loop side of a worker: it runs the stages that the pump has claimed.

Who owns what: the event loop has every async stage; sync stages have threads; stages with ``process=True`` have child
processes. The pump's thread starts and stops them by calls that are passed on to the event loop, and what has ended
goes back through ``finished``, which is a deque for that reason. Of a running attempt the pump's thread reads whether it has begun
and what it has spent, and may end its notes; each is a single assignment.

A blocked event loop: the pump's thread asks it every now and then whether it still turns (`LoopWatch`). While it does not
answer, no slot of ours can be filled.

A lost slot: a sync stage that ignores its timeout keeps its thread, and the slot with it; so does an async one that
the store has taken from us and that swallows its cancellation. It is lost until it comes back.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial

from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.completion import Completions
from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.progress import ProgressBoard
from perdure.engine.attempt.stage_processes import StageProcessPool
from perdure.engine.attempt.threads import Threads
from perdure.engine.attempt.timeout import Limits
from perdure.engine.gates.health import word_of_health
from perdure.engine.gates.traffic import Checked
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.engine.run import Stopping, run
from perdure.engine.settle import Finished
from perdure.engine.stages import Catalogue
from perdure.model.jobs import Claim
from perdure.model.outcomes import Interrupted, Outcome, Usage
from perdure.ports import Clock

_TOGETHER = 100  # results that are worth a turn, though more are at hand


class StageRunner:
    """Runs stages on an event loop; ``wake`` tells the pump's thread that something has ended.

    ``patience_s`` is how long the event loop, or a stage that was stopped, may take to answer; ``every_s`` is the time
    between two questions whether the event loop turns.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        completions: Completions,
        capture_factory: CaptureFactory,
        *,
        concurrency: int,
        patience_s: float,
        every_s: float,
        clock: Clock,
        observers: Observers,
        wake: Callable[[], None],
    ) -> None:
        self.finished: deque[Finished | Checked] = deque()
        self._catalogue = catalogue
        self._completions = completions
        self._capture_factory = capture_factory
        self._board = ProgressBoard(observers)
        self._concurrency = concurrency
        self._patience_s = patience_s
        self._clock = clock
        self._wake = wake
        self._waking = False
        self._events: asyncio.AbstractEventLoop
        self._over = asyncio.Event()
        self._runs: dict[int, tuple[asyncio.Task[None], Stopping]] = {}
        self._notes: dict[int, AttemptNotes] = {}
        self._checks: set[asyncio.Task[None]] = set()
        self._threads = Threads(concurrency)
        self._process_pool = StageProcessPool()
        self._limits = Limits()
        self._loop_watch = LoopWatch(self._on_events, every_s=every_s, blocked_s=patience_s)
        self._taken: dict[int, float] = {}  # runs that the store has taken from us, and since when

    async def serve(self, begin: Callable[[], None]) -> None:
        """Be the event loop until `end`; ``begin`` is called as soon as claims may come."""
        self._events = asyncio.get_running_loop()
        begin()
        await self._over.wait()
        for task, _ in self._runs.values():
            task.cancel()
        await self._process_pool.close()

    # -- the pump thread -----------------------------------------------------------------

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the stages of these."""
        received_s = self._clock.monotonic()
        self._on_events(lambda: self._start_all(claims, received_s))

    def stop(self, nos: Sequence[int]) -> None:
        """Stop the stages of these jobs, as far as they can be."""
        self._on_events(lambda: self._cancel_runs(nos))

    def stop_all(self) -> None:
        """Stop whatever runs; what a stage has not said or asked by now is not heard any more."""
        self._on_events(lambda: self._cancel_runs(list(self._runs)))
        for notes in list(self._notes.values()):
            notes.end()

    def check(self, upstream: DeclaredUpstream, generation: int) -> None:
        """Ask an upstream how it is; the answer comes as a `Checked`."""
        self._on_events(lambda: self._start_check(upstream, generation))

    def end(self) -> None:
        """End the event loop."""
        self._on_events(self._over.set)

    def has_begun(self, no: int) -> bool:
        """Whether the stage of this job has taken its first step."""
        held = self._runs.get(no)
        return held is not None and held[1].has_begun

    def usage_of(self, claim: Claim) -> Usage | None:
        """What a running stage says that it has spent so far."""
        notes = self._notes.get(claim.no)
        return None if notes is None else notes.usage

    def tell_progress(self, now: float) -> None:
        """Tell what running stages have said of their progress, if it is time."""
        self._board.once(now)

    def look(self, now: float) -> bool:
        """See whether the event loop turns; whether it is found blocked, and was not before."""
        before = self._loop_watch.blocked
        self._loop_watch.look(now)
        return self._loop_watch.blocked and not before

    @property
    def blocked(self) -> bool:
        """Whether the event loop did not turn when we last looked."""
        return self._loop_watch.blocked

    @property
    def silent_s(self) -> float:
        """How long the event loop has not answered."""
        return self._loop_watch.silent_s

    @property
    def slots_unusable(self) -> int:
        """Slots that cannot be filled, beside those that are taken."""
        return self._concurrency if self._loop_watch.blocked else self._threads.lost_count

    def note_taken(self, nos: Collection[int], now: float) -> None:
        """These are all that the store has taken from us and that still run here."""
        self._taken = {no: self._taken.get(no, now) for no in nos}

    def slots_lost(self, now: float) -> tuple[int, float]:
        """How many slots are lost, and since when."""
        if not self._taken and not self._threads.lost_count:
            return 0, now
        deaf = [at for at in self._taken.values() if now - at >= self._patience_s]
        lost_at = self._threads.lost_at
        return self._threads.lost_count + len(deaf), min(
            [*deaf, now if lost_at is None else lost_at]
        )

    def _on_events(self, call: Callable[[], None]) -> None:
        self._events.call_soon_threadsafe(call)

    # -- the event loop ------------------------------------------------------------------

    def _start_all(self, claims: Sequence[Claim], received_s: float) -> None:
        for claim in claims:
            stopping, completer = Stopping(), self._completions.of(claim, received_s)
            notes = AttemptNotes(
                tell=partial(self._board.note, claim),
                completer=completer,
                tracebacks=self._capture_factory.tracebacks,
            )
            task = asyncio.create_task(self._run_one(claim, stopping, notes, received_s))
            self._runs[claim.no] = (task, stopping)
            self._notes[claim.no] = notes

    async def _run_one(
        self, claim: Claim, stopping: Stopping, notes: AttemptNotes, received_s: float
    ) -> None:
        _, stage = self._catalogue.place_of_ours(claim)
        stopping.begin()
        if stopping.is_ordered:
            outcome: Outcome = Interrupted(begun=False)
        else:
            outcome = await run(
                claim,
                stage,
                self._threads,
                stopping,
                notes=notes,
                process_pool=self._process_pool,
                limits=self._limits,
            )
        elapsed_s = self._clock.monotonic() - received_s
        self._board.drop(claim)
        kept = self._capture_factory.captures_of(outcome, notes.asides)
        self.finished.append(Finished(claim, outcome, elapsed_s, notes.usage, notes.told, kept))
        held = self._runs.get(claim.no)
        # After its word: else it seems not to have begun.
        if held is not None and held[1] is stopping:
            del self._runs[claim.no], self._notes[claim.no]
        if not self._waking:  # after all that the event loop has at hand, so that they go together
            self._waking = True
            self._events.call_soon(self._wake_pump)
        elif len(self.finished) == _TOGETHER:
            self._wake()

    def _wake_pump(self) -> None:
        self._waking = False
        self._wake()

    def _start_check(self, upstream: DeclaredUpstream, generation: int) -> None:
        task = asyncio.create_task(self._check_health(upstream, generation))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check_health(self, upstream: DeclaredUpstream, generation: int) -> None:
        word = await word_of_health(upstream, self._threads, self._clock)
        self.finished.append(Checked(upstream.name, generation, word))
        self._wake()

    def _cancel_runs(self, nos: Sequence[int]) -> None:
        for no in nos:
            found = self._runs.get(no)
            if found is not None:
                task, stopping = found
                stopping.order()
                if (
                    stopping.has_begun
                ):  # else it would end without its first step, and without a word
                    task.cancel()


class LoopWatch:
    """The answers of one event loop, as the thread that asks sees them.

    ``ask`` has it call something. It is blocked when it has not done so for ``blocked_s``. A pause between two looks
    counts as ``every_s`` at most: whoever was stopped itself, with all of its process, must not blame the loop.
    """

    def __init__(
        self, ask: Callable[[Callable[[], None]], None], *, every_s: float, blocked_s: float
    ) -> None:
        self._ask = ask
        self._every_s = every_s
        self._blocked_s = blocked_s
        self._answered = True
        self._asked_at = -math.inf
        self._looked_at = 0.0
        self.silent_s = 0.0

    @property
    def blocked(self) -> bool:
        """Whether it has been silent for too long, when we last looked."""
        return self.silent_s >= self._blocked_s

    def look(self, now: float) -> None:
        """Ask when it is time to; else see whether the answer has come."""
        if not self._answered:
            self.silent_s += min(now - self._looked_at, self._every_s)
        elif now - self._asked_at >= self._every_s:
            self.silent_s = 0.0
            self._answered = False
            self._asked_at = now
            self._ask(self._answer)
        else:
            self.silent_s = 0.0
        self._looked_at = now

    def _answer(self) -> None:
        self._answered = True
