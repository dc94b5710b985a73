"""Let go of jobs and workers that ended long ago, and of captures and changes whose time is over, a little at a time.

A step looks at a few jobs in the order of their numbers, in a transaction of its own, and goes on where the
one before stopped; at the end of the table it lets go of workers that ended before the oldest of what is
kept, and rests. Where it stands is kept in memory only: whoever takes the duty begins at the lowest number,
where the old ones are. Captures have steps of their own, before those of the jobs: each says when it may go. So has the
change feed: the store marks how far the feed was at which moment, once a round at most. A
call takes several steps, but not for long: the thread that prunes is the one that trades with the store.
"""

from perdure.engine.upkeep.chore import NOTHING, Swept
from perdure.model.operations import Retention
from perdure.ports import Clock, Control

STEP_ROWS = 500  # measured: 20 ms on either store with all their attempts, while other writers wait
CAPTURE_ROWS = 100  # up to 25 MB of raw output
CHANGE_ROWS = 200  # lines of up to 1 MB
STEPS_MAX = 20  # 10,000 jobs looked at in a round
SPEND_S = 0.1  # of each second, while there is something to let go
REST_S = 60.0
CHANGES_S = 3_600.0  # 200 bytes a job or more: 0.7 GB at 1,000 jobs a second
WORKER_S_MIN = 86_400.0  # a worker that died today is still spoken of


class Prune:
    """Keeps the tables from growing for ever."""

    name = "pruning"

    def __init__(
        self, control: Control, retention: Retention, *, changes_s: float = CHANGES_S, clock: Clock
    ) -> None:
        self._control = control
        self._retention = retention
        self._changes_s = changes_s
        self._clock = clock
        kept = (
            retention.succeeded_s,
            retention.cancelled_s,
            retention.discarded_s,
            retention.failed_s,
        )
        self._longest_s = max([WORKER_S_MIN, *(one for one in kept if one is not None)])
        self._after = 0
        self._rest_until = self._workers_at = 0.0

    def once(self) -> Swept:
        """A few steps, or none while there is nothing to let go."""
        begun_at = self._clock.monotonic()
        if begun_at < self._rest_until:
            return NOTHING
        all_gone = self._let_captures_go(begun_at)
        all_gone = self._let_changes_go(begun_at) and all_gone
        if self._retention != Retention():
            all_gone = self._let_jobs_go(begun_at) and all_gone
        self._let_workers_go()
        if all_gone:
            self._rest_until = self._clock.monotonic() + REST_S
        return NOTHING

    def _let_jobs_go(self, begun_at: float) -> bool:
        """A few steps; whether the last of them came to the end of the table."""
        for _ in range(STEPS_MAX):
            pruned = self._control.prune(self._retention, limit=STEP_ROWS, after=self._after)
            self._after = pruned.go_on_after or 0
            if pruned.go_on_after is None:
                return True
            if self._clock.monotonic() - begun_at >= SPEND_S:
                break
        return False

    def _let_captures_go(self, begun_at: float) -> bool:
        """A few steps; whether all are gone whose time is over."""
        for _ in range(STEPS_MAX):
            if self._control.prune_captures(limit=CAPTURE_ROWS) < CAPTURE_ROWS:
                return True
            if self._clock.monotonic() - begun_at >= SPEND_S:
                break
        return False

    def _let_changes_go(self, begun_at: float) -> bool:
        """As captures."""
        for _ in range(STEPS_MAX):
            if self._control.prune_changes(self._changes_s, limit=CHANGE_ROWS) < CHANGE_ROWS:
                return True
            if self._clock.monotonic() - begun_at >= SPEND_S:
                break
        return False

    def _let_workers_go(self) -> None:
        """Now and then, however long the walk over the jobs takes: with it the store adds its tallies up."""
        now = self._clock.monotonic()
        if now >= self._workers_at:
            self._workers_at = now + REST_S
            self._control.prune_workers(self._longest_s, limit=STEP_ROWS)
