"""What the rows of a store say about a run, and that the log and a scrape of the same run say exactly that."""

import json
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from perdure import App
from perdure.engine.gates.changes import gate_of
from perdure.model.kinds import GROUPS
from perdure.model.metrics import CALL_SECONDS
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.views import AttemptView, JobView
from tests.observers.scraping import Scraped, shares

RESULTS = {
    "job_advanced": "succeeded",
    "job_succeeded": "succeeded",
    "job_retried": "retried",
    "job_failed": "failed",
    "job_released": "released",
}
# The names that were agreed for rows of events (R106), by those of the log.
AGREED = {
    "job_retried": "retry",
    "job_advanced": "advanced",
    "job_succeeded": "complete",
    "job_failed": "failed",
    "job_released": "interrupted",
}


class Rows:
    """The jobs of a store and their attempts, read when all is done."""

    def __init__(self, app: App) -> None:
        reader = app._session.opened.reader
        self.jobs = reader.jobs(limit=500)
        self.tries: list[tuple[JobView, AttemptView]] = [
            (job, one) for job in reversed(self.jobs) for one in reader.attempts(job.no)
        ]
        self.captured = {
            (job.no, one.token) for job in self.jobs for one in reader.captures(job.no)
        }
        self.shut_at = {row.name: gate_of(row).shut_at for row in reader.gates()}
        with sqlite3.connect(app.url.removeprefix("sqlite:///")) as cx:
            asked = "SELECT event, count(*) FROM perdure_job_events GROUP BY event"
            self.agreed: dict[str, int] = dict(cx.execute(asked).fetchall())
        cx.close()

    @property
    def pipelines(self) -> set[str]:
        return {job.pipeline for job in self.jobs}

    def dead_waiting(self) -> list[JobView]:
        """Those that have failed without an attempt: their time was over."""
        attempted = {job.no for job, one in self.tries if one.status is AttemptStatus.FAILED}
        return [one for one in self.jobs if one.state is State.FAILED and one.no not in attempted]


def event_of(job: JobView, one: AttemptView) -> str:
    if one.status is not AttemptStatus.SUCCESS:
        names = {AttemptStatus.FAILED: "job_failed", AttemptStatus.INTERRUPTED: "job_released"}
        return names.get(one.status, "job_retried")
    return "job_succeeded" if one.settled_at == job.finished_at else "job_advanced"


def check_lines(rows: Rows, lines: Iterable[dict[str, Any]]) -> None:
    """Each attempt has one line with what its row says: R103, R104, R107, R109; and so have the rows of R106."""
    ended = [one for one in lines if one["event"] in RESULTS and "duration_ms" in one]
    told = Counter(_said(one) for one in ended)
    assert told == Counter(_said(_line_of(job, one)) for job, one in rows.tries)
    counted = [one for one in ended if "error_kind" in one and one.get("reason") != "expired"]
    assert [one for one in counted if one["attempts_max"] < one["failures"]] == []
    began = Counter(
        (one["job_id"], one["stage"], one["attempt"], one["worker"])
        for one in lines
        if one["event"] == "job_claimed"
    )
    assert began == Counter((job.id, one.stage, one.number, one.worker) for job, one in rows.tries)
    ends = Counter(_agreed(one) for one in ended)
    ends["processing"], ends["queued"] = began.total(), len(rows.jobs)
    ends["expired"] += len(rows.dead_waiting())
    found = Counter({name: rows.agreed.get(name, 0) for name in ends})
    found["retry"] += rows.agreed.get("waiting", 0)  # as the upstream has asked
    assert found == ends


def _agreed(line: dict[str, Any]) -> str:
    return "expired" if line.get("reason") == "expired" else AGREED[line["event"]]


_COMPARED = (
    "event", "job_id", "request_id", "owner", "pipeline", "run", "stage", "attempt", "worker", "duration_ms",
    "error_kind", "error_code", "upstream_status", "delay_ms",
)  # fmt: skip


def _said(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in _COMPARED)


def _line_of(job: JobView, one: AttemptView) -> dict[str, Any]:
    met = json.loads(one.evidence_json or "{}")
    return {
        "event": event_of(job, one),
        "job_id": job.id,
        "request_id": job.request_id,
        "owner": job.owner or None,
        "pipeline": job.pipeline,
        "run": job.run,
        "stage": one.stage,
        "attempt": one.number,
        "worker": one.worker,
        "duration_ms": round(one.elapsed_s * 1000, 1),
        "error_kind": one.kind,
        "error_code": one.code,
        "upstream_status": met.get("status"),
        "delay_ms": None if one.delay_s is None else round(one.delay_s * 1000),
    }


