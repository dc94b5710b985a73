"""What the rows of a store say about a run, and that the log and a scrape of the same run say exactly that."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

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


class ToldEnd(NamedTuple):
    """What is compared of the line and of the row of an attempt's end."""

    event: str
    job_id: str
    request_id: str | None
    owner: str | None
    pipeline: str
    run: int | None
    stage: str
    attempt: int
    worker: int | None
    duration_ms: float
    error_kind: str | None
    error_code: str | None
    upstream_status: int | None
    delay_ms: int | None


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

    def ends(self) -> list[ToldEnd]:
        """What is to be told of each attempt, in the order of `tries`."""
        return [end_of(_line_of(job, one)) for job, one in self.tries]

    def dead_waiting(self) -> list[JobView]:
        """Those that have failed without an attempt: their time was over."""
        attempted = {job.no for job, one in self.tries if one.status is AttemptStatus.FAILED}
        return [one for one in self.jobs if one.state is State.FAILED and one.no not in attempted]


def event_of(job: JobView, one: AttemptView) -> str:
    if one.status is AttemptStatus.FAILED:
        return "job_failed"
    if one.status is not AttemptStatus.SUCCESS:
        is_released = one.status is AttemptStatus.INTERRUPTED and one.kind is None
        return "job_released" if is_released else "job_retried"
    return "job_succeeded" if one.settled_at == job.finished_at else "job_advanced"


def check_lines(
    rows: Rows, lines: Iterable[dict[str, Any]], killed: frozenset[int] = frozenset()
) -> Counter[ToldEnd]:
    """Each attempt has one line with what its row says: R103, R104, R107, R109; and so have the rows of R106.

    The answer is what nobody has told: a process that was ``killed`` took the last of its lines with it.
    """
    ended = [one for one in lines if one["event"] in RESULTS and "duration_ms" in one]
    told = Counter(end_of(one) for one in ended)
    happened = Counter(rows.ends())
    untold = happened - told
    assert told - happened == Counter()
    assert [one for one in untold if one.worker not in killed] == []
    counted = [one for one in ended if "attempts_max" in one]
    assert [one for one in counted if one["attempts_max"] < one["failures"]] == []
    began = Counter(
        (one["job_id"], one["stage"], one["attempt"], one["worker"])
        for one in lines
        if one["event"] == "job_claimed"
    )
    claimed = Counter((job.id, one.stage, one.number, one.worker) for job, one in rows.tries)
    assert began - claimed == Counter()
    assert {worker for *_, worker in claimed - began} <= killed
    ends = Counter(_agreed(one) for one in ended)
    ends.update(_agreed(one._asdict()) for one in untold.elements())
    ends["processing"], ends["queued"] = claimed.total(), len(rows.jobs)
    ends["expired"] += len(rows.dead_waiting())
    found = Counter({name: rows.agreed.get(name, 0) for name in ends})
    found["retry"] += rows.agreed.get("waiting", 0)  # as the upstream has asked
    assert found == ends
    return untold


def _agreed(line: dict[str, Any]) -> str:
    if (line["event"], line.get("error_kind")) == ("job_retried", "worker_lost"):
        return "interrupted"
    return "expired" if line.get("reason") == "expired" else AGREED[line["event"]]


def end_of(line: dict[str, Any]) -> ToldEnd:
    return ToldEnd(*(line.get(name) for name in ToldEnd._fields))


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
    """The numbers of R102 and R105 that the store has are what the rows add up to."""
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
    waits = sum(one.status is AttemptStatus.WAITING for one in again)
    assert seen.total("perdure_waits_total") == waits
    assert seen.total("perdure_attempts_total") == len(rows.tries)


def check_shares(rows: Rows, seen: Scraped) -> None:
    """The five numbers of R102, where one process has done it all."""
    counted, ends = figures_of(rows, rows.tries, {}), len(rows.tries)
    failed = counted["failed"] + len(rows.dead_waiting())
    good = sum(event_of(job, one) == "job_succeeded" for job, one in rows.tries)
    retries = sum(one.status is AttemptStatus.RETRYING for _, one in rows.tries)
    assert shares(seen, rows.pipelines) == pytest.approx(
        {
            "retry rate": retries / ends,
            "final failure rate": failed / (failed + good),
            "mean time to success": counted["age_ms"] / good / 1000,
            "share of schema failures": counted["invalid_output"] / ends,
            "share of captures": counted["captured"] / ends,
        },
        abs=0.001,
    )


