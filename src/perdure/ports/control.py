"""What operators and the upkeep do, by noun; each says which files of `testing/store_contract/` define what it has to do."""

from collections.abc import Sequence
from typing import Protocol

from perdure.model.access import AccessToken, NewAccessToken
from perdure.model.gates import GateChange, GateRow
from perdure.model.jobs import Busy, Enqueued, Record, Revived, Settled
from perdure.model.operations import (
    BulkChange,
    BulkStep,
    BulkView,
    Deed,
    LaneScope,
    NewBulk,
    NewSchedule,
    Pruned,
    Retention,
    Revival,
    Target,
    Tick,
)
from perdure.model.runs import NewRun, RunChange, RunView


class Control(Protocol):
    """What operators and the upkeep do: guarded, and written down with who did it and why.

    Where a deed names an ``owner``, another owner's job is stale, as one that never was.
    """

    # Jobs: `single_jobs.py`, `revivals.py`, `key_conflicts.py`.

    def cancel(
        self,
        records: Sequence[Record],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Write these ends of open jobs; one that has ended or moved on is stale. ``step`` as in `revive`.

        Nobody waits for a job that its stage completes in a transaction of its own: it is `Busy`.
        """
        ...

    def run_now(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Let queued jobs whose time has not come be due now; any other is stale. ``step`` as in `revive`.

        Counters and error stay. A job that was to stand in line from a later moment on stands there from now
        on, and its deadline comes nearer by as much; one that has stood there keeps its place.
        """
        ...

    def revive(
        self,
        chosen: Sequence[Revival],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Revived]:
        """Give failed jobs a new life; one that is not failed, has moved on, or would stand in a cancelled run, is stale.

        A run that had ended and of which a job lives again is running again. A job stays dead if another with its
        owner, pipeline and key is queued or processing, in whatever run, or was already driven again in this
        ``redrive_run``, however that ended.
        A payload that is replaced is kept with the life that has ended.
        With ``step`` a bulk operation moves on in the same transaction; when it is elsewhere already, or over,
        nothing is done and all are stale.
        """
        ...

    def discard(
        self,
        chosen: Sequence[Target],
        deed: Deed,
        *,
        owner: str | None = None,
        step: BulkStep | None = None,
    ) -> list[Settled | Busy]:
        """Mark dead letters as dealt with; they stay failed and in the books. ``step`` as in `revive`."""
        ...

    # Bulk operations: `bulks.py`, `run_races.py`.

    def add_bulk(self, bulk: NewBulk) -> BulkView:
        """Begin a bulk operation, with the payloads that it brings; the same id finds the same one."""
        ...

    def step_bulk(self, step: BulkStep) -> BulkView | None:
        """Move a bulk operation on; None when it is elsewhere already, or over."""
        ...

    def change_bulk(self, change: BulkChange, deed: Deed) -> BulkView | None:
        """Stop a bulk operation, or set it going again, if it still has the status that was seen."""
        ...

    # Runs: `runs.py`, `run_ends.py`, `run_races.py`.

    def add_run(self, run: NewRun) -> RunView:
        """Make a run, or find the one of that owner, pipeline and name."""
        ...

    def change_run(self, change: RunChange, deed: Deed) -> RunView | None:
        """Give a run another status, if it still has the one that was seen, and the seal where that was looked at.

        One that is paused, aborted or cancelled has its lanes closed by a pause of its own; one that is running
        again has that pause taken away. See `RunChange` for when a run may finish. A cancelled one is over,
        and says so by ``ended_at``, when this is called while none of its jobs is open. None when
        it has moved on, or may not have that status now.
        """
        ...

    def seal_run(self, no: int) -> RunView | None:
        """Say that all items of a run are in; None when there is no such run."""
        ...

    def note_check(self, no: int, checked: int) -> None:
        """Write down at how many processed jobs a run's budget was looked at; never fewer than before."""
        ...

    def note_feeding(self, no: int, by: str, *, ended: bool = False) -> None:
        """Write down that somebody feeds a run now, or has just ended doing so; a sign of life, no lock.

        Several may feed one run: the last sign names its feeder, and ``feeding_at`` is since when signs have come
        without a break of `FEEDER_SILENT_S`. The end of any other feeder changes nothing. A sealed run has no feeder.
        """
        ...

    # Lanes and gates: `closed_lanes.py`.

    def pause(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Close the lanes of a queue, a pipeline or a run; False when they were paused already."""
        ...

    def resume(self, scope: LaneScope, name: str, deed: Deed) -> bool:
        """Take a pause back; False when there was none."""
        ...

    def change_gate(self, change: GateChange, deed: Deed) -> GateRow | None:
        """Write a gate's row where its generation is as seen; None when it has moved on."""
        ...

    # Schedules and duties: `schedules.py`.

    def put_schedule(self, schedule: NewSchedule) -> None:
        """Make a schedule; one of that name and rule keeps its next moment."""
        ...

    def drop_schedule(self, name: str) -> bool:
        """Forget a schedule; False when there was none."""
        ...

    def tick(self, tick: Tick) -> Enqueued | None:
        """Enqueue the job of one moment and advance the schedule; None when another has done it."""
        ...

    def take_duty(self, name: str, *, worker: int, ttl_s: float) -> bool:
        """Take or keep a duty that one living worker at a time has, until its time runs out.

        It is written only when it is free, or ours and less than half of ``ttl_s`` is left.
        """
        ...

    # Access: `access_tokens.py`, `owner_rates.py`.

    def add_access_token(self, token: NewAccessToken, deed: Deed) -> AccessToken:
        """Keep an access token; the same id finds the same one.

        One without scopes is a login; with each new one those go that have expired.
        """
        ...

    def revoke_access_token(self, id: str, deed: Deed) -> bool:
        """Let a token open nothing any more; False when there is none of that id that did."""
        ...

    def take_request(self, owner: str, *, burst: int, every_s: float) -> float:
        """Let a request of an owner in, or say after how many seconds one will be; 0.0 when it is in.

        An owner has a bucket of ``burst``, into which one comes back every ``every_s``. Who is refused takes nothing.
        """
        ...

    # What is let go: `pruning.py`, `captures.py`, `change_feed.py`.

    def prune(self, retention: Retention, *, limit: int, after: int = 0) -> Pruned:
        """Look at up to ``limit`` jobs above a number and let go what may go; the books keep count.

        What belongs to a run that is not over stays: its keys say which of its items it had.
        """
        ...

    def prune_workers(self, kept_s: float, *, limit: int) -> int:
        """Forget up to ``limit`` workers that ended longer ago and whose jobs are all settled; how many.

        Attempts keep the numbers of their workers, which are never given again.
        """
        ...

    def prune_captures(self, *, limit: int) -> int:
        """Forget up to ``limit`` captures whose time is over, the longest over first, then by id; how many."""
        ...

    def prune_changes(self, kept_s: float, *, limit: int) -> int:
        """Forget up to ``limit`` lines of the change feed that everybody could read for ``kept_s``; how many.

        Where the feed stands is marked now and then, by this call: a line goes when it was there at a mark that is
        older. So it stays a little longer, and one that is committed late stays for as long as any other.
        """
        ...
