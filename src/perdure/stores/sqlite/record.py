"""Writing records: one guarded update a job, and what belongs to it in the same transaction.

Rows are bound one at a time, by `executemany`. A JSON array of records was tried and is three times slower
here: SQLite looks a key up by walking the object, and a record has forty of them.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from perdure.model.changes import ChangeKind
from perdure.model.jobs import Claim, Receipt, Record, RecordRefused, Settled, Stale
from perdure.model.states import TERMINAL, State
from perdure.stores.columns import counted
from perdure.stores.moments import from_us, maybe_us, seconds_us, to_us
from perdure.stores.plain_success import is_plain
from perdure.stores.rows import claim_out, delay_us, encode, past_in
from perdure.stores.sqlite.change_feed import tell_columns
from perdure.stores.sqlite.statements import SQL
from perdure.stores.tally_changes import JobBefore, TallyChanges, place_of

UNWRITABLE = (sqlite3.IntegrityError, sqlite3.DataError, ValueError, OverflowError, TypeError)


class RowRefused(Exception):
    """One row of a batch cannot be written."""


def _is_bad_row(error: Exception) -> bool:
    """Whether the fault is in one row; a value that cannot be bound is a ProgrammingError."""
    bound = isinstance(error, sqlite3.ProgrammingError) and "binding" in str(error)
    return bound or isinstance(error, UNWRITABLE)


def record_all(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    """All records at once; one that cannot be written refuses them all."""
    try:
        return _write(cx, sorted(records, key=lambda one: one.no), by, now)
    except (*UNWRITABLE, sqlite3.ProgrammingError) as error:
        if not _is_bad_row(error):
            raise
        raise RowRefused from error


def record_each(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    """One bad row does not spoil its neighbours."""
    settled: list[Settled] = []
    for one in records:
        cx.execute("SAVEPOINT one")
        try:
            settled.extend(_write(cx, [one], by, now))
        except (*UNWRITABLE, sqlite3.ProgrammingError) as error:
            if not _is_bad_row(error):
                raise
            cx.execute("ROLLBACK TO one")
            settled.append(RecordRefused(one.no, one.id, one.token, str(error)))
        cx.execute("RELEASE one")
    return tuple(settled)


def claims_of(cx: sqlite3.Connection, nos: Iterable[int]) -> list[Claim]:
    """The claims of these jobs, whole, in the order of claiming."""
    wanted = list(nos)
    if not wanted:
        return []
    return [claim_out(row) for row in cx.execute(SQL.claims, {"nos": encode(wanted)}).fetchall()]


def add_tally(cx: sqlite3.Connection, tally: TallyChanges, writer: int, now: int) -> None:
    """Write down what has changed in the counts of runs and in the tallies."""
    added = (
        SQL.run_counts_add,
        SQL.run_kinds_add,
        SQL.depths_add,
        SQL.flows_add,
        SQL.deaths_add,
        SQL.owners_add,
    )
    for sql, rows in zip(added, tally.rows(writer, now), strict=True):
        if rows:
            cx.executemany(sql, rows)


def _write(
    cx: sqlite3.Connection, records: Sequence[Record], by: int | None, now: int
) -> tuple[Settled, ...]:
    asked = _where_open(cx, records)
    before = _rows_before(cx, asked)
    owners = {no: one.owner for (no, _), one in before.items() if one.owner}
    first = {(one.no, one.token): one for one in reversed(asked)}
    accepted = [one for claim, one in first.items() if claim in before]
    accepted.sort(key=lambda one: one.no)
    tally = TallyChanges()
    for one in accepted:
        tally.add_settled(one, before[one.no, one.token])
    plain: list[Record] = []
    others: list[Record] = []
    for one in accepted:
        (plain if is_plain(one, by) else others).append(one)
    cx.executemany(SQL.record_done, [_done_row(one, now) for one in plain])
    cx.executemany(SQL.record, [record_row(one, by, now) for one in others])
    _add_attempts(cx, accepted, owners, by, now)
    if owners:
        failed = [r for r in others if r.state is State.FAILED or r.attempt is None]
        cx.executemany(SQL.owned_put, [(r.no, now) for r in failed])
    cx.executemany(
        SQL.checkpoints_add,
        [
            (r.no, r.checkpoint_stage, r.token, now, r.checkpoint_json)
            for r in others
            if r.checkpoint_stage is not None
        ],
    )
    captured = [row for one in others for row in capture_rows(one, now)]
    if captured:
        cx.executemany(SQL.captures_add, captured)
    add_tally(cx, tally, by or 0, now)
    if accepted:
        tell_columns(cx, ChangeKind.ATTEMPT_ENDED, _entries(accepted, before), now)
    again = {one.no: one for one in claims_of(cx, [r.no for r in accepted if r.reclaim])}
    return tuple(
        _receipt(one, now, again.get(one.no) if one.reclaim else None)
        if (one.no, one.token) in before and first[one.no, one.token] is one
        else _earlier_receipt(cx, one, by)
        for one in asked
    )


def _add_attempts(
    cx: sqlite3.Connection,
    records: Sequence[Record],
    owners: Mapping[int, str],
    by: int | None,
    now: int,
) -> None:
    plain: list[tuple[object, ...]] = []
    more: list[tuple[object, ...]] = []
    for one in records:
        a = one.attempt
        if a is None:
            continue
        row = attempt_row(one, by, now)
        owner = owners.get(one.no)
        if owner is None and a.code is None and not (a.tokens_in or a.tokens_out or a.cost_nusd):
            plain.append(row)
        else:
            more.append((*row, a.code, a.tokens_in, a.tokens_out, a.cost_nusd, owner))
    cx.executemany(SQL.attempts_add, plain)
    if more:
        cx.executemany(SQL.attempts_add_more, more)


def _rows_before(
    cx: sqlite3.Connection, records: Sequence[Record]
) -> dict[tuple[int, int], JobBefore]:
    """What the guard will let pass, as it was: we are the only writer until our commit."""
    shown = encode([(one.no, one.token) for one in records])
    rows = cx.execute(SQL.records_matched, {"records": shown}).fetchall()
    return {
        (no, token): JobBefore(run, redrive_run, owner, pipeline, lane, place_of(*place))
        for no, token, run, redrive_run, owner, pipeline, lane, *place in rows
    }


def _entries(
    records: Sequence[Record], before: Mapping[tuple[int, int], JobBefore]
) -> Sequence[Sequence[object]]:
    """What the change feed tells of records: the columns of `Entry`."""
    whose = [before[one.no, one.token] for one in records]
    attempts = [one.attempt for one in records]
    return (
        [one.no for one in records],
        [one.id for one in records],
        [one.owner for one in whose],
        [one.pipeline for one in whose],
        [one.stage if a is None else a.stage for one, a in zip(records, attempts, strict=True)],
        [one.state for one in records],
        [None if a is None else a.status for a in attempts],
        [one.token + (2 if one.reclaim else 1) for one in records],
        [one.run for one in whose],
    )


def _where_open(cx: sqlite3.Connection, records: Sequence[Record]) -> Sequence[Record]:
    """The records; a re-claim in a closed lane is queued instead."""
    if not any(one.reclaim for one in records):
        return records
    closed = {lane for (lane,) in cx.execute(SQL.closed_lane_nos).fetchall()}
    return [
        replace(one, reclaim=False, state=State.QUEUED)
        if one.reclaim and one.lane in closed
        else one
        for one in records
    ]


def _done_row(record: Record, now: int) -> tuple[object, ...]:
    return (record.lane, now, record.label, record.result_json, record.no, record.token)


def record_row(record: Record, by: int | None, now: int) -> tuple[object, ...]:
    """A record, as `record.sql` binds it."""
    again = record.reclaim
    due_at = None if record.delay_s is None else now + delay_us(record.delay_s)
    return (
        record.no,
        record.token,
        str(record.state),
        int(due_at == now) if record.state is State.QUEUED else None,
        by if again else None,
        2 if again else 1,
        record.lane,
        record.stage,
        record.isolation,
        past_in(record.past),
        record.checkpoint_stage,
        due_at,
        now if again else None,
        now if record.state in TERMINAL else None,
        now,
        None if record.failed_reason is None else str(record.failed_reason),
        record.error_kind,
        record.error_message,
        record.label,
        record.result_json,
        record.error_code,
        record.error_detail,
        record.fingerprint,
        record.counters.starts + again,
        *counted(record.counters),
    )


def attempt_row(record: Record, by: int | None, now: int) -> tuple[object, ...]:
    """The attempt of a record, as `attempts_add.sql` binds it."""
    a = record.attempt
    assert a is not None
    due_at = None if record.delay_s is None else now + seconds_us(record.delay_s)
    return (
        record.no,
        record.token,
        a.stage,
        a.number,
        a.life,
        str(a.status),
        str(record.state),
        a.worker,
        to_us(a.claimed_at),
        now,
        a.elapsed_s,
        record.delay_s,
        due_at,
        a.counted,
        a.kind,
        a.message,
        a.policy,
        a.why_json,
        a.evidence_json,
        a.config_hash,
        by,
    )


def capture_rows(record: Record, now: int) -> Iterable[tuple[object, ...]]:
    """The captures of a record, as `captures_add.sql` binds them."""
    stage = record.stage if record.attempt is None else record.attempt.stage
    return [
        (
            one.id,
            record.no,
            record.token,
            stage,
            one.kind,
            one.media_type,
            one.content,
            one.bytes_whole,
            now,
            None if one.kept_s is None else now + seconds_us(one.kept_s),
        )
        for one in record.captures
    ]


def _receipt(record: Record, now: int, claim: Claim | None) -> Receipt:
    due_at = None if record.delay_s is None else from_us(now + seconds_us(record.delay_s))
    return Receipt(record.no, record.id, record.token, record.state, due_at, claim)


def _earlier_receipt(cx: sqlite3.Connection, record: Record, by: int | None) -> Receipt | Stale:
    where = {"job": record.no, "token": record.token, "by": by}
    row = cx.execute(SQL.settled_before, where).fetchone()
    if row is None or record.attempt is None:
        return Stale(record.no, record.id, record.token)
    state, due_at, token, worker = row
    ours = state == State.PROCESSING and worker == by and token == record.token + 2
    claim = claims_of(cx, [record.no])[0] if ours else None
    return Receipt(
        record.no, record.id, record.token, State(state), maybe_us(due_at), claim, repeated=True
    )
