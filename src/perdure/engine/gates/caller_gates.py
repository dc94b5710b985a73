"""Gates for a caller that waits: it looks at them as they are, and tells them what the upstream asks for.

A caller's calls are too few to judge an upstream by, so it keeps no samples: workers do. But a wait that the
upstream asks for is everybody's, whoever was told.
"""

from contextlib import suppress

from perdure.engine.gates.changes import apply_event, gate_of
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.record import Ending
from perdure.model.decisions import Decision, Fail, HandOver, Retry
from perdure.model.errors import StoreError
from perdure.model.gates import GateState
from perdure.model.jobs import Claim
from perdure.model.kinds import Kind, PauseScope
from perdure.model.operations import Deed
from perdure.model.verdicts import Verdict
from perdure.ports import Control, Reader
from perdure.rules.decide import FLOWING, GateView
from perdure.rules.gate.gate import Gate, Step, after, view
from perdure.rules.gate.hold import hint


class CallerGates:
    """The gate of one upstream, and of the credential behind it, for one call."""

    def __init__(
        self, reader: Reader, control: Control, upstream: DeclaredUpstream, by_whom: str
    ) -> None:
        self._reader = reader
        self._control = control
        self._upstream = upstream
        self._by_whom = by_whom

    def end_call(self, ending: Ending, verdict: Verdict) -> GateView:
        """How the gate looks; the credential's where that is what holds.

        What cannot be read is taken for flowing: how the call ended must be recorded all the same.
        """
        with suppress(StoreError):
            for name in (self._upstream.name, self._upstream.credential):
                row = None if name is None else self._reader.gate(name)
                if row is not None and row.state is not GateState.FLOWING:
                    return view(gate_of(row))
        return FLOWING

    def hear_decision(self, claim: Claim, decision: Decision) -> None:
        """Hold the gate if that was decided; if the store cannot be reached, whoever is told to wait next holds it."""
        if not isinstance(decision, Retry | Fail | HandOver) or decision.hold is None:
            return
        name, kind = self._upstream.name, decision.kind
        if decision.hold.scope is PauseScope.CREDENTIAL and self._upstream.credential is not None:
            name = self._upstream.credential
        if kind is not None and decision.hold.scope is not PauseScope.JOB:
            with suppress(StoreError):
                self._hold(name, kind, decision.hold.for_s)

    def _hold(self, name: str, kind: Kind, for_s: float | None) -> None:
        now = self._reader.now()
        until = None if for_s is None else after(now, for_s)

        def event(gate: Gate) -> Step:
            return hint(
                gate,
                self._upstream.gate,
                kind=kind,
                generation=gate.generation,
                until=until,
                now=now,
            )

        deed = Deed(self._by_whom, f"{kind.value}, as a caller was told")
        apply_event(self._reader, self._control, name, event, deed)
