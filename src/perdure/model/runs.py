"""Runs: batches of jobs, and their counters."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Struct

from perdure.model.states import FailedReason, State

NANO = 1_000_000_000  # money is counted in whole billionths of a dollar, so that sums are exact


def usd_text(nusd: int) -> str:
    """Billionths of a dollar as a decimal number of dollars, with nothing lost."""
    return f"{nusd // NANO}.{nusd % NANO:09d}"


class RunStatus(StrEnum):
    """What a run can be."""

    RUNNING = "running"  # items are fed or worked on
    PAUSED = "paused"  # by a person, who may resume it
    COMPLETED = "completed"  # over, and as many have succeeded as completed_at asks for
    PARTIAL_SUCCESS = "partial_success"  # over, and as many have as partial_at asks for
    FAILED = "failed"  # over, and fewer have
    ABORTED = "aborted"  # a budget was used up; it may be resumed with another
    CANCELLED = "cancelled"  # by a person, for good


# What a run that went to its end can be called; each has all of its items in, and none of them open.
FINISHED = frozenset({RunStatus.COMPLETED, RunStatus.PARTIAL_SUCCESS, RunStatus.FAILED})

# What is left of such a run stays queued in closed lanes.
CLOSED = frozenset({RunStatus.PAUSED, RunStatus.ABORTED, RunStatus.CANCELLED})


class NewRun(Struct, frozen=True):
    """A run to be made, or found again by (owner, pipeline, name)."""

    id: str
    owner: str
    pipeline: str
    name: str
    settings_json: str = "{}"
    parent: int | None = None


class RunCounts(Struct, frozen=True):
    """A run's jobs, by what has become of them; kept as they move, never counted over the jobs.

    ``attempts``, ``retries``, tokens, cost and ``calls`` (attempts of stages that name an upstream) are of all lives. A job that is given a new life leaves ``failed``.
    """

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    attempts: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_nusd: int = 0
    calls: int = 0

    @property
    def open(self) -> int:
        """Jobs that are queued or processing."""
        return self.total - self.succeeded - self.failed - self.cancelled

    @property
    def processed(self) -> int:
        """Jobs that have succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def cost_usd(self) -> float:
        """What its attempts have cost, by their stages' own word."""
        return self.cost_nusd / NANO


class RunView(Struct, frozen=True):
    """A run as people see it.

    It is *sealed* when all of its items are in. ``kinds`` are its failed jobs by failure kind, ``checked`` the
    count of processed ones at which its budget was last looked at, ``why`` the reason of its status. It is
    over when ``ended_at`` is set; for a cancelled run that is when none of its jobs is open any more.

    ``fed_by`` feeds it or did so last, ``feeding_at`` is since when it is fed (None: whoever fed it has ended), and ``fed_at``
    the last sign of that. One that died leaves an old sign.
    """

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
    sealed_at: datetime | None = None
    why: str = ""
    checked: int = 0
    kinds: Mapping[str, int] = msgspec.field(default_factory=dict)
    fed_by: str | None = None
    feeding_at: datetime | None = None
    fed_at: datetime | None = None


class RunChange(Struct, frozen=True):
    """Another status for a run that still has the one that was seen.

    A run is given a status of `FINISHED` only while it is sealed, has no open job and counts what ``counts`` says.
    ``sealed`` True seals it, False takes that back, None leaves it. ``settings_json`` replaces its settings.
    ``seen_sealed`` is whether it was sealed when it was seen; None does not mind.
    """

    no: int
    seen: RunStatus
    status: RunStatus
    why: str = ""
    counts: RunCounts | None = None
    sealed: bool | None = None
    settings_json: str | None = None
    seen_sealed: bool | None = None


class ItemView(Struct, frozen=True):
    """An item of a run and what has become of it, without its payload. ``error_detail`` is for operators."""

    no: int
    id: str
    key: str | None
    state: State
    result_json: str | None
    label: str | None
    failed_reason: FailedReason | None
    error_kind: str | None
    error_code: str | None
    error_message: str | None
    finished_at: datetime | None
    error_detail: str | None = None
