"""All families in their order, and the questions that are put to their tables."""

from collections.abc import Callable, Mapping

from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers import (
    anthropic,
    bedrock,
    cohere,
    compatible,
    google,
    mistral,
    openai,
    output,
    postgres,
    python,
    redis,
    s3,
    transport,
)
from perdure.rules.matchers.family import Family, Found, short_names
from perdure.rules.matchers.http import kind_of_status

MODELS: tuple[Family, ...] = (
    openai.FAMILY,
    anthropic.FAMILY,
    google.FAMILY,
    mistral.FAMILY,
    cohere.FAMILY,
    compatible.FAMILY,
)
AWS: tuple[Family, ...] = (bedrock.FAMILY, s3.FAMILY)
FAMILIES: tuple[Family, ...] = (
    *MODELS,
    *AWS,
    postgres.FAMILY,
    redis.FAMILY,
    transport.FAMILY,
    output.FAMILY,
    python.FAMILY,
)

_TRAPS = tuple(trap for family in FAMILIES for trap in family.traps)
_CLASS_TRAPS = {name: trap for family in FAMILIES for name, trap in family.class_traps.items()}


def _merge(part: Callable[[Family], Mapping[str, Kind]]) -> dict[str, Kind]:
    """The parts of all families as one table; of two entries, the earlier family's stays."""
    return {name: kind for family in reversed(FAMILIES) for name, kind in part(family).items()}


CLASSES = _merge(lambda family: family.classes)
LATE_CLASSES = _merge(lambda family: family.late_classes)
WRAPPERS = _merge(lambda family: family.wrappers)
_CAUSES = WRAPPERS | LATE_CLASSES | CLASSES
CLASS_STATUSES: dict[str, int] = {
    name: status for family in FAMILIES for name, status in family.statuses.items()
}
_LATE_WRAPPERS = frozenset(
    name for family in (transport.FAMILY, output.FAMILY, python.FAMILY) for name in family.wrappers
)


def trap(evidence: Evidence) -> Found | None:
    """The conditions that go before every table."""
    for name in short_names(evidence.names):
        if name in _CLASS_TRAPS and (found := _CLASS_TRAPS[name](evidence)) is not None:
            return found
    if evidence.status is None and not evidence.codes:
        return None
    for condition in _TRAPS:
        found = condition(evidence)
        if found is not None:
            return found
    return None


def strong_code(evidence: Evidence) -> Found | None:
    """A machine code that is to be believed whatever the status."""
    return _by_code(evidence, lambda family: family.codes)


def weak_code(evidence: Evidence) -> Found | None:
    """A machine code that says no more than a status would."""
    return _by_code(evidence, lambda family: family.weak_codes)


def _by_code(evidence: Evidence, table: Callable[[Family], Mapping[str, Kind]]) -> Found | None:
    if not evidence.codes:
        return None
    families = _families_of(evidence)
    for code in evidence.codes:
        for family in families:
            kind = table(family).get(code)
            if kind is not None:
                return kind, f"{family.name} code {code}"
    return None


def _families_of(evidence: Evidence) -> tuple[Family, ...]:
    """The families whose codes may be meant: a model's client never speaks of S3, its own goes first."""
    roots = {name.partition(".")[0] for name in evidence.names}
    own = tuple(family for family in MODELS if not roots.isdisjoint(family.roots))
    if own:
        return (*own, *MODELS, bedrock.FAMILY)
    if any(not roots.isdisjoint(family.roots) for family in AWS):
        return (*AWS, *MODELS)
    return (*MODELS, *AWS)


def vendor_class(evidence: Evidence) -> Found | None:
    """A class that says more than the status that may come with it."""
    for name in short_names(evidence.names):
        if name in CLASSES:
            return CLASSES[name], name
        if name in WRAPPERS and name not in _LATE_WRAPPERS:
            return _unwrap(evidence, name)
    return None


def plain_class(evidence: Evidence) -> Found | None:
    """A class of a transport, a parser, a driver or of Python, or one that stands for a status."""
    for name in short_names(evidence.names):
        found = _plain_class(evidence, name)
        if found is not None:
            return found
    return None


def _plain_class(evidence: Evidence, name: str) -> Found | None:
    if name in LATE_CLASSES:
        return LATE_CLASSES[name], name
    if name in _LATE_WRAPPERS:
        found = _unwrap(evidence, name)
        return None if found[0] is Kind.UNKNOWN else found
    kind = kind_of_status(CLASS_STATUSES.get(name))
    return None if kind is None else (kind, name)


def _unwrap(evidence: Evidence, wrapper: str) -> Found:
    """What a wrapper means: a certificate that failed, else its nearest cause that says anything.

    A wrapper inside a wrapper passes the question on, and answers itself if nobody behind it does.
    """
    meant = WRAPPERS[wrapper], wrapper
    for names in evidence.causes:
        if "ssl.SSLCertVerificationError" in short_names(names):
            return Kind.CONFIG_MISSING, f"{wrapper} from ssl.SSLCertVerificationError"
    for names in evidence.causes:
        known = next((name for name in short_names(names) if name in _CAUSES), None)
        if known is not None:
            meant = _CAUSES[known], f"{wrapper} from {known}"
            if known not in WRAPPERS:
                break
    return meant


def cause_class(evidence: Evidence) -> Found | None:
    """The class of what it was raised from; a cause may make a failure worth a retry, never final."""
    for names in evidence.causes:
        for name in short_names(names):
            kind = _CAUSES.get(name)
            if kind is not None and KINDS[kind].failure_class is not FailureClass.FINAL:
                return kind, f"caused by {name}"
    return None
