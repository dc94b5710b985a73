"""The rows of the reference model: frozen, so that a table is copied by copying its dict."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure.model.jobs import ZERO, Attempt, Claim, Counters, Lane, OnLost
from perdure.model.outcomes import Death
from perdure.model.states import TERMINAL, FailedReason, State
from perdure.model.views import AttemptView, CaptureView, JobView
from perdure.model.workers import Role


class Unwritable(ValueError):
    """A row that no store may hold."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker. ``steady_at`` is since when it has been heard without a gap over half a lease."""

    no: int
    boot: str
    name: str
    role: Role
    ttl: timedelta
    started_at: datetime
    beat_at: datetime
    steady_at: datetime
    dead_at: datetime | None = None
    death: Death | None = None
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An ended attempt, and what its record made of the job: the receipt of a record that comes again."""

    job: int
    token: int
    told: Attempt
    state: State
    settled_at: datetime
    settled_by: int | None
    delay_s: float | None
    due_at: datetime | None

    def view(self) -> AttemptView:
        """As people see it."""
        told = self.told
        return AttemptView(
            job_no=self.job,
            token=self.token,
            stage=told.stage,
            number=told.number,
            life=told.life,
            status=told.status,
            worker=told.worker,
            claimed_at=told.claimed_at,
            settled_at=self.settled_at,
            elapsed_s=told.elapsed_s,
            due_at=self.due_at,
            delay_s=self.delay_s,
            counted=told.counted,
            kind=told.kind,
            message=told.message,
            policy=told.policy,
            why_json=told.why_json,
            evidence_json=told.evidence_json,
            code=told.code,
            tokens_in=told.tokens_in,
            tokens_out=told.tokens_out,
            cost_nusd=told.cost_nusd,
            config_hash=told.config_hash,
        )


@dataclass(frozen=True, slots=True)
class CaptureRow:
    """A capture with its content."""

    view: CaptureView
    content: bytes


class Letter(NamedTuple):
    """What dead letters are told apart by."""

    fingerprint: str
    owner: str
    pipeline: str
    stage: str
    reason: str
    kind: str
    code: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job. ``ready`` is None unless it is queued; ``rank_at`` is its place in the line."""

    no: int
    id: str
    owner: str
    pipeline: str
    run: int | None
    key: str | None
    lane: int
    stage: str
    priority: int
    payload_json: str
    enqueued_at: datetime
    order_at: datetime
    rank_at: datetime
    due_at: datetime
    deadline_at: datetime | None
    updated_at: datetime
    changed_at: datetime
    ready: bool | None
    state: State = State.QUEUED
    token: int = 0
    life: int = 1
    isolation: int = 0
    worker: int | None = None
    redrive_run: int | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    discarded_at: datetime | None = None
    hard_at: datetime | None = None
    on_lost: OnLost | None = None
    counters: Counters = ZERO
    past: Counters = ZERO
    retries_manual: int = 0
    input_from: str | None = None
    failed_reason: FailedReason | None = None
    error_kind: str | None = None
    error_message: str | None = None
    error_code: str | None = None
    error_detail: str | None = None
    fingerprint: str | None = None
    label: str | None = None
    result_json: str | None = None
    tokens: int | None = None
    fair: bool = False
    request_id: str | None = None
    own_total: timedelta | None = None
    policies_total: timedelta | None = None

    @property
    def letter(self) -> Letter:
        """What it has died of."""
        return Letter(
            self.fingerprint or "",
            self.owner,
            self.pipeline,
            self.stage,
            str(self.failed_reason),
            self.error_kind or "",
            self.error_code or "",
        )

    @property
    def place(self) -> str:
        """Where it stands: its state, and of a queued one whether it is ready, or waits after a failure."""
        if self.ready is None:
            return self.state.value
        if self.ready:
            return "ready"
        return "waiting" if self.error_kind is None else "retrying"

    def check(self) -> None:
        """Refuse a row that contradicts itself, or that cannot be written faithfully."""
        rules = {
            "only a queued job is ready or not": (self.ready is not None)
            == (self.state is State.QUEUED),
            "only a processing job has a worker": (self.worker is not None)
            == (self.state is State.PROCESSING),
            "only a failed job has a reason": (self.failed_reason is not None)
            == (self.state is State.FAILED),
            "only an ended job has an end": (self.finished_at is not None)
            == (self.state in TERMINAL),
            "only a failed job is discarded": self.discarded_at is None
            or self.state is State.FAILED,
            "there are three isolation levels": self.isolation in (0, 1, 2),
        }
        for rule, kept in rules.items():
            if not kept:
                raise Unwritable(f"{rule}: job {self.id}")
        check_texts(self.id, self.owner, self.pipeline, self.stage, self.payload_json)
        check_texts(
            *(
                text
                for text in (
                    self.key,
                    self.input_from,
                    self.error_kind,
                    self.error_message,
                    self.label,
                    self.result_json,
                    self.error_code,
                    self.error_detail,
                    self.fingerprint,
                    self.request_id,
                )
                if text is not None
            )
        )

    def claim(self, input_json: str | None) -> Claim:
        """The job in the hands of its worker; ``input_json`` None is damage."""
        assert self.claimed_at is not None
        return Claim(
            no=self.no,
            id=self.id,
            token=self.token,
            lane=self.lane,
            pipeline=self.pipeline,
            stage=self.stage,
            owner=self.owner,
            payload_json=self.payload_json,
            input_json=input_json or "null",
            counters=self.counters,
            past=self.past,
            life=self.life,
            isolation=self.isolation,
            claimed_at=self.claimed_at,
            due_at=self.due_at,
            deadline_at=self.deadline_at,
            key=self.key,
            run=self.run,
            damage="the result of the stage before is gone" if input_json is None else None,
            tokens=self.tokens,
            request_id=self.request_id or self.id,
            ordered_at=self.order_at,
        )

    def view(self, lane: Lane, input_json: str | None) -> JobView:
        """As people see it."""
        return JobView(
            no=self.no,
            id=self.id,
            owner=self.owner,
            queue=lane.queue,
            pipeline=self.pipeline,
            stage=self.stage,
            state=self.state,
            key=self.key,
            priority=self.priority,
            life=self.life,
            token=self.token,
            lane=self.lane,
            isolation=self.isolation,
            ready=self.ready is True,
            worker=self.worker,
            counters=self.counters,
            past=self.past,
            failed_reason=self.failed_reason,
            error_kind=self.error_kind,
            error_message=self.error_message,
            label=self.label,
            payload_json=self.payload_json,
            input_json=input_json or "null",
            result_json=self.result_json,
            enqueued_at=self.enqueued_at,
            due_at=self.due_at,
            claimed_at=self.claimed_at,
            deadline_at=self.deadline_at,
            finished_at=self.finished_at,
            category=lane.category,
            run=self.run,
            redrive_run=self.redrive_run,
            retries_manual=self.retries_manual,
            input_from=self.input_from,
            discarded_at=self.discarded_at,
            error_code=self.error_code,
            error_detail=self.error_detail,
            fingerprint=self.fingerprint,
            updated_at=self.updated_at,
            request_id=self.request_id or self.id,
            ordered_at=self.order_at,
            deadline_s=_seconds(self.own_total),
            policies_s=_seconds(self.policies_total),
        )


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def check_texts(*texts: object) -> None:
    """Refuse what is no text, or cannot be written as UTF-8."""
    for text in texts:
        if not isinstance(text, str):
            raise Unwritable(f"{text!r} is no text")
        text.encode()  # half of a surrogate pair raises a UnicodeEncodeError, which is a ValueError
