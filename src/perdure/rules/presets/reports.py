"""``reports``: [000], report jobs that read from S3, ask a model, check a schema and write back."""

from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, RETRY, Policy, Scope
from perdure.rules.presets.preset import TO_THE_LETTER, Preset
from perdure.rules.vocabulary import REPORTS as WORDS

REPORTS = Preset(
    Policy(
        name="reports",
        version=1,
        scope=Scope.JOB,
        attempts_max=4,
        crash_is_failure=True,
        crashes_max=4,
        backoff=Backoff(Curve.SCHEDULE, base_s=30.0, cap_s=None, steps_s=(30.0, 120.0, 480.0)),
        jitter=Jitter(Spread.PROPORTIONAL, ratio=0.2),
        rules=dict.fromkeys(
            (
                Kind.RATE_LIMITED,
                Kind.QUOTA_WINDOW,
                Kind.OVERLOADED,
                Kind.UPSTREAM_ERROR,
                Kind.UPSTREAM_UNAVAILABLE,
                Kind.NETWORK,
                Kind.TIMEOUT,
                Kind.AMBIGUOUS,
                Kind.STORAGE_TRANSIENT,
            ),
            RETRY,
        ),
        otherwise=FAIL,
        matches=TO_THE_LETTER,
        vocabulary=WORDS,
    ),
    reason=(
        "Four tries in all, with waits of 30, 120 and 480 seconds that outlast most incidents of a "
        "provider, each spread by a fifth. Timeouts, connectivity, 429 and 5xx, passing faults of "
        "storage and the death of a worker are retriable; output that does not parse or does not "
        "fit the schema, broken input and every other 4xx are fatal at once. A crash counts as a "
        "failure too. Its public codes tell the stages read, ask, validate, write and save apart."
    ),
    implements=("R14", "R15", "R16", "R17", "R18", "R19", "R20", "R35", "R36", "C10", "C17"),
)
