"""A policy with its reasons."""

from msgspec import Struct

from perdure.model.kinds import Kind
from perdure.rules.matchers import Match
from perdure.rules.policy import Policy

# The documents speak of all of 4xx and all of 5xx, where our table makes exceptions for some.
ALL_5XX = (Match(Kind.UPSTREAM_ERROR, status=501),)
TO_THE_LETTER = (
    *ALL_5XX,
    Match(Kind.INVALID_REQUEST, status=409),
    Match(Kind.INVALID_REQUEST, name="ConflictError"),
)


class Preset(Struct, frozen=True):
    """A named policy, the paragraph that says why it is as it is, and the rules it implements."""

    policy: Policy
    reason: str
    implements: tuple[str, ...] = ()
