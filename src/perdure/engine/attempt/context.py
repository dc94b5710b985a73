"""What a stage may know about the attempt it is, and what it may say while it works.

A `Context` is given to the stage; behind it stands the attempt's `AttemptNotes`, which the worker keeps. What
the stage puts down there (progress, usage, raw output) is picked up by the worker's own threads, so both sides may
act at once. Once the attempt is over, nothing that is put down counts any more.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from perdure.engine.attempt.captures import RawOutput, aside, aside_of, traceback_of
from perdure.model.errors import CallerError, NotCompletable
from perdure.model.limits import CAPTURES_MAX, NOTE_CHARS_MAX
from perdure.model.outcomes import Usage
from perdure.rules.foreign_code import try_or_none
from perdure.rules.redact import safe_line

_HEADERS_MAX = 32
_HEADER_CHARS_MAX = 200


class Progress(Struct, frozen=True):
    """How far a stage has come, in its own units."""

    done: float
    total: float | None = None
    note: str = ""


Said = Progress | Usage | RawOutput


def _nobody(said: Said) -> None:
    """Hear nothing: a Context that a test has made stands behind no worker."""


class Completer(Protocol):
    """Writes the record of one attempt in its stage's own transaction."""

    def ask(self) -> None:
        """From now on what is stored says how the attempt has ended."""
        ...

    def write(self, notes: "AttemptNotes", value: Any, within: object) -> None:
        """Write the record, or say why not."""
        ...


