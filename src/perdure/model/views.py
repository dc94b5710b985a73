"""Read models: what screens and reports show."""

import json
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from perdure.model.gates import GateRow
from perdure.model.jobs import Counters, Lane
from perdure.model.kinds import KINDS, Kind
from perdure.model.outcomes import seen_in_words
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.workers import WorkerView


class JobView(Struct, frozen=True):
    """A job as people see it. ``updated_at`` is when it made its last move.

    ``request_id`` is what its caller gave, or else its id; ``ordered_at`` the moment by which it stands in line.
    ``deadline_s`` is the total time of each life that its caller brought, ``policies_s`` the one that its policies
    gave to this life instead.
    """

    no: int
    id: str
    owner: str
    queue: str
    pipeline: str
    stage: str
    state: State
    key: str | None
    priority: int
    life: int
    token: int
    lane: int
    isolation: int
    ready: bool
    worker: int | None
    counters: Counters
    past: Counters
    failed_reason: FailedReason | None
    error_kind: str | None
    error_message: str | None
    label: str | None
    payload_json: str
    input_json: str
    result_json: str | None
    enqueued_at: datetime
    due_at: datetime
    claimed_at: datetime | None
    deadline_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    ordered_at: datetime
    request_id: str
    category: str = "default"
    run: int | None = None
    redrive_run: int | None = None
    retries_manual: int = 0
    input_from: str | None = None
    discarded_at: datetime | None = None
    error_code: str | None = None
    error_detail: str | None = None
    fingerprint: str | None = None
    deadline_s: float | None = None
    policies_s: float | None = None

    @property
    def shown_state(self) -> str:
        """The state in the words of screens: *retrying* and *scheduled* are views of queued."""
        if self.state is not State.QUEUED:
            return self.state.value
        if self.error_kind is not None:
            return "retrying"
        return "queued" if self.ready else "scheduled"


class ChangedJob(Struct, frozen=True):
    """A job in a list by change. A claim is no such change, so this may be earlier than ``updated_at``."""

    changed_at: datetime
    job: JobView


class PayloadView(Struct, frozen=True):
    """A payload that a job had until the end of a life, when another took its place."""

    life: int
    payload_json: str


class AttemptView(Struct, frozen=True):
    """An attempt as people see it. ``config_hash`` tells whether its stage was set as that of another attempt."""

    job_no: int
    token: int
    stage: str
    number: int
    life: int
    status: AttemptStatus
    worker: int | None
    claimed_at: datetime
    settled_at: datetime
    elapsed_s: float
    due_at: datetime | None
    delay_s: float | None
    counted: str | None
    kind: str | None
    message: str
    policy: str
    why_json: str
    evidence_json: str | None
    config_hash: str
    code: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_nusd: int = 0

    @property
    def saw(self) -> str:
        """What the attempt has met, for operators: what was raised, where in the application's own code, and its text."""
        seen = json.loads(self.evidence_json or "{}")
        return seen_in_words(seen.get("names", ()), seen.get("where", ""), self.message)

    @property
    def public_message(self) -> str:
        """What everybody may read of how it went wrong: what the stage has said for them, else what its kind means."""
        stated = json.loads(self.evidence_json or "{}").get("public_message")
        kind = Kind(self.kind) if self.kind in set(Kind) else Kind.UNKNOWN
        return stated or KINDS[kind].sentence

    @property
    def public_why(self) -> str:
        """The decision in one sentence, without what only operators may read."""
        why = json.loads(self.why_json)
        return str(why.get("public") or why["text"])


class CaptureView(Struct, frozen=True):
    """Raw output that was put aside in an attempt, without the output itself."""

    no: int
    id: str
    job_no: int
    token: int
    stage: str
    kind: str
    media_type: str
    bytes_kept: int
    bytes_whole: int
    saved_at: datetime
    expires_at: datetime | None


class DeadGroup(Struct, frozen=True):
    """Dead letters with one fingerprint: how many, when it struck first and last, and one of them."""

    fingerprint: str
    pipeline: str
    stage: str
    kind: str
    code: str
    count: int
    first_at: datetime
    last_at: datetime
    example_id: str
    example: str


class FailureGroup(Struct, frozen=True):
    """Failed jobs that ended alike."""

    pipeline: str
    stage: str
    reason: str
    kind: str
    count: int
    example_id: str


class Preview(Struct, frozen=True):
    """What a filter would touch: at most ``count_max`` are counted, and how they ended."""

    count: int
    capped: bool
    groups: tuple[FailureGroup, ...]


