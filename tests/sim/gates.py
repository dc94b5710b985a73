"""Judges what is done to gates, and what passes them.

As the checker, of which this is a part, it knows a gate from the changes that were committed, in their order.
What a call was really answered it hears from the stages themselves, so a gate that flows is held against the
probe that let it flow, and a pause against the words of the upstream. What a worker may be blamed for is what it
has heard: an answer that was lost on the way tells it nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.gates.limit_shares import NOBODY, slices_in
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.model.errors import WorkerDead
from perdure.model.gates import GateChange, GateRow, GateState, Probe, Slices
from perdure.model.jobs import Claim, ClaimOrder, Record
from perdure.model.kinds import KINDS, Blame, Kind, PauseScope, Sign
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.states import Move
from perdure.rules.gate.gate import Gate
from perdure.rules.gate.limit_slices import Slice
from perdure.rules.policy import HintMode
from perdure.stores.moments import to_us
from tests.sim.answers import Calls, Ended, is_turned_away, signs_of
from tests.sim.ledger import GateAccount, JobAccount
from tests.sim.outside import Outside
from tests.sim.probes import Probes

if TYPE_CHECKING:
    from tests.sim.checker import Checker

_gate_in = msgspec.json.Decoder(Gate).decode
_FLOWING, _HELD, _PROBING = GateState.FLOWING, GateState.HELD, GateState.PROBING
_MOVES = {
    (_FLOWING, _HELD),
    (_HELD, _HELD),
    (_HELD, _FLOWING),
    (_HELD, _PROBING),
    (_PROBING, _HELD),
    (_PROBING, _FLOWING),
}
_NEAR_US = 1_000  # of moments that were reckoned with fractions of a second


@dataclass(slots=True)
class Known:
    """What a worker has heard of a gate, and when that was said."""

    state: GateState = GateState.FLOWING
    at_us: int = 0


class Gates:
    """The judge of gates."""

    def __init__(self, checker: "Checker") -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._world = checker.world
        self._calls = Calls(checker.ledger)
        self._known: dict[tuple[int, str], Known] = {}
        self._since_us: dict[tuple[str, int], int] = {}  # since when a worker's slice has run
        self._dropped: dict[str, dict[int, Slice]] = {}  # what others have left out, or who had it
        self.outside = Outside()
        self._probes = Probes(self, checker, self._calls)

    # -- what really happened ------------------------------------------------------------

    def ended(self, job_id: str, token: int, end: object) -> None:
        """A stage has ended with this value or error."""
        self._calls.ended[job_id, token] = self._end_of(end)

    def checked(self, upstream: str, end: object) -> None:
        """A health check has ended so; a dictionary stands for an answer."""
        self._calls.checks.setdefault(upstream, []).append(self._end_of(end))

    def _end_of(self, end: object) -> Ended:
        now_us, wait_s = self._world.now_us, getattr(end, "wait_s", None)
        told_us = None if not wait_s else now_us + round(wait_s * 1e6)
        return Ended(now_us, signs_of(end), told_us, is_turned_away(end))

    def heard(
        self, method: str, answer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """An answer has reached whoever asked."""
        if method != "look_at_gates":
            return
        rows = {row.name: row for row in answer.rows}
        for name in self._names(args[0]):
            state = rows[name].state if name in rows else _FLOWING
            at_us = self._us(answer.now) or 0
            self._known[kwargs["worker"], name] = Known(state, at_us)
            self._calls.looked(kwargs["worker"], name, answer, self._world.now_us)

    def closed(self, stage: str) -> bool:
        """Whether a gate closes the lanes of a stage now."""
        upstream = self.outside.upstream(stage)
        if upstream is None:
            return False
        own = self._ledger.gate(upstream.name)
        return not own.flowing or not (own.parent is None or self._ledger.gate(own.parent).flowing)

    def was_probe(self, job_id: str, token: int) -> bool:
        """Whether that claim was made as a gate's probe."""
        return (job_id, token) in self._calls.probes

    def tells_of_job(self, job: JobAccount, token: int) -> bool:
        """Whether a failure of that probe may be held against its job: others were answered since it began to fail."""
        upstream = self.outside.upstream(job.stage)
        tries = [record.attempt for no, record in job.settled.items() if no != token]
        began = [
            self._us(one.claimed_at) or 0
            for one in tries
            if one is not None
            and one.kind is not None
            and (one.stage, one.life) == (job.stage, job.life)
            and KINDS[Kind(one.kind)].sign is Sign.BAD
        ]
        probe = (job.id, token) in self._calls.probes
        return (
            probe
            and upstream is not None
            and bool(began)
            and self._calls.answered(upstream.name, min(began))
        )

    # -- changes -------------------------------------------------------------------------

    def _change_gate(self, row: GateRow | None, change: GateChange, deed: Deed) -> None:
        self._compared(row, change, deed)
        if row is not None and change.state is _PROBING and deed.reason == "a probe is out":
            self._world.seen["probes by health checks"] += 1

    def _compared(self, row: GateRow | None, change: GateChange, deed: Deed) -> None:
        gate = self._ledger.gate(change.name)
        stands = gate.row.generation == change.generation
        if stands == (row is None):
            self._checker.broken(
                "E9", f"{change.name}: {change.generation} → {row}, it is at {gate.row.generation}"
            )
        if row is None:
            self._world.seen["changes of a gate that came second"] += 1
            return
        self._changed(gate, change, deed)

    def _probe(
        self, probe: Probe | WorkerDead | None, order: ClaimOrder, change: GateChange, deed: Deed
    ) -> None:
        if probe is None or isinstance(probe, WorkerDead):
            return
        claim, gate = probe.claim, self._ledger.gate(change.name)
        out = (claim.id, claim.token)
        if gate.row.state is _PROBING:
            self._checker.broken("S11", f"{change.name}: {out} and {gate.probe} are both its probe")
        self._compared(probe.gate, change, deed)
        upstream = self.outside.upstream(claim.stage)
        self._calls.probes[out] = change.name if upstream is None else upstream.name
        self._checker._claim(claim, order.worker, probes=change.name)
        gate.probe = out
        self._world.seen["probes"] += 1

    def _changed(self, gate: GateAccount, change: GateChange, deed: Deed) -> None:
        old, new = gate.row, _gate_in(change.control_json)
        name, person = change.name, not deed.by_whom.startswith(("worker", "caller"))
        gate.parent = change.parent
        if replace(old, generation=new.generation) == new:
            gate.row = new  # it has learnt of its credential, and of nothing else
            return
        if (old.state, new.state) not in _MOVES:
            self._checker.broken("S11", f"{name} went from {old.state} to {new.state}")
        if not person:
            self._by_worker(gate, new)
        self._probes.changed(gate, new, person=person)
        self._count(old, new, person=person)
        self._take_over(gate, new, person=person)

    def _by_worker(self, gate: GateAccount, new: Gate) -> None:
        """What no worker may do to a gate."""
        old, now_us = gate.row, self._world.now_us
        told_us = self._us(new.told_until) or 0
        if now_us < gate.told_us and told_us < gate.told_us:
            early_s = (gate.told_us - max(told_us, now_us)) / 1e6
            self._checker.broken("S11", f"{old.name}: the pause it was told is {early_s:g} s less")
        if old.state is _HELD and new.state is not _HELD:
            self._check_over(gate, new)

    def _check_over(self, gate: GateAccount, new: Gate) -> None:
        """A hold ends when its time is over, and with a probe where something is to be proved."""
        old, held_us = gate.row, self._us(gate.row.held_until)
        if held_us is None or self._world.now_us < held_us:
            self._checker.broken("S11", f"{old.name} is held until {old.held_until}: {new.state}")
        proof = old.probe_first and not self._has_no_probe(old.name)
        if proof and new.state is not _PROBING:
            self._checker.broken("S11", f"{old.name}: probe_first {old.probe_first}, {new.state}")

    def _has_no_probe(self, name: str) -> bool:
        """Whether it is a credential's, behind which a gate is held: the probes of that wait for it."""
        behind = [one.name for one in self.outside.upstreams if one.credential == name]
        return any(not self._ledger.gate(one).flowing for one in behind)

    def _take_over(self, gate: GateAccount, new: Gate, *, person: bool) -> None:
        old, now_us = gate.row, self._world.now_us
        told_us = self._us(new.told_until) or 0
        if person and new.told_until is None:
            gate.spoken_us = now_us
        gate.told_us, gate.row = told_us, new
        gate.heard_us = max(gate.heard_us, told_us)
        if new.state is _PROBING:
            gate.leased_us = now_us
        else:
            gate.probe = None
        if new.state is _FLOWING or (old.state is _PROBING and new.passes == 0):
            gate.passes = 0
        if old.state is _FLOWING:
            gate.closed_us = now_us

    def _count(self, old: Gate, new: Gate, *, person: bool) -> None:
        what = {
            (_FLOWING, _HELD): f"gates held: {new.cause}",
            (_HELD, _FLOWING): "gates released" if person else "gates that flow by themselves",
            (_PROBING, _FLOWING): "gates released" if person else "probes that let a gate flow",
        }.get((old.state, new.state))
        if old.state is _PROBING and new.state is _HELD and not person:
            what = "probes that failed" if new.gap > old.gap else "probes taken back by a hint"
            what = "probes that say nothing" if new.undecided > old.undecided else what
            if old.lease_until is not None and self._world.now_us >= (
                self._us(old.lease_until) or 0
            ):
                what = "probes lost"
            elif new.passes > old.passes:
                what = "probes that succeeded, of several"
        if what is not None:
            self._world.seen[what] += 1

    # -- what passes ---------------------------------------------------------------------

    def claimed(self, job: JobAccount, claim: Claim, worker: int, probes: str | None) -> None:
        """A job was claimed: nothing that it is behind may be closed, but the gate that it probes."""
        upstream = self.outside.upstream(claim.stage)
        if upstream is None:
            return
        what = f"#{job.no}/{claim.token} was claimed behind {upstream.name}"
        own = self._ledger.gate(upstream.name)
        for name in dict.fromkeys((upstream.name, own.parent)):
            if name is not None:
                self._check_passes(self._ledger.gate(name), what, probe=name == probes)
        if probes is None:
            self._calls.sent(worker, upstream.name, (job.id, claim.token), self._world.now_us)
        elif probes not in (upstream.name, own.parent):
            self._checker.broken("S11", f"{what} as the probe of {probes}")
        self._check_concurrency(upstream, what)

    def _check_passes(self, gate: GateAccount, what: str, *, probe: bool) -> None:
        row = gate.row
        if not gate.flowing and not probe:
            self._checker.broken("S11", f"{what}; {row.name} is {row.state.value}")
        if self._world.now_us < gate.told_us:
            early_s = (gate.told_us - self._world.now_us) / 1e6
            self._checker.broken("S11", f"{what}, {early_s:g} s before {row.name} said")

    def settled(self, job: JobAccount, record: Record, by: int | None, *, asked: bool) -> None:
        """An attempt has ended. ``asked``: its worker claims in the same turn, so it has told the gates."""
        attempt = record.attempt
        self._calls.settled((job.id, record.token), self._world.now_us)
        if attempt is None or attempt.kind is None or by is None or attempt.worker != by:
            return
        upstream = self.outside.upstream(attempt.stage)
        ended = self._calls.ended.get((job.id, record.token))
        policy = self._checker.policy(job, record)
        if upstream is None or ended is None or policy is self._checker.call_policy:
            return
        kind = Kind(attempt.kind)
        spent = "failures" in (attempt.counted or "") and not self.tells_of_job(job, record.token)
        apart = (job.id, record.token) in self._checker.apart  # the gate is told afterwards
        if KINDS[kind].blame is Blame.UPSTREAM and spent and not apart:
            self._check_unspent(upstream, job, record, ended)
        hears = policy.hint.mode is not HintMode.IGNORE and record.move is Move.RETRY
        if hears and asked and KINDS[kind].scope is not PauseScope.JOB:
            self._check_told(upstream, kind, job, record)

    def _check_unspent(
        self, upstream: DeclaredUpstream, job: JobAccount, record: Record, ended: Ended
    ) -> None:
        """Who knew that the gate is held when the call ended, does not count its failure."""
        assert record.attempt is not None
        for name in (upstream.name, self._ledger.gate(upstream.name).parent):
            if name is None:
                continue
            gate = self._ledger.gate(name)
            known = self._known.get((record.attempt.worker or 0, name), Known())
            held_us = self._us(gate.row.held_until)
            over = (
                not gate.row.probe_first and held_us is not None and held_us <= self._world.now_us
            )
            mine = gate.row.lease_by == record.attempt.worker
            knew = known.state is not _FLOWING and gate.closed_us <= known.at_us
            if not gate.flowing and knew and known.at_us < ended.at_us and not over and not mine:
                self._checker.broken(
                    "E10",
                    f"#{job.no}/{record.token} counts a failure, and {name} is {gate.row.state}",
                )

    def _check_told(
        self, upstream: DeclaredUpstream, kind: Kind, job: JobAccount, record: Record
    ) -> None:
        """What an upstream asks for is at its gate before the attempt is recorded.

        Unless it has turned only a few calls away: then the job that met it stays away, and it alone.
        """
        assert record.attempt is not None
        name, out = upstream.name, (job.id, record.token)
        if KINDS[kind].scope is PauseScope.CREDENTIAL:
            name = upstream.credential or name
        gate, told_us = self._ledger.gate(name), self._calls.ended[out].told_us
        if told_us is None or told_us <= self._world.now_us + _NEAR_US:
            return
        if gate.heard_us + _NEAR_US >= told_us or gate.spoken_us >= job.claimed_us:
            self._world.seen["pauses told to a gate"] += 1
            return
        early_s = (told_us - gate.heard_us) / 1e6
        few = KINDS[kind].scope is PauseScope.UPSTREAM and out not in self._calls.probes
        if not few or not self._calls.few_refused(upstream, record.attempt.worker or 0, out):
            self._checker.broken(
                "S11", f"#{job.no} was told to stay away from {name} for {early_s:g} s more"
            )
        due_us = self._world.now_us + round((record.delay_s or 0.0) * 1e6)
        if due_us + _NEAR_US < told_us:
            self._checker.broken(
                "S9",
                f"#{job.no}/{record.token} is due {(told_us - due_us) / 1e6:g} s before {name} said",
            )
        self._world.seen["pauses that one job made alone"] += 1

    # -- limits --------------------------------------------------------------------------

    def _change_slices(self, done: bool, slices: Slices) -> None:
        generation, before = self._ledger.slices.get(slices.gate, (0, {}))
        if done != (generation == slices.generation):
            self._checker.broken("E9", f"slices of {slices.gate} at {generation}: {slices}, {done}")
        if not done:
            self._world.seen["slices that another was quicker to take"] += 1
            return
        told = slices_in(slices.slices_json)
        parts = {worker: one for worker, one in told.items() if worker != NOBODY}
        self._ledger.slices[slices.gate] = (generation + 1, parts)
        dropped = self._dropped.get(slices.gate, {}) | before
        self._dropped[slices.gate] = {no: one for no, one in dropped.items() if no not in parts}
        now = self._world.clock.now()
        for worker in parts:
            if worker not in before or before[worker].until <= now:
                self._since_us[slices.gate, worker] = self._world.now_us
        whole = [one for one in parts.values() if one.until > now]
        most = self._limit(slices.gate)
        if sum(one.share for one in whole) > 1.0 + 1e-9 or (
            most is not None and sum(one.calls for one in whole) > most
        ):
            self._checker.broken("S10", f"{slices.gate} is parted into more than there is: {parts}")

    def _check_concurrency(self, upstream: DeclaredUpstream, what: str) -> None:
        """Calls on slices that run never come to more than the upstream admits; a probe comes on top.

        The slice of a worker that lives runs until it ends, whoever has left it out. What a worker has claimed
        before its slice ran out is no longer covered when it takes another.
        """
        most = upstream.limits.concurrency
        if most is None:
            return
        _, parts = self._ledger.slices.get(upstream.name, (0, {}))
        now = self._world.clock.now()
        out = 0
        for worker, one in {**self._dropped.get(upstream.name, {}), **parts}.items():
            if one.until > now and self._ledger.workers[worker].death is None:
                held = self._ledger.workers[worker].held
                since_us = self._since_us.get((upstream.name, worker), 0)
                jobs = [self._ledger.jobs[no] for no in held]
                jobs = [one for one in jobs if one.claimed_us >= since_us]
                calls = [one for one in jobs if self._is_out(one, held[one.no])]
                out += sum(self.outside.upstream(one.stage) == upstream for one in calls)
        if out > most:
            self._checker.broken("S10", f"{what}: {out} calls are out, {most} are admitted")

    def _is_out(self, job: JobAccount, token: int) -> bool:
        out = (job.id, token)
        return out not in self._calls.probes and out not in self._calls.ended

    # -- inside --------------------------------------------------------------------------

    def _names(self, upstreams: Sequence[str]) -> list[str]:
        parents = [self._ledger.gate(name).parent for name in upstreams]
        return [*upstreams, *(one for one in parents if one is not None)]

    def _limit(self, name: str) -> int | None:
        return next(
            (one.limits.concurrency for one in self.outside.upstreams if one.name == name), None
        )

    def _us(self, moment: datetime | None) -> int | None:
        return None if moment is None else to_us(moment) - self._checker.start_us
