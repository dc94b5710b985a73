"""What a worker and a child that runs its stages say to each other: data, one message a frame."""

import struct

import msgspec

from perdure.engine.attempt.captures import RawOutput
from perdure.engine.attempt.context import Progress
from perdure.model.errors import BugError
from perdure.model.jobs import Claim
from perdure.model.outcomes import (
    Evidence,
    Outcome,
    Raised,
    Returned,
    Snoozed,
    Unstorable,
    Usage,
    Withdrawn,
)

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


class FindStage(msgspec.Struct, frozen=True, tag="find"):
    """Import this function; ``path`` is where modules are looked for."""

    module: str
    qualname: str
    path: tuple[str, ...]


class StageOrder(msgspec.Struct, frozen=True, tag="order"):
    """Run this claim's stage, which is that function, within this time."""

    module: str
    qualname: str
    claim: Claim
    attempts_max: int
    time_s: float
    tracebacks: bool = False


class StageFound(msgspec.Struct, frozen=True, tag="found"):
    """The function is here."""


class StageNotFound(msgspec.Struct, frozen=True, tag="unable"):
    """The function is not here, and why."""

    evidence: Evidence


class StageBegun(msgspec.Struct, frozen=True, tag="begun"):
    """The order has arrived: from here on the stage is to blame for what happens to the child."""


class StageProgressed(msgspec.Struct, frozen=True, tag="progressed"):
    """The stage says how far it is."""

    progress: Progress


class StageSpent(msgspec.Struct, frozen=True, tag="spent"):
    """The stage says what it has used up since it last said so."""

    usage: Usage


class StageCaptured(msgspec.Struct, frozen=True, tag="captured"):
    """The stage puts raw output aside."""

    aside: RawOutput


class StageEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The stage has ended; one of these is set."""

    returned: Returned | None = None
    unstorable: Unstorable | None = None
    snoozed: Snoozed | None = None
    withdrawn: Withdrawn | None = None
    raised: Raised | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> "StageEnded":
        """The message of an outcome that a stage can have by itself."""
        match outcome:
            case Returned():
                return cls(returned=outcome)
            case Unstorable():
                return cls(unstorable=outcome)
            case Snoozed():
                return cls(snoozed=outcome)
            case Withdrawn():
                return cls(withdrawn=outcome)
            case Raised():
                return cls(raised=outcome)
            case _:
                raise BugError(f"a stage cannot have the outcome {outcome!r} by itself")

    @property
    def outcome(self) -> Outcome:
        """The outcome that is set."""
        found = self.returned or self.unstorable or self.snoozed or self.withdrawn or self.raised
        if found is None:
            raise BugError("a stage has ended without an outcome")
        return found


Asked = FindStage | StageOrder
Said = (
    StageFound
    | StageNotFound
    | StageBegun
    | StageProgressed
    | StageSpent
    | StageCaptured
    | StageEnded
)

_encode = msgspec.msgpack.Encoder().encode
_asked = msgspec.msgpack.Decoder(Asked)
_said = msgspec.msgpack.Decoder(Said)


def frame(message: Asked | Said) -> bytes:
    """A message with its length before it."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """How many bytes follow."""
    (length,) = _LENGTH.unpack(head)
    return int(length)


def read_asked(body: bytes) -> Asked:
    """What the worker asks of its child."""
    message: Asked = _asked.decode(body)
    return message


def read_said(body: bytes) -> Said:
    """What the child says to its worker."""
    message: Said = _said.decode(body)
    return message
