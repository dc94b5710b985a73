"""Between rows and nouns, the same for every store: both stores select these columns in this order."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from perdure.model.errors import StoreDamaged
from perdure.model.gates import GateRow, GateState
from perdure.model.jobs import (
    ZERO,
    Claim,
    Counters,
    Expired,
    Lane,
    LostClaim,
    NewJob,
    OnLost,
    Overrun,
)
from perdure.model.limits import AGEING_S, DELAY_S_MAX
from perdure.model.operations import (
    BulkPhase,
    BulkStatus,
    BulkVerb,
    BulkView,
    LanePause,
    LaneScope,
    LoggedDeed,
    ScheduleView,
)
from perdure.model.outcomes import Death
from perdure.model.runs import ItemView, RunCounts, RunStatus, RunView
from perdure.model.states import AttemptStatus, FailedReason, State
from perdure.model.views import AttemptView, CaptureView, DeadGroup, JobView, LaneView
from perdure.model.workers import Role, WorkerView
from perdure.stores.moments import from_us, maybe_us, seconds_us, to_us

AGEING_US = seconds_us(AGEING_S)

_counters = msgspec.json.Decoder(Counters)
_kinds = msgspec.json.Decoder(dict[str, int])
_death = msgspec.json.Decoder(Death)
Row = tuple[Any, ...] | list[Any]


def encoded(value: object) -> str:
    """Any noun as JSON text."""
    return msgspec.json.encode(value).decode()


def past_of(text: str | None) -> Counters:
    """The counters of earlier stages."""
    return ZERO if text is None else _counters.decode(text)


def past_in(past: Counters) -> str | None:
    """The counters of earlier stages, as they are stored."""
    return None if past is ZERO or past == ZERO else encoded(past)


def death_of(text: str) -> Death:
    """How a worker died; one that cannot be read was silent, for all we know."""
    try:
        return _death.decode(text)
    except msgspec.DecodeError:
        return Death("silent")


def job_in(job: NewJob, rank_at: int | None = None) -> dict[str, object]:
    """A new job, as `enqueue.sql` reads it; what is left out is null. A fair one has its rank."""
    row: dict[str, object] = {
        "id": job.id,
        "owner": job.owner,
        "pipeline": job.pipeline,
        "lane": job.lane,
        "stage": job.stage,
        "priority": job.priority,
        "payload": job.payload_json,
    }
    if job.key is not None:
        row["key"] = job.key
    if job.run is not None:
        row["run"] = job.run
    if job.run_at is not None:
        row["run_at"] = to_us(job.run_at)
    deadline_us, policies_us = lengths_in(job)
    if deadline_us is not None:
        row["deadline_us"] = deadline_us
    elif policies_us is not None:
        row["policies_us"] = policies_us
    if job.request_id is not None:
        row["request_id"] = job.request_id
    if job.ordered_at is not None:
        row["ordered_at"] = to_us(job.ordered_at)
    if job.tokens is not None:
        row["tokens"] = job.tokens
    if rank_at is not None:
        row["rank_at"] = rank_at
    return row


def lengths_in(job: NewJob) -> tuple[int | None, int | None]:
    """The total time of a new job as it is stored: the caller's own, or that of its policies, or none."""
    if job.deadline_s is not None:
        return seconds_us(job.deadline_s), None
    return None, None if job.policies_s is None else seconds_us(job.policies_s)


def delay_us(delay_s: float) -> int:
    """A delay in whole microseconds, never shortened; one that no rule can have asked for is refused."""
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise ValueError(f"a delay of {delay_s!r} s; it must lie between 0 and {DELAY_S_MAX:g}")
    return seconds_us(delay_s)


def claim_out(row: Row) -> Claim:
    """A claim. A row that somebody has damaged is claimed all the same, to be settled as that.

    The input is null where it is the payload itself, and empty where its checkpoint is gone.
    """
    past, damage, given = ZERO, None, row[8]
    if row[17] is not None:
        try:
            past = _counters.decode(row[17])
        except msgspec.DecodeError as error:
            damage = f"the counters of its earlier stages cannot be read ({error})"
    if given == "":
        damage, given = "the result of the stage before is gone", "null"
    return Claim(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7],
        row[7] if given is None else given,
        _counters_of(tuple(row[9:17])), past, row[18], row[19],
        _moment(row[20]), _moment(row[21]), maybe_us(row[22]), row[23], row[24], damage,
        row[25], row[26] or row[1],
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _counters_of(columns: tuple[Any, ...]) -> Counters:
    """Most claims of a batch count alike; building the noun is half the cost of reading a claim."""
    return Counters(*columns)


_moment = lru_cache(maxsize=4096)(from_us)  # most claims of a batch share their moments


