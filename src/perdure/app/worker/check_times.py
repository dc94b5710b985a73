"""Whether the times of a worker fit together, before it starts.

Each rule names the two settings that are at odds, why, and what to change. What follows from the
settings by arithmetic, such as the beat (a third of the lease) or the end of an attempt that is held
for too long (its stage's timeout, and on top at least the grace and a lease), cannot be at odds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from perdure.config import Config
from perdure.model.errors import ConfigError
from perdure.model.limits import TIMEOUT_S_MAX


@dataclass(frozen=True, slots=True)
class Rule:
    """Two settings, when they are at odds, and what to say then."""

    broken: Callable[[Config], bool]
    words: Callable[[Config], str]


RULES: tuple[Rule, ...] = (
    Rule(
        lambda c: c.poll_s > c.lease_ttl_s / 2,
        lambda c: (
            f"poll_s is {c.poll_s:g} and lease_ttl_s is {c.lease_ttl_s:g}: a worker has to look at the "
            "store twice in a lease, or it learns too late that a job is no longer its own; set poll_s to "
            f"at most {c.lease_ttl_s / 2:g}, or lease_ttl_s to at least {c.poll_s * 2:g}"
        ),
    ),
    Rule(
        lambda c: c.tick_s > c.poll_s,
        lambda c: (
            f"tick_s is {c.tick_s:g} and poll_s is {c.poll_s:g}: a resting worker looks for hints every "
            f"tick, between its polls; set tick_s to at most {c.poll_s:g}, or poll_s to at least {c.tick_s:g}"
        ),
    ),
    Rule(
        lambda c: c.grace_s > TIMEOUT_S_MAX,
        lambda c: (
            f"grace_s is {c.grace_s:g} and no stage's timeout_s is longer than {TIMEOUT_S_MAX:g}: nothing "
            f"is left to wait for after that; set grace_s to at most {TIMEOUT_S_MAX:g}"
        ),
    ),
)


def check_times(config: Config) -> None:
    """Refuse settings that do not fit together."""
    for rule in RULES:
        if rule.broken(config):
            raise ConfigError(rule.words(config))
