"""What a policy makes of an error, for a service that must tell it on: a gateway before the workers, say."""

from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.model.kinds import Kind
from perdure.rules.classify import classify_evidence
from perdure.rules.evidence import evidence_of
from perdure.rules.policy import Policy, policy_of


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """An error as a policy reads it: its kind, and the code and the message that users may read.

    ``wait_s`` is what the other side asks for, ``status`` the HTTP status of its answer.
    """

    kind: Kind
    code: str
    message: str
    wait_s: float | None
    status: int | None


def meaning_of(error: BaseException, policy: Policy | str = "standard") -> ErrorMeaning:
    """What an exception means by a policy, or a preset's name, were it raised in a stage. Nothing is decided."""
    by, evidence = policy_of(policy), evidence_of(error)
    failure = classify_evidence(
        evidence, now=datetime.now(UTC), matches=by.matches, vocabulary=by.vocabulary
    )
    words, kind, status = by.vocabulary, failure.kind, failure.status
    code = evidence.public_code or words.code(kind, status=status)
    message = evidence.public_message or words.message(kind)
    return ErrorMeaning(kind, code, message, failure.hint_s, status)
