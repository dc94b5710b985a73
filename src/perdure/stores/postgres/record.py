"""Records on their way to the server and receipts on their way back: one JSON value each, or arrays by column."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import psycopg

from perdure.model.errors import StoreError, WorkerDead
from perdure.model.jobs import (
    ZERO,
    Attempt,
    Busy,
    Capture,
    Claim,
    Receipt,
    Record,
    RecordRefused,
    Settled,
    Stale,
)
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.stores.columns import COUNTED, counted
from perdure.stores.moments import maybe_us, seconds_us, to_us
from perdure.stores.plain_success import is_plain
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.errors import ROW_CLASSES
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import Row, claim_out, delay_us, encode, past_in

UNWRITABLE = (psycopg.Error, ValueError, OverflowError, TypeError)
OWNER_LINES = (
    50  # of a process, not added up yet: who asks for an owner's open jobs reads all that there are
)

_answer = msgspec.json.Decoder()
_UNCOUNTED = frozenset({ZERO, replace(ZERO, starts=1)})


class OwnerLines:
    """The lines with the owners of successes that the batches of a process may have left since it last added them up."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._left = 0

    def add(self) -> None:
        """One more batch; when there are enough, they are added up."""
        self._left += 1
        if self._left >= OWNER_LINES:
            self._left = 0
            with suppress(StoreError):  # the batch stands; the upkeep adds up as well
                self._connection.resend(lambda cx: cx.execute(SQL.owners_ended_fold))


def parameters(
    records: Sequence[Record], by: int | None, now: int | None, *, lent: bool = False
) -> dict[str, object]:
    """What `record.sql` binds. Rows are locked in the order in which they stand here.

    ``lent`` on a connection that is not ours.
    """
    rows = [record_in(one, by) for one in sorted(firsts(records), key=lambda one: one.no)]
    waiting = sorted({(one.no, one.token) for one in records if one.attempt is None})
    return {
        "records": encode(rows),
        "by": by,
        "now": now,
        "lent": lent,
        "counter": None if lent else by,
        "waiting": [no for no, _ in waiting],
        "waiting_tokens": [token for _, token in waiting],
    }


def firsts(records: Sequence[Record]) -> Sequence[Record]:
    """The records, without a second word about the same claim: the first one counts."""
    found = {(one.no, one.token): one for one in reversed(records)}
    return records if len(found) == len(records) else list(found.values())


def plain_parameters(
    records: Sequence[Record], by: int | None, now: int | None
) -> dict[str, object] | None:
    """What `record_done.sql` binds, if all records are for it."""
    rows = sorted(firsts(records), key=lambda one: one.no)
    attempts = [one.attempt for one in rows if one.attempt is not None and is_plain(one, by)]
    if len(attempts) < len(rows):
        return None
    words = [(one.policy, one.why_json, one.config_hash) for one in attempts]
    places = {three: 3 * place + 1 for place, three in enumerate(dict.fromkeys(words))}
    labels = [one.label for one in rows]
    called = [one.called for one in attempts]
    return {
        "nos": array([one.no for one in rows]),
        "tokens": array([one.token for one in rows]),
        "lanes": array([one.lane for one in rows]),
        "elapsed_s": array([one.elapsed_s for one in attempts]),
        "results": encode([one.result_json for one in rows]),
        "labels": encode(labels) if any(one is not None for one in labels) else None,
        "called": array(called) if any(called) else None,
        "said": array([places[three] for three in words]),
        "words": encode([text for three in places for text in three]),
        "size": len(records),
        "by": by,
        "now": now,
    }


