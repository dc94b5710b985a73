"""The job, what is asked of the store about it, and what the store answers.

What is made anew for every attempt is a `Struct`: as a frozen dataclass each would take ten times as long to
make, and the garbage collector would walk over all that are in flight.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from perdure.model.decisions import Counted
from perdure.model.errors import BugError
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, FailedReason, Move, State


class Counters(Struct, frozen=True):
    """What has happened to a job in one stage (or, summed, in all of them) in this life."""

    starts: int = 0
    failures: int = 0
    waits: int = 0
    crashes: int = 0
    snoozes: int = 0
    probes: int = 0
    releases: int = 0
    waited_s: float = 0.0

    def after_event(self, counted: Counted | None, *, waited_s: float = 0.0) -> "Counters":
        """These counters after one more event of that sort."""
        if counted is None:
            return self
        raised = replace(self, **{counted.value: getattr(self, counted.value) + 1})
        return replace(raised, waited_s=raised.waited_s + waited_s) if waited_s else raised

    def plus(self, other: "Counters") -> "Counters":
        """The sums over both."""
        return Counters(
            starts=self.starts + other.starts,
            failures=self.failures + other.failures,
            waits=self.waits + other.waits,
            crashes=self.crashes + other.crashes,
            snoozes=self.snoozes + other.snoozes,
            probes=self.probes + other.probes,
            releases=self.releases + other.releases,
            waited_s=self.waited_s + other.waited_s,
        )


ZERO = Counters()


class Lane(Struct, frozen=True):
    """The line in which jobs of one stage wait, of one run or of none.

    A lane has no state of its own. It is open while its queue, its pipeline and its run are not
    paused and the gates of its ``upstream`` and of the credential behind that are flowing.
    """

    queue: str
    category: str
    pipeline: str
    stage: str
    run: int | None = None
    upstream: str | None = None


class IfFailed(StrEnum):
    """What to do when the key belongs to a job that has failed."""

    KEEP = "keep"
    RETRY = "retry"


class OnLost(StrEnum):
    """What becomes of a job whose caller has gone: a worker takes it over, or it is cancelled."""

    HAND_OVER = "hand_over"
    DROP = "drop"


class NewJob(Struct, frozen=True, gc=False):
    """A job to be enqueued. ``payload_json`` was checked by `engine/payloads.py`.

    ``deadline_s`` is the caller's own, for each life of the job. Without one, ``policies_s`` counts in its place: the
    total time of its pipeline's policies, which a new life asks for anew. Either counts from the later of the
    moment of enqueue and ``run_at``.

    ``ordered_at`` is the moment by which the job stands in line; without it, the later of the moment of enqueue and
    ``run_at``. One that is later than the store's now counts as now. ``request_id`` is the id by which the
    caller knows its request; without it, the job's id serves.

    ``tokens`` is how many its calls are thought to take. In a ``fair`` queue owners take turns: the store ranks
    the job by a virtual time of its owner, and neither age nor priority counts.
    """

    id: str
    pipeline: str
    lane: int
    stage: str
    payload_json: str
    owner: str = ""
    key: str | None = None
    priority: int = 0
    run_at: datetime | None = None
    deadline_s: float | None = None
    run: int | None = None
    if_failed: IfFailed = IfFailed.KEEP
    tokens: int | None = None
    fair: bool = False
    policies_s: float | None = None
    request_id: str | None = None
    ordered_at: datetime | None = None


class Enqueued(Struct, frozen=True, gc=False):
    """What became of a NewJob. ``created`` is False when its key was taken by the same job.

    ``revived`` when that job had failed and was given a new life.
    """

    id: str
    no: int
    created: bool
    revived: bool = False


class Claim(Struct, frozen=True, gc=False):
    """A job in the hands of one worker for one stage, under a numbered lease (the token).

    ``damage`` says what is unreadable in the stored row; such a job is claimed to be settled, not
    to be run. ``request_id`` is the job's: what its caller gave, or else its id. ``ordered_at`` is the moment by which
    it stands in line, from which its time to success counts.
    """

    no: int
    id: str
    token: int
    lane: int
    pipeline: str
    stage: str
    owner: str
    payload_json: str
    input_json: str
    counters: Counters
    past: Counters
    life: int
    isolation: int
    claimed_at: datetime
    due_at: datetime
    deadline_at: datetime | None
    key: str | None
    run: int | None = None
    damage: str | None = None
    tokens: int | None = None
    request_id: str = ""
    ordered_at: datetime | None = None

    def age_s(self, elapsed_s: float) -> float | None:
        """From the moment by which the job stood in line to so long after this claim; by the store's clock up to the claim."""
        if self.ordered_at is None:
            return None
        return max(0.0, (self.claimed_at - self.ordered_at).total_seconds()) + elapsed_s


class LostClaim(Struct, frozen=True):
    """A claim whose worker is dead, how it died, and the store's time when this was read.

    ``on_lost`` is what the caller asked for, where a caller held it.
    """

    claim: Claim
    worker: int
    death: Death
    seen_at: datetime
    on_lost: OnLost | None = None


class Overrun(Struct, frozen=True):
    """A claim that is held for longer than it may be, by whom, and the store's time when this was read.

    ``on_lost`` is what the caller asked for, where a caller holds it.
    """

    claim: Claim
    worker: int
    seen_at: datetime
    on_lost: OnLost | None = None


