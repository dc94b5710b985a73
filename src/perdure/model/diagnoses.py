"""What the doctor is told by a store, and what it says."""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How bad it is: as it should be; will hurt one day; does not work, or loses something."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Diagnosis(Struct, frozen=True):
    """What was looked at, what was found, and what to do about it."""

    check: str
    severity: Severity
    text: str
    remedy: str = ""


class StoreCondition(Struct, frozen=True):
    """What a store says of itself and of the ground that it stands on; None for what it has not, or cannot see.

    ``settings_lost`` are those that we ask a server for and that are not in force, ``idle_vacuum`` the reasons why dead
    rows are not removed, ``snapshot_s`` the age of the oldest transaction that keeps them, with who has it. Sessions of
    other roles may be hidden, and are counted then.
    """

    system: str
    version: tuple[int, ...]
    read_only: bool = False
    file_system: str | None = None
    on_network: bool = False
    free_bytes: int | None = None
    pooled: bool = False
    settings_lost: tuple[str, ...] = ()
    rights_missing: tuple[str, ...] = ()
    idle_vacuum: tuple[str, ...] = ()
    snapshot_s: float | None = None
    snapshot_of: str = ""
    slots_left: tuple[str, ...] = ()
    sessions_hidden: int = 0
