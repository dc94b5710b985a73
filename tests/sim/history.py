"""The history: every call at the instant of its commit, who made it, and what was answered."""

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from perdure.model.gates import GateChange, GateLook, GateRow, Probe, Slices
from perdure.model.jobs import (
    Claim,
    Conflict,
    Enqueued,
    LostClaim,
    Receipt,
    Record,
    RecordRefused,
    Revived,
    Settled,
    Stale,
    Turn,
)
from perdure.model.operations import BulkStep, BulkView, Revival, Target
from perdure.model.runs import RunChange, RunView

_KEPT = 400


class History:
    """A running hash over all entries, and the last of them for people."""

    def __init__(self) -> None:
        self.entries = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=_KEPT)

    def note(self, now_us: int, who: str, what: str, *seen: object) -> None:
        """One thing that happened."""
        self.entries += 1
        line = f"{now_us / 1e6:12.6f}  {who:<16} {what:<12} {' '.join(str(one) for one in seen)}"
        self._hash.update(line.encode())
        self._last.append(line)

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return self._hash.hexdigest()

    def tail(self, lines: int) -> list[str]:
        """The last entries."""
        return list(self._last)[-lines:]

    def about(self, text: str) -> list[str]:
        """The last entries that mention the job of which a text speaks."""
        job = re.search(r"#\d+", text)
        return [] if job is None else [line for line in self._last if f"{job[0]}/" in line][-20:]


def asked(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The arguments of a store call, in short."""
    named = (f"{name}={_short(one)}" for name, one in kwargs.items() if name != "samples")
    return " ".join([*(_short(one) for one in args), *named])


def answered(answer: Any) -> str:
    """The answer of a store call, in short."""
    return f"→ {_short(answer)}"


def _short(value: Any) -> str:
    match value:
        case Record():
            return f"#{value.no}/{value.token}:{value.move.value}>{value.stage}"
        case Claim():
            return f"#{value.no}/{value.token}@{value.stage}"
        case LostClaim():
            return f"lost{_short(value.claim)}"
        case Turn():
            return f"{_short(value.settled)} {_short(value.claims)}"
        case Enqueued():
            return f"#{value.no}{'+' if value.created else '='}"
        case GateChange() | GateRow():
            return f"{value.name}@{value.generation}>{value.state} {value.reason!r}"
        case GateLook():
            return _short(value.rows)
        case Probe():
            return f"{_short(value.gate)} {_short(value.claim)}"
        case Slices():
            return f"{value.gate}@{value.generation} {value.slices_json}"
        case RunView():
            return (
                f"run{value.no}:{value.status.value} {value.counts.processed}/{value.counts.total}"
            )
        case RunChange():
            return f"run{value.no}:{value.seen.value}>{value.status.value}"
        case BulkView():
            return f"bulk{value.no}:{value.status.value}@{value.cursor} {value.phase.value}"
        case BulkStep():
            return f"bulk{value.no}:{value.seen_cursor}>{value.cursor} {value.phase.value}"
        case Revival() | Target():
            return f"#{value.no}/{value.token}"
        case list() | tuple():
            return "[" + " ".join(_short(one) for one in value) + "]"
        case frozenset():
            return str(sorted(value))
        case None | bool() | int() | float() | str() | dict():
            return str(value)
        case _:
            return _settled(value) or type(value).__name__


def _settled(answer: Settled | Revived) -> str:
    match answer:
        case Receipt():
            word = "again" if answer.repeated else "ok"
            return f"#{answer.no}/{answer.token}:{word}"
        case Stale() | RecordRefused() | Conflict():
            return f"#{answer.no}/{answer.token}:{type(answer).__name__.lower()}"
    return ""
