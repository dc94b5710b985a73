"""``standard``: what we recommend for LLM work."""

from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, RETRY, WAIT, Action, Hints, Policy, Rule
from perdure.rules.presets.preset import Preset

_ONCE_MORE = Rule(Action.RETRY, attempts_max=2)
_RESAMPLE = Rule(Action.RETRY, attempts_max=3)
# A person has to act; until then nobody behind the credential calls, and no item is to blame.
_HOLD = Rule(
    Action.HOLD,
    backoff=Backoff(Curve.EXPONENTIAL, base_s=60.0, factor=2.0, cap_s=3600.0),
    heed_server=False,
)

STANDARD = Preset(
    Policy(
        name="standard",
        version=3,
        attempts_max=5,
        weak_share=0.25,
        backoff=Backoff(Curve.EXPONENTIAL, base_s=2.0, factor=2.0, cap_s=300.0),
        jitter=Jitter(Spread.PROPORTIONAL, ratio=0.25),
        hint=Hints(counted=False, kinds=frozenset(Kind)),
        rules={
            Kind.RATE_LIMITED: WAIT,
            Kind.QUOTA_WINDOW: WAIT,
            Kind.BILLING: _HOLD,
            Kind.AUTH: _HOLD,
            Kind.OVERLOADED: RETRY,
            Kind.UPSTREAM_ERROR: RETRY,
            Kind.UPSTREAM_UNAVAILABLE: RETRY,
            Kind.NETWORK: RETRY,
            Kind.TIMEOUT: RETRY,
            Kind.AMBIGUOUS: RETRY,
            Kind.STORAGE_TRANSIENT: RETRY,
            Kind.INVALID_OUTPUT: _RESAMPLE,
            Kind.TRUNCATED_OUTPUT: _RESAMPLE,
            Kind.RESOURCE_EXHAUSTED: _ONCE_MORE,
            Kind.UNKNOWN: _ONCE_MORE,
        },
        otherwise=FAIL,
    ),
    reason=(
        "An allow-list, so that a kind nobody thought of is not repeated for ever. A rate limit is "
        "the server's order and not the item's failure: it waits without spending an attempt, "
        "within bounds. Overload and faults of the upstream are retried on a curve that reaches "
        "minutes, with the server's hint as a floor. Model output that does not fit is worth two "
        "more samples; what is unknown, or may be our own memory, one careful repeat. Credit and "
        "credentials are mended by a person, so they hold everything that shares them instead of "
        "failing item after item. Everything that the caller has to mend fails at once."
    ),
    implements=("C1", "C4", "C6", "C7", "C8", "C9", "C10", "C25"),
)
