"""Gates: the control row, what workers tell each other about it, and the one job that goes through as its probe.

Always true: a gate's row and the parting of its limits change only where the generation is as seen, and
each change raises it. A probe is one transaction: the gate has changed and its job is claimed, or neither.

Who is authoritative: the rows. Samples are what one worker has noted; only that worker writes them, while
it lives, and nobody guards them: they are hints for a judgement, which itself is guarded.

What may happen at once: anything, in READ COMMITTED. Of two that probe, the second waits for the gate's row
and then finds another generation in it. A job that another hand holds at that moment is passed over.

If we die in the middle, nothing has happened. If the answer to a probe is lost, the same call again is told
that the gate has moved on; the job is found among what its worker holds.
"""

from collections.abc import Mapping, Sequence

from perdure.model.changes import ChangeKind
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateLook, GateRow, Probe, Slices
from perdure.model.jobs import ClaimOrder
from perdure.model.limits import PROBE_BATCH_MAX, PROMOTE_BATCH_MAX
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
from perdure.stores.postgres.audit_log import note
from perdure.stores.postgres.change_feed import tell
from perdure.stores.postgres.claim import array
from perdure.stores.postgres.connection import PostgresConnection
from perdure.stores.postgres.connection_pool import Cx
from perdure.stores.postgres.record import claims_of, json_answer
from perdure.stores.postgres.statements import SQL
from perdure.stores.rows import encode


class PostgresGates:
    """The part of the `Store` port that is about gates."""

    _connection: PostgresConnection

    def probe(self, order: ClaimOrder, change: GateChange, deed: Deed) -> Probe | None:
        """Change a gate where its generation is as seen, and claim one job from behind it."""
        try:
            return self._connection.write(lambda cx, now: _probe(cx, order, change, deed, now))
        except NoProbe:
            return None

    def look_at_gates(
        self, names: Sequence[str], *, worker: int, samples: Mapping[str, str]
    ) -> GateLook:
        """Keep this worker's samples, and read all there is about these gates; one statement."""
        return look(self._connection, names, worker, samples)

    def change_slices(self, slices: Slices) -> bool:
        """Part an upstream's limits anew where the generation is as seen."""
        statement = SQL.slices_change if slices.generation else SQL.slices_add
        where = slices_in(slices)
        return self._connection.resend(lambda cx: cx.execute(statement, where).rowcount == 1)


def look(
    connection: PostgresConnection, names: Sequence[str], worker: int, samples: Mapping[str, str]
) -> GateLook:
    """All there is about these gates and their parents, but what this worker has noted itself."""
    where = {
        "names": encode(list(names)),
        "worker": worker,
        "samples": encode(dict(samples)),
        "most_us": SAMPLES_US_MAX,
        "now": connection.now(),
    }
    found = connection.resend(lambda cx: json_answer(cx.execute(SQL.gates_look, where)))
    read = (found[name] or () for name in ("rows", "samples", "slices", "alive"))
    return look_out(found["now"], *read)


def change_gate(cx: Cx, change: GateChange, deed: Deed, now: int) -> GateRow | None:
    """Compare and set, with its line in the audit log; resting workers are told to look."""
    statement = SQL.gate_change if change.generation else SQL.gate_add
    row = cx.execute(statement, change_in(change, deed, now)).fetchone()
    if row is None:
        return None
    note(cx, deeds.gate_verb(change), [change.name], deed, now)
    gate = GATE.read(row)
    tell(cx, ChangeKind.GATE_CHANGED, [gate_entry(gate)], now)
    cx.execute(SQL.notify)
    return gate


def _probe(cx: Cx, order: ClaimOrder, change: GateChange, deed: Deed, now: int) -> Probe | None:
    if cx.execute(SQL.worker_writing, {"worker": order.worker}).fetchone() is None:
        raise WorkerDead(f"worker {order.worker} was declared dead, so it may probe nothing")
    gate = change_gate(cx, change, deed, now)
    if gate is None:
        return None
    behind = {"lanes": array(lanes_of(order)), "gate": change.name}
    lanes = [no for (no,) in cx.execute(SQL.lanes_behind, behind).fetchall()]
    where = {
        "lanes": array(lanes),
        "isolation": order.isolation,
        "worker": order.worker,
        "now": now,
        "limit": PROMOTE_BATCH_MAX,
        "look": PROBE_BATCH_MAX,
    }
    cx.execute(SQL.probe_promote, where)
    taken = cx.execute(SQL.probe_claim, where).fetchall()
    if not taken:
        raise NoProbe
    (claim,) = claims_of(cx, dict(taken))
    failed = cx.execute(SQL.failing_since, failing_in(claim)).fetchone()
    return Probe(gate, claim, failing_since(failed))