def check_scrape(rows: Rows, seen: Scraped) -> None:
    """Every number of R102 and R105 is what the rows add up to."""
    created = Counter(job.pipeline for job in rows.jobs)
    assert _by(seen, "perdure_jobs_created_total", "pipeline") == created
    ended = Counter((job.pipeline, event_of(job, one)) for job, one in rows.tries)
    for pipeline in rows.pipelines:
        late = sum(one.pipeline == pipeline for one in rows.dead_waiting())
        for state, event in (("succeeded", "job_succeeded"), ("failed", "job_failed")):
            here = ended[pipeline, event] + (late if state == "failed" else 0)
            assert seen.total("perdure_jobs_ended_total", pipeline=pipeline, state=state) == here
    codes = Counter(one.code for job, one in rows.tries if event_of(job, one) == "job_failed")
    codes.update(one.error_code for one in rows.dead_waiting())
    assert _by(seen, "perdure_jobs_failed_total", "code") == codes
    stood = Counter(job.state.value for job in rows.jobs)
    stood["held"] = stood.pop("queued")  # behind the gate that is shut
    assert +_by(seen, "perdure_jobs", "state") == stood
    again = [one for job, one in rows.tries if event_of(job, one) == "job_retried"]
    counted = sum(one.status is AttemptStatus.RETRYING for one in again)
    assert seen.total("perdure_retries_total") == counted
    assert seen.total("perdure_waits_total") == len(again) - counted
    delays_s = sum(one.delay_s or 0.0 for one in again)
    assert seen.total("perdure_retry_delay_seconds_sum") == pytest.approx(
        delays_s, abs=0.001 * len(again)
    )
    results = Counter(RESULTS[event_of(job, one)] for job, one in rows.tries)
    assert _by(seen, "perdure_attempt_seconds_count", "result") == results
    kinds = Counter(one.kind for _, one in rows.tries if one.kind is not None)
    assert _by(seen, "perdure_attempt_failures_total", "kind") == kinds
    _check_shares(rows, seen, counted)


def _check_shares(rows: Rows, seen: Scraped, retries: int) -> None:
    attempts = len(rows.tries)
    invalid = sum(one.kind in ("invalid_output", "truncated_output") for _, one in rows.tries)
    ends = Counter(event_of(job, one) for job, one in rows.tries)
    failed = ends["job_failed"] + len(rows.dead_waiting())
    ages_s = [
        (one.claimed_at - job.ordered_at + timedelta(seconds=one.elapsed_s)).total_seconds()
        for job, one in rows.tries
        if event_of(job, one) == "job_succeeded"
    ]
    assert shares(seen, rows.pipelines) == pytest.approx(
        {
            "retry rate": retries / attempts,
            "final failure rate": failed / (failed + ends["job_succeeded"]),
            "mean time to success": sum(ages_s) / len(ages_s),
            "share of schema failures": invalid / attempts,
            "share of captures": len(rows.captured) / attempts,
        },
        abs=0.001,
    )


def check_calls(rows: Rows, seen: Scraped, upstream_of: dict[str, str]) -> None:
    """The latency of upstreams by bucket, so its 95th percentile; how they answer; and the gate that is shut (R105)."""
    called = [
        (upstream_of[job.pipeline], one)
        for job, one in rows.tries
        if job.pipeline in upstream_of
        and one.stage == "ask"
        # whose time was over before the call
        and job.failed_reason is not FailedReason.EXPIRED
    ]
    name = CALL_SECONDS.name
    for upstream in set(upstream_of.values()):
        took_s = [round(one.elapsed_s * 1000, 1) / 1000 for whom, one in called if whom == upstream]
        assert seen.total(f"{name}_count", upstream=upstream) == len(took_s) > 0
        assert seen.total(f"{name}_sum", upstream=upstream) == pytest.approx(sum(took_s), abs=0.01)
        within = Counter(bisect_left(CALL_SECONDS.buckets, one) for one in took_s)
        for place, bound in enumerate(CALL_SECONDS.buckets):
            fast = sum(within[one] for one in range(place + 1))
            assert seen.total(f"{name}_bucket", upstream=upstream, le=str(bound)) == fast
        bad = sum(one.kind in GROUPS["transient"] for whom, one in called if whom == upstream)
        limited = sum(one.kind == "rate_limited" for whom, one in called if whom == upstream)
        assert seen.total(f"{name}_count", upstream=upstream, outcome="failed") == bad
        assert seen.total(f"{name}_count", upstream=upstream, outcome="limited") == limited


def check_gate(rows: Rows, seen: Scraped) -> None:
    """One is shut by a person, and its job waits behind it."""
    states = {
        one["gate"]: one["state"]
        for one in seen.labels("perdure_gate_state")
        if seen("perdure_gate_state", **one) == 1
    }
    assert states["vendor"] == "held"
    assert set(states.values()) - {"held"} <= {"flowing"}
    held_s = seen("perdure_gate_held_seconds", gate="vendor")
    (waiting,) = [job for job in rows.jobs if job.state is State.QUEUED]
    shut_at = rows.shut_at["vendor"]
    assert shut_at is not None
    due_s = seen("perdure_queue_oldest_due_seconds", queue="default", state="held")
    # The gate was shut before the job came, and both are read at one moment.
    assert held_s - due_s == pytest.approx((waiting.due_at - shut_at).total_seconds(), abs=0.001)
    assert held_s > due_s > 0


def _by(seen: Scraped, metric: str, label: str) -> Counter[str]:
    """The sums of a metric's series by one of its labels."""
    found: Counter[str] = Counter()
    for one in seen.labels(metric):
        found[one[label]] += int(seen(metric, **one))
    return found
