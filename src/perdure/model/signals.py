"""Values a stage may return instead of a plain result."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Snooze:
    """Call this stage again after ``wait_s``; counts neither as a failure nor as a wait."""

    wait_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this job as cancelled."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """A result with a label: a business verdict such as ``needs_review``."""

    value: Any
    label: str | None = None
