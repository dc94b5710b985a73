"""Gates for people: what each is doing, why, what waits behind it, and the three things they can say to it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.engine.gates import gate_of, held_by_person, probed_by_person, released_by_person
from perdure.model.errors import CallerError, UnknownName
from perdure.model.gates import GateRow, GateState
from perdure.model.limits import DELAY_S_MAX
from perdure.model.operations import Deed
from perdure.model.views import LaneView
from perdure.rules.durations import duration_s
from perdure.rules.gate import Gate, Step
from perdure.stores.opening import Opened


@dataclass(frozen=True, slots=True)
class GateShown:
    """A gate as people see it. ``waiting`` counts the jobs behind it, up to a bound.

    ``held_until`` None while held: until a person releases it. ``gap`` counts the gaps between probes.
    ``held_by`` is its credential where that lets nothing pass.
    """

    name: str
    state: GateState
    kind: str
    credential: str | None
    reason: str
    cause: str | None
    since_at: datetime | None
    held_until: datetime | None
    until_person: bool
    probe_out_until: datetime | None
    gap: int
    generation: int
    changed_by: str
    waiting: int
    upstreams: tuple[str, ...]
    held_by: str | None
    now: datetime

    @property
    def says(self) -> str:
        """What it is doing, in a sentence."""
        if self.state is GateState.FLOWING:
            return "calls pass" if self.held_by is None else f"waits for {self.held_by}"
        if self.state is GateState.PROBING:
            return f"a probe is out; {self.reason}"
        if self.until_person or self.held_until is None:
            return f"until a person releases it; {self.reason}"
        left_s = max(0.0, (self.held_until - self.now).total_seconds())
        return f"for {_spoken(left_s)} more; {self.reason}"


def gates(opened: Opened) -> list[GateShown]:
    """Every gate that stages name or that has a row."""
    rows = {row.name: row for row in opened.reader.gates()}
    lanes = opened.reader.lanes()
    upstreams = {one.lane.upstream for one in lanes if one.lane.upstream}
    parents = {row.parent for row in rows.values() if row.parent}
    now = opened.reader.now()
    return [
        _shown(name, rows, lanes, parents, now) for name in sorted(upstreams | parents | set(rows))
    ]


def gate(opened: Opened, name: str) -> GateShown:
    """One of them."""
    found = gates(opened)
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in found) or "none: no stage has run behind an upstream"
    raise UnknownName(f"no gate {name!r} in this store; there are: {known}")


def hold(opened: Opened, name: str, *, by_whom: str, reason: str, for_text: str | None) -> Step:
    """A person holds a gate, for a while or until a person releases it."""
    until = None
    if for_text is not None:
        for_s = duration_s(for_text)
        if for_s is None or not 0 < for_s <= DELAY_S_MAX:
            raise CallerError(f"{for_text!r} is no duration; write it as 90s, 30m or 1h30m")
        until = opened.reader.now() + timedelta(seconds=for_s)
    gate(opened, name)
    deed = Deed(by_whom, reason)
    return held_by_person(opened.reader, opened.control, name, deed, until=until)


def release(opened: Opened, name: str, *, by_whom: str, reason: str) -> Step:
    """A person lets a gate flow."""
    gate(opened, name)
    return released_by_person(opened.reader, opened.control, name, Deed(by_whom, reason))


def probe(opened: Opened, name: str, *, by_whom: str, reason: str) -> Step:
    """A person wants a probe now."""
    gate(opened, name)
    return probed_by_person(opened.reader, opened.control, name, Deed(by_whom, reason))


def _shown(
    name: str,
    rows: dict[str, GateRow],
    lanes: Iterable[LaneView],
    parents: set[str],
    now: datetime,
) -> GateShown:
    row = rows.get(name)
    found = Gate(name) if row is None else gate_of(row)
    children = tuple(sorted(one.name for one in rows.values() if one.parent == name))
    behind = {name, *children}
    return GateShown(
        name=name,
        state=found.state,
        kind="credential" if name in parents else "upstream",
        credential=None if row is None else row.parent,
        reason=found.reason or ("" if row is None else row.reason),
        cause=None if found.cause is None else found.cause.value,
        since_at=found.since_at,
        held_until=found.held_until,
        until_person=found.until_person,
        probe_out_until=found.lease_until,
        gap=found.gap,
        generation=found.generation,
        changed_by="" if row is None else row.changed_by,
        waiting=sum(one.ready + one.later for one in lanes if one.lane.upstream in behind),
        upstreams=children,
        held_by=None if row is None else _held_parent(row, rows),
        now=now,
    )


def _held_parent(row: GateRow, rows: dict[str, GateRow]) -> str | None:
    parent = None if row.parent is None else rows.get(row.parent)
    return None if parent is None or parent.state is GateState.FLOWING else parent.name


def _spoken(left_s: float) -> str:
    return f"{left_s:.1f} s" if left_s < 120 else f"{left_s / 60:.0f} min"
