"""Plain reads."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.model.filters import DEAD_LETTERS, EVERY_JOB, JobFilter
from perdure.model.gates import GateLook, GateRow
from perdure.model.limits import COUNT_MAX
from perdure.model.operations import BulkView, LanePause, LoggedDeed, LoggedRefusal, ScheduleView
from perdure.model.runs import ItemView, RunView
from perdure.model.views import (
    AttemptView,
    Books,
    CaptureView,
    DeadGroup,
    Depths,
    FailureGroup,
    Finding,
    JobView,
    LaneView,
    PayloadView,
    Preview,
    RunFigures,
)
from perdure.model.workers import WorkerView


class Reader(Protocol):
    """Plain reads for screens and reports."""

    def job(self, id: str) -> JobView | None:
        """One job."""
        ...

    def jobs(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> list[JobView]:
        """Jobs, newest first; ``before`` continues below a job number."""
        ...

    def preview(self, chosen: JobFilter, *, count_max: int = COUNT_MAX) -> Preview:
        """How many jobs a filter means, counted up to a bound, and how those have ended."""
        ...

    def depths(self, *, count_max: int = COUNT_MAX) -> Depths:
        """How many jobs stand where, each counted up to a bound."""
        ...

    def lanes(self, *, count_max: int = COUNT_MAX) -> list[LaneView]:
        """All lanes, what closes them, and how many jobs wait in each, counted up to a bound."""
        ...

    def attempts(self, job_no: int) -> list[AttemptView]:
        """The attempts of one job, oldest first."""
        ...

    def payloads(self, job_no: int) -> list[PayloadView]:
        """The payloads that a job had before the one that it has, oldest first."""
        ...

    def books(self, *, pipeline: str | None = None) -> Books:
        """How many items came in, and where they are."""
        ...

    def dead_groups(self, chosen: JobFilter = DEAD_LETTERS, *, limit: int = 50) -> list[DeadGroup]:
        """The dead letters of a filter by fingerprint, most frequent first."""
        ...

    def failures(self, *, pipeline: str | None = None) -> list[FailureGroup]:
        """Failed jobs grouped by how they ended, most frequent first."""
        ...

    def workers(self) -> list[WorkerView]:
        """All workers that are alive or have unsettled jobs, then the newest dead ones."""
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

    def run(self, id: str) -> RunView | None:
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

        Of dead letters that the run drove again, only the lives that it began count; they do for good, whoever drives
        the same ones again later.
        """
        ...

    def captures(self, job_no: int) -> list[CaptureView]:
        """What was put aside in a job's attempts, oldest first."""
        ...

    def capture(self, id: str, *, owner: str | None) -> tuple[CaptureView, bytes] | None:
        """One capture, if its job is that owner's; None as owner is an operator, who may read all."""
        ...

    def rivals(self, job_nos: Sequence[int]) -> dict[int, str]:
        """For these jobs, the ids of others of their owner, pipeline and key that are queued or processing."""
        ...

    def now(self) -> datetime:
        """The store's clock."""
        ...

    def schedules(self, *, due: bool = False) -> list[ScheduleView]:
        """Schedules by next moment; with ``due`` only those whose moment has come."""
        ...

    def bulks(
        self, *, running: bool = False, id: str | None = None, limit: int = 50
    ) -> list[BulkView]:
        """Bulk operations, newest first; with ``running`` only those under way."""
        ...

    def bulk_payloads(self, bulk: int, keys: Sequence[str]) -> dict[str, str]:
        """The payloads, as JSON, that a bulk operation which is not done brings for these keys."""
        ...

    def refusals(self, bulk: int, *, after: int = 0, limit: int = 500) -> list[LoggedRefusal]:
        """What a bulk operation has left as it was, by job number above ``after``."""
        ...

    def deeds(self, *, limit: int = 50, before: int | None = None) -> list[LoggedDeed]:
        """The audit log, newest first; ``before`` continues below a line's number."""
        ...

    def audit(self, *, run: int | None = None) -> list[Finding]:
        """Everything in the tables that ought not to be so; with ``run``, only of that run and its jobs."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
