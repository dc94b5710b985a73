"""The pieces of which decisions are explained."""

from perdure.model.kinds import KINDS, Kind
from perdure.model.outcomes import Origin
from perdure.model.verdicts import Failure

_WORDS = {
    kind: f"{kind.value} ({facts.sentence[0].lower()}{facts.sentence[1:].rstrip('.')})"
    for kind, facts in KINDS.items()
}


def words(failure: Failure) -> str:
    """The failure in words: its kind and what that means; where nobody knows that, what was raised and by whom."""
    return f"{_WORDS[failure.kind].removesuffix(')')}{raiser_words(failure)})"


def raiser_words(failure: Failure) -> str:
    """Whose code has raised what, for operators, where the kind says nothing."""
    if failure.kind is not Kind.UNKNOWN or failure.origin is Origin.UNKNOWN or not failure.names:
        return ""
    return f"; {failure.origin.value}: {failure.names[0].rpartition('.')[2]}"


def hint_words(hint_s: float | None) -> str:
    """What the server asked for."""
    return "" if hint_s is None else f", the server asked for {seconds(hint_s)}"


def seconds(value_s: float) -> str:
    """A length of time, to a tenth of a second."""
    return f"{value_s:.1f}".removesuffix(".0") + " s"


def whole_units(value_s: float) -> str:
    """A length of time that somebody has set: in days, hours or minutes where it is a whole number of them."""
    for unit, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count, rest_s = divmod(value_s, unit_s)
        if count and not rest_s:
            return f"{count:.0f} {unit}" + ("s" if count > 1 else "")
    return seconds(value_s)


def waited_words(waits: int, waited_s: float, waits_max: int, wait_s_max: float) -> str:
    """That no wait is left."""
    allowed = f"the policy allows {waits_max} times and {whole_units(wait_s_max)}"
    return f"waited {waits} times and {seconds(waited_s)} in all, {allowed}"


def last_attempt_words(failures: int, attempts_max: int) -> str:
    """That no attempt is left."""
    if failures == attempts_max:
        return f"attempt {failures} of {attempts_max} was the last"
    return f"attempt {failures} failed, and {attempts_max} are allowed when it fails like this"


def because(text: str, reason: str) -> str:
    """Text with a reason, where there is one."""
    return f"{text} ({reason})" if reason else text
