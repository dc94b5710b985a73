"""What a process can find out about another one from /proc: whether it runs, is stopped, or has ended, and how."""

import os
from pathlib import Path

from msgspec import Struct

_STOPPED = "Tt"  # by a signal, by a debugger
_ENDED = "ZXx"


class Running(Struct, frozen=True):
    """It runs, or could."""


class Stopped(Struct, frozen=True):
    """It was stopped, and does nothing until somebody lets it go on."""


class Gone(Struct, frozen=True):
    """It has ended; ``status`` is the exit status (negative: a signal), or None when nobody can say."""

    status: int | None


Seen = Running | Stopped | Gone


def has_proc(root: Path = Path("/")) -> bool:
    """Whether there is a /proc to read."""
    return (root / "proc/self/stat").exists()


class ProcessTable:
    """One process, told from a later one of the same number by the moment at which it started."""

    def __init__(self, pid: int, *, root: Path = Path("/")) -> None:
        self._file = root / f"proc/{pid}/stat"
        fields = self._fields()
        self._started = None if fields is None else fields[19]

    def look(self) -> Seen:
        """What it does now."""
        fields = self._fields()
        if fields is None or self._started is None or fields[19] != self._started:
            return Gone(None)
        if fields[0] in _ENDED:
            return Gone(os.waitstatus_to_exitcode(int(fields[49])))
        return Stopped() if fields[0] in _STOPPED else Running()

    def _fields(self) -> list[str] | None:
        """The fields from the third on, which is the state; the second may have spaces and brackets."""
        try:
            text = self._file.read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return text.rpartition(")")[2].split()
