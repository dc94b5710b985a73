"""What an outcome means: the noun between *classify* and *decide*."""

from dataclasses import dataclass

from perdure.model.kinds import Kind
from perdure.model.outcomes import Origin


@dataclass(frozen=True, slots=True)
class Success:
    """The stage is done."""

    value_json: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The stage failed. ``rule`` names the matcher that recognised the kind.

    ``server_says`` is the server's own word on whether to try again, where it gave one.
    ``status`` and ``names`` are kept for policies that list them. ``by_code``: the upstream's own code
    named the kind, which then counts alone. ``origin`` is whose code raised it. ``final``: the next try would
    end the same, and no policy may ask for it.
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


@dataclass(frozen=True, slots=True)
class Pause:
    """The stage wants to be called again after ``wait_s``."""

    wait_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """The job is no longer wanted."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Handback:
    """The attempt was given back unfinished and counts as nothing."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Overdue:
    """The deadline had passed before the stage could begin."""


Verdict = Success | Failure | Pause | Stop | Handback | Overdue
