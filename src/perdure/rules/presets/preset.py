"""A policy with its reasons."""

from dataclasses import dataclass

from perdure.rules.policy import Policy


@dataclass(frozen=True, slots=True)
class Preset:
    """A named policy, the paragraph that says why it is as it is, and the rules it implements."""

    policy: Policy
    reason: str
    implements: tuple[str, ...] = ()
