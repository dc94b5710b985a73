"""Between rows and nouns, the same for every store, where it takes more than the columns of a noun."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.model.errors import StoreDamaged
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
from perdure.model.outcomes import Death
from perdure.model.views import DeadGroup, JobView, LaneView
from perdure.stores.columns import CLAIM, EXPIRED, JOB
from perdure.stores.moments import from_us, seconds_us, to_us

AGEING_US = seconds_us(AGEING_S)

_death = msgspec.json.Decoder(Death)
Row = tuple[Any, ...] | list[Any]

_PAYLOAD = CLAIM.places["payload_json"]


def encode(value: object) -> str:
    """Any noun as JSON text."""
    return msgspec.json.encode(value).decode()


def past_in(past: Counters) -> str | None:
    """The counters of earlier stages, as they are stored."""
    return None if past is ZERO or past == ZERO else encode(past)


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
    """A claim, from its columns and its input. A damaged row is claimed all the same, to be settled as that."""
    given, damage = row[CLAIM.width], None
    if given is None:
        given = row[_PAYLOAD]
    elif given == "":
        given, damage = "null", "the result of the stage before is gone"
    try:
        return CLAIM.read(row, given, damage)
    except msgspec.DecodeError as error:
        damage = damage or f"the counters of its earlier stages cannot be read ({error})"
        return CLAIM.read(CLAIM.blank(row, "past"), given, damage)


def expired_out(row: Row) -> Expired:
    """A waiting job whose deadline has passed; one whose past is damaged has none."""
    try:
        return EXPIRED.read(row)
    except msgspec.DecodeError:
        return EXPIRED.read(EXPIRED.blank(row, "past"))


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
    """A job as people see it."""
    try:
        return JOB.read(row)
    except (TypeError, ValueError, OverflowError, msgspec.DecodeError) as error:
        raise StoreDamaged(
            f"the row of job {row[JOB.places['id']]} cannot be read ({error}); see: perdure audit"
        ) from error


def lanes_out(
    rows: Iterable[Row], closed: Iterable[Row], waiting: Mapping[int, tuple[int, int]]
) -> list[LaneView]:
    """Lanes, from rows of `lanes_list.sql` and `lanes_closed_by.sql`, and how many jobs wait in each."""
    by: dict[int, list[str]] = {}
    for lane, closed_by in closed:
        by.setdefault(lane, []).append(closed_by)
    return [
        LaneView(no, Lane(*names), "; ".join(by.get(no, ())) or None, *waiting.get(no, (0, 0)))
        for no, *names in rows
    ]


def dead_group_out(row: Row) -> DeadGroup:
    """Dead letters with one fingerprint, as `dead_groups.dead_groups` counts them."""
    return DeadGroup(
        fingerprint=row[0] or "",
        pipeline=row[1],
        stage=row[2],
        kind=row[3] or "",
        code=row[4] or "",
        count=row[5],
        first_at=from_us(row[6]),
        last_at=from_us(row[7]),
        example_id=row[8],
        example=row[9] or "",
    )


def without_repeats(jobs: Sequence[NewJob]) -> list[NewJob]:
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
