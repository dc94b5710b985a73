"""What happened in one attempt, as data: the noun between *run* and *classify*."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from perdure.model.kinds import Kind


class Origin(StrEnum):
    """Whose code an exception came from."""

    OWN = "own code"
    LIBRARY = "library"
    UNKNOWN = "unknown"


class Evidence(Struct, frozen=True):
    """An exception or an unwelcome answer as data: bounded, one line, safe to keep.

    ``names`` are the qualified class names of the exception's ancestry, nearest first; ``causes``
    the same for what it was raised from. ``codes`` are machine codes found in the body or on the
    exception, the most specific first, among them S3 codes and, as ``finish:…``, the reason why
    a model stopped. ``facts`` are the few body fields that judgement reads (wait hints, quota
    names, the server's own verdict). ``kind`` and ``wait_s`` are set when the stage said itself what
    went wrong; ``public_code`` and ``public_message`` when it said what users may read about it.
    ``usage`` counts tokens that were paid for all the same. ``origin`` is whose code raised it, ``where`` the module and
    the line of the application's own code that did, or that called who did.
    """

    names: tuple[str, ...] = ()
    message: str = ""
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    codes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sqlstate: str | None = None
    errno: str | None = None
    kind: Kind | None = None
    wait_s: float | None = None
    causes: tuple[tuple[str, ...], ...] = ()
    usage: tuple[tuple[str, int], ...] = ()
    public_code: str | None = None
    public_message: str | None = None
    origin: Origin = Origin.UNKNOWN
    where: str = ""

    def header(self, name: str) -> str | None:
        """The value of a header, by its lower-case name."""
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def fact(self, name: str) -> str | None:
        """The value of a body field that was kept."""
        for known, value in self.facts:
            if known == name:
                return value
        return None


def raised_in_words(names: Sequence[str], where: str) -> str:
    """The class of an exception, and where in the application's own code; nothing for what is no exception."""
    module, _, name = (names[0] if names else "").rpartition(".")
    if not name or module == "perdure":  # what we found ourselves says it all in its message
        return ""
    return f"{name} at {where}" if where else name


def seen_in_words(names: Sequence[str], where: str, message: str) -> str:
    """What was raised and where, then what it said: whoever cuts the line leaves out the end of that."""
    return ": ".join(one for one in (raised_in_words(names, where), message) if one)


class Usage(Struct, frozen=True):
    """What an attempt has used up, by its stage's own word; stored with the decision explained."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0

    def plus(self, other: "Usage") -> "Usage":
        """The sums of both."""
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cost_usd + other.cost_usd,
        )


OUT_OF_MEMORY = "out of memory"
GONE = "gone"


class Death(Struct, frozen=True):
    """How the end of a worker became known.

    ``why`` is "exited"; "out of memory", when the kernel has killed it for that; "stopped" at our own
    shutdown; "gone", when it is no more and nobody saw how; or "silent": its lease ran out.
    """

    why: str
    exit_status: int | None = None
    signal: str | None = None

    @property
    def subject(self) -> str:
        """Who has ended."""
        return "the worker"

    def in_words(self) -> str:
        """The death as the end of a sentence."""
        if self.signal is not None:
            cause = f": {self.why}" if self.why == OUT_OF_MEMORY else ""
            return f"was killed by {self.signal}{cause}"
        if self.exit_status is not None:
            return f"exited with status {self.exit_status}"
        return "is gone, nobody saw how" if self.why == GONE else "went silent"


class StageDeath(Death, frozen=True):
    """How the child process ended in which a stage with ``process=True`` ran; its worker lives on."""

    of: str = "stage process"

    @property
    def subject(self) -> str:
        """Who has ended."""
        return "the process in which the stage ran"


class Returned(Struct, frozen=True):
    """The stage returned; ``value_json`` was checked by `engine/payloads.py`."""

    value_json: str
    label: str | None = None


class Unstorable(Struct, frozen=True):
    """The stage returned what cannot be kept: JSON cannot hold it, it is too large, or the store refuses it."""

    reason: str


class Snoozed(Struct, frozen=True):
    """The stage asked to be called again later."""

    wait_s: float
    reason: str = ""


class Withdrawn(Struct, frozen=True):
    """The stage asked for its job to be cancelled."""

    reason: str = ""


class Raised(Struct, frozen=True):
    """The stage raised."""

    evidence: Evidence


class TimedOut(Struct, frozen=True):
    """The stage did not end within its own time."""

    timeout_s: float


class Unbegun(Struct, frozen=True):
    """The job's deadline had passed before the stage could begin."""


class Lost(Struct, frozen=True):
    """The worker, or the process that it had started for the stage, died with the attempt in its hands."""

    death: Death

    @property
    def apart(self) -> bool:
        """Whether what died was a process of the stage's own: it has harmed nobody, and makes no suspect."""
        return isinstance(self.death, StageDeath)


class Interrupted(Struct, frozen=True):
    """The worker gave the attempt back unfinished, because it is shutting down; perhaps before its stage had begun."""

    reason: str = "shutdown"
    begun: bool = True


class Revoked(Struct, frozen=True):
    """A person or the caller cancelled the job."""

    reason: str = ""


Outcome = (
    Returned
    | Unstorable
    | Snoozed
    | Withdrawn
    | Raised
    | TimedOut
    | Unbegun
    | Lost
    | Interrupted
    | Revoked
)
