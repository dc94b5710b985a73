"""Noticing that nobody works on a run, for whoever feeds it or waits for it."""

import time
from collections.abc import Callable

from perdure.engine.observe import Observers
from perdure.model.events import EventName
from perdure.model.runs import RunCounts, RunStatus, RunView
from perdure.model.workers import Role
from perdure.ports import Reader

UNATTENDED_S = 10.0  # without any move; an idle worker claims within its poll
_AGAIN_S = 60.0


class Attendance:
    """Is shown a run again and again, and tells when none of its items moves though nothing holds them."""

    def __init__(
        self,
        reader: Reader,
        observers: Observers,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._observers = observers
        self._monotonic = monotonic
        self._seen: RunCounts | None = None
        self._say_at = 0.0

    def look(self, run: RunView) -> None:
        """Tell that nobody works on it, if that is so for a while."""
        now = self._monotonic()
        if run.counts != self._seen or run.status is not RunStatus.RUNNING or not run.counts.open:
            self._seen, self._say_at = run.counts, now + UNATTENDED_S
            return
        if now < self._say_at:
            return
        self._say_at = now + _AGAIN_S
        reason = self._why(run)
        if reason is not None:
            self._observers.tell(
                EventName.RUN_UNATTENDED,
                run=run.no,
                run_id=run.id,
                run_name=run.name,
                pipeline=run.pipeline,
                open=run.counts.open,
                reason=reason,
            )

    def _why(self, run: RunView) -> str | None:
        alive = workers_alive(self._reader)
        if not alive:
            return (
                "no worker is at work on this store; start one with `perdure worker MODULE:APP`, or put "
                "`with app.working():` around what waits"
            )
        lanes = [one for one in self._reader.lanes() if one.lane.run == run.no]
        in_work = run.counts.open - sum(one.ready + one.later for one in lanes)
        waiting = [one for one in lanes if one.open and one.ready]
        if in_work > 0 or not waiting:
            return None
        return (
            f"workers are alive ({alive}), and none takes its items; start one that has pipeline {run.pipeline!r} and "
            f"serves queue {waiting[0].lane.queue!r}: `perdure worker MODULE:APP`"
        )


def workers_alive(reader: Reader) -> int:
    """How many workers have been heard of within their lease; callers take no items."""
    now = reader.now()
    return sum(
        one.role is not Role.CALLER
        and one.dead_at is None
        and (now - one.beat_at).total_seconds() < one.ttl_s
        for one in reader.workers()
    )
