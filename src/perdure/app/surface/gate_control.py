"""Gates for people: what each is doing, why, what waits behind it, and the three things they can say to it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from shlex import quote

from msgspec import Struct, structs

from perdure.app.surface.gate_figures import GateFigures, SliceShown, WorkerPace, figures
from perdure.app.surface.moments import Moment
from perdure.engine.gates.changes import (
    gate_of,
    hold_by_person,
    probe_by_person,
    release_by_person,
)
from perdure.engine.operate.single_jobs import run_held_now
from perdure.model.errors import CallerError, UnknownName
from perdure.model.gates import GateRow, GateState
from perdure.model.jobs import ClaimOrder
from perdure.model.limits import DELAY_S_MAX
from perdure.model.nouns import replace
from perdure.model.operations import Deed, LoggedDeed
from perdure.model.views import LaneView
from perdure.rules.gate.gate import Gate, Step
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.window import Reading
from perdure.rules.hints.durations import duration_s
from perdure.stores.opening import Opened

_PAGE_LINES = 500
_LINES_MAX = 5_000
_PLACES_SHOWN = 3


class GateShown(Struct, frozen=True):
    """A gate as people see it. ``waiting`` counts the jobs behind it, up to a bound.

    ``held_until`` None while held: until a person releases it. ``gap`` counts the gaps between probes.
    ``held_by`` is its credential where that lets nothing pass. ``told`` is what workers have told about it.
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
    probe_first: bool
    probe_out_until: datetime | None
    gap: int
    generation: int
    changed_by: str
    waiting: int
    upstreams: tuple[str, ...]
    held_by: str | None
    now: datetime
    told: GateFigures = GateFigures()

    @property
    def says(self) -> str:
        """What it is doing, in a sentence."""
        if self.state is GateState.FLOWING:
            passing = self.told.pace_says or "calls pass"
            return passing if self.held_by is None else f"waits for {self.held_by}"
        if self.state is GateState.PROBING:
            return f"a probe is out; {self.reason}"
        if self.held_until is None:
            return f"until a person releases it; {self.reason}"
        left_s = (self.held_until - self.now).total_seconds()
        if left_s > 0:
            return f"for {_time_words(left_s)} more; {self.reason}"
        if self.probe_first:
            return f"a probe is due; no job has gone out yet; {self.reason}"
        return f"it flows again as soon as a worker looks; {self.reason}"


class GateAnswer(Struct, frozen=True):
    """A gate: what holds it, in a sentence too, how fast calls pass, and what its workers have told."""

    name: str
    state: GateState
    kind: str
    credential: str | None
    reason: str
    cause: str | None
    since_at: Moment | None
    held_until: Moment | None
    until_person: bool
    probe_first: bool
    probe_out_until: Moment | None
    gap: int
    generation: int
    changed_by: str
    waiting: int
    upstreams: tuple[str, ...]
    held_by: str | None
    now: Moment
    says: str
    rate_per_s: float | None
    paces: tuple[WorkerPace, ...]
    slices: tuple[SliceShown, ...]
    limits: UpstreamLimits | None
    window: Reading


def answer_of(gate: GateShown) -> GateAnswer:
    """A gate as JSON has it."""
    plain = structs.asdict(gate)
    told = plain.pop("told")
    return GateAnswer(**plain, **structs.asdict(told), says=gate.says, rate_per_s=told.rate_per_s)


def gates(opened: Opened) -> list[GateShown]:
    """Every gate that stages name or that has a row."""
    rows = {row.name: row for row in opened.reader.gates()}
    lanes = opened.reader.lanes()
    upstreams = {one.lane.upstream for one in lanes if one.lane.upstream}
    parents = {row.parent for row in rows.values() if row.parent}
    names = sorted(upstreams | parents | set(rows))
    look = opened.reader.look(names)
    telling = opened.reader.workers() if look.samples or look.slices else ()
    told = figures(look, {one.no: one.name for one in telling})
    shown = [_show(name, rows, lanes, parents, look.now) for name in names]
    return [replace(one, told=told.get(one.name, one.told)) for one in shown]


def gate(opened: Opened, name: str) -> GateShown:
    """One of them."""
    found = gates(opened)
    for one in found:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in found)
    known = (
        f"there are: {names}" if names else "there is none yet: no stage has run behind an upstream"
    )
    raise UnknownName(f"no gate {name!r} in this store; {known}")


