"""The control row of a gate, as the store keeps it and as people see it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class GateState(StrEnum):
    """The three states of a gate."""

    FLOWING = "flowing"
    HELD = "held"
    PROBING = "probing"


@dataclass(frozen=True, slots=True)
class GateChange:
    """What a gate is to become, if its generation is still ``generation`` (0: it has no row yet).

    ``parent`` is the credential's gate, if there is one. ``control_json`` is the judgement's own
    value; the store keeps it and does not read it.
    """

    name: str
    generation: int
    state: GateState
    parent: str | None = None
    held_for_s: float | None = None
    reason: str = ""
    control_json: str = "{}"


@dataclass(frozen=True, slots=True)
class GateRow:
    """A gate's control row. ``held_until`` None while held means: until a person releases it."""

    name: str
    parent: str | None
    state: GateState
    generation: int
    held_until: datetime | None
    reason: str
    changed_by: str
    changed_at: datetime
    control_json: str