def record_in(record: Record, by: int | None) -> dict[str, object]:
    """A record, as `record.sql` reads it; what is null, zero or as the job has it is left out."""
    attempt = record.attempt
    row: dict[str, object] = {
        "no": record.no,
        "token": record.token,
        "state": record.state,
        "lane": record.lane,
    }
    if record.lane_from is not None:
        row["lane_from"] = record.lane_from
    if attempt is None:
        row["stage"] = record.stage
    else:
        row |= {
            "status": attempt.status,
            "elapsed_s": attempt.elapsed_s,
            "policy": attempt.policy,
            "why": attempt.why_json,
            "config_hash": attempt.config_hash,
        }
        anew = record.counters.starts != attempt.number  # handed over, or at the next stage
        if anew or record.stage != attempt.stage or record.reclaim:
            row |= {
                "stage": record.stage,
                "starts": record.counters.starts,
                "done_stage": attempt.stage,
                "number": attempt.number,
                "claimed_at": to_us(attempt.claimed_at),
            }
        if attempt.worker != by:
            row["worker"] = attempt.worker
        if attempt.evidence_json is not None:
            row["evidence"] = attempt.evidence_json
        if attempt.kind is not None or attempt.counted is not None or attempt.message:
            row |= {"counted": attempt.counted, "kind": attempt.kind, "message": attempt.message}
        _put_usage(row, attempt)
    if record.result_json is not None:
        row["result"] = record.result_json
    if record.delay_s is not None:
        row["delay_s"] = record.delay_s
        row["delay_us"] = delay_us(record.delay_s)
    if record.checkpoint_stage is not None:
        row["checkpoint_stage"] = record.checkpoint_stage
        row["checkpoint"] = record.checkpoint_json
    if record.reclaim:
        row["again"] = True
    if record.past is not ZERO:
        row["past"] = past_in(record.past)
    if record.isolation:
        row["isolation"] = record.isolation
    _put_failure(row, record)
    if record.captures:
        row["captures"] = [_capture_in(one) for one in record.captures]
    if record.label is not None:
        row["label"] = record.label
    counters = record.counters
    if counters not in _UNCOUNTED:
        row |= zip(COUNTED, counted(counters), strict=True)
    return row


def _put_usage(row: dict[str, object], attempt: Attempt) -> None:
    if attempt.code is not None:
        row["code"] = attempt.code
    if attempt.called:
        row["called"] = True
    if attempt.tokens_in or attempt.tokens_out or attempt.cost_nusd:
        row |= {
            "tokens_in": attempt.tokens_in,
            "tokens_out": attempt.tokens_out,
            "cost_nusd": attempt.cost_nusd,
        }


def _put_failure(row: dict[str, object], record: Record) -> None:
    if record.error_message is not None or record.state is not State.SUCCEEDED:
        row |= {
            "error_kind": record.error_kind,
            "error_message": record.error_message,
            "failed_reason": record.failed_reason,
        }
    if record.error_code is not None:
        row["error_code"] = record.error_code
    if record.error_detail is not None:
        row["error_detail"] = record.error_detail
    if record.fingerprint is not None:
        row["fingerprint"] = record.fingerprint


def _capture_in(one: Capture) -> dict[str, object]:
    """Raw output; msgspec writes bytes as base64."""
    return {
        "id": one.id,
        "kind": one.kind,
        "media_type": one.media_type,
        "content": one.content,
        "bytes_whole": one.bytes_whole,
        "kept_us": None if one.kept_s is None else seconds_us(one.kept_s),
    }


def json_answer(cursor: psycopg.Cursor[Any]) -> Any:
    """The one JSON value that a statement gave."""
    result = cursor.pgresult
    assert result is not None
    value = result.get_value(0, 0)
    return None if value is None else _answer.decode(value)


def done_rows(some: tuple[Sequence[int], Sequence[int]]) -> Sequence[Row]:
    """What `record_done.sql` did where it did not write all records, as `record.sql` answers it."""
    return [(no, token - 1, State.SUCCEEDED, None, None) for no, token in zip(*some, strict=True)]


def plain_receipts(records: Sequence[Record]) -> tuple[Settled, ...]:
    """The answer to records that `record_done.sql` has all written."""
    return tuple(Receipt(one.no, one.id, one.token, one.state, None) for one in records)


def receipts(
    cx: Cx,
    records: Sequence[Record],
    done: Sequence[Row] | None,
    by: int | None,
) -> tuple[Settled, ...]:
    """The answer to each record; one that was not written now may have been written when it was sent before."""
    accepted = {(row[0], row[1]): row for row in done or ()}
    fresh = {id(one) for one in firsts(records) if (one.no, one.token) in accepted}
    missing = [one for one in records if id(one) not in fresh]
    before = _earlier_receipts(cx, missing, by) if missing else {}
    return tuple(
        _receipt(one, accepted[one.no, one.token])
        if id(one) in fresh
        else before.get((one.no, one.token)) or Stale(one.no, one.id, one.token)
        for one in records
    )


