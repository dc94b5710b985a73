"""``gateway-worker``, ``gateway-costly``, ``gateway-sync``: [004], an AI gateway's errors."""

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import FAIL, HAND_OVER, RETRY, Action, Policy, Profile, Rule
from perdure.rules.presets.preset import ALL_5XX, Preset
from perdure.rules.vocabulary import GATEWAY as WORDS

_TRANSIENT = (
    Kind.INVALID_OUTPUT,
    Kind.TRUNCATED_OUTPUT,
    Kind.TIMEOUT,
    Kind.UPSTREAM_UNAVAILABLE,
    Kind.UPSTREAM_ERROR,
    Kind.OVERLOADED,
    Kind.NETWORK,
    Kind.AMBIGUOUS,
    Kind.STORAGE_TRANSIENT,
)
_LIMITED = (Kind.RATE_LIMITED, Kind.QUOTA_WINDOW)
_ONCE_MORE = Rule(Action.RETRY, attempts_max=2)
# The schema requires the flag, and for these two codes it is false by default: it says no more than the code does (0042).
_OUR_OWN = dict.fromkeys((Kind.INTERNAL, Kind.UNKNOWN), replace(_ONCE_MORE, heed_server=False))

_WORKER = Policy(
    name="gateway-worker",
    version=2,
    attempts_max=3,
    backoff=Backoff(Curve.EXPONENTIAL, base_s=1.0, factor=2.0, cap_s=None),
    jitter=Jitter(Spread.PROPORTIONAL, ratio=0.2),
    rules=dict.fromkeys(_TRANSIENT + _LIMITED, RETRY)
    | _OUR_OWN
    | {Kind.RESOURCE_EXHAUSTED: _ONCE_MORE},
    otherwise=FAIL,
    matches=ALL_5XX,
    vocabulary=WORDS,
)

GATEWAY_WORKER = Preset(
    _WORKER,
    reason=(
        "Three tries, 1 s doubling, spread by a fifth. A rate limit's own wait is a lower bound. "
        "An answer that breaks the schema is a matter of chance and load, so it backs off and is "
        "never repeated back to back. Errors that may be our own defect get one repeat, also where the "
        "gateway flags them as not retryable, as it must; any other code so flagged fails. Missing "
        "configuration and invalid requests get none. The gateway's own code decides, whatever the status."
    ),
    implements=("R31", "R32", "R33", "R34", "R49", "R50", "R51", "D10"),
)

GATEWAY_COSTLY = Preset(
    replace(_WORKER, name="gateway-costly", attempts_max=2, rules=dict(_WORKER.rules)),
    reason="As gateway-worker with two tries in all, for tasks that cost too much to repeat twice.",
    implements=("R49", "R114"),
)

GATEWAY_SYNC = Preset(
    Policy(
        name="gateway-sync",
        version=1,
        profile=Profile.SYNC,
        attempts_max=2,
        inline_s_max=0.8,
        exhausted=Action.HAND_OVER,
        backoff=Backoff(Curve.FIXED, base_s=0.3, cap_s=None),
        jitter=Jitter(Spread.ADDITIVE, add_s_max=0.5),
        rules=dict.fromkeys(_TRANSIENT, RETRY) | dict.fromkeys(_LIMITED, HAND_OVER),
        otherwise=FAIL,
        matches=ALL_5XX,
        crashes_max=1,
        vocabulary=WORDS,
    ),
    reason=(
        "A person is waiting: at most one retry, after 300 to 800 ms, and only for faults that may "
        "be gone by then; afterwards, and on a rate limit or a longer hint at once, the work is "
        "handed over to a durable job. What will not change by waiting fails."
    ),
    implements=("R96", "R97", "R34", "R141"),
)