Tries = Iterable[tuple[JobView, AttemptView]]
Upstreams = Mapping[tuple[str, str], str]  # by pipeline and stage


def figures_of(rows: Rows, tries: Tries, upstreams: Upstreams) -> Counter[str]:
    """What processes must have counted that told of these attempts: the rest of R102 and R105."""
    found: Counter[str] = Counter()
    for job, one in tries:
        event = event_of(job, one)
        found[RESULTS[event]] += 1
        found["captured"] += (job.no, one.token) in rows.captured
        if one.kind is not None:
            found[one.kind] += 1
        if event == "job_retried":
            found["delay_ms"] += round((one.delay_s or 0.0) * 1000)
        if event == "job_succeeded":
            age = one.claimed_at - job.ordered_at + timedelta(seconds=one.elapsed_s)
            found["age_ms"] += round(age.total_seconds() * 1000)
        upstream = upstreams.get((job.pipeline, one.stage))
        # of one that has expired, the time was over before the call
        if upstream is not None and job.failed_reason is not FailedReason.EXPIRED:
            found.update(_call(upstream, one))
    return +found


def _call(upstream: str, one: AttemptView) -> dict[str, int]:
    """A call in the histogram of its upstream: from its buckets comes the 95th percentile."""
    took_s = round(one.elapsed_s * 1000, 1) / 1000
    return {
        f"{upstream} calls": 1,
        f"{upstream} call_ms": round(took_s * 1000),
        **{f"{upstream} within {bound}": int(took_s <= bound) for bound in CALL_SECONDS.buckets},
        f"{upstream} failed": int(one.kind in GROUPS["transient"]),
        f"{upstream} limited": int(one.kind == "rate_limited"),
    }


def figures_in(seen: Scraped, upstreams: Upstreams) -> Counter[str]:
    """The same, as a scrape has it."""
    name = CALL_SECONDS.name
    found = _by(seen, "perdure_attempt_seconds_count", "result")
    found.update(_by(seen, "perdure_attempt_failures_total", "kind"))
    found["captured"] = round(seen.total("perdure_attempts_captured_total"))
    found["delay_ms"] = round(seen.total("perdure_retry_delay_seconds_sum") * 1000)
    found["age_ms"] = round(seen.total("perdure_time_to_success_seconds_sum") * 1000)
    for one in set(upstreams.values()):
        found[f"{one} calls"] = round(seen.total(f"{name}_count", upstream=one))
        found[f"{one} call_ms"] = round(seen.total(f"{name}_sum", upstream=one) * 1000)
        for bound in CALL_SECONDS.buckets:
            fast = seen.total(f"{name}_bucket", upstream=one, le=str(bound))
            found[f"{one} within {bound}"] = round(fast)
        for outcome in ("failed", "limited"):
            said = seen.total(f"{name}_count", upstream=one, outcome=outcome)
            found[f"{one} {outcome}"] = round(said)
    return +found


def check_figures(found: Counter[str], least: Counter[str], most: Counter[str]) -> None:
    """Processes have counted no less and no more; a sum may be off by a millisecond for each attempt."""
    assert set(least) <= set(found) <= set(most)
    ends = sum(most[result] for result in set(RESULTS.values()))
    for name in found:
        off = ends if name.endswith("_ms") else 0
        assert least[name] - off <= found[name] <= most[name] + off, name


def check_gate(rows: Rows, seen: Scraped, gate: str) -> None:
    """One is shut by a person, and its job waits behind it."""
    states = {
        one["gate"]: one["state"]
        for one in seen.labels("perdure_gate_state")
        if seen("perdure_gate_state", **one) == 1
    }
    assert states[gate] == "held"
    assert set(states.values()) - {"held"} <= {"flowing"}
    held_s = seen("perdure_gate_held_seconds", gate=gate)
    (waiting,) = [job for job in rows.jobs if job.state is State.QUEUED]
    shut_at = rows.shut_at[gate]
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
