"""run: `Claim` → `Outcome`. Whatever a stage does, it ends here as data.

A stage may return, raise anything at all, run out of time, or be told to stop because its worker
shuts down; each has one outcome. A cancellation that we did not order is the stage's own failure.
An async stage runs on the event loop, a sync one on a thread, one with ``process=True`` in a child
process; without any thread the job is given back. A thread cannot be stopped, so after its timeout
(`attempt/timeout.py`) or a shutdown the attempt is settled without it, and whatever it says later is
refused by the token. A child is killed.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.engine.attempt.context import AttemptNotes
from perdure.engine.attempt.perform import call_for, outcome_of, raised_outcome, unfit
from perdure.engine.attempt.stage_process_messages import FindStage, StageOrder
from perdure.engine.attempt.stage_processes import StageProcessPool
from perdure.engine.attempt.threads import NoThread, Threads
from perdure.engine.attempt.timeout import AttemptTime, Limits
from perdure.engine.stage_parameters import ItemMisfit
from perdure.engine.stages import Stage
from perdure.model.jobs import Claim
from perdure.model.outcomes import Evidence, Interrupted, Outcome, Unbegun
from perdure.rules.evidence import evidence_of

_REFUSED_S = 1.0  # before a job is given back for want of a thread: it may come to us again


class Stopping:
    """Tells an ordered cancellation from one that the stage raised itself.

    It is written on the event loop only; the pump's thread reads whether the stage has begun.
    """

    def __init__(self) -> None:
        self._is_ordered = False
        self._has_begun = False

    @property
    def is_ordered(self) -> bool:
        """Whether the stage was told to stop."""
        return self._is_ordered

    @property
    def has_begun(self) -> bool:
        """Whether the stage has taken its first step."""
        return self._has_begun

    def order(self) -> None:
        """Note that the stage is told to stop."""
        self._is_ordered = True

    def begin(self) -> None:
        """Note that the stage takes its first step."""
        self._has_begun = True


async def run(
    claim: Claim,
    stage: Stage,
    threads: Threads,
    stopping: Stopping,
    *,
    notes: AttemptNotes | None = None,
    process_pool: StageProcessPool | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Run one stage of one job to an outcome; never raises.

    ``notes`` hears what the stage says while it works. ``process_pool`` lends child processes to stages that
    want one; without it such a stage has a child of its own, which ends with it. ``limits`` are the
    timers of this event loop, shared; without them the attempt has a timer of its own.
    """
    notes = notes or AttemptNotes()
    attempt = _Attempt(claim, stage, notes, AttemptTime(claim, stage.timeout_s, notes, limits))
    time = attempt.time
    if time.left_s() <= 0:
        return Unbegun()
    try:
        if not stage.process:
            return await _here(attempt, threads)
        if process_pool is not None:
            return await _in_child(attempt, process_pool)
        return await _in_own_child(attempt)
    except asyncio.CancelledError as cancelled:
        if stopping.is_ordered:
            return Interrupted(begun=time.has_begun)
        return time.overdue() if time.is_over else attempt.outcome_of(cancelled)
    except NoThread:
        return Interrupted("there is no thread for it", begun=False)
    except BaseException as error:  # a stage may do anything
        if time.is_over and isinstance(error, TimeoutError):
            return time.overdue()
        return attempt.outcome_of(error)
    finally:
        time.end()
        notes.end()


def ask_check(check: Callable[[Any], Any], item: Any) -> bool | Evidence:
    """What a pipeline's own check says of an item, sync or async; whatever it raises, as data."""
    try:
        answer = check(item)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        return bool(answer)
    except Exception as error:  # as a stage, it may do anything
        return evidence_of(error)


class _Attempt(NamedTuple):
    """One attempt, as it is handed to where it runs."""

    claim: Claim
    stage: Stage
    notes: AttemptNotes
    time: AttemptTime

    def outcome_of(self, error: BaseException) -> Outcome:
        """The outcome of a stage that let this escape."""
        return raised_outcome(error, notes=self.notes, home=self.stage.callee.home)


async def _here(attempt: _Attempt, threads: Threads) -> Outcome:
    time = attempt.time
    time.begin(time.left_s())
    callee, claim = attempt.stage.callee, attempt.claim
    try:
        call = call_for(callee, claim, attempt.stage.policy.attempts_max, attempt.notes)
    except ItemMisfit as misfit:
        return unfit(misfit, claim)
    if callee.is_async:
        return outcome_of(await call())
    try:
        return outcome_of(await threads.call(call, waits=time.wait, late=time.begin_late))
    except NoThread:
        await asyncio.sleep(_REFUSED_S)
        raise


async def _in_child(attempt: _Attempt, process_pool: StageProcessPool) -> Outcome:
    """Run the stage in a child; the time in which that starts is not the stage's."""
    claim, stage, notes, time = attempt
    module, qualname = stage.call.__module__, stage.call.__qualname__

    def order() -> StageOrder | None:
        time_s = time.left_s(after_s=time.waited_s())
        if time_s <= 0:
            return None
        time.begin(time_s)
        attempts_max = stage.policy.attempts_max
        return StageOrder(module, qualname, claim, attempts_max, time_s, notes.tracebacks)

    find = FindStage(module, qualname, tuple(sys.path))
    return await process_pool.perform(find, order, notes) or Unbegun()


async def _in_own_child(attempt: _Attempt) -> Outcome:
    process_pool = StageProcessPool()
    try:
        return await _in_child(attempt, process_pool)
    finally:
        await process_pool.close()
