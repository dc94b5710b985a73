"""``converter``: [001], PDF to XML behind a gateway."""

from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.matchers import Match
from perdure.rules.policy import FAIL, RETRY, Policy, Scope
from perdure.rules.presets.preset import TO_THE_LETTER, Preset
from perdure.rules.vocabulary import CONVERTER as WORDS

CONVERTER = Preset(
    Policy(
        name="converter",
        version=1,
        scope=Scope.JOB,
        attempts_max=3,
        backoff=Backoff(Curve.EXPONENTIAL, base_s=5.0, factor=2.0, cap_s=None),
        jitter=Jitter(Spread.ADDITIVE, add_s_max=5.0),
        rules=dict.fromkeys(
            (
                Kind.OVERLOADED,
                Kind.UPSTREAM_ERROR,
                Kind.UPSTREAM_UNAVAILABLE,
                Kind.NETWORK,
                Kind.TIMEOUT,
                Kind.AMBIGUOUS,
                Kind.STORAGE_TRANSIENT,
                Kind.RESOURCE_EXHAUSTED,
                Kind.INTERNAL,
                Kind.UNKNOWN,
            ),
            RETRY,
        ),
        otherwise=FAIL,
        matches=(*TO_THE_LETTER, Match(Kind.STORAGE_TRANSIENT, code="SlowDown")),
        vocabulary=WORDS,
    ),
    reason=(
        "Three tries, 5 s doubling, plus up to 5 s. GW_5XX, GW_TIMEOUT, IO_ERROR and UNKNOWN are "
        "retried, the last only when the user did not cause it; GW_4XX never, and a rate limit "
        "of the gateway is one of them. Ten public codes, fixed."
    ),
    implements=("R22", "R23", "R24", "R25", "R37", "R38", "R39", "C9", "C10", "C27"),
)
