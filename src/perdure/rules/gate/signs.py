"""What the end of a call says about its upstream: that it answers, that it is sick, or nothing."""

from msgspec import Struct

from perdure.model.errors import StoreError
from perdure.model.kinds import KINDS, FailureClass, Kind, Sign
from perdure.model.outcomes import Origin
from perdure.model.verdicts import Failure, Success, Verdict

_OUR_STORE = f"{StoreError.__module__}.{StoreError.__qualname__}"
_SERVED = frozenset({Kind.UPSTREAM_ERROR, Kind.AMBIGUOUS})  # taken on, and then it went wrong


class Word(Struct, frozen=True):
    """What one call says. ``kind`` is None for a success, and for what is neither success nor failure.

    ``of_job`` says that it says more about the job than about the upstream.
    """

    sign: Sign
    kind: Kind | None = None
    of_job: bool = False

    @property
    def refuses(self) -> bool:
        """Whether the upstream has asked for fewer calls."""
        return self.kind is not None and KINDS[self.kind].failure_class is FailureClass.RATE_LIMITED

    @property
    def admitted(self) -> bool:
        """Whether the upstream has taken the call on, however that ended."""
        return self.sign is Sign.GOOD or self.kind in _SERVED

    @property
    def label(self) -> str:
        """The word for people."""
        kind = "success" if self.kind is None else self.kind.value
        return (
            f"{kind}, of a job that has failed while others were answered" if self.of_job else kind
        )


WELL = Word(Sign.GOOD)


def word_of(verdict: Verdict) -> Word:
    """What a call that came to this says; a stage that snoozed or was cancelled has said nothing."""
    if isinstance(verdict, Success):
        return WELL
    if not isinstance(verdict, Failure):
        return Word(Sign.NEITHER, Kind.CANCELLED)
    return Word(sign_of(verdict), verdict.kind)


def sign_of(failure: Failure) -> Sign:
    """An answer proves that the upstream is up; a defect of the caller's own code proves nothing, nor does our own store.

    A stage whose result cannot be stored has returned one, so its call was answered.
    """
    facts = KINDS[failure.kind]
    if _OUR_STORE in failure.names:
        return Sign.NEITHER
    if failure.final or (facts.proved_by_status and failure.status is not None):
        return Sign.GOOD
    if failure.kind is Kind.UNKNOWN and failure.origin is Origin.OWN:
        return Sign.NEITHER
    return facts.sign
