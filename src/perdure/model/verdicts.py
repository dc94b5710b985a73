"""What an outcome means: the noun between *classify* and *decide*."""

from msgspec import Struct

from perdure.model.kinds import Kind
from perdure.model.outcomes import Origin


class Success(Struct, frozen=True):
    """The stage is done."""

    value_json: str
    label: str | None = None


class Failure(Struct, frozen=True):
    """The stage failed. ``rule`` names the matcher that recognised the kind.

    ``server_says`` is the server's own word on whether to try again, where it gave one.
    ``status`` and ``names`` are kept for policies that list them. ``by_code``: the upstream's own code
    named the kind, which then counts alone. ``origin`` is whose code raised it. ``final``: the next try would
    end the same, and no policy may ask for it. ``apart``: it was a crash in a process of the stage's own, so nobody else
    is under suspicion, and the next try is apart again.
    """

    kind: Kind
    rule: str
    detail: str = ""
    hint_s: float | None = None
    server_says: bool | None = None
    status: int | None = None
    names: tuple[str, ...] = ()
    by_code: bool = False
    origin: Origin = Origin.UNKNOWN
    final: bool = False
    apart: bool = False


class Pause(Struct, frozen=True):
    """The stage wants to be called again after ``wait_s``."""

    wait_s: float
    reason: str = ""


class Stop(Struct, frozen=True):
    """The job is no longer wanted."""

    reason: str = ""


class Handback(Struct, frozen=True):
    """The attempt was given back unfinished and counts as nothing."""

    reason: str = ""


class Overdue(Struct, frozen=True):
    """The deadline had passed before the stage could begin."""


Verdict = Success | Failure | Pause | Stop | Handback | Overdue
