"""``verifier``: [003], a daemon that verifies submitted runs."""

from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, RETRY, Action, HintMode, Hints, Policy, Rule, Scope
from perdure.rules.presets.preset import ALL_5XX, Preset
from perdure.rules.vocabulary import CLASSES

_HINTED = Rule(Action.RETRY, hint=Hints(HintMode.EXACT, counted=False))
_RULES: dict[Kind, Rule] = {
    kind: {
        FailureClass.FINAL: FAIL,
        FailureClass.RETRYABLE: RETRY,
        FailureClass.RATE_LIMITED: _HINTED,
    }[facts.failure_class]
    for kind, facts in KINDS.items()
    if kind is not Kind.WORKER_LOST
}

VERIFIER = Preset(
    Policy(
        name="verifier",
        version=1,
        scope=Scope.JOB,
        attempts_max=8,
        backoff=Backoff(Curve.EXPONENTIAL, base_s=60.0, factor=2.0, cap_s=3600.0),
        jitter=Jitter(Spread.NONE),
        rules=_RULES,
        matches=ALL_5XX,
        vocabulary=CLASSES,
    ),
    reason=(
        "Eight tries, one minute doubling to an hour, without jitter. Three classes decide: final "
        "fails, retryable backs off, and a rate limit that names its wait is waited out exactly "
        "and is not counted, but at most twenty times. Without a hint it counts like any other."
    ),
    implements=("R29", "R30", "R46", "R47", "R48", "C6", "D9"),
)