def check_alive(alive: bool, worker: int | None) -> None:
    """Refuse a writer that was declared dead."""
    if not alive:
        raise WorkerDead(
            f"worker {worker} was declared dead, so nothing it says counts; it must stop"
        )


def busy_among(cx: Cx, records: Sequence[Record], *, owner: str | None = None) -> list[Busy]:
    """Those of these records whose jobs another transaction holds; the others are held by ours from now on.

    With an ``owner`` only his are looked at.
    """
    seen = encode([{"no": one.no, "token": one.token} for one in records])
    held = {no for (no,) in cx.execute(SQL.jobs_lock, {"seen": seen, "owner": owner}).fetchall()}
    return [Busy(one.no, one.id, one.token) for one in records if one.no in held]


def record_whole(cx: Cx, records: Sequence[Record], by: int | None, now: int) -> list[Settled]:
    """All records at once, inside a transaction; one by one where a row is bad. Answered in their order."""
    try:
        with cx.transaction():
            done = json_answer(cx.execute(SQL.record, parameters(records, by, now)))["done"]
    except UNWRITABLE as error:
        if not is_bad_row(error):
            raise
        each, _ = record_each(cx, records, by, now)
        told = {(one.no, one.token): one for one in each}
        return [told[one.no, one.token] for one in records]
    return list(receipts(cx, records, done, by))


def record_all(
    cx: Cx, records: Sequence[Record], by: int | None, now: int | None
) -> tuple[tuple[Settled, ...], bool]:
    """All records at once; one that cannot be written refuses them all. Also whether the writer lives."""
    if not records:
        return (), True
    answer = json_answer(cx.execute(SQL.record, parameters(records, by, now)))
    return receipts(cx, records, answer["done"], by), answer["alive"]


def record_each(
    cx: Cx, records: Sequence[Record], by: int | None, now: int | None, *, lent: bool = False
) -> tuple[tuple[Settled, ...], bool]:
    """One bad row does not spoil its neighbours: a savepoint each. Also whether the writer lives."""
    settled: list[Settled] = []
    for one in sorted(records, key=lambda one: one.no):
        try:
            with cx.transaction():
                answer = json_answer(cx.execute(SQL.record, parameters([one], by, now, lent=lent)))
        except UNWRITABLE as error:
            if not is_bad_row(error):
                raise
            settled.append(RecordRefused(one.no, one.id, one.token, str(error).strip()))
            continue
        if not answer["alive"]:
            return (), False
        settled.extend(receipts(cx, [one], answer["done"], by))
    return tuple(settled), True


def is_bad_row(error: Exception) -> bool:
    """Whether the fault is in one row and its neighbours can be written without it."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError) or (error.sqlstate or "")[:2] in ROW_CLASSES
    return isinstance(error, UNWRITABLE)


def claims_of(cx: Cx, seen: Mapping[int, int]) -> list[Claim]:
    """The claims of these jobs, whole, in the order of claiming, if they still have the tokens seen.

    This is a statement of its own with a newer snapshot: a job may be in other hands by now.
    """
    if not seen:
        return []
    rows = cx.execute(SQL.claims, {"nos": list(seen)}).fetchall()
    return [one for one in map(claim_out, rows) if one.token == seen[one.no]]


def _receipt(record: Record, row: Row) -> Receipt:
    _, _, state, due_at, claim = row
    return Receipt(
        record.no,
        record.id,
        record.token,
        State(state),
        maybe_us(due_at),
        None if claim is None else claim_out(claim),
    )


def _earlier_receipts(
    cx: Cx, records: Sequence[Record], by: int | None
) -> dict[tuple[int, int], Receipt]:
    asked = {(one.no, one.token): one for one in records if one.attempt is not None}
    where = {
        "records": encode([{"no": one.no, "token": one.token} for one in asked.values()]),
        "by": by,
    }
    rows = cx.execute(SQL.settled_before, where).fetchall() if asked else []
    ours = {
        no: token
        for no, old_token, state, _, token, worker in rows
        if state == State.PROCESSING and worker == by and token == old_token + 2
    }
    again = {one.no: one for one in claims_of(cx, ours)}
    return {
        (no, token): Receipt(
            no,
            asked[no, token].id,
            token,
            State(state),
            maybe_us(due_at),
            again.get(no) if state == State.PROCESSING else None,
            repeated=True,
        )
        for no, token, state, due_at, _, _ in rows
    }
