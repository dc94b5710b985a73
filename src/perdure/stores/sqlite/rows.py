"""Between rows and nouns."""

from typing import Any

import msgspec

from perdure.model.jobs import ZERO, Claim, Counters, NewJob, Record
from perdure.model.limits import AGEING_S
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.views import AttemptView, JobView
from perdure.stores.sqlite.moments import from_us, maybe_us, seconds_us, to_us

AGEING_US = seconds_us(AGEING_S)

_counters = msgspec.json.Decoder(Counters)
_death = msgspec.json.Decoder(Death)
Row = tuple[Any, ...]


def encoded(value: object) -> str:
    """Any noun as JSON text."""
    return msgspec.json.encode(value).decode()


def past_of(text: str | None) -> Counters:
    """The counters of earlier stages."""
    return ZERO if text is None else _counters.decode(text)


def death_of(text: str) -> Death:
    """How a worker died."""
    return _death.decode(text)


def job_in(job: NewJob, now: int) -> dict[str, object]:
    """A new job, as `enqueue.sql` reads it."""
    due_at = now if job.run_at is None else max(now, to_us(job.run_at))
    return {
        "id": job.id,
        "owner": job.owner,
        "pipeline": job.pipeline,
        "key": job.key,
        "lane": job.lane,
        "stage": job.stage,
        "priority": job.priority,
        "due_at": due_at,
        "deadline_at": None if job.deadline_s is None else now + seconds_us(job.deadline_s),
        "payload": job.payload_json,
    }


def record_in(record: Record) -> dict[str, object]:
    """A record, as `record.sql`, `attempts_add.sql` and `checkpoints_add.sql` read it."""
    counters, attempt = record.counters, record.attempt
    row: dict[str, object] = {
        "no": record.no,
        "token": record.token,
        "state": record.state,
        "stage": record.stage,
        "lane": record.lane,
        "isolation": record.isolation,
        "starts": counters.starts,
        "failures": counters.failures,
        "waits": counters.waits,
        "crashes": counters.crashes,
        "snoozes": counters.snoozes,
        "probes": counters.probes,
        "releases": counters.releases,
        "waited_s": counters.waited_s,
        "past": None if record.past == ZERO else encoded(record.past),
        "delay_s": record.delay_s,
        "delay_us": None if record.delay_s is None else seconds_us(record.delay_s),
        "failed_reason": record.failed_reason,
        "error_kind": record.error_kind,
        "error_message": record.error_message,
        "result": record.result_json,
        "label": record.label,
        "checkpoint_stage": record.checkpoint_stage,
        "checkpoint": record.checkpoint_json,
        "reclaim": int(record.reclaim),
    }
    if attempt is not None:
        row |= {
            "attempt_stage": attempt.stage,
            "number": attempt.number,
            "life": attempt.life,
            "status": attempt.status,
            "worker": attempt.worker,
            "claimed_at": to_us(attempt.claimed_at),
            "elapsed_s": attempt.elapsed_s,
            "counted": attempt.counted,
            "kind": attempt.kind,
            "message": attempt.message,
            "policy": attempt.policy,
            "why": attempt.why_json,
            "evidence": attempt.evidence_json,
            "config_hash": attempt.config_hash,
        }
    return row


def claim_out(row: Row) -> Claim:
    """A claim, from a row of `claims.sql`."""
    return Claim(
        no=row[0], id=row[1], token=row[2], lane=row[3], pipeline=row[4], stage=row[5],
        owner=row[6], payload_json=row[7], input_json=row[8],
        counters=Counters(*row[9:17]),
        past=past_of(row[17]),
        life=row[18], isolation=row[19],
        claimed_at=from_us(row[20]), due_at=from_us(row[21]), deadline_at=maybe_us(row[22]),
        key=row[23],
    )  # fmt: skip


def job_out(row: Row) -> JobView:
    """A job, from a row of `job_by_id.sql` or `jobs_page.sql`."""
    return JobView(
        no=row[0], id=row[1], owner=row[2], queue=row[3], pipeline=row[4], stage=row[5],
        state=State(row[6]), key=row[7], priority=row[8], life=row[9], token=row[10],
        lane=row[11], isolation=row[12], ready=row[13] == 1, worker=row[14],
        counters=Counters(*row[15:23]),
        past=past_of(row[23]),
        failed_reason=None if row[24] is None else FailedReason(row[24]),
        error_kind=row[25], error_message=row[26], label=row[27],
        payload_json=row[28], input_json=row[29], result_json=row[30],
        enqueued_at=from_us(row[31]), due_at=from_us(row[32]), claimed_at=maybe_us(row[33]),
        deadline_at=maybe_us(row[34]), finished_at=maybe_us(row[35]),
    )  # fmt: skip


def attempt_out(row: Row) -> AttemptView:
    """An attempt, from a row of `attempts_of.sql`."""
    return AttemptView(
        job_no=row[0], token=row[1], stage=row[2], number=row[3], life=row[4],
        status=AttemptStatus(row[5]), worker=row[6], claimed_at=from_us(row[7]),
        settled_at=from_us(row[8]), elapsed_s=row[9], due_at=maybe_us(row[10]), delay_s=row[11],
        counted=row[12], kind=row[13], message=row[14], policy=row[15], why_json=row[16],
        evidence_json=row[17],
    )  # fmt: skip
