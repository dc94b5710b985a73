"""What we tell the world, always after it is durable: the noun of *observe*."""

from dataclasses import dataclass, field
from enum import StrEnum


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
    BULK_CHANGED = "bulk_changed"
    GATE_CHANGED = "gate_changed"
    GATE_PROBED = "gate_probed"
    GATE_PACED = "gate_paced"
    GATE_ALERT = "gate_alert"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that is now true, with the fields that describe it."""

    name: EventName
    fields: dict[str, object] = field(default_factory=dict)
