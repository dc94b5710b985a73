"""A gate's row on its way to and from the store, and the one way it is changed: see, step, compare and set."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from perdure.model.gates import GateChange, GateRow, GateState
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.ports import Control, Reader
from perdure.ports.compare_and_set import compare_and_set
from perdure.rules.gate.gate import Gate, GateMove, Step
from perdure.rules.gate.hold import hold, release
from perdure.rules.gate.probe import hurry

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Gate).decode

Event = Callable[[Gate], Step]

VERBS: dict[GateMove, str] = {
    GateMove.TRIP: "trip gate",
    GateMove.HINT: "hold gate (hint)",
    GateMove.HOLD: "hold gate",
    GateMove.RELEASE: "release gate",
    GateMove.HURRY: "probe gate",
    GateMove.RESUME: "resume gate",
    GateMove.LEASE: "send probe",
    GateMove.PASS: "probe passed",
    GateMove.FLOW: "flow gate",
    GateMove.MISS: "probe failed",
    GateMove.UNDECIDED: "probe undecided",
    GateMove.LOSE: "probe lost",
}
_DECLARE = "declare gate"


def gate_of(row: GateRow) -> Gate:
    """The gate that a row is; the row's own columns where the rest cannot be read."""
    try:
        gate = _decode(row.control_json)
    except msgspec.DecodeError:
        gate = Gate(row.name, held_until=row.held_until, reason=row.reason)
    return replace(gate, name=row.name, state=row.state, generation=row.generation)


def change_of(step: Step, parent: str | None, now: datetime) -> GateChange:
    """What the store has to write, where it still has the generation before this step."""
    gate = step.gate
    held_for_s = None
    if gate.held_until is not None:
        held_for_s = max(0.0, (gate.held_until - now).total_seconds())
    return GateChange(
        gate.name,
        gate.generation - 1,
        gate.state,
        parent,
        held_for_s,
        gate.reason or step.text,
        _encode(gate).decode(),
        verb_of(step),
    )


def verb_of(step: Step) -> str:
    """What the audit log calls a step. A lease without a probe only writes down what was declared."""
    if step.move is GateMove.LEASE and step.gate.state is not GateState.PROBING:
        return _DECLARE
    return "" if step.move is None else VERBS[step.move]


def apply_event(reader: Reader, control: Control, name: str, event: Event, deed: Deed) -> Step:
    """Make an event happen to a gate, whatever else happens to it meanwhile."""

    def once() -> Step | None:
        row = reader.gate(name)
        step = event(Gate(name) if row is None else gate_of(row))
        if step.move is None:
            return step
        change = change_of(step, None if row is None else row.parent, reader.now())
        return None if control.change_gate(change, deed) is None else step

    return compare_and_set(f"gate {name!r}", once)


def hold_by_person(
    reader: Reader, control: Control, name: str, deed: Deed, *, until: datetime | None = None
) -> Step:
    """A person holds a gate."""

    def event(gate: Gate) -> Step:
        return hold(gate, reason=deed.reason, until=until, now=reader.now())

    return apply_event(reader, control, name, event, deed)


def release_by_person(reader: Reader, control: Control, name: str, deed: Deed) -> Step:
    """A person lets a gate flow."""

    def event(gate: Gate) -> Step:
        return release(gate, reason=deed.reason, now=reader.now())

    return apply_event(reader, control, name, event, deed)


def probe_by_person(reader: Reader, control: Control, name: str, deed: Deed) -> Step:
    """A person wants a probe now."""

    def event(gate: Gate) -> Step:
        return hurry(gate, reason=deed.reason, now=reader.now())

    return apply_event(reader, control, name, event, deed)


def is_news(move: GateMove) -> bool:
    """Whether people want to hear of it; that a probe goes out is a matter of minutes, again and again."""
    return move not in (GateMove.LEASE, GateMove.MISS, GateMove.UNDECIDED, GateMove.LOSE)
