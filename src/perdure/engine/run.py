"""run: `Claim` → `Outcome`. Whatever a stage does, it ends here as data.

A stage may return, raise anything at all, run out of time, or be told to stop because its worker
shuts down; each has one outcome. A cancellation that we did not order is the stage's own failure.
An async stage runs on the event loop, a sync one on a thread; a thread cannot be stopped, so
after its timeout or a shutdown the attempt is settled without it, and whatever it says later is
refused by the token.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from perdure.engine.context import Context
from perdure.engine.door import admit, decode
from perdure.engine.stages import Stage
from perdure.model.jobs import Claim
from perdure.model.limits import RESULT_BYTES_MAX
from perdure.model.outcomes import (
    Evidence,
    Interrupted,
    Outcome,
    Raised,
    Returned,
    Snoozed,
    TimedOut,
    Unbegun,
    Withdrawn as WithdrawnOutcome,
)
from perdure.model.signals import Cancel, Snooze, Succeeded
from perdure.rules.evidence import evidence_of


class Threads:
    """Threads for sync stages. One that is given up on keeps its thread until it ends by itself.

    ``lost`` is how many such there are: slots that the worker must not fill again.
    """

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="perdure-stage")
        self._given_up: set[Future[Any]] = set()

    @property
    def lost(self) -> int:
        """Threads still busy with calls that nobody waits for."""
        return len(self._given_up)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function on a thread and wait for it."""
        future = self._executor.submit(_called, function, *arguments)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                self._given_up.add(future)
                future.add_done_callback(self._given_up.discard)
            raise


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except StopIteration as ended:  # asyncio cannot carry it, as of 3.11
        raise RuntimeError("the stage raised StopIteration") from ended


class Stopping:
    """Tells an ordered cancellation from one that the stage raised itself."""

    def __init__(self) -> None:
        self.ordered = False
        self.begun = False


async def run(claim: Claim, stage: Stage, threads: Threads, stopping: Stopping) -> Outcome:
    """Run one stage of one job to an outcome; never raises."""
    time_s = _time_left_s(claim, stage)
    if time_s <= 0:
        return Unbegun()
    own_time = asyncio.timeout(time_s)
    try:
        async with own_time:
            value = await _call(claim, stage, threads)
        return _outcome(value)
    except asyncio.CancelledError as cancelled:
        return Interrupted() if stopping.ordered else _raised(cancelled)
    except BaseException as error:  # a stage may do anything
        if own_time.expired() and isinstance(error, TimeoutError):
            return TimedOut(time_s)
        return _raised(error)


def _raised(error: BaseException) -> Raised:
    try:
        return Raised(evidence_of(error))
    except Exception:  # an exception's own text and attributes are somebody's code, too
        kind = type(error)
        return Raised(Evidence((f"{kind.__module__}.{kind.__qualname__}",), "(cannot be read)"))


async def _call(claim: Claim, stage: Stage, threads: Threads) -> Any:
    arguments: list[Any] = [decode(claim.input_json)]
    if stage.wants_context:
        arguments.append(context_of(claim, stage))
    if stage.is_async:
        return await stage.call(*arguments)
    return await threads.call(stage.call, *arguments)


def context_of(claim: Claim, stage: Stage) -> Context:
    """What the stage may know."""
    failed = claim.counters.failures
    return Context(
        job_id=claim.id,
        pipeline=claim.pipeline,
        stage=claim.stage,
        owner=claim.owner,
        item=decode(claim.payload_json),
        attempt=failed + 1,
        attempts_left=max(0, stage.policy.attempts_max - failed - 1),
        token=claim.token,
        idempotency_key=f"{claim.id}:{claim.stage}:{claim.life}",
        deadline_at=claim.deadline_at,
    )


def _outcome(value: Any) -> Outcome:
    match value:
        case Snooze(wait_s, reason):
            return Snoozed(float(wait_s), reason)
        case Cancel(reason):
            return WithdrawnOutcome(reason)
        case Succeeded(result, label):
            return Returned(_admitted(result), label)
        case result:
            return Returned(_admitted(result))


def _admitted(result: Any) -> str:
    return admit(result, what="the result", bytes_max=RESULT_BYTES_MAX)


def _time_left_s(claim: Claim, stage: Stage) -> float:
    if claim.deadline_at is None:
        return stage.timeout_s
    return min(stage.timeout_s, (claim.deadline_at - claim.claimed_at).total_seconds())
