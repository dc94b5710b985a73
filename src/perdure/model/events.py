"""What we tell the world, always after it is durable: the noun of *observe*.

`EVENTS` says of every event how loud it is in the log, what it means and which fields it has; `FIELDS` says what each
field means. The log and the generated reference are made from them: a field that is not in an event's row is not logged.
"""

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Struct

Level = Literal["debug", "info", "warning", "error"]


class EventName(StrEnum):
    """Everything that can be told."""

    JOB_ENQUEUED = "job_enqueued"
    JOB_CLAIMED = "job_claimed"
    JOB_PROGRESSED = "job_progressed"
    JOB_ADVANCED = "job_advanced"
    JOB_RETRIED = "job_retried"
    JOB_RELEASED = "job_released"
    JOB_SUCCEEDED = "job_succeeded"
    JOB_FAILED = "job_failed"
    JOB_CANCELLED = "job_cancelled"
    JOB_REVIVED = "job_revived"
    JOB_DISCARDED = "job_discarded"
    JOB_BROUGHT_FORWARD = "job_brought_forward"
    RESULT_REFUSED = "result_refused"
    METRICS_SERVED = "metrics_served"
    WORKER_STARTED = "worker_started"
    WORKER_DELAYED = "worker_delayed"
    WORKER_LOST = "worker_lost"
    WORKER_DRAINING = "worker_draining"
    WORKER_STOPPED = "worker_stopped"
    WORKER_RECYCLED = "worker_recycled"
    SLOTS_LOST = "slots_lost"
    LOOP_BLOCKED = "loop_blocked"
    SUSPECTS_LEFT = "suspects_left"
    STORE_AWAY = "store_away"
    STORE_BACK = "store_back"
    STAGE_UNKNOWN = "stage_unknown"
    CHORE_FAILED = "chore_failed"
    RUN_CHANGED = "run_changed"
    RUN_FEED_WAITING = "run_feed_waiting"
    RUN_UNATTENDED = "run_unattended"
    BULK_CHANGED = "bulk_changed"
    GATE_CHANGED = "gate_changed"
    GATE_PROBED = "gate_probed"
    GATE_PACED = "gate_paced"
    GATE_ALERT = "gate_alert"
    LINES_DROPPED = "lines_dropped"


class Event(Struct, frozen=True):
    """One thing that is now true, with the fields that describe it."""

    name: EventName
    fields: dict[str, object] = msgspec.field(default_factory=dict)


class EventFacts(Struct, frozen=True):
    """What is always true of an event; ``level_again`` is its level for attempts at a stage that are not the first."""

    level: Level
    sentence: str
    fields: tuple[str, ...]
    level_again: Level | None = None


FIELDS: dict[str, str] = {
    "job_id": "the job",
    "request_id": "the id of the request that the job came with, else the job's own id",
    "owner": "whose job it is, where an owner was given",
    "pipeline": "the pipeline of the job or the run",
    "queue": "the queue of the lane",
    "category": "the category of the lane",
    "stage": "the stage that was attempted, or that is next",
    "run": "the number of the run, or of the one that the job belongs to",
    "run_id": "the id of the run",
    "run_name": "the name of the run",
    "bulk_id": "the bulk operation",
    "verb": "what the bulk operation does",
    "count": "how many items were accepted",
    "token": "the token of the claim",
    "attempt": "the number of the attempt at this stage in this life of the job",
    "failures": "failures counted at this stage so far",
    "attempts_max": "the number of failures at which the job fails",
    "duration_ms": "how long the attempt took",
    "age_ms": "of a job that has succeeded: from the moment by which it stood in line to its success",
    "delay_ms": "how long the job waits for its next attempt",
    "hinted": "whether that is what the upstream asked for; else it is the policy's, or the stage's own",
    "status": "the state of the job, the run or the bulk operation after this",
    "before": "the status of the run before this",
    "reason": "why; of a failed job one of its four reasons",
    "error_kind": "the kind of the failure",
    "error_code": "its code in the policy's vocabulary",
    "error_message": "its message for users",
    "captures": "how many pieces of raw output the attempt has put aside",
    "raised": "the class of the exception, and the module and the line of your own code that raised it, or called who did",
    "upstream": "the upstream that the attempt has called",
    "upstream_status": "the HTTP status that the upstream gave",
    "gate": "the name of the gate, which is that of an upstream or of a credential",
    "gate_state": "how the gate stands after this; of an attempt, how its upstream's stood when it was judged",
    "done": "of a stage: steps done; of a bulk operation: jobs changed",
    "total": "of a stage: steps in all; of a run: its items",
    "note": "the stage's own words",
    "refused": "jobs that the bulk operation could not change",
    "succeeded": "jobs of the run that have succeeded",
    "failed": "jobs of the run that have failed",
    "open": "items of the run that have not ended",
    "backlog_max": "how many items of the run may be open",
    "by_whom": "the person who did it",
    "worker": "the number of the worker",
    "role": "what the working process is for: all jobs, suspects, or one suspect alone",
    "pid": "the id of the process",
    "exit": "its exit status, or the signal that ended it",
    "why": "how it is known that the worker is gone",
    "address": "where the metrics are read",
    "in_hand": "jobs that the worker still holds",
    "grace_s": "how long they may take to finish",
    "lost": "slots that cannot be used",
    "concurrency": "slots of the worker in all",
    "silent_s": "how long the event loop has not turned",
    "given_back": "jobs that were given back",
    "waited_s": "how long the jobs have waited",
    "chore": "the chore of the upkeep",
    "move": "how the gate came to change",
    "generation": "the number of changes of the gate so far",
    "rate_per_s": "calls a second from now on",
    "was_per_s": "calls a second before this",
    "dropped": "log lines that were not written, since this was last told",
}

