"""Runs: batches of jobs, and their counters."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RunStatus(StrEnum):
    """What a run can be."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    PARTIAL_SUCCESS = "partial_success"
    FAILED = "failed"
    ABORTED = "aborted"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be made, or found again by (owner, pipeline, name)."""

    id: str
    owner: str
    pipeline: str
    name: str
    settings_json: str = "{}"
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class RunCounts:
    """A run's jobs, by what has become of them; kept as they move, never counted over the jobs.

    ``attempts`` and ``retries`` are of all lives. A job that is given a new life leaves ``failed``.
    """

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    attempts: int = 0
    retries: int = 0

    @property
    def open(self) -> int:
        """Jobs that are queued or processing."""
        return self.total - self.succeeded - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as people see it."""

    no: int
    id: str
    owner: str
    pipeline: str
    name: str
    status: RunStatus
    parent: int | None
    settings_json: str
    created_at: datetime
    changed_at: datetime
    ended_at: datetime | None
    counts: RunCounts