def expired_out(row: Row) -> Expired:
    """A waiting job whose deadline has passed, from a row of `expired.sql`."""
    no, id, token, lane, pipeline, stage, isolation, run, request_id, past, *counters = row
    try:
        summed = past_of(past)
    except msgspec.DecodeError:
        summed = ZERO
    return Expired(
        no, id, token, lane, pipeline, stage, Counters(*counters), summed, isolation, run,
        request_id or id,
    )  # fmt: skip


def lost_out(claim: Claim, row: Row, now: int) -> LostClaim:
    """A claim whose worker is dead, from it and the rest of a row of `lost.sql`."""
    worker, on_lost, death = row
    return LostClaim(claim, worker, death_of(death), from_us(now), _wish(on_lost))


def overrun_out(claim: Claim, row: Row, now: int) -> Overrun:
    """A claim that is held for too long, from it and the rest of a row of `overrun.sql`."""
    worker, on_lost = row
    return Overrun(claim, worker, from_us(now), _wish(on_lost))


def _wish(on_lost: str | None) -> OnLost | None:
    if on_lost is None:
        return None
    return OnLost.DROP if on_lost == OnLost.DROP else OnLost.HAND_OVER


def job_out(row: Row) -> JobView:
    """A job, from a row of `job_by_id.sql` or of a page of jobs."""
    try:
        return JobView(
            no=row[0], id=row[1], owner=row[2], queue=row[3], pipeline=row[4], stage=row[5],
            state=State(row[6]), key=row[7], priority=row[8], life=row[9], token=row[10],
            lane=row[11], isolation=row[12], ready=row[13] == 1, worker=row[14],
            counters=Counters(*row[15:23]),
            past=past_of(row[23]),
            failed_reason=None if row[24] is None else FailedReason(row[24]),
            error_kind=row[25], error_message=row[26], label=row[27],
            payload_json=row[28], input_json=row[29] or "null", result_json=row[30],
            enqueued_at=from_us(row[31]), due_at=from_us(row[32]), claimed_at=maybe_us(row[33]),
            deadline_at=maybe_us(row[34]), finished_at=maybe_us(row[35]),
            category=row[36], run=row[37], redrive_run=row[38], retries_manual=row[39],
            input_from=row[40], discarded_at=maybe_us(row[41]), error_code=row[42],
            error_detail=row[43], fingerprint=row[44], updated_at=from_us(row[45]),
            request_id=row[46] or row[1], ordered_at=from_us(row[47]),
            deadline_s=_seconds(row[48]), policies_s=_seconds(row[49]),
        )  # fmt: skip
    except (ValueError, OverflowError, msgspec.DecodeError) as error:
        raise StoreDamaged(
            f"the row of job {row[1]} cannot be read ({error}); see: perdure audit"
        ) from error


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000


def attempt_out(row: Row) -> AttemptView:
    """An attempt, from a row of `attempts_of.sql`."""
    return AttemptView(
        job_no=row[0], token=row[1], stage=row[2], number=row[3], life=row[4],
        status=AttemptStatus(row[5]), worker=row[6], claimed_at=from_us(row[7]),
        settled_at=from_us(row[8]), elapsed_s=row[9], due_at=maybe_us(row[10]), delay_s=row[11],
        counted=row[12], kind=row[13], message=row[14], policy=row[15], why_json=row[16],
        evidence_json=row[17], code=row[18], tokens_in=row[19], tokens_out=row[20],
        cost_nusd=row[21], config_hash=row[22],
    )  # fmt: skip


def worker_out(row: Row) -> WorkerView:
    """A worker, from a row of `workers_list.sql`."""
    no, boot, name, role, ttl_us, started_at, beat_at, steady_at, dead_at, death = row
    return WorkerView(
        no=no, boot=boot, name=name, role=Role(role), ttl_s=ttl_us / 1_000_000,
        started_at=from_us(started_at), beat_at=from_us(beat_at), steady_at=from_us(steady_at),
        dead_at=maybe_us(dead_at), death_json=death,
    )  # fmt: skip


def lanes_out(
    rows: Iterable[Row], closed: Iterable[Row], waiting: Mapping[int, tuple[int, int]]
) -> list[LaneView]:
    """Lanes, from rows of `lanes_list.sql` and `lanes_closed.sql`, and how many jobs wait in each."""
    by: dict[int, list[str]] = {}
    for lane, closed_by in closed:
        by.setdefault(lane, []).append(closed_by)
    return [
        LaneView(
            no, Lane(*names), "; ".join(by.get(no, ())) or None, *waiting.get(no, (0, 0))
        )
        for no, *names in rows
    ]  # fmt: skip


