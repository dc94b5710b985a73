"""What to do about a verdict, and why: the noun between *decide* and *record*."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from perdure.model.kinds import Kind, PauseScope
from perdure.model.nouns import replace
from perdure.model.states import FailedReason


class Counted(StrEnum):
    """The counter that an ended attempt raises."""

    FAILURES = "failures"
    WAITS = "waits"
    CRASHES = "crashes"
    SNOOZES = "snoozes"
    PROBES = "probes"
    RELEASES = "releases"


class Why(Struct, frozen=True):
    """A decision explained: stored with the attempt, readable years later.

    ``rule`` is the policy's rule that decided, ``matched`` the matcher that named the kind. ``public`` is the text as its
    owner may read it, where ``text`` says something of what was raised.
    """

    text: str
    rule: str
    policy: str
    matched: str = ""
    base_s: float | None = None
    jitter_s: float | None = None
    hint_s: float | None = None
    gate: str = "flowing"
    public: str | UnsetType = UNSET

    def with_text(self, put: Callable[[str], str]) -> "Why":
        """The same in other words, in both texts."""
        public = self.public if self.public is UNSET else put(self.public)
        return replace(self, text=put(self.text), public=public)


class Hold(Struct, frozen=True):
    """What is to be held besides the job: until ``for_s`` from now, or until a person releases it."""

    scope: PauseScope
    for_s: float | None = None


class Succeed(Struct, frozen=True):
    """Keep the result and go on."""

    value_json: str
    label: str | None
    why: Why


class Retry(Struct, frozen=True):
    """Queue the job again, due after ``delay_s`` by the store's clock.

    ``attempts_max`` is how many failures of this kind the policy allows, here as in `Fail`; to be told. ``hinted``: the
    delay is the one that the upstream asked for, and not ours; to be told, here as in `HandOver`.
    """

    delay_s: float
    counted: Counted
    kind: Kind | None
    why: Why
    hold: Hold | None = None
    attempts_max: int | None = None
    hinted: bool = False


class Fail(Struct, frozen=True):
    """Dead-letter the job."""

    reason: FailedReason
    counted: Counted | None
    kind: Kind
    why: Why
    hold: Hold | None = None
    attempts_max: int | None = None


class HandOver(Struct, frozen=True):
    """Stop trying here and now; a durable job goes on, due after ``delay_s``.

    ``kind`` is None when nothing has failed: the stage snoozed, or its caller has gone.
    """

    delay_s: float
    kind: Kind | None
    why: Why
    hold: Hold | None = None
    hinted: bool = False


class CancelJob(Struct, frozen=True):
    """End the job as cancelled."""

    why: Why


class Release(Struct, frozen=True):
    """Put the job back at once; nothing is counted but the release itself."""

    why: Why


Decision = Succeed | Retry | Fail | HandOver | CancelJob | Release