class AttemptNotes:
    """What one attempt has said so far, when its time is over, and whether it is still wanted.

    ``tell`` hears every word, and none after `end`; it is called on the stage's own thread and must be quick.
    What is said is written under a lock. Other threads read it without one: each value is whole, and replaced as a whole.
    """

    def __init__(
        self,
        *,
        tell: Callable[[Said], None] = _nobody,
        completer: Completer | None = None,
        tracebacks: bool = False,
    ) -> None:
        self.tracebacks = tracebacks
        self._tell = tell
        self._completer = completer
        self._one_at_a_time = threading.Lock()
        self._monotonic: Callable[[], float] = time.monotonic
        self._ends_at = math.inf
        self._over = False
        self._progress: Progress | None = None
        self._usage: Usage | None = None
        self._asides: tuple[RawOutput, ...] = ()
        self._told: dict[str, str] | None = None

    @property
    def over(self) -> bool:
        """Whether the attempt is over, so that nothing more is heard."""
        return self._over

    @property
    def progress(self) -> Progress | None:
        """How far the stage says that it is."""
        return self._progress

    @property
    def usage(self) -> Usage | None:
        """What the stage says that it has spent so far."""
        return self._usage

    @property
    def asides(self) -> tuple[RawOutput, ...]:
        """Raw outputs that were put aside."""
        return self._asides

    @property
    def told(self) -> Mapping[str, str] | None:
        """What the last answer of the upstream said of limits."""
        return self._told

    def begin(self, time_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """The stage starts now and has this much time."""
        self._monotonic = monotonic
        self._ends_at = monotonic() + time_s

    def time_left_s(self) -> float:
        """What is left of the attempt's time."""
        return max(0.0, self._ends_at - self._monotonic())

    def hear(self, said: Said) -> None:
        """Take note of progress, of usage on top of what there was, or of raw output beside it."""
        with self._one_at_a_time:
            if self._over:
                return
            if isinstance(said, Progress):
                self._progress = said
            elif isinstance(said, Usage):
                self._usage = said if self._usage is None else self._usage.plus(said)
            else:
                self._asides = (*self._asides[: CAPTURES_MAX - 1], said)
            self._tell(said)

    def keep_failed_output(
        self, error: BaseException, *, about: BaseException | None = None
    ) -> None:
        """Keep the traceback, where that is wanted, and the output that did not pass, if the stage has failed for that.

        ``about`` is what the failure is judged by, where the error is a group and that one of its members.
        """
        whole = try_or_none(traceback_of, error) if self.tracebacks else None
        if whole is not None:
            self.hear(whole)
        found = aside_of(error if about is None else about)
        if found is not None:
            self.hear(found)

    def note(self, headers: Mapping[str, str]) -> None:
        """Keep what an answer says of limits; of several answers, what the last one says."""
        found = {
            str(name).lower(): str(value)[:_HEADER_CHARS_MAX]
            for name, value in headers.items()
            if "ratelimit" in str(name).lower()
        }
        with self._one_at_a_time:
            if found and not self._over:
                self._told = dict(list(found.items())[:_HEADERS_MAX])

    def complete(self, value: Any, within: object) -> None:
        """Have the attempt recorded in the stage's own transaction; not once it is over."""
        completer = self._completer
        if completer is None:
            raise CallerError(
                "complete: there is no way from here to the store; a stage with process=True, and a Context that "
                "stands behind no worker, cannot complete anything: return the value"
            )
        with self._one_at_a_time:
            if self._over:
                raise self.too_late()
            completer.ask()
        completer.write(self, value, within)

    def too_late(self) -> NotCompletable:
        """The error for a stage that calls `complete` after its attempt is over."""
        return NotCompletable(
            "complete: the attempt is over (its time is up, or its job is not wanted any more), and nothing more is "
            "stored of it; roll back"
        )

    def end(self) -> None:
        """The attempt is over; a thread that still works on it may find out."""
        with self._one_at_a_time:
            self._over = True


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage may know of its attempt, and say; given to the parameter named ``context`` or annotated `Context`.

    ``idempotency_key`` stays the same when this stage of this job is tried again: hand it to
    outside systems so that they can recognise the repeat. ``token`` rises with every attempt: hand
    it to systems that can refuse an older writer. ``request_id`` is the job's: what its caller gave, or
    else the job's id; hand it to those who keep logs. ``attempt_id`` is this attempt's alone. ``item`` is the item as it was enqueued, as plain values, whatever earlier
    stages have made of it. ``deadline_at`` is the job's, by the store's clock. ``attempt`` is the number that the log and
    `perdure jobs show` have: the first try of this stage is 1, and each further one, after a failure, a wait, a crash or a
    shutdown, is one more. ``attempts_left`` is how many failures the job may still have after one of this attempt.
    """

    job_id: str
    pipeline: str
    stage: str
    owner: str
    item: Any
    attempt: int
    attempts_left: int
    token: int
    idempotency_key: str
    deadline_at: datetime | None
    request_id: str = ""
    attempt_id: str = ""
    _notes: AttemptNotes = field(default_factory=AttemptNotes, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has been given up: its time is over, or its job is not wanted any more.

        For a sync stage, which cannot be stopped from outside; an async one is cancelled where it
        waits, and one in a process of its own is killed.
        """
        return self._notes.over

    def time_left_s(self) -> float:
        """What is left of this attempt: of the stage's timeout, or of the job's deadline if that is nearer."""
        return self._notes.time_left_s()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far you are; told as an event, at most once a second, and not stored."""
        for name, value in (("done", done), ("total", total)):
            if not (value is None and name == "total"):
                _check_amount("progress", name, value)
        if not isinstance(note, str):
            raise CallerError(f"progress: note is {note!r}; it must be text")
        self._notes.hear(Progress(done, total, safe_line(note, NOTE_CHARS_MAX)))

    def limits(self, headers: Mapping[str, str]) -> None:
        """Hand over the headers of an answer: what they say of limits slows calls down before one is met.

        Only headers with *ratelimit* in their names are looked at, and nothing of them is stored.
        """
        if not isinstance(headers, Mapping):
            raise CallerError(f"limits: headers are {type(headers).__name__}; pass a mapping")
        self._notes.note(headers)

    def usage(self, *, tokens_in: int = 0, tokens_out: int = 0, cost_usd: float = 0.0) -> None:
        """Add to what this attempt has used up; stored with the attempt, whatever becomes of it."""
        for name, value in (("tokens_in", tokens_in), ("tokens_out", tokens_out)):
            _check_amount("usage", name, value)
            if not isinstance(value, int):
                raise CallerError(f"usage: {name} is {value!r}; it must be a whole number")
        _check_amount("usage", "cost_usd", cost_usd)
        self._notes.hear(Usage(tokens_in, tokens_out, float(cost_usd)))

    def capture(
        self, raw: str | bytes, *, kind: str = "raw", media_type: str | None = None
    ) -> None:
        """Put raw output aside; stored beside the attempt, whatever becomes of it, and never logged.

        What is longer than 256 KiB is cut. An attempt keeps four: its first three and its last.
        """
        self._notes.hear(aside(raw, kind, media_type))

    def complete(self, value: Any, *, within: object) -> None:
        """Write the record of this attempt in a transaction of your own, so that your rows and it are one.

        ``within`` is your connection to the store's own database: psycopg, sqlite3, or SQLAlchemy on either,
        synchronous. Call it last, then commit: what is stored decides how the attempt has ended, whatever the
        stage returns or raises after it, and a plain return without a commit is a failure. ``value`` is
        what the stage would return, a `Succeeded` with a label among it. A next stage is queued. Usage and
        captures count that came before.
        """
        self._notes.complete(value, within)


def _check_amount(what: str, name: str, value: object) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0:  # type: ignore[operator]
        raise CallerError(f"{what}: {name} is {value!r}; it must be a number, and not below 0")
