"""What the metrics are called, what each says and where it is read: one table for the collector, the alert rules and the docs.

A metric of the *store* is read from its tables, so any one process tells it for all: over several processes take the largest.
A metric of the *process* is counted by whoever does the work: over several processes take the sum. A label has few values:
names that an app declares, and words of ours. Ids, owners and messages are never among them.
"""

from typing import Literal

from msgspec import Struct

Source = Literal["store", "process"]

_CALL_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_JOB_S = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0)
_TURN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

OTHER_CODE = "other"


class Metric(Struct, frozen=True):
    """One metric. ``buckets`` are the upper bounds of a histogram, in seconds."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    source: Source
    sentence: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a series of it has: a histogram one for each bucket, the last being unbounded, and the sum."""
        return len(self.buckets) + 2 if self.buckets else 1


LABELS: dict[str, str] = {
    "queue": "the queue",
    "pipeline": "the pipeline",
    "stage": "the stage",
    "state": "of jobs: `ready` (can be claimed now), `scheduled` (due later), `retrying` (due later, after a failure), `held` "
    "(queued behind a gate that does not flow), `paused` (queued, and a person has paused it), `processing`, "
    "`succeeded`, `failed`, `cancelled`; of a gate: `flowing`, `held`, `probing`",
    "reason": "why a job has failed: `fatal`, `exhausted`, `crashed`, `expired`",
    "kind": "the [kind](kinds.md) of the failure",
    "code": "the public code of the failure; of one kind in one stage the first 20, all others are `other`",
    "direction": "of tokens: `in`, `out`",
    "gate": "the upstream or the credential that the gate stands before",
    "upstream": "the upstream that was called",
    "outcome": "of a call: `ok`; `failed`, which speaks against the upstream; `limited`, turned away for being too many; "
    "`other`, which says nothing about it",
    "result": "what became of an attempt: `succeeded`, `retried`, `failed`, `released`, `cancelled`",
    "role": "what a working process is for: `main`, `suspects`, `alone`; or `caller`",
    "cause": "of a lost process: `ended`, `silent` (its lease ran out); of a refused result: `stale` (another has the job), "
    "`unwritable`",
    "event": "the [event](events.md)",
}

# -- of the store ---------------------------------------------------------------------------

STORE_UP = Metric(
    "perdure_store_up",
    "gauge",
    "store",
    "Whether the store has answered this scrape: 1 or 0. While it is 0, the other metrics of the store are missing.",
)
JOBS = Metric(
    "perdure_jobs",
    "gauge",
    "store",
    "Jobs by where they stand. Those that have ended are counted until they are pruned.",
    ("queue", "pipeline", "stage", "state"),
)
QUEUE_AGE = Metric(
    "perdure_queue_oldest_due_seconds",
    "gauge",
    "store",
    "How long the job at the head of the line is due; 0 when none is. `state` is `ready`, `held` or `paused`.",
    ("queue", "state"),
)
CREATED = Metric(
    "perdure_jobs_created_total", "counter", "store", "Jobs that were accepted.", ("pipeline",)
)
ENDED = Metric(
    "perdure_jobs_ended_total",
    "counter",
    "store",
    "Jobs that have ended: `succeeded`, `failed` or `cancelled`, in the stage in which they were. A new life may end again.",
    ("pipeline", "stage", "state"),
)
FAILED = Metric(
    "perdure_jobs_failed_total",
    "counter",
    "store",
    "Jobs that have failed, by what they died of.",
    ("pipeline", "stage", "reason", "kind", "code"),
)
REVIVED = Metric(
    "perdure_jobs_revived_total",
    "counter",
    "store",
    "Dead letters that were given a new life.",
    ("pipeline", "stage"),
)
LETTERS = Metric(
    "perdure_dead_letters",
    "gauge",
    "store",
    "Dead letters that nobody has driven again or discarded.",
    ("pipeline", "stage", "reason", "kind"),
)
ATTEMPTS = Metric(
    "perdure_attempts_total", "counter", "store", "Attempts that have ended.", ("pipeline", "stage")
)
RETRIES = Metric(
    "perdure_retries_total",
    "counter",
    "store",
    "Retries that were scheduled, as a policy counts them.",
    ("pipeline", "stage"),
)
WAITS = Metric(
    "perdure_waits_total",
    "counter",
    "store",
    "Waits that an upstream has asked for; no failure is counted for them.",
    ("pipeline", "stage"),
)
TOKENS = Metric(
    "perdure_tokens_total",
    "counter",
    "store",
    "Tokens that stages have reported.",
    ("pipeline", "stage", "direction"),
)
COST = Metric(
    "perdure_cost_usd_total",
    "counter",
    "store",
    "Dollars that stages have reported.",
    ("pipeline", "stage"),
)
GATE_STATE = Metric(
    "perdure_gate_state",
    "gauge",
    "store",
    "1 for the state in which a gate is, 0 for the two others. A gate that never left `flowing` may be missing.",
    ("gate", "state"),
)
GATE_HELD = Metric(
    "perdure_gate_held_seconds",
    "gauge",
    "store",
    "How long a gate has not flowed, the time of its probes included; 0 while it flows.",
    ("gate",),
)
WORKERS = Metric(
    "perdure_workers",
    "gauge",
    "store",
    "Working processes that nobody has declared dead.",
    ("role",),
)

# -- of the process -------------------------------------------------------------------------

ATTEMPT_SECONDS = Metric(
    "perdure_attempt_seconds",
    "histogram",
    "process",
    "How long attempts took, by what became of them.",
    ("pipeline", "stage", "result"),
    _CALL_S,
)
ATTEMPT_FAILURES = Metric(
    "perdure_attempt_failures_total",
    "counter",
    "process",
    "Attempts that met a failure, whether the job was tried again or not.",
    ("pipeline", "stage", "kind"),
)
ATTEMPTS_CAPTURED = Metric(
    "perdure_attempts_captured_total",
    "counter",
    "process",
    "Attempts of which raw output was put aside.",
    ("pipeline", "stage"),
)
TIME_TO_SUCCESS = Metric(
    "perdure_time_to_success_seconds",
    "histogram",
    "process",
    "From the moment by which a job stood in line (its enqueueing, its `run_at` or a new life) to its success.",
    ("pipeline",),
    _JOB_S,
)
RETRY_DELAY = Metric(
    "perdure_retry_delay_seconds",
    "histogram",
    "process",
    "How long jobs were told to wait for their next attempt.",
    ("pipeline", "stage"),
    _JOB_S,
)
CALL_SECONDS = Metric(
    "perdure_upstream_call_seconds",
    "histogram",
    "process",
    "How long attempts took whose stages name an upstream.",
    ("upstream", "outcome"),
    _CALL_S,
)
RESULTS_REFUSED = Metric(
    "perdure_results_refused_total",
    "counter",
    "process",
    "Results that the store did not accept.",
    ("cause",),
)
WORKERS_LOST = Metric(
    "perdure_workers_lost_total",
    "counter",
    "process",
    "Working processes that ended without leave, or were declared dead.",
    ("cause",),
)
TURN_SECONDS = Metric(
    "perdure_turn_seconds",
    "histogram",
    "process",
    "How long a turn of a worker with its store took: record what has ended, claim what may start.",
    (),
    _TURN_S,
)
EVENTS_TOLD = Metric(
    "perdure_events_total",
    "counter",
    "process",
    "Events that are not every job's: processes, gates, runs, bulk operations, trouble.",
    ("event",),
)

METRICS: tuple[Metric, ...] = tuple(
    one for one in list(globals().values()) if isinstance(one, Metric)
)