class Expired(Struct, frozen=True):
    """A job whose deadline passed while it waited."""

    no: int
    id: str
    token: int
    lane: int
    pipeline: str
    stage: str
    counters: Counters
    past: Counters
    isolation: int
    run: int | None = None
    request_id: str = ""
    owner: str = ""


class Part(Struct, frozen=True):
    """Lanes behind one upstream, and how many of their jobs may start now."""

    lanes: tuple[int, ...]
    slots: int


class ClaimOrder(Struct, frozen=True):
    """What one worker asks of the store in one turn: at most ``slots`` jobs.

    ``parts`` are served first, in their order and each to its own limit, together no more than ``slots``: so
    a store can ask for all of them at once. What they leave goes to ``lanes``, which belong to no part.
    """

    worker: int
    slots: int
    lanes: tuple[int, ...]
    isolation: int = 0
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        """Keep the promise."""
        if self.parts and sum(part.slots for part in self.parts) > self.slots:
            raise BugError(
                f"an order of {self.slots} slots has parts of {[part.slots for part in self.parts]}"
            )


class Attempt(Struct, frozen=True, gc=False):
    """The row that an ended attempt leaves behind; written once, never changed.

    ``called`` says that its stage names an upstream, and had begun; it is counted in the job's runs. That ``upstream`` is for
    those who are told of it. Neither is kept with the row.
    """

    stage: str
    number: int
    life: int
    status: AttemptStatus
    worker: int | None
    claimed_at: datetime
    elapsed_s: float
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
    called: bool = False
    upstream: str | None = None


class Capture(Struct, frozen=True, gc=False):
    """Raw output that a stage has put aside, to be stored beside its attempt; cut where it was too long."""

    id: str
    kind: str
    media_type: str
    content: bytes
    bytes_whole: int
    kept_s: float | None

    def __repr__(self) -> str:
        return f"Capture(id={self.id!r}, kind={self.kind!r}, bytes_whole={self.bytes_whole})"


class Record(Struct, frozen=True, gc=False):
    """One ended attempt, or one cancelled wait, as the store has to write it.

    Guarded by ``(no, token)``: if another hand has raised the token since, nothing is written.
    ``lane_from`` is the lane that it leaves, where that is another one.
    ``reclaim`` asks the store to claim the job again for ``stage`` in the same transaction. ``error_code`` is the
    public code of a failure; ``error_detail``, for operators, and ``fingerprint`` are those of one that ends the job.
    ``pipeline``, ``run``, ``attempts_max``, ``request_id`` and what follows are for those who are told of it: no store
    writes them. ``age_s`` is from the moment by which the job stood in line to its success, ``hinted`` says that an upstream
    asked for the delay, and ``pause_s`` is a delay for which the caller of a call waits itself.
    """

    no: int
    id: str
    token: int
    move: Move
    state: State
    stage: str
    lane: int
    counters: Counters
    past: Counters
    isolation: int
    delay_s: float | None = None
    failed_reason: FailedReason | None = None
    error_kind: str | None = None
    error_message: str | None = None
    result_json: str | None = None
    label: str | None = None
    checkpoint_stage: str | None = None
    checkpoint_json: str | None = None
    reclaim: bool = False
    attempt: Attempt | None = None
    error_code: str | None = None
    error_detail: str | None = None
    fingerprint: str | None = None
    captures: tuple[Capture, ...] = ()
    pipeline: str | None = None
    run: int | None = None
    attempts_max: int | None = None
    lane_from: int | None = None
    request_id: str | None = None
    age_s: float | None = None
    owner: str = ""
    hinted: bool | None = None
    pause_s: float = 0.0


class Receipt(Struct, frozen=True, gc=False):
    """The record is durable. ``repeated`` when it had been written by an earlier sending."""

    no: int
    id: str
    token: int
    state: State
    due_at: datetime | None
    claim: Claim | None = None
    repeated: bool = False


class Stale(Struct, frozen=True):
    """Another hand has taken the job since: nothing was written."""

    no: int
    id: str
    token: int


class RecordRefused(Struct, frozen=True):
    """The store could not write this record, though its neighbours were written."""

    no: int
    id: str
    token: int
    reason: str


class Conflict(Struct, frozen=True):
    """A dead letter stays one, because of another job of the same owner, pipeline and key.

    That one is ``alive``, queued or processing; or it was driven again in the same run already, and has ended.
    """

    no: int
    id: str
    token: int
    with_id: str
    alive: bool = True


class Busy(Struct, frozen=True):
    """A transaction that is still open holds the job's row: nothing was written, and nobody has waited."""

    no: int
    id: str
    token: int


Settled = Receipt | Stale | RecordRefused
Revived = Receipt | Stale | Conflict


class Turn(Struct, frozen=True):
    """The store's answer to one turn of a pump.

    ``next_due_s`` is the time until the soonest job of the asked lanes falls due, when fewer were claimed
    than asked for. A part that got all of its slots is left out of it: only the worker that asks knows when
    it has slots again.
    """

    settled: tuple[Settled, ...]
    claims: tuple[Claim, ...]
    next_due_s: float | None = None
