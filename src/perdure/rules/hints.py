"""Wait hints: what a server says about when to come back.

Garbage is ignored: never an exception, never earlier than a valid hint. Today this reads
``Retry-After`` in seconds and the wait that a stage states itself.
"""

import re

from perdure.model.outcomes import Evidence

_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)


def wait_hint_s(evidence: Evidence) -> float | None:
    """Seconds that the other side asked us to wait, or None."""
    if evidence.wait_s is not None:
        return evidence.wait_s if 0 <= evidence.wait_s < float("inf") else None
    for name, value in evidence.headers:
        if name == "retry-after":
            return seconds_of(value)
    return None


def seconds_of(text: str) -> float | None:
    """A plain, non-negative number of seconds, or None."""
    stripped = text.strip(" \t")
    return float(stripped) if _SECONDS.fullmatch(stripped) else None
