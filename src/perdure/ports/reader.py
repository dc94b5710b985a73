"""Plain reads, by noun; each says which files of `testing/store_contract/` define what it has to say."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.access import AccessToken
from perdure.model.changes import ChangePage
from perdure.model.diagnoses import StoreCondition
from perdure.model.filters import DEAD_LETTERS, EVERY_JOB, JobFilter
from perdure.model.gates import GateLook, GateRow
from perdure.model.limits import CHANGE_PAGE_ROWS, COUNT_MAX
from perdure.model.operations import BulkView, LanePause, LoggedDeed, LoggedRefusal, ScheduleView
from perdure.model.runs import ItemView, RunView
from perdure.model.views import (
    AttemptView,
    Books,
    CaptureView,
    ChangedJob,
    DeadGroup,
    DeathCount,
    Depth,
    FailureGroup,
    Finding,
    Flow,
    JobView,
    LaneView,
    PayloadView,
    Preview,
    RunFigures,
    StoreFigures,
)
from perdure.model.workers import WorkerView


class Reader(Protocol):
    """Plain reads for screens and reports.

    Where an ``owner`` is named, what is another's is not there, as what never was; None asks as an operator, who sees all.
    What is read by number belongs to something that was read by its id before.
    """

    # Jobs: `reads.py`, `owner_lists.py`, `single_jobs.py`, `key_conflicts.py`, `payloads.py`.

    def job(self, id: str, *, owner: str | None = None) -> JobView | None:
        """One job."""
        ...

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; ``before`` continues below a job number."""
        ...

    def jobs_ended(self, ids: Sequence[str]) -> dict[str, JobView | None]:
        """Of these jobs, those that have ended, and None for those that are not there; open ones are left out."""
        ...

    def jobs_changed(
        self, chosen: JobFilter, *, since: datetime, after: int = 0, limit: int = 50
    ) -> list[ChangedJob]:
        """An owner's jobs by their last change, from a moment on, above a number within it; the oldest change first.

        A change is that a job came in, that an attempt of it ended, or that it ended, was cancelled, had a new life,
        was discarded or run now. The filter must name an owner. Who goes on from the moment and the number of the last one
        sees every change that was committed by then; one that is committed later bears the moment of its writing,
        so a client that polls begins again some seconds before the last moment that it saw.
        """
        ...

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        ...

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        ...

    def payloads(self, job_no: int) -> list[PayloadView]:
        """The payloads that a job had before the one that it has, oldest first."""
        ...

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """For these jobs, the ids of others of their owner, pipeline and key that are queued or processing."""
        ...

    # Captures: `captures.py`.

    def captures(self, job_no: int) -> list[CaptureView]:
        """What was put aside in a job's attempts, oldest first."""
        ...

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """One capture, if its job is that owner's; None as owner is an operator, who may read all."""
        ...

    # Dead letters: `dead_letters.py`, `reads.py`.

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """The dead letters of a filter by fingerprint, most frequent first."""
        ...

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        ...

    # Bulk operations: `bulks.py`, `single_jobs.py`.

    def bulks(
        self,
        *,
        running: bool = False,
        id: str | None = None,
        owner: str | None = None,
        limit: int = 50,
    ) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        ...

    def bulk_payloads(self, bulk: int, keys: Sequence[str]) -> dict[str, str]:
        """The payloads, as JSON, that a bulk operation which is not done brings for these keys."""
        ...

    def refusals(self, bulk: int, *, after: int = 0, limit: int = 500) -> list[LoggedRefusal]:
        """What a bulk operation has left as it was, by job number above ``after``."""
        ...

    # Runs: `runs.py`, `run_counts.py`, `run_items.py`.

    def run(self, id: str, *, owner: str | None = None) -> RunView | None:
        """One run, by its id, its counters summed."""
        ...

    def runs(
        self,
        *,
        pipeline: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        no: int | None = None,
        live: bool = False,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Runs, newest first; with ``live`` only those that are not over; ``before`` continues below a number."""
        ...

    def items(
        self, run: int, *, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run in their order, above a job number; with ``redriven``, what was driven again in it."""
        ...

    def items_ended(
        self, run: int, *, since: datetime, after: int = 0, redriven: bool = False, limit: int = 500
    ) -> list[ItemView]:
        """The items of a run that have ended, by when they did, from a moment on, above a number within it."""
        ...

    def run_figures(self, run: int) -> RunFigures:
        """What the attempts of a run's jobs say; walks over all of them.

        Of dead letters that the run drove again, only the lives that it began count. These go on counting here when
        another run drives the same letters again.
        """
        ...

    # Tallies: `tallies.py`, `enqueue.py`.

    def depths(self) -> list[Depth]:
        """How many jobs stand where, by queue, pipeline and stage; from the tallies, no job is counted."""
        ...

    def flows(self, *, minutes: bool = False) -> list[Flow]:
        """What has happened since the store was made; with ``minutes``, in each of the last sixty of them."""
        ...

    def deaths(self) -> list[DeathCount]:
        """What jobs have died of, by kind and code, most frequent first."""
        ...

    def figures(self) -> StoreFigures:
        """What stands where, what has happened, gates and workers, all at one moment and without counting a job."""
        ...

    def open_jobs(self, owner: str) -> int:
        """How many jobs of an owner are queued or in work."""
        ...

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        ...

    # Lanes and gates: `closed_lanes.py`, `gates.py`.

    def lanes(self) -> list[LaneView]:
        """All lanes, what closes them, and how many jobs wait in each."""
        ...

    def first_due(self) -> dict[int, datetime]:
        """For each lane with jobs that can run now, suspects apart, since when the first in line could."""
        ...

    def held_lanes(self, lanes: Collection[int]) -> frozenset[int]:
        """Of these lanes, those whose upstream's or credential's gate lets nothing pass."""
        ...

    def pauses(self) -> list[LanePause]:
        """What is paused."""
        ...

    def gates(self) -> list[GateRow]:
        """Every gate that has a row."""
        ...

    def gate(self, name: str) -> GateRow | None:
        """One gate; None when it has no row, and so is flowing."""
        ...

    def look(self, names: Sequence[str]) -> GateLook:
        """All there is about these gates and their parents: rows, samples of all who are alive, and slices."""
        ...

    # Workers: `workers.py`.

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
        ...

    # Schedules: `schedules.py`.

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        ...

    # Access: `access_tokens.py`.

    def access_token(self, id: str) -> AccessToken | None:
        """One access token, good or not."""
        ...

    def access_tokens(self, *, limit: int = 500) -> list[AccessToken]:
        """All access tokens but logins, newest first."""
        ...

    # What was done and what has changed: `revivals.py`, `change_feed.py`.

    def deeds(
        self, *, subject: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[LoggedDeed]:
        """The audit log, or what it has about one subject, newest first; ``before`` continues below a line's number."""
        ...

    def changes(
        self, after: str | None = None, *, until: str | None = None, limit: int = CHANGE_PAGE_ROWS
    ) -> ChangePage:
        """The change feed after a cursor; None begins now, and gives only a cursor.

        Who goes on after the cursor of each page hears of every change that was committed, once, and of those of one job
        in their order. A transaction that commits late is told late, and holds up nothing but its own entries. ``until``
        is a cursor at which ``more`` was False: what came after it is left out. `CursorTooOld` when entries after the
        cursor have been let go.
        """
        ...

    # The store itself: `conditions.py`, `run_ends.py`, `shared_connections.py`.

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def audit(self, *, run: int | None = None) -> list[Finding]:
        """Everything in the tables that ought not to be so; with ``run``, only of that run and its jobs."""
        ...

    def condition(self) -> StoreCondition:
        """What the store says of itself and of the ground that it stands on; for a person, now and then."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