_WHOSE = ("job_id", "request_id", "owner", "pipeline", "run")
_SETTLED = (
    *_WHOSE,
    "worker",
    "status",
    "stage",
    "attempt",
    "failures",
    "attempts_max",
    "duration_ms",
    "age_ms",
    "reason",
    "error_kind",
    "error_code",
    "raised",
    "upstream",
    "upstream_status",
    "gate_state",
    "delay_ms",
    "hinted",
    "error_message",
    "captures",
)

# Of every day's work the first attempt is quiet; that another one began, or came through, is told beside what failed.
EVENTS: dict[EventName, EventFacts] = {
    EventName.JOB_ENQUEUED: EventFacts(
        "debug",
        "Items were accepted: `count` of them, the first being `job_id`, whose `request_id` and `owner` these are. Items "
        "whose key was taken are not told.",
        ("job_id", "request_id", "owner", "pipeline", "run", "count"),
    ),
    EventName.JOB_CLAIMED: EventFacts(
        "debug",
        "A job is in this worker's hands and its stage starts, for the `attempt`-th time in this life.",
        (*_WHOSE, "worker", "status", "stage", "attempt", "token"),
        level_again="info",
    ),
    EventName.JOB_PROGRESSED: EventFacts(
        "debug",
        "A stage says how far it is. Told at most once a second, and the one event that stands for nothing durable.",
        (*_WHOSE, "stage", "attempt", "done", "total", "note"),
    ),
    EventName.JOB_ADVANCED: EventFacts(
        "debug",
        "A stage that is not the last one is done and checkpointed.",
        _SETTLED,
        level_again="info",
    ),
    EventName.JOB_RETRIED: EventFacts(
        "info",
        "An attempt has ended, and the job is queued again, due after `delay_ms`; or its caller waits for so long, and "
        "tries it again. `failures` of `attempts_max` are "
        "counted so far. `error_kind` is our name of the failure, `error_code` and `error_message` are those of the "
        "policy's vocabulary; `upstream_status` is the HTTP status that the upstream gave, `gate_state` how its gate "
        "stood, `hinted` whether it asked for this delay.",
        _SETTLED,
    ),
    EventName.JOB_RELEASED: EventFacts(
        "info",
        "The worker gave the job back at shutdown.",
        _SETTLED,
    ),
    EventName.JOB_SUCCEEDED: EventFacts(
        "debug",
        "The last stage is done; where `attempt` is above 1, after earlier tries.",
        _SETTLED,
        level_again="info",
    ),
    EventName.JOB_FAILED: EventFacts(
        "warning",
        "The job is a dead letter: `reason` is `fatal`, `exhausted` (the maximum is reached), `crashed` or `expired`.",
        _SETTLED,
    ),
    EventName.JOB_CANCELLED: EventFacts(
        "info",
        "The job was cancelled.",
        _SETTLED,
    ),
    EventName.JOB_REVIVED: EventFacts(
        "info",
        "A person has given a dead letter a new life.",
        ("job_id", "request_id", "owner", "stage", "by_whom", "reason"),
    ),
    EventName.JOB_DISCARDED: EventFacts(
        "info",
        "A person has marked a dead letter as dealt with.",
        ("job_id", "request_id", "owner", "by_whom", "reason"),
    ),
    EventName.JOB_BROUGHT_FORWARD: EventFacts(
        "info",
        "A person has let a job that waited be due now.",
        ("job_id", "request_id", "owner", "by_whom", "reason"),
    ),
    EventName.RESULT_REFUSED: EventFacts(
        "warning",
        "The store did not accept what a worker said about an attempt: another hand has the job, or the row could not "
        "be written.",
        (*_WHOSE, "worker", "stage", "attempt", "token", "reason"),
    ),
    EventName.METRICS_SERVED: EventFacts(
        "info",
        "A supervisor offers the metrics of its working processes and of the store.",
        ("address",),
    ),
    EventName.WORKER_STARTED: EventFacts(
        "info",
        "A supervisor has started a working process.",
        ("worker", "role", "pid"),
    ),
    EventName.WORKER_DELAYED: EventFacts(
        "warning",
        "A working process could not be started, because the system has no process, memory or file to give. Told "
        "once; it is tried again after growing pauses, and the other processes go on.",
        ("role", "reason"),
    ),
    EventName.WORKER_LOST: EventFacts(
        "warning",
        "A working process ended with a status other than 0, was killed, or went silent.",
        ("worker", "why", "exit", "role", "pid"),
    ),
    EventName.WORKER_DRAINING: EventFacts(
        "info",
        "A working process has been told to stop: it claims no more, and what it has in hand may finish within "
        "`grace_s`.",
        ("worker", "in_hand", "grace_s"),
    ),
    EventName.WORKER_STOPPED: EventFacts(
        "info",
        "A working process ended by itself and in order.",
        ("worker", "role", "pid", "exit"),
    ),
    EventName.WORKER_RECYCLED: EventFacts(
        "warning",
        "A working process drains and asks for another one in its place: `lost` of its `concurrency` slots are taken "
        "by stages that ignored their timeout.",
        ("worker", "lost", "concurrency"),
    ),
    EventName.SLOTS_LOST: EventFacts(
        "warning",
        "All slots of a worker inside another process are taken by stages that ignored their timeout. It takes "
        "nothing more until one comes back.",
        ("worker", "lost", "concurrency"),
    ),
    EventName.LOOP_BLOCKED: EventFacts(
        "warning",
        "An async stage does not let the event loop of its worker turn: it works without awaiting. Jobs that had not "
        "begun there are given back, uncounted, and none is taken until it turns again.",
        ("worker", "silent_s", "given_back"),
    ),
    EventName.SUSPECTS_LEFT: EventFacts(
        "warning",
        "Jobs that were in hand when a process died have waited for a while, and no worker started with `perdure "
        "worker` has come for them: a worker inside another process leaves them alone. Start one, with `perdure worker APP`.",
        ("waited_s",),
    ),
    EventName.STORE_AWAY: EventFacts(
        "warning",
        "The store does not answer. Told once; the work goes on when it is back.",
        ("reason",),
    ),
    EventName.STORE_BACK: EventFacts(
        "info",
        "The store answers again.",
        (),
    ),
    EventName.STAGE_UNKNOWN: EventFacts(
        "warning",
        "Jobs wait, or a job was lost, at a stage that this worker's app does not have; they are left for a worker "
        "that does. Told once for each lane and each lost job.",
        ("job_id", "request_id", "pipeline", "stage", "queue", "category"),
    ),
    EventName.CHORE_FAILED: EventFacts(
        "warning",
        "A chore of the upkeep cannot be done. Told once; it is tried again in every round.",
        ("chore", "reason"),
    ),
    EventName.RUN_CHANGED: EventFacts(
        "info",
        "A run has another status: `before` and `status` say which, `reason` why, with its counts.",
        (
            "run",
            "run_id",
            "run_name",
            "pipeline",
            "status",
            "before",
            "reason",
            "total",
            "succeeded",
            "failed",
        ),
    ),
    EventName.RUN_FEED_WAITING: EventFacts(
        "info",
        "Feeding a run waits because `backlog_max` of its items are open and none is worked off; told every 30 "
        "seconds.",
        ("run", "run_id", "run_name", "pipeline", "open", "backlog_max", "status"),
    ),
    EventName.RUN_UNATTENDED: EventFacts(
        "warning",
        "Nobody works on a run that somebody feeds or waits for: none of its items has moved for 10 seconds, and `reason` "
        "says what is missing. Told by who waits, again every minute.",
        ("run", "run_id", "run_name", "pipeline", "open", "reason"),
    ),
    EventName.BULK_CHANGED: EventFacts(
        "info",
        "A bulk operation was stopped, resumed, or is done, with what it has done and refused so far.",
        ("bulk_id", "verb", "status", "done", "refused", "reason"),
    ),
    EventName.GATE_CHANGED: EventFacts(
        "warning",
        "The gate of an upstream or a credential is held, or flows again: `move` says how that came, `reason` why. "
        "Told by the worker whose write it was.",
        ("gate", "gate_state", "move", "reason", "generation"),
    ),
    EventName.GATE_PROBED: EventFacts(
        "info",
        "A probe of a held gate went out, was lost, or ended without letting the gate flow.",
        ("gate", "gate_state", "move", "reason", "generation"),
    ),
    EventName.GATE_PACED: EventFacts(
        "info",
        "This worker's pace towards an upstream has changed by a quarter or more, for the `reason`: to `rate_per_s` "
        "calls a second (none: no rate is set, calls start slowly) from `was_per_s`. At most once in 10 seconds for "
        "each gate.",
        ("gate", "rate_per_s", "was_per_s", "reason"),
    ),
    EventName.GATE_ALERT: EventFacts(
        "error",
        "A gate is held until a person releases it: a bill, a key, or a pause longer than we wait for.",
        ("gate", "reason"),
    ),
    EventName.LINES_DROPPED: EventFacts(
        "warning",
        "The log has lost lines: whoever reads it did not take them for a while, or was gone. The log writes this by "
        "itself as soon as lines are taken again; observers are not told.",
        ("dropped",),
    ),
}
