"""Named policies. ``standard`` is our own recommendation for LLM work.

Its reasons: an allow-list, so that a kind nobody thought of is not repeated for ever; one careful
repeat for what is unknown or may be our own memory; a rate limit is the server's order and not the
item's failure, so it waits without spending an attempt, within bounds; model output that does not
fit is worth two more tries, because sampling differs; everything that the caller has to mend fails
at once.
"""

from perdure.model.errors import UnknownName
from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, RETRY, Action, Policy, Rule

_ONCE_MORE = Rule(Action.RETRY, attempts_max=2)
_WAIT = Rule(Action.WAIT)

STANDARD = Policy(
    name="standard",
    version=1,
    attempts_max=5,
    backoff=Backoff(Curve.EXPONENTIAL, base_s=2.0, factor=2.0, cap_s=300.0),
    jitter=Jitter(Spread.PROPORTIONAL, ratio=0.25),
    rules={
        Kind.RATE_LIMITED: _WAIT,
        Kind.QUOTA_WINDOW: _WAIT,
        Kind.OVERLOADED: RETRY,
        Kind.UPSTREAM_ERROR: RETRY,
        Kind.UPSTREAM_UNAVAILABLE: RETRY,
        Kind.NETWORK: RETRY,
        Kind.TIMEOUT: RETRY,
        Kind.AMBIGUOUS: RETRY,
        Kind.STORAGE_TRANSIENT: RETRY,
        Kind.INVALID_OUTPUT: Rule(Action.RETRY, attempts_max=3),
        Kind.TRUNCATED_OUTPUT: Rule(Action.RETRY, attempts_max=3),
        Kind.RESOURCE_EXHAUSTED: _ONCE_MORE,
        Kind.UNKNOWN: _ONCE_MORE,
        Kind.WORKER_LOST: RETRY,
    },
    otherwise=FAIL,
)

PRESETS: dict[str, Policy] = {policy.name: policy for policy in (STANDARD,)}


def preset(name: str) -> Policy:
    """The preset of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise UnknownName(f"no policy preset {name!r}; one of: {known}") from None
