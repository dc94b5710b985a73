"""What operators do to jobs and lanes, and what is kept about it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from perdure.model.jobs import NewJob


class LaneScope(StrEnum):
    """What a pause closes: all lanes of a queue, of a pipeline or of a run."""

    QUEUE = "queue"
    PIPELINE = "pipeline"
    RUN = "run"


class Deed(Struct, frozen=True):
    """Who does it and why; kept in the audit log, in the transaction of the deed."""

    by_whom: str
    reason: str = ""


class LoggedDeed(Struct, frozen=True):
    """A line of the audit log."""

    no: int
    done_at: datetime
    by_whom: str
    verb: str
    subject: str
    reason: str


class LanePause(Struct, frozen=True):
    """A queue, a pipeline or a run (by its number) whose lanes are closed."""

    scope: LaneScope
    name: str
    reason: str
    paused_by: str
    paused_at: datetime


class Revival(Struct, frozen=True):
    """A new life for a failed job: counters from zero, history kept, ordered as if new.

    Guarded by ``(no, token)``. It goes on at ``stage`` with the checkpoint of ``input_from`` (None:
    with the payload); the checkpoints of the stages in ``forgotten`` are dropped. With
    ``redrive_run`` the job also counts in that run, whose lane ``lane`` then is. A job whose caller
    brought a deadline has as long as in its first life; any other has ``deadline_s``, its policies' total time.
    ``payload_json`` takes the place of the job's payload, and was checked by `engine/payloads.py`; the old one is
    kept with the life that it was for. ``request_id`` and ``owner`` are for those who are told of it.
    """

    no: int
    id: str
    token: int
    stage: str
    lane: int
    input_from: str | None
    forgotten: tuple[str, ...] = ()
    redrive_run: int | None = None
    deadline_s: float | None = None
    request_id: str | None = None
    payload_json: str | None = None
    owner: str = ""


class Target(Struct, frozen=True):
    """A job as it was seen; if it has moved on since, nothing is done to it. ``request_id`` and ``owner`` are for those who are told."""

    no: int
    id: str
    token: int
    request_id: str | None = None
    owner: str = ""


class Retention(Struct, frozen=True):
    """What may be let go: jobs that ended longer ago than this. None keeps them for ever.

    A dead letter that nobody has discarded is kept by ``failed_s``, which is None for that reason.
    """

    succeeded_s: float | None = None
    cancelled_s: float | None = None
    discarded_s: float | None = None
    failed_s: float | None = None


class Pruned(Struct, frozen=True):
    """What one step of pruning let go, and where the next one goes on; None when it is done."""

    jobs: int
    attempts: int
    go_on_after: int | None


class BulkVerb(StrEnum):
    """What a bulk operation does to each of its jobs."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    CANCEL = "cancel"
    RETRY = "retry"
    RUN_NOW = "run now"


class BulkStatus(StrEnum):
    """Where a bulk operation stands."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class BulkPhase(StrEnum):
    """Which jobs a bulk operation takes on now: a few first, none until those have ended, then all."""

    CANARY = "canary"
    PROVING = "proving"
    ALL = "all"


class NewBulk(Struct, frozen=True):
    """A bulk operation to be begun: a verb and a filter.

    ``settings_json`` is for who goes through it; the store does not read it. ``run`` is the run in which dead
    letters are driven again. ``payloads`` are corrected payloads by the keys of their jobs; the store keeps them
    until the operation is done. ``owner`` is whose jobs alone it touches, and who may look at it; "" is an operator's.
    """

    id: str
    verb: BulkVerb
    filter_json: str
    deed: Deed
    settings_json: str = "{}"
    run: int | None = None
    phase: BulkPhase = BulkPhase.ALL
    payloads: tuple[tuple[str, str], ...] = ()
    owner: str = ""


class Refusal(Struct, frozen=True):
    """A job that a bulk operation has left as it was, and why."""

    no: int
    why: str


class BulkStep(Struct, frozen=True):
    """One step of a bulk operation, if it still stands at ``seen_cursor`` and runs.

    ``cursor`` is the job number below which it goes on. ``done`` counts the jobs of this step. Where the step
    is written with the deeds themselves, as in `revive` or `cancel`, the store adds the jobs that it changed, and
    writes down those that have moved on or conflict, beside ``refusals``. With ``again`` it does not write down what
    has moved on: the operation looks at that once more.
    """

    no: int
    seen_cursor: int | None
    cursor: int | None
    done: int = 0
    refusals: tuple[Refusal, ...] = ()
    status: BulkStatus = BulkStatus.RUNNING
    phase: BulkPhase = BulkPhase.ALL
    why: str = ""
    again: bool = False


class BulkChange(Struct, frozen=True):
    """Another status for a bulk operation that still has the one that was seen."""

    no: int
    seen: BulkStatus
    status: BulkStatus
    why: str = ""


class BulkView(Struct, frozen=True):
    """A bulk operation as people see it."""

    no: int
    id: str
    verb: BulkVerb
    status: BulkStatus
    filter_json: str
    begun_by: str
    reason: str
    cursor: int | None
    done: int
    refused: int
    begun_at: datetime
    changed_at: datetime
    settings_json: str
    run: int | None
    phase: BulkPhase
    why: str
    owner: str = ""


class LoggedRefusal(Struct, frozen=True):
    """A line of what a bulk operation has refused."""

    job_no: int
    job_id: str
    why: str


class NewSchedule(Struct, frozen=True):
    """A periodic enqueue. ``spec`` is the rule in words, which the store keeps and does not read."""

    name: str
    pipeline: str
    spec: str
    payload_json: str
    next_at: datetime


class ScheduleView(Struct, frozen=True):
    """A periodic enqueue as it stands."""

    name: str
    pipeline: str
    spec: str
    payload_json: str
    next_at: datetime
    ticked_at: datetime | None
    ticks: int


class Tick(Struct, frozen=True):
    """The job of one moment of a schedule, if the schedule still stands at ``due_at``."""

    schedule: str
    due_at: datetime
    next_at: datetime
    job: NewJob
