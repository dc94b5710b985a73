"""The gates' rows as one worker knows them: what the store has, what we think it will have, what is to be written.

An event is applied to our copy at once, so that what settles next sees it, and waits in a line until `write`
has brought it to the store. There it is applied to the row as it is then: if that has moved on, it is read
again, and the event may be no change at all. If the store is away, the line stays as it is.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import inf

from perdure.engine.gates.changes import Event, change_of, gate_of, is_news
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.observe import Observers
from perdure.model.events import EventName
from perdure.model.gates import GateChange, GateLook, GateState
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.ports import Clock, Control, Store
from perdure.rules.gate.gate import Gate, GateMove, GateSettings, Step
from perdure.rules.gate.probe import probe_due

_TRIES_MAX = 5


class GateRows:
    """The gates of a worker's upstreams and of their credentials. ``on_change`` is told of every change of a copy."""

    def __init__(
        self,
        store: Store,
        control: Control,
        upstreams: Mapping[str, DeclaredUpstream],
        worker: int,
        *,
        clock: Clock,
        observers: Observers,
        on_look: Callable[[GateLook], None],
        on_change: Callable[[Gate], None],
        samples: Callable[[], Mapping[str, str]],
    ) -> None:
        self._store = store
        self._control = control
        self._upstreams = upstreams
        self._worker = worker
        self._clock = clock
        self._observers = observers
        self._on_look = on_look
        self._on_change = on_change
        self._samples = samples
        self._stored: dict[str, Gate] = {}
        self._copies: dict[str, Gate] = {}
        self._adopted: set[str] = set()
        self._unwritten: deque[tuple[str, Event]] = deque()
        self._seen_at: datetime | None = None  # the store's clock, and ours, at the last look
        self._asked_s = -inf
        self.seen_s = -inf
        self.stale = True  # whether what we have seen is known to be old

    def now(self) -> datetime:
        """The store's clock, as well as we know it; never ahead of it, so that nothing is due too early."""
        assert self._seen_at is not None
        return self._seen_at + timedelta(seconds=self._clock.monotonic() - self.seen_s)

    def now_at_most(self) -> datetime:
        """The same, never behind it: what was asked for from now on must not end too early."""
        assert self._seen_at is not None
        return self._seen_at + timedelta(seconds=self._clock.monotonic() - self._asked_s)

    def look(self) -> None:
        """Read all there is about our gates, and tell others about our calls."""
        asked_s = self._clock.monotonic()
        seen = self._store.look_at_gates(
            tuple(self._upstreams), worker=self._worker, samples=self._samples()
        )
        self._seen_at, self._asked_s = seen.now, asked_s
        self.seen_s, self.stale = self._clock.monotonic(), False
        rows = {row.name: row for row in seen.rows}
        for name in self.names():
            row = rows.get(name)
            self._stored[name] = Gate(name) if row is None else gate_of(row)
            parent = self._parent(name)
            named = None if row is None else row.parent
            waits = name in self._adopted or (name, _name_credential) in self._unwritten
            if name in self._upstreams and named != parent and not waits:
                self._unwritten.append((name, _name_credential))
        self._on_look(seen)
        if all(event is _name_credential for _, event in self._unwritten):
            self._show_all()

    def stored_gate(self, name: str) -> Gate:
        """The gate as the store had it when we last heard of it."""
        return self._stored.get(name) or Gate(name)

    def stored_gates(self) -> list[Gate]:
        """All of them."""
        return list(self._stored.values())

    def happen(self, name: str, event: Event) -> None:
        """Apply an event to our copy, and put it in the line to be written."""
        step = event(self._copies.get(name) or self.stored_gate(name))
        if step.move is not None:
            self._show(step.gate)
            self._unwritten.append((name, event))

    def write(self) -> None:
        """Bring to the store what has happened."""
        while self._unwritten:
            name, event = self._unwritten[0]
            for _ in range(_TRIES_MAX):
                step = event(self.stored_gate(name))
                if step.move is None or self.set(step):
                    break
                self.look()
            else:
                return  # others write all the time; the next turn tries again
            self._unwritten.popleft()
            if not self._unwritten:
                self._show_all()

    def set(self, step: Step) -> bool:
        """Write a step; False when the row has moved on."""
        row = self._control.change_gate(self.change(step), self.deed(step))
        if row is None:
            return False
        self.become(step)
        return True

    def become(self, step: Step) -> None:
        """A step is written."""
        self._stored[step.gate.name] = step.gate
        if step.text == _DECLARED:  # once: another version of the app may name another credential
            self._adopted.add(step.gate.name)
        self._show(step.gate)
        self._tell(step)

    def change(self, step: Step) -> GateChange:
        """What the store has to write for a step."""
        return change_of(step, self._parent(step.gate.name), self.now())

    def deed(self, step: Step) -> Deed:
        """Who does it, and why."""
        return Deed(f"worker {self._worker}", step.text)

    # -- names -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Upstreams, then credentials."""
        parents = [one.credential for one in self._upstreams.values() if one.credential]
        return [*self._upstreams, *dict.fromkeys(parents)]

    def settings(self, name: str) -> GateSettings:
        """How a gate judges; a credential as the first of its upstreams."""
        for upstream in self._upstreams.values():
            if name in (upstream.name, upstream.credential):
                return upstream.gate
        return GateSettings()

    def behind(self, name: str) -> list[str]:
        """The upstreams whose lanes no other gate closes."""
        if name in self._upstreams:
            parent = self._parent(name)
            above = None if parent is None else self.stored_gate(parent)
            return [name] if above is None or above.state is GateState.FLOWING else []
        return [
            one.name
            for one in self._upstreams.values()
            if one.credential == name and self.stored_gate(one.name).state is GateState.FLOWING
        ]

    def all_behind_shut(self, name: str) -> bool:
        """Whether a credential's upstreams are all held by gates of their own.

        Then no job can be its probe, and their probes, which wait for it, tell as much.
        """
        states = self._states_behind(name)
        return bool(states) and GateState.FLOWING not in states

    def some_behind_shut(self, name: str) -> bool:
        """Whether one of a credential's upstreams is held by a gate of its own."""
        return any(state is not GateState.FLOWING for state in self._states_behind(name))

    def some_may_give_way(self) -> bool:
        """Whether a credential's probe is due, and no job can be that probe."""
        now = self.now()
        return any(
            probe_due(gate, now) and self.all_behind_shut(gate.name) for gate in self.stored_gates()
        )

    def _states_behind(self, name: str) -> list[GateState]:
        return [
            self.stored_gate(one.name).state
            for one in self._upstreams.values()
            if one.credential == name
        ]

    def _parent(self, name: str) -> str | None:
        upstream = self._upstreams.get(name)
        return None if upstream is None else upstream.credential

    def _show_all(self) -> None:
        for gate in self._stored.values():
            self._show(gate)

    def _show(self, gate: Gate) -> None:
        self._copies[gate.name] = gate
        self._on_change(gate)

    def _tell(self, step: Step) -> None:
        gate, move = step.gate, step.move
        if move is None or step.text == _DECLARED:
            return
        told = EventName.GATE_CHANGED if is_news(move) else EventName.GATE_PROBED
        self._observers.tell(
            told,
            gate=gate.name,
            gate_state=gate.state.value,
            move=move.value,
            reason=step.text,
            generation=gate.generation,
        )
        if gate.until_person and move in (GateMove.HINT, GateMove.HOLD):
            self._observers.tell(EventName.GATE_ALERT, gate=gate.name, reason=step.text)


_DECLARED = "declared"


def _name_credential(gate: Gate) -> Step:
    """The row is to name its credential; nothing else about it changes. A probe that is out comes first."""
    if gate.state is GateState.PROBING:
        return Step(gate)
    return Step(replace(gate, generation=gate.generation + 1), GateMove.LEASE, _DECLARED)