class Depth(Struct, frozen=True):
    """How many jobs of a stage stand where. ``waiting`` for their time; ``retrying`` for it after a failure."""

    queue: str
    pipeline: str
    stage: str
    ready: int
    waiting: int
    retrying: int
    processing: int
    succeeded: int
    failed: int
    cancelled: int


class Flow(Struct, frozen=True):
    """What has happened in a stage, in one minute or since the store was made; these numbers never fall.

    A job is ``created`` in its first stage and ends in the one in which it was. ``retries`` are those that a policy
    counts, ``waits`` those that an upstream has asked for.
    """

    pipeline: str
    stage: str
    at: datetime | None
    created: int
    succeeded: int
    failed: int
    cancelled: int
    revived: int
    attempts: int
    retries: int
    waits: int
    tokens_in: int
    tokens_out: int
    cost_nusd: int


class DeathCount(Struct, frozen=True):
    """What jobs have died of: how many are dead letters now, and how many ``ever`` were, which never falls."""

    pipeline: str
    stage: str
    reason: FailedReason
    kind: str
    code: str
    letters: int
    ever: int


OPEN = ""  # of lanes that nothing closes


class QueueHead(Struct, frozen=True):
    """Since when the job at the head of a queue's line is due; ``closed`` is what closes its lane, as in `StoreFigures`."""

    queue: str
    closed: str
    due_at: datetime


class StoreFigures(Struct, frozen=True):
    """What the tables say of all jobs, gates and workers, read at one moment, for metrics.

    ``depths`` are apart by what closes the lanes in which jobs stand: nothing, `OPEN`; ``held``, a gate; ``paused``, a
    person. A queue without a job that is due has no head. Of ``deaths`` what struck first of all comes first.
    """

    now: datetime
    depths: Mapping[str, list[Depth]]
    heads: list[QueueHead]
    flows: list[Flow]
    deaths: list[DeathCount]
    gates: list[GateRow]
    workers: list[WorkerView]


class Stats(Struct, frozen=True):
    """How many jobs stand where, what has happened since the store was made, and what jobs have died of."""

    depths: list[Depth]
    flows: list[Flow]
    deaths: list[DeathCount]


class LaneView(Struct, frozen=True):
    """A lane, whether it is open, what closes it, and how many jobs wait in it: ready, or for ``later``."""

    no: int
    lane: Lane
    closed_by: str | None
    ready: int
    later: int

    @property
    def open(self) -> bool:
        """Whether jobs are claimed from it."""
        return self.closed_by is None


class Books(Struct, frozen=True):
    """Accepted = queued + processing + succeeded + failed + cancelled + pruned."""

    accepted: int
    queued: int
    processing: int
    succeeded: int
    failed: int
    cancelled: int
    pruned: int

    @property
    def accounted(self) -> int:
        """Everything that can be found again."""
        return (
            self.queued
            + self.processing
            + self.succeeded
            + self.failed
            + self.cancelled
            + self.pruned
        )

    @property
    def balanced(self) -> bool:
        """Whether every accepted item is accounted for."""
        return self.accepted == self.accounted


class Finding(Struct, frozen=True):
    """Something the audit found to be untrue, and of which job or worker."""

    check: str
    subject: str
    text: str


class SchemaStatus(Struct, frozen=True):
    """Where the schema of a store stands."""

    url: str
    present: bool
    version: int
    known_version: int
    pending: tuple[str, ...]


class Errors(Struct, frozen=True):
    """Attempts that did not succeed, by failure kind and public code: how many, and how many ended their job."""

    kind: str
    code: str
    attempts: int
    final: int


class StageFigures(Struct, frozen=True):
    """What a stage did in a run; durations are of attempts that succeeded, waits in between left out."""

    stage: str
    attempts: int
    succeeded: int
    retried: int
    failed: int
    p50_s: float | None
    p95_s: float | None
    tokens_in: int
    tokens_out: int
    cost_nusd: int
    wasted_nusd: int


class RunFigures(Struct, frozen=True):
    """What the attempts of a run say, read from the tables.

    ``retries`` maps a count of counted retries to how many ended items needed it, in their last life. Wasted is
    every attempt that did not succeed. Times to success run from enqueueing to the end. ``waits`` are attempts after which
    the item waited because it was asked to, which is no counted retry, and ``waited_s`` is how long they were told to.
    """

    retries: Mapping[int, int]
    errors: tuple[Errors, ...]
    stages: tuple[StageFigures, ...]
    attempts: int
    wasted_attempts: int
    cost_nusd: int
    wasted_nusd: int
    invalid_outputs: int
    attempts_captured: int
    success_p50_s: float | None
    success_p95_s: float | None
    success_mean_s: float | None
    waits: int = 0
    waited_s: float = 0.0
