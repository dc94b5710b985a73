"""Enqueueing: new rows, or the jobs that had their ids or keys before; in our transaction or another's."""

from collections.abc import Sequence

from perdure.model.jobs import Enqueued, IfFailed, NewJob
from perdure.model.operations import Revival
from perdure.model.states import State
from perdure.stores.postgres.lending import Cx
from perdure.stores.postgres.reviving import revive
from perdure.stores.postgres.settling import answered
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import AGEING_US, Row, apart, encoded, job_in


def accept(cx: Cx, jobs: Sequence[NewJob], now: int | None) -> list[Enqueued]:
    """Insert what is new, find what is not. Without a moment the server's own is taken."""
    rows = [job_in(job) for job in apart(jobs)]
    cursor = cx.execute(SQL.enqueue, {"jobs": encoded(rows), "now": now, "ageing_us": AGEING_US})
    made = dict(answered(cursor) or ())
    missing = [job for job in jobs if job.id not in made]
    before = _found(cx, missing, now) if missing else {}
    return [
        Enqueued(job.id, made[job.id], True) if job.id in made else before[job.id] for job in jobs
    ]


def _found(cx: Cx, jobs: Sequence[NewJob], now: int | None) -> dict[str, Enqueued]:
    asked = {job.id: job for job in jobs}
    rows = [
        {
            "id": job.id, "owner": job.owner, "pipeline": job.pipeline, "run": job.run,
            "key": job.key,
        }
        for job in asked.values()
    ]  # fmt: skip
    found = cx.execute(SQL.enqueued_before, {"jobs": encoded(rows)}).fetchall()
    again = [_revival(row) for row in found if _is_dead(row, asked[row[0]])]
    revived = revive(cx, again, _now(cx, now)) if again else set()
    return {row[0]: Enqueued(row[2], row[1], row[0] == row[2], row[1] in revived) for row in found}


def _is_dead(row: Row, job: NewJob) -> bool:
    return bool(row[0] != row[2] and row[3] == State.FAILED and job.if_failed is IfFailed.RETRY)


def _revival(row: Row) -> Revival:
    _, no, id, _, token, stage, lane, input_from = row
    return Revival(no, id, token, stage, lane, input_from)


def _now(cx: Cx, now: int | None) -> int:
    if now is not None:
        return now
    row = cx.execute(SQL.clock).fetchone()
    assert row is not None
    return int(row[0])
