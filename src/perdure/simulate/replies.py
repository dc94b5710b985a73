"""What a modelled upstream answers, and the evidence that a real answer of that form would leave."""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Evidence, Origin

TOKENS_IN = 1_000  # of one call's prompt
TOKENS_OUT = 500  # of one call's answer


class Form(Enum):
    """The forms of an answer."""

    OK = "ok"
    UNAVAILABLE = "unavailable"  # 503 during an outage
    FAULT = "fault"  # 500, now and then
    LIMITED = "limited"  # 429, with or without a wait
    RAMP = "ramp"  # 429: growing too fast
    BILLING = "billing"  # 429 that means: no money left
    TIMED_OUT = "timed out"  # no answer within the time allowed
    CUT = "cut"  # 200, and an error in the middle of the stream
    MISFIT = "misfit"  # 200, and not what was asked for
    OWN_BUG = "own bug"  # 200, and then the stage's own code raises


class Reply(NamedTuple):
    """One answer: when it comes, the wait that it asks for, and the tokens billed for nothing."""

    form: Form
    took_s: float
    hint_s: float | None = None
    tokens: int = 0


_OPENAI = ("openai.APIStatusError", "openai.APIError", "openai.OpenAIError", "builtins.Exception")
_LIMIT = ("openai.RateLimitError", *_OPENAI)

_EVIDENCE: dict[Form, Evidence] = {
    Form.UNAVAILABLE: Evidence(
        names=("openai.InternalServerError", *_OPENAI), status=503, message="Service Unavailable"
    ),
    Form.FAULT: Evidence(
        names=("openai.InternalServerError", *_OPENAI), status=500, message="Internal Server Error"
    ),
    Form.LIMITED: Evidence(names=_LIMIT, status=429, codes=("rate_limit_exceeded", "requests")),
    Form.RAMP: Evidence(names=_LIMIT, status=429, codes=("slow_down", "rate_limit_error")),
    Form.BILLING: Evidence(
        names=_LIMIT, status=429, codes=("credit_balance_exhausted", "insufficient_quota")
    ),
    Form.TIMED_OUT: Evidence(
        names=("httpx.ReadTimeout", "httpx.TimeoutException", "httpx.TransportError")
    ),
    Form.CUT: Evidence(
        names=("anthropic.APIStatusError", "anthropic.APIError"),
        status=200,
        codes=("overloaded_error",),
    ),
    Form.MISFIT: Evidence(names=("perdure.model.errors.OutputError",), kind=Kind.INVALID_OUTPUT),
    Form.OWN_BUG: Evidence(
        names=("builtins.KeyError", "builtins.LookupError", "builtins.Exception"),
        origin=Origin.OWN,
    ),
}


@lru_cache(maxsize=4_096)
def evidence_of(form: Form, hint_s: float | None) -> Evidence:
    """What `run` would keep of such an answer; a wait travels as its header."""
    known = _EVIDENCE[form]
    if hint_s is None:
        return known
    header = ("retry-after-ms", f"{hint_s * 1_000:.3f}")
    return replace(known, message="", headers=(header,))
