"""Judges what probes bring about: counted from what their calls really ended in, not from what was made of it."""

from typing import TYPE_CHECKING

from perdure.model.gates import GateState
from perdure.model.kinds import Sign
from perdure.rules.gate.gate import Gate, GateSettings, HoldCause
from tests.sim.answers import BAD, Calls
from tests.sim.ledger import GateAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker
    from tests.sim.gates import Gates

_SILENT_MAX = 3  # probes in a row that say nothing


class Probes:
    """The judge of probes."""

    def __init__(self, gates: "Gates", checker: "Checker", calls: Calls) -> None:
        self._gates = gates
        self._checker = checker
        self._calls = calls

    def changed(self, gate: GateAccount, new: Gate, *, person: bool) -> None:
        """A gate is about to become another."""
        old = gate.row
        # Its own word for it counts only where a person's name hides what else it is held for.
        hidden = new.cause is HoldCause.PERSON and new.needs_answer
        gate.keyed = gate.keyed or hidden or new.cause is HoldCause.CREDENTIAL
        if person:
            gate.not_bad = 0
        elif old.state is GateState.PROBING:
            self._probed(gate, new)
        elif new.state is GateState.HELD and old.name in self._credentials():
            gate.keyed = True  # nothing else is told to it, whoever gives the hold its name
        if not person and new.state is GateState.HELD and old.probe_first and not new.probe_first:
            self._check_given_up(gate)
        if new.state is GateState.FLOWING:
            gate.undecided = gate.not_bad = 0
            gate.keyed = False

    def _probed(self, gate: GateAccount, new: Gate) -> None:
        old = gate.row
        if new.state is GateState.FLOWING:
            self._check_proved(gate)
        elif new.passes > old.passes:
            self._check_proved(gate, last=False)
            gate.undecided, gate.not_bad = 0, gate.not_bad + 1
        elif new.undecided > old.undecided:
            said = self._signs(gate)
            if said and Sign.NEITHER not in said and not self._tells_of_job(gate, said):
                self._checker.broken("S11", f"{self._what(gate)} is taken for undecided")
            gate.undecided, gate.not_bad = gate.undecided + 1, gate.not_bad + 1
        elif new.gap > old.gap and not self._is_lost(old, new):  # without an end it was timed out
            not_bad = self._signs(gate) and not self._signs(gate) & BAD
            gate.undecided, gate.not_bad = 0, gate.not_bad + 1 if not_bad else 0
        self._check_not_for_ever(gate, new)

    def _tells_of_job(self, gate: GateAccount, said: frozenset[Sign]) -> bool:
        """Whether the probe that is out failed, and that may be its job's fault."""
        if gate.probe is None or said != BAD:
            return False
        id, token = gate.probe
        job = next(one for one in self._checker.ledger.jobs.values() if one.id == id)
        self._checker.world.seen["probes held against their jobs"] += 1
        return self._gates.tells_of_job(job, token)

    def _is_lost(self, old: Gate, new: Gate) -> bool:
        """Whether nobody waited for the probe's end any more: its time is over, or its worker is dead.

        To a gap beyond the first only a failure leads. A worker may have heard of it in time, and been late to write it.
        """
        if new.gap > 1:
            return False
        over = old.lease_until is not None and self._checker.world.clock.now() >= old.lease_until
        worker = self._checker.ledger.workers.get(old.lease_by or 0)
        return over or (worker is not None and worker.death is not None)

    def _check_proved(self, gate: GateAccount, *, last: bool = True) -> None:
        """The probe that is out, and no other call, has shown that the upstream answers."""
        if Sign.GOOD not in self._signs(gate):
            self._checker.broken("S11", f"{self._what(gate)} is taken for an answer")
        gate.passes += 1
        wanted = min(self._flow_after(gate.row.name))
        if last and gate.passes < wanted:
            self._checker.broken(
                "S11", f"{gate.row.name} flows after {gate.passes} of {wanted} probes"
            )

    def _check_given_up(self, gate: GateAccount) -> None:
        """Without a proof a worker lets calls pass only after three probes in a row that said nothing."""
        row = gate.row
        if row.state is not GateState.PROBING or gate.undecided < _SILENT_MAX:
            self._checker.broken("S11", f"{row.name} gives up after {gate.undecided} probes")
        if self._needs_proof(gate):
            self._checker.broken("S11", f"{row.name} gives up, and needs a proof: {row}")
        self._checker.world.seen["gates that give up probing"] += 1

    def _check_not_for_ever(self, gate: GateAccount, new: Gate) -> None:
        """Who answers is not held for ever: of so many probes none has really failed."""
        most = _SILENT_MAX * max(self._flow_after(new.name))
        held = new.state is GateState.HELD and new.probe_first
        if held and gate.not_bad >= most and not self._needs_proof(gate):
            self._checker.broken(
                "L11", f"{new.name} is still held after {gate.not_bad} probes of which none failed"
            )

    def _needs_proof(self, gate: GateAccount) -> bool:
        """Whether a credential or a person holds it; not so where a person's time is over."""
        return gate.keyed or gate.row.until_person or gate.row.kept_until is not None

    def _credentials(self) -> set[str | None]:
        return {one.credential for one in self._gates.outside.upstreams}

    def _signs(self, gate: GateAccount) -> frozenset[Sign]:
        """What the probe that is out may have said; nothing while it has not ended, and if it never began."""
        if gate.probe is not None:
            ended = self._calls.ended.get(gate.probe)
            return frozenset() if ended is None else ended.signs
        checks = self._calls.checks.get(gate.row.name, [])
        late = [one.signs for one in checks if one.at_us >= gate.leased_us]
        return frozenset().union(*late)

    def _what(self, gate: GateAccount) -> str:
        said = "/".join(sorted(self._signs(gate))) or "still out"
        return f"the probe {gate.probe or 'by a check'} of {gate.row.name}, which was {said},"

    def _flow_after(self, name: str) -> set[int]:
        """How many probes a gate asks for; a credential's as many as one of its upstreams does, whichever was the probe."""
        ups = self._gates.outside.upstreams
        named = {one.gate.flow_after for one in ups if name in (one.name, one.credential)}
        return named or {GateSettings().flow_after}
