"""A diagnosis of each severity, in short."""

from collections.abc import Sequence

from perdure.model.diagnoses import Diagnosis, Severity

_NAMED_MAX = 3


def ok(check: str, text: str) -> Diagnosis:
    """It is as it should be."""
    return Diagnosis(check, Severity.OK, text)


def warn(check: str, text: str, remedy: str) -> Diagnosis:
    """It will hurt one day."""
    return Diagnosis(check, Severity.WARN, text, remedy)


def fail(check: str, text: str, remedy: str) -> Diagnosis:
    """It does not work, or loses something."""
    return Diagnosis(check, Severity.FAIL, text, remedy)


def first_few(texts: Sequence[str], count_max: int = _NAMED_MAX) -> str:
    """The first of them, and how many more there are."""
    more = len(texts) - count_max
    named = "; ".join(texts[:count_max])
    return f"{named}; and {more} more" if more > 0 else named


def time_words(length_s: float) -> str:
    """A length of time, to two digits or so."""
    for unit, unit_s in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if length_s >= 2 * unit_s:
            return f"{length_s / unit_s:.0f} {unit}"
    return f"{length_s:.3g} s"
