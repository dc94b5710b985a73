"""Gates: the control row, what workers tell each other about it, and the one job that goes through as its probe.

Always true: a gate's row and the parting of its limits change only where the generation is as seen, and
each change raises it. A probe is one transaction: the gate has changed and its job is claimed, or neither.

Who is authoritative: the rows. Samples are what one worker has noted; only that worker writes them, while
it lives, and nobody guards them: they are hints for a judgement, which itself is guarded.

What may happen at once: any number of processes, one after the other under the turnstile; who only looks
waits for nobody. If we die in the middle, nothing has happened. If the answer to a probe is lost, the same
call again is told that the gate has moved on; the job is found among what its worker holds.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from perdure.model.changes import ChangeKind
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateLook, GateRow, Probe, Slices
from perdure.model.jobs import ClaimOrder
from perdure.model.limits import PROBE_BATCH_MAX
from perdure.model.operations import Deed
from perdure.stores import deeds
from perdure.stores.change_lines import gate_entry
from perdure.stores.columns import GATE
from perdure.stores.gate_rows import (
    SAMPLES_US_MAX,
    NoProbe,
    change_in,
    failing_in,
    failing_since,
    look_out,
    slices_in,
)
from perdure.stores.lane_slots import lanes_of
from perdure.stores.rows import Row, encode
from perdure.stores.sqlite.audit_log import note
from perdure.stores.sqlite.change_feed import tell
from perdure.stores.sqlite.claim import heads, promote, take
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.statements import SQL


class SqliteGates:
    """The part of the `Store` port that is about gates."""

    _connection: SqliteConnection

    def probe(self, order: ClaimOrder, change: GateChange, deed: Deed) -> Probe | None:
        """Change a gate where its generation is as seen, and claim one job from behind it."""
        try:
            with self._connection.write() as (cx, now):
                return _probe(cx, order, change, deed, now)
        except NoProbe:
            return None

    def look_at_gates(
        self, names: Sequence[str], *, worker: int, samples: Mapping[str, str]
    ) -> GateLook:
        """Keep this worker's samples, and read all there is about these gates and their parents."""
        if not samples:  # then we wait for no writer
            with self._connection.read() as (cx, now):
                return look(cx, names, worker, now)
        with self._connection.write() as (cx, now):
            cx.executemany(
                SQL.samples_keep,
                [
                    {"gate": gate, "worker": worker, "samples": told, "now": now}
                    for gate, told in samples.items()
                ],
            )
            return look(cx, names, worker, now)

    def change_slices(self, slices: Slices) -> bool:
        """Part an upstream's limits anew where the generation is as seen."""
        statement = SQL.slices_change if slices.generation else SQL.slices_add
        with self._connection.write() as (cx, _):
            return cx.execute(statement, slices_in(slices)).rowcount == 1


def change_gate(cx: sqlite3.Connection, change: GateChange, deed: Deed, now: int) -> GateRow | None:
    """Compare and set, with its line in the audit log."""
    statement = SQL.gate_change if change.generation else SQL.gate_add
    row = cx.execute(statement, change_in(change, deed, now)).fetchone()
    if row is None:
        return None
    note(cx, deeds.gate_verb(change), [change.name], deed, now)
    gate = GATE.read(row)
    tell(cx, ChangeKind.GATE_CHANGED, [gate_entry(gate)], now)
    return gate


def _probe(
    cx: sqlite3.Connection, order: ClaimOrder, change: GateChange, deed: Deed, now: int
) -> Probe | None:
    if cx.execute(SQL.worker_alive, {"worker": order.worker}).fetchone() is None:
        raise WorkerDead(f"worker {order.worker} was declared dead, so it may probe nothing")
    gate = change_gate(cx, change, deed, now)
    if gate is None:
        return None
    behind = {"lanes": encode(lanes_of(order)), "gate": change.name}
    lanes = [no for (no,) in cx.execute(SQL.lanes_behind, behind).fetchall()]
    promote(cx, order, lanes, now)
    first = heads(cx, order, lanes, PROBE_BATCH_MAX)
    if not first:
        raise NoProbe
    (no,) = cx.execute(SQL.probe_pick, {"nos": encode(first)}).fetchone()
    (claim,) = take(cx, [no], order.worker, now)
    failed = cx.execute(SQL.failing_since, failing_in(claim)).fetchone()
    return Probe(gate, claim, failing_since(failed))


def look(cx: sqlite3.Connection, names: Iterable[str], worker: int, now: int) -> GateLook:
    """All there is about these gates and their parents, but what this worker has noted itself."""
    asked = set(names)
    rows = _among(cx, SQL.gates_among, asked)
    parents = {row[1] for row in rows if row[1] is not None} - asked
    rows = sorted((*rows, *_among(cx, SQL.gates_among, parents)))
    asked |= parents
    lately = {"worker": worker, "since": now - SAMPLES_US_MAX}
    samples = _among(cx, SQL.samples_among, asked, **lately)
    alive = [no for (no,) in cx.execute(SQL.workers_alive).fetchall()]
    return look_out(now, rows, samples, _among(cx, SQL.slices_among, asked), alive)


def _among(cx: sqlite3.Connection, sql: str, names: set[str], **values: object) -> list[Row]:
    return list(cx.execute(sql, {"names": encode(sorted(names)), **values}).fetchall())
