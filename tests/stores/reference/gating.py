"""Gates in the reference model: the control row, what workers tell each other, and the probe."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from perdure.model.changes import ChangeKind
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateLook, GateRow, GateState, Probe, Samples, Slices
from perdure.model.jobs import Claim, ClaimOrder
from perdure.model.kinds import KINDS, Kind, Sign
from perdure.model.limits import PROBE_BATCH_MAX, SAMPLES_S_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.states import State
from tests.stores.reference.claiming import promote, take
from tests.stores.reference.rows import JobRow
from tests.stores.reference.tables import Tables, in_line, length

_VERBS = {
    GateState.FLOWING: "release gate", GateState.HELD: "hold gate",
    GateState.PROBING: "probe gate",
}  # fmt: skip


class Gatehouse:
    """The part of the `Store` port that is about gates."""

    _tables: Tables

    def probe(self, order: ClaimOrder, change: GateChange, deed: Deed) -> Probe | None:
        """The gate changes and one job goes through, or neither."""
        with self._tables.written(self) as now:
            if not self._tables.is_alive(order.worker):
                raise WorkerDead(
                    f"worker {order.worker} was declared dead, so it may probe nothing"
                )
            known = self._tables.gates.get(change.name)
            if change.generation != (0 if known is None else known.generation):
                return None
            could = self._could_run(order, change, now)
            if not could:
                return None
            gate = change_gate(self._tables, change, deed, now)
            assert gate is not None
            promote(self._tables, could, now)
            first = sorted((job for job in self._again(could) if job.ready), key=in_line)
            least = min(
                first[:PROBE_BATCH_MAX], key=lambda job: (job.counters.starts, *in_line(job))
            )
            (claim,) = self._tables.claims([take(self._tables, least, order.worker, now)])
            return Probe(gate, claim, self._failing_since(claim))

    def _failing_since(self, claim: Claim) -> datetime | None:
        """The end of the first call of this stage and life that speaks against the upstream."""
        ended = [
            one.told.claimed_at + timedelta(seconds=one.told.elapsed_s)
            for (no, _), one in sorted(self._tables.attempts.items())
            if no == claim.no
            and (one.told.life, one.told.stage) == (claim.life, claim.stage)
            and one.told.kind is not None
            and KINDS[Kind(one.told.kind)].sign is Sign.BAD
        ]
        return ended[0] if ended else None

    def _could_run(self, order: ClaimOrder, change: GateChange, now: datetime) -> list[JobRow]:
        lanes = {*order.lanes, *(lane for part in order.parts for lane in part.lanes if part.slots)}
        behind = {no for no in lanes if self._is_behind(no, change)}
        return [
            job
            for job in self._tables.jobs.values()
            if job.state is State.QUEUED
            and job.lane in behind
            and job.isolation == order.isolation
            and (job.ready or job.due_at <= now)
        ]

    def _again(self, jobs: Sequence[JobRow]) -> list[JobRow]:
        return [self._tables.jobs[job.no] for job in jobs]

    def _is_behind(self, no: int, change: GateChange) -> bool:
        """Whether this gate stands before the lane, and would be all that closes it after the change."""
        lane = self._tables.lanes.get(no)
        if lane is None or lane.upstream is None:
            return False
        own = self._tables.gates.get(lane.upstream)
        parent = change.parent if lane.upstream == change.name else own and own.parent
        if change.name not in (lane.upstream, parent):
            return False
        gates = [
            self._tables.gates.get(name)
            for name in {lane.upstream, parent} - {change.name, None}
            if name
        ]
        shut = any(gate is not None and gate.state is not GateState.FLOWING for gate in gates)
        return not shut and not self._tables.paused_by(lane)

    def look_at_gates(
        self, names: Sequence[str], *, worker: int, samples: Mapping[str, str]
    ) -> GateLook:
        """All about these gates and their parents; own samples are for the others."""
        tables = self._tables
        with tables.written(self) if samples else tables.read() as now:
            if tables.is_alive(worker):
                for gate, told in samples.items():
                    tables.samples[gate, worker] = Samples(gate, worker, told, now)
            return look(tables, names, worker, now)

    def change_slices(self, slices: Slices) -> bool:
        """Compare and set on the generation; without a row it is 0."""
        with self._tables.written(self):
            known = self._tables.slices.get(slices.gate)
            if slices.generation != (0 if known is None else known.generation):
                return False
            self._tables.slices[slices.gate] = replace(slices, generation=slices.generation + 1)
            return True


def look(tables: Tables, names: Sequence[str], worker: int, now: datetime) -> GateLook:
    """All about these gates and their parents, but what this worker has noted itself."""
    asked = set(names)
    asked |= {row.parent for row in tables.gates.values() if row.name in names and row.parent}
    return GateLook(
        now,
        tuple(row for name, row in sorted(tables.gates.items()) if name in asked),
        tuple(
            told
            for (gate, other), told in sorted(tables.samples.items())
            if gate in asked
            and other != worker
            and tables.is_alive(other)
            and told.saved_at >= now - length(SAMPLES_S_MAX)
        ),
        tuple(one for gate, one in sorted(tables.slices.items()) if gate in asked),
        frozenset(no for no in tables.workers if tables.is_alive(no)),
    )


def change_gate(tables: Tables, change: GateChange, deed: Deed, now: datetime) -> GateRow | None:
    """Compare and set on the generation; a gate without a row is at generation 0."""
    known = tables.gates.get(change.name)
    if change.generation != (0 if known is None else known.generation):
        return None
    row = GateRow(
        name=change.name,
        parent=change.parent,
        state=change.state,
        generation=change.generation + 1,
        held_until=None if change.held_for_s is None else now + length(change.held_for_s),
        reason=change.reason,
        changed_by=deed.by_whom,
        changed_at=now,
        control_json=change.control_json,
    )
    tables.gates[change.name] = row
    tables.log(deed, change.verb or _VERBS[change.state], change.name, now)
    tables.tell(
        ChangeKind.GATE_CHANGED, now, 0, row.name, state=row.state.value, token=row.generation
    )
    return row
