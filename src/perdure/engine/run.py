"""run: `Claim` → `Outcome`. Whatever a stage does, it ends here as data.

A stage may return, raise anything at all, run out of time, or be told to stop because its worker
shuts down; each has one outcome. A cancellation that we did not order is the stage's own failure.
An async stage runs on the event loop, a sync one on a thread, one with ``process=True`` in a child
process; while all threads are taken its time does not run, and without any the job is given back. A thread cannot be stopped, so after its timeout or a shutdown the attempt is settled without
it, and whatever it says later is refused by the token. A child is killed.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from perdure.engine.attempt.context import Desk
from perdure.engine.attempt.perform import arguments_of, outcome_of, raised, unfit
from perdure.engine.attempt.stage_process_messages import Find, Order
from perdure.engine.attempt.stage_processes import Hands
from perdure.engine.attempt.threads import Refused, Threads
from perdure.engine.attempt.timeout import Limit, Limits
from perdure.engine.item_types import Misfit
from perdure.engine.stages import Stage
from perdure.model.jobs import Claim
from perdure.model.outcomes import (
    Evidence,
    Interrupted,
    Outcome,
    TimedOut,
    Unbegun,
)
from perdure.rules.evidence import evidence_of

_REFUSED_S = 1.0  # before a job is given back for want of a thread: it may come to us again


class Stopping:
    """Tells an ordered cancellation from one that the stage raised itself."""

    def __init__(self) -> None:
        self.ordered = False
        self.begun = False


async def run(
    claim: Claim,
    stage: Stage,
    threads: Threads,
    stopping: Stopping,
    *,
    desk: Desk | None = None,
    hands: Hands | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Run one stage of one job to an outcome; never raises.

    ``desk`` hears what the stage says while it works. ``hands`` lends child processes to stages that
    want one; without it such a stage has a child of its own, which ends with it. ``limits`` are the
    timers of this event loop, shared; without them the attempt has a timer of its own.
    """
    attempt = _Attempt(claim, stage, desk or Desk(), limits)
    if attempt.time_left_s() <= 0:
        return Unbegun()
    try:
        if not stage.process:
            return await _here(attempt, threads)
        if hands is not None:
            return await _in_child(attempt, hands)
        return await _in_own_child(attempt)
    except asyncio.CancelledError as cancelled:
        if stopping.ordered:
            return attempt.interrupted()
        return attempt.overdue() if attempt.limit.passed else attempt.raised(cancelled)
    except Refused:
        return Interrupted("there is no thread for it", begun=False)
    except BaseException as error:  # a stage may do anything
        if attempt.limit.passed and isinstance(error, TimeoutError):
            return attempt.overdue()
        return attempt.raised(error)
    finally:
        attempt.limit.clear()
        attempt.desk.end()


def asked(check: Callable[[Any], Any], item: Any) -> bool | Evidence:
    """What a pipeline's own check says of an item, sync or async; whatever it raises, as data."""
    try:
        answer = check(item)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        return bool(answer)
    except Exception as error:  # as a stage, it may do anything
        return evidence_of(error)


class _Attempt:
    """One attempt, and its time: the stage's own, or what is left until the job's deadline."""

    __slots__ = (
        "_began", "_came_at", "_clock", "_events", "_limits", "claim", "desk", "limit", "stage",
        "time_s",
    )  # fmt: skip

    def __init__(self, claim: Claim, stage: Stage, desk: Desk, limits: Limits | None) -> None:
        self.claim = claim
        self.stage = stage
        self.desk = desk
        self.time_s = 0.0
        self.limit = Limit()
        self._limits = limits
        self._events = asyncio.get_running_loop()
        self._clock = self._events.time
        self._came_at = self._clock()
        self._began = False

    def time_left_s(self, *, after_s: float = 0.0) -> float:
        """How long the stage may run if it begins after a while."""
        if self.claim.deadline_at is None:
            return self.stage.timeout_s
        return min(self.stage.timeout_s, self._deadline_s(self.claim.deadline_at) - after_s)

    def waited_s(self) -> float:
        """How long we are at it."""
        return self._clock() - self._came_at

    def begin(self, time_s: float) -> None:
        """The stage begins now, and has this much time."""
        self._began = True
        self.time_s = time_s
        self.desk.begin(self.time_s, self._clock)
        shared = self._limits is not None and time_s == self.stage.timeout_s
        self.limit.set(time_s, self._limits.line(time_s) if self._limits and shared else None)

    def wait(self) -> None:
        """It has not begun after all: until it does, only the job's deadline counts."""
        self._began = False
        self.limit.unset()
        if self.claim.deadline_at is not None:
            self.limit.set(self._deadline_s(self.claim.deadline_at) - self.waited_s())

    def begin_late(self) -> None:
        """As `begin`, on the stage's own thread, which has come free at last."""
        time_s = max(0.0, self.time_left_s(after_s=self.waited_s()))
        self.desk.begin(time_s, self._clock)
        self._events.call_soon_threadsafe(self.begin, time_s)

    def overdue(self) -> Outcome:
        """What it is that our limit has passed."""
        return TimedOut(self.time_s) if self._began else Unbegun()

    def raised(self, error: BaseException) -> Outcome:
        """What it is that the stage let this escape."""
        return raised(error, desk=self.desk, home=self.stage.callee.home)

    def interrupted(self) -> Outcome:
        """What it is that we were told to stop."""
        return Interrupted(begun=self._began)

    def _deadline_s(self, deadline_at: datetime) -> float:
        return (deadline_at - self.claim.claimed_at).total_seconds()


async def _here(attempt: _Attempt, threads: Threads) -> Outcome:
    attempt.begin(attempt.time_left_s())
    callee, claim = attempt.stage.callee, attempt.claim
    try:
        arguments = arguments_of(callee, claim, attempt.stage.policy.attempts_max, attempt.desk)
    except Misfit as misfit:
        return unfit(misfit, claim)
    if callee.is_async:
        return outcome_of(await callee.call(*arguments))
    try:
        return outcome_of(
            await threads.call(callee.call, *arguments, waits=attempt.wait, late=attempt.begin_late)
        )
    except Refused:
        await asyncio.sleep(_REFUSED_S)
        raise


async def _in_child(attempt: _Attempt, hands: Hands) -> Outcome:
    """Run the stage in a child; the time in which that starts is not the stage's."""
    claim, stage = attempt.claim, attempt.stage
    module, qualname = stage.call.__module__, stage.call.__qualname__

    def order() -> Order | None:
        time_s = attempt.time_left_s(after_s=attempt.waited_s())
        if time_s <= 0:
            return None
        attempt.begin(time_s)
        return Order(module, qualname, claim, stage.policy.attempts_max, attempt.time_s)

    find = Find(module, qualname, tuple(sys.path))
    return await hands.perform(find, order, attempt.desk) or Unbegun()


async def _in_own_child(attempt: _Attempt) -> Outcome:
    hands = Hands()
    try:
        return await _in_child(attempt, hands)
    finally:
        await hands.close()