def gate_out(row: Row) -> GateRow:
    """A gate, from a row of `gate.sql`, `gates_list.sql` or a change."""
    name, parent, state, generation, held_until, reason, changed_by, changed_at, control = row
    return GateRow(
        name, parent, GateState(state), generation, maybe_us(held_until), reason, changed_by,
        from_us(changed_at), control,
    )  # fmt: skip


def pause_out(row: Row) -> LanePause:
    """A pause, from a row of `pauses_list.sql`."""
    scope, name, reason, paused_by, paused_at = row
    return LanePause(LaneScope(scope), name, reason, paused_by, from_us(paused_at))


def run_out(row: Row) -> RunView:
    """A run, from a row of `run_by_id.sql`, `runs_page.sql` or a change; its kinds are one JSON object."""
    kinds: dict[str, int] = {} if row[27] is None else _kinds.decode(row[27])
    return RunView(
        no=row[0], id=row[1], owner=row[2], pipeline=row[3], name=row[4], status=RunStatus(row[5]),
        parent=row[6], settings_json=row[7], created_at=from_us(row[8]), changed_at=from_us(row[9]),
        ended_at=maybe_us(row[10]), sealed_at=maybe_us(row[11]), why=row[12], checked=row[13],
        fed_by=row[14], feeding_at=maybe_us(row[15]), fed_at=maybe_us(row[16]),
        counts=RunCounts(*(int(one) for one in row[17:27])),
        kinds={kind: failed for kind, failed in sorted(kinds.items()) if failed},
    )  # fmt: skip


def item_out(row: Row) -> ItemView:
    """An item of a run, from a row of `items.sql` or `items_ended.sql`."""
    return ItemView(
        no=row[0], id=row[1], key=row[2], state=State(row[3]), result_json=row[4], label=row[5],
        failed_reason=None if row[6] is None else FailedReason(row[6]), error_kind=row[7],
        error_code=row[8], error_message=row[9], finished_at=maybe_us(row[10]),
    )  # fmt: skip


def capture_out(row: Row) -> CaptureView:
    """A capture, from a row of `captures_of.sql`, without its content."""
    return CaptureView(
        no=row[0], id=row[1], job_no=row[2], token=row[3], stage=row[4], kind=row[5],
        media_type=row[6], bytes_kept=row[7], bytes_whole=row[8], saved_at=from_us(row[9]),
        expires_at=maybe_us(row[10]),
    )  # fmt: skip


def dead_group_out(row: Row) -> DeadGroup:
    """Dead letters with one fingerprint, as `choosing.dead_groups` counts them."""
    return DeadGroup(
        fingerprint=row[0] or "", pipeline=row[1], stage=row[2], kind=row[3] or "",
        code=row[4] or "", count=row[5], first_at=from_us(row[6]), last_at=from_us(row[7]),
        example_id=row[8], example=row[9] or "",
    )  # fmt: skip


def schedule_out(row: Row) -> ScheduleView:
    """A schedule, from a row of `schedules_list.sql`."""
    name, pipeline, spec, payload, next_at, ticked_at, ticks = row
    return ScheduleView(name, pipeline, spec, payload, from_us(next_at), maybe_us(ticked_at), ticks)


def bulk_out(row: Row) -> BulkView:
    """A bulk operation, from a row of `bulk_add.sql`, `bulk_step.sql` or `bulks_list.sql`."""
    return BulkView(
        no=row[0], id=row[1], verb=BulkVerb(row[2]), status=BulkStatus(row[3]), filter_json=row[4],
        begun_by=row[5], reason=row[6], cursor=row[7], done=row[8], refused=row[9],
        begun_at=from_us(row[10]), changed_at=from_us(row[11]), settings_json=row[12], run=row[13],
        phase=BulkPhase(row[14]), why=row[15],
    )  # fmt: skip


def deed_out(row: Row) -> LoggedDeed:
    """A line of the audit log, from a row of `deeds_page.sql`."""
    no, done_at, by_whom, verb, subject, reason = row
    return LoggedDeed(no, from_us(done_at), by_whom, verb, subject, reason)


def apart(jobs: Sequence[NewJob]) -> list[NewJob]:
    """The jobs, without those that repeat the id or the key of an earlier one."""
    if len({job.id for job in jobs}) == len(jobs) and all(job.key is None for job in jobs):
        return list(jobs)
    ids: set[str] = set()
    keys: set[tuple[object, ...]] = set()
    kept = []
    for job in jobs:
        key = None if job.key is None else (job.owner, job.pipeline, job.run, job.key)
        if job.id not in ids and key not in keys:
            kept.append(job)
        ids.add(job.id)
        if key is not None:
            keys.add(key)
    return kept
