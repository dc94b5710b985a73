"""Runs and their reports as JSON, for the HTTP API and for `--json` alike; see `views.py`."""

from typing import Any

import msgspec
from msgspec import Struct

from perdure.app.surface.moments import Moment
from perdure.app.surface.store_session import Report
from perdure.model.runs import RunView, usd_text
from perdure.model.views import Errors
from perdure.surfaces.views import all_of, same_fields


class RunCount(Struct, frozen=True):
    """How many items stand where."""

    total: int
    open: int
    succeeded: int
    failed: int
    cancelled: int


class RunShown(Struct, frozen=True):
    """A run. It is sealed when all of its items are in, and over when ``ended_at`` is set."""

    id: str
    pipeline: str
    name: str
    owner: str
    status: str
    why: str
    counts: RunCount
    cost_usd: str
    created_at: Moment
    sealed_at: Moment | None
    ended_at: Moment | None


class ReportedRun(Struct, frozen=True):
    """The run of a report."""

    id: str
    name: str
    pipeline: str
    owner: str
    status: str
    why: str
    created_at: Moment
    ended_at: Moment | None


class ReportedCounts(RunCount, frozen=True):
    """What has become of its items, and what that took."""

    attempts: int
    retries: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost_usd: str
    failed_by_kind: dict[str, int]


class ReportedStage(Struct, frozen=True):
    """A stage of a run; durations are of attempts that succeeded."""

    stage: str
    attempts: int
    succeeded: int
    retried: int
    failed: int
    retry_rate: float
    failure_rate: float
    p50_s: float | None
    p95_s: float | None
    tokens_in: int
    tokens_out: int
    cost_usd: str
    wasted_usd: str


class ReportedWaste(Struct, frozen=True):
    """Attempts that did not succeed, and what they cost."""

    attempts: int
    wasted_attempts: int
    wasted_share: float
    cost_usd: str
    wasted_usd: str


class RunReport(Struct, frozen=True):
    """How a run went. ``retries`` are its ended items by how many they needed; ``final`` errors ended their item."""

    run: ReportedRun
    counts: ReportedCounts
    retries: dict[str, int]
    errors: list[Errors]
    stages: list[ReportedStage]
    waste: ReportedWaste
    shares: dict[str, float]
    time_to_success_s: dict[str, float | None]


def run_shown(run: RunView) -> RunShown:
    """A run as everybody sees it."""
    counts = run.counts
    count = RunCount(counts.total, counts.open, counts.succeeded, counts.failed, counts.cancelled)
    plain = {**same_fields(RunShown, run), "counts": count}
    return RunShown(**plain, cost_usd=usd_text(counts.cost_nusd))


def report_shown(report: Report) -> RunReport:
    """The report of a run."""
    return msgspec.convert(report.as_json(), RunReport)


def all_of_run(run: RunView) -> dict[str, Any]:
    """A run for operators."""
    plain = all_of(run_shown(run), run)
    plain["counts"] |= {"open": run.counts.open, "cost_usd": usd_text(run.counts.cost_nusd)}
    return plain