def changes(opened: Opened, name: str, *, count_max: int = 20) -> list[LoggedDeed]:
    """The last changes of a gate, newest first, as far back as the audit log is read for it."""
    found: list[LoggedDeed] = []
    before = None
    for _ in range(_LINES_MAX // _PAGE_LINES):
        lines = opened.reader.deeds(limit=_PAGE_LINES, before=before)
        found += [one for one in lines if one.subject == name and _is_gates(one.verb)]
        if len(lines) < _PAGE_LINES or len(found) >= count_max:
            break
        before = lines[-1].no
    return found[:count_max]


def hold(opened: Opened, name: str, *, by_whom: str, reason: str, for_text: str | None) -> Step:
    """A person holds a gate, for a while or until a person releases it."""
    until = None
    if for_text is not None:
        for_s = duration_s(for_text)
        if for_s == 0:
            raise CallerError(
                f"{for_text!r} is no time at all; a hold must be for more than nothing"
            )
        if for_s is None or not 0 < for_s <= DELAY_S_MAX:
            raise CallerError(f"{for_text!r} is no duration; write it as 90s, 30m or 1h30m")
        until = opened.reader.now() + timedelta(seconds=for_s)
    deed = _deed(by_whom, reason)
    gate(opened, name)
    return hold_by_person(opened.reader, opened.control, name, deed, until=until)


def release(opened: Opened, name: str, *, by_whom: str, reason: str) -> Step:
    """A person lets a gate flow; jobs that met the hold of a credential themselves are due at once."""
    deed = _deed(by_whom, reason)
    shown = gate(opened, name)
    step = release_by_person(opened.reader, opened.control, name, deed)
    if step.move is None:
        return replace(step, text=f"it flows already{_paced(shown)}{_but(shown, 'release')}")
    lanes = {one.no for one in _lanes_behind(opened, shown)}
    due = run_held_now(opened.control, opened.reader, lanes, deed=deed)
    met = f"; jobs that had met this hold and are due now: {due}" if due else ""
    return replace(step, text=f"{step.text}{met}{_but(shown, 'release')}")


def probe(opened: Opened, name: str, *, by_whom: str, reason: str) -> Step:
    """A person wants a probe now. The step's text says why not, where there is no move."""
    deed = _deed(by_whom, reason)
    shown = gate(opened, name)
    step = probe_by_person(opened.reader, opened.control, name, deed)
    text = step.text
    if step.gate.state is GateState.PROBING:
        text = "a probe is out already"
    elif step.move is None:
        text = "it is not held, so there is nothing to find out"
    return replace(step, text=text + _but(shown, "probe"))


def behind(opened: Opened, name: str, *, flows: bool) -> list[str]:
    """What waits behind a gate after a person has spoken, a sentence a line; none for nothing.

    A job that met the hint itself keeps its due time; for all others the wait was only the gate's hold.
    """
    lanes = _lanes_behind(opened, gate(opened, name))
    ready, later = sum(one.ready for one in lanes), sum(one.later for one in lanes)
    if not ready and not later:
        return []
    text = f"{ready} {'job is' if ready == 1 else 'jobs are'} ready"
    if not later:
        return [text]
    text += (
        f", {later} {'has a due time of its own' if later == 1 else 'have due times of their own'}"
    )
    if not flows and ready:
        return [text]
    if not flows:
        text += "; the probe goes out when one is due"
    elif not ready:
        wait_s = opened.store.waiting(ClaimOrder(0, 1, tuple(one.no for one in lanes)))
        text += "" if wait_s is None else f", the next in {_time_words(wait_s)}"
    places = sorted({(one.lane.pipeline, one.lane.stage) for one in lanes if one.later})
    first = "to run them now, where no upstream has asked them to wait: perdure jobs run-now"
    typed = (f"{first} --pipeline {quote(p)} --stage {quote(s)}" for p, s in places)
    return [text, *islice(typed, _PLACES_SHOWN)]


def _lanes_behind(opened: Opened, shown: GateShown) -> list[LaneView]:
    names = {shown.name, *shown.upstreams}
    return [one for one in opened.reader.lanes() if one.lane.upstream in names]


def _show(
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
        probe_first=found.probe_first,
        probe_out_until=found.lease_until,
        gap=found.gap,
        generation=found.generation,
        changed_by="" if row is None else row.changed_by,
        waiting=sum(one.ready + one.later for one in lanes if one.lane.upstream in behind),
        upstreams=children,
        held_by=None if row is None else _held_parent(row, rows),
        now=now,
    )


def _deed(by_whom: str, reason: str) -> Deed:
    """Who and why, each in one line; nobody speaks without both."""
    who, why = " ".join(by_whom.split()), " ".join(reason.split())
    if not why:
        raise CallerError("the reason is blank; say why, it is kept in the audit log")
    if not who:
        raise CallerError("the name of who says so is blank; it is kept in the audit log")
    return Deed(who, why)


def _but(shown: GateShown, verb: str) -> str:
    """That its credential lets nothing pass, whatever is said to the gate itself."""
    if shown.held_by is None:
        return ""
    typed = f"perdure gates {verb} {shown.held_by!r} --reason …"
    return f"; but its credential {shown.held_by} lets nothing pass: {typed}"


def _paced(shown: GateShown) -> str:
    """That a pace slows the gate down, and what lifts it: workers keep it in memory, and no release reaches that."""
    if not shown.told.pace_says:
        return ""
    name = quote(shown.name)
    return (
        f", {shown.told.pace_says}; the pace rises by itself while calls go well; to forget it and start slowly anew: "
        f"perdure gates hold {name} --reason … and then perdure gates release {name} --reason …"
    )


def _is_gates(verb: str) -> bool:
    return "gate" in verb or "probe" in verb


def _held_parent(row: GateRow, rows: dict[str, GateRow]) -> str | None:
    parent = None if row.parent is None else rows.get(row.parent)
    return None if parent is None or parent.state is GateState.FLOWING else parent.name


def _time_words(left_s: float) -> str:
    return f"{left_s:.1f} s" if left_s < 120 else f"{left_s / 60:.0f} min"
