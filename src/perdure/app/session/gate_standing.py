"""A gate as an application asks for it: whether calls pass, and if not, why and until when."""

from datetime import datetime

from msgspec import Struct

from perdure.app.session.session import Session
from perdure.model.errors import UnknownName
from perdure.model.gates import GateState


class GateStanding(Struct, frozen=True):
    """How a gate stands. Where its credential's gate lets nothing pass, this is that one's, and ``held_by`` names it.

    ``held_until`` None while it is held: until a person releases it.
    """

    name: str
    state: GateState = GateState.FLOWING
    reason: str = ""
    held_until: datetime | None = None
    held_by: str | None = None

    @property
    def flows(self) -> bool:
        """Whether calls pass; while it is held or probing, jobs wait."""
        return self.state is GateState.FLOWING


def standing_of(session: Session, name: str) -> GateStanding:
    """The gate of an upstream or of a credential that the app or its store knows."""
    reader = session.opened.reader
    row = reader.gate(name)
    if row is None:
        _check_known(session, name)
        return GateStanding(name)
    parent = reader.gate(row.parent) if row.state is GateState.FLOWING and row.parent else None
    if parent is not None and parent.state is not GateState.FLOWING:
        return GateStanding(name, parent.state, parent.reason, parent.held_until, parent.name)
    return GateStanding(name, row.state, row.reason, row.held_until)


def _check_known(session: Session, name: str) -> None:
    declared = session.upstreams.declared.values()
    known = {lane.upstream for lane in session.lanes} | {one.credential for one in declared}
    known |= set(session.upstreams.declared)
    if name not in known:
        named = ", ".join(sorted(one for one in known if one)) or "none: no stage names an upstream"
        raise UnknownName(f"this app has no upstream or credential {name!r}; it has: {named}")
