"""Values a stage may return instead of a plain result; checked where the stage writes them."""

from typing import Any

from msgspec import Struct

from perdure.model.errors import CallerError
from perdure.model.limits import DELAY_S_MAX, NAME_CHARS_MAX


class Snooze(Struct, frozen=True):
    """Call this stage again after ``wait_s``; counts neither as a failure nor as a wait.

    Whoever sees the job reads its ``reason``.
    """

    wait_s: float
    reason: str = ""

    def __post_init__(self) -> None:
        if not _is_length(self.wait_s):
            raise CallerError(
                f"Snooze.wait_s is {_show(self.wait_s)}; it must be a number of seconds between "
                f"0 and {DELAY_S_MAX:.0f}"
            )
        _check_reason("Snooze", self.reason)


class Cancel(Struct, frozen=True):
    """End this job as cancelled. Whoever sees the job reads its ``reason``."""

    reason: str = ""

    def __post_init__(self) -> None:
        _check_reason("Cancel", self.reason)


class Succeeded(Struct, frozen=True):
    """A result with a label: a business verdict such as ``needs_review``."""

    value: Any
    label: str | None = None

    def __post_init__(self) -> None:
        if self.label is not None and not _is_name(self.label):
            raise CallerError(
                f"Succeeded.label is {_show(self.label)}; it must have 1 to {NAME_CHARS_MAX} "
                "printable characters and no space at its ends"
            )


def _is_name(value: object) -> bool:
    """Whether a value is text that can be stored, indexed and typed as a name."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= NAME_CHARS_MAX
        and value.isprintable()
        and value == value.strip()
    )


def _is_length(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= DELAY_S_MAX


def _check_reason(signal: str, reason: object) -> None:
    if not isinstance(reason, str):
        raise CallerError(f"{signal}.reason is {_show(reason)}; it must be text")


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:79] + "…"
