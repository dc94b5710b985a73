"""``datasets``, ``datasets-llm``, ``datasets-once``: [002], pipelines over samples."""

from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, Policy
from perdure.rules.presets.preset import Preset

_QUARTER = Jitter(Spread.PROPORTIONAL, ratio=0.25)

DATASETS = Preset(
    Policy(
        name="datasets",
        version=1,
        attempts_max=3,
        backoff=Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=60.0),
        jitter=_QUARTER,
        heed_server=False,
        retriable="all",
    ),
    reason=(
        "What a stage without a policy has in the design that this preset is taken from (in Perdure "
        "it has standard): three tries, 1 s doubling to 60 s, spread by a quarter. Every failure is "
        "retried, whatever its kind, because that design asks for it."
    ),
    implements=("R26", "R40", "R42", "R43", "C25"),
)

DATASETS_LLM = Preset(
    Policy(
        name="datasets-llm",
        version=1,
        attempts_max=3,
        backoff=Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=30.0),
        jitter=_QUARTER,
        rules={Kind.BILLING: FAIL},
        retriable=(
            429,
            500,
            502,
            503,
            504,
            "Mint.TransportError",
            "Mint.HTTPError",
            "rate_limited",
            "quota_window",
            "upstream_error",
            "upstream_unavailable",
            "network",
            "timeout",
            "ambiguous",
            "overloaded",
        ),
    ),
    reason=(
        "A stage that asks a model: three tries, 1 s doubling to 30 s, and only what its list "
        "names is retried: 429, 500, 502, 503, 504 and faults of transport, here by the kinds "
        "they are. Anything else goes to the dead letters at once."
    ),
    implements=("R26", "R27", "R28", "R41", "R42", "C10"),
)

DATASETS_ONCE = Preset(
    Policy(
        name="datasets-once",
        version=1,
        attempts_max=1,
        backoff=Backoff(Curve.FIXED, base_s=1.0, cap_s=None),
        jitter=Jitter(Spread.NONE),
        heed_server=False,
        retriable="none",
    ),
    reason=(
        "A deterministic filter: trying again gives the same answer, so it is tried once. A worker "
        "that dies has not tried it, so that is repeated."
    ),
    implements=("R26", "R41"),
)
