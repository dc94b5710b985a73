"""The control row of a gate, as the store keeps it and as people see it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from perdure.model.jobs import Claim


class GateState(StrEnum):
    """The three states of a gate."""

    FLOWING = "flowing"
    HELD = "held"
    PROBING = "probing"


class GateChange(Struct, frozen=True):
    """What a gate is to become, if its generation is still ``generation`` (0: it has no row yet).

    ``parent`` is the credential's gate, if there is one. ``control_json`` is the judgement's own
    value; the store keeps it and does not read it. ``verb`` is what the audit log calls the change;
    empty: by the state that it leads to.
    """

    name: str
    generation: int
    state: GateState
    parent: str | None = None
    held_for_s: float | None = None
    reason: str = ""
    control_json: str = "{}"
    verb: str = ""


class GateRow(Struct, frozen=True):
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


class Samples(Struct, frozen=True):
    """The calls that one worker has noted lately, as it wrote them; the store does not read them."""

    gate: str
    worker: int
    samples_json: str
    saved_at: datetime


class Slices(Struct, frozen=True):
    """How the limits of an upstream are parted among workers; changed by who has seen its generation.

    Generation 0: nobody has taken a part yet.
    """

    gate: str
    generation: int
    slices_json: str = "{}"


class GateLook(Struct, frozen=True):
    """What a worker reads about the gates that it asks for, all at one moment of the store's clock.

    A gate without a row is flowing and not among the rows. Samples are those of other workers that are alive,
    and not older than `SAMPLES_S_MAX`. ``alive`` are all workers that nobody has declared dead.
    """

    now: datetime
    rows: tuple[GateRow, ...] = ()
    samples: tuple[Samples, ...] = ()
    slices: tuple[Slices, ...] = ()
    alive: frozenset[int] = frozenset()


class Probe(Struct, frozen=True):
    """A gate that is probing now, and the job that was claimed as its probe.

    ``failing_since`` is when a call of its stage first ended so, in this life, that it spoke against the upstream.
    """

    gate: GateRow
    claim: Claim
    failing_since: datetime | None = None
