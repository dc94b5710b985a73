"""What a worker may use of an upstream's stated limits now: calls and tokens, saved up at its slice of them.

Tokens are counted before they are known: a claim takes what the call is thought to need, and its end gives
back what was too much or takes what was too little, so the level may fall below nothing for a while.
"""

from datetime import datetime
from math import inf

from msgspec import Struct

from perdure.model.nouns import replace

BURST_S = 1.0  # so much of a rate is saved up while nobody asks
_LEARN = 0.1  # how far one call moves the mean


class UpstreamLimits(Struct, frozen=True):
    """What an upstream is known to admit, of all workers together; None where nothing is known."""

    calls_per_s: float | None = None
    concurrency: int | None = None
    tokens_per_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return (self.calls_per_s, self.concurrency, self.tokens_per_s) != (None, None, None)


class Allowance(Struct, frozen=True):
    """What is saved up. ``mean_tokens`` is what a call has taken lately."""

    at: datetime
    calls: float = 0.0
    tokens: float = 0.0
    mean_tokens: float = 0.0


class Shares(Struct, frozen=True):
    """What this worker has of the limits, as rates and as calls at once; infinite where there is no limit."""

    calls_per_s: float = inf
    tokens_per_s: float = inf
    calls: float = inf

    @staticmethod
    def of(limits: UpstreamLimits, share: float, calls: int) -> "Shares":
        """A slice of the limits."""
        return Shares(
            inf if limits.calls_per_s is None else limits.calls_per_s * share,
            inf if limits.tokens_per_s is None else limits.tokens_per_s * share,
            inf if limits.concurrency is None else calls,
        )


def forward(allowance: Allowance, shares: Shares, now: datetime) -> Allowance:
    """What is saved up by now."""
    passed_s = max(0.0, (now - allowance.at).total_seconds())
    calls = _fill(allowance.calls, shares.calls_per_s, passed_s, at_least=1.0)
    tokens = _fill(allowance.tokens, shares.tokens_per_s, passed_s, at_least=allowance.mean_tokens)
    return replace(allowance, at=max(allowance.at, now), calls=calls, tokens=tokens)


def credit(allowance: Allowance, shares: Shares, idle_s: float, now: datetime) -> Allowance:
    """Credit a new share with what it would have saved while nobody called (``idle_s``); at most for one call."""
    calls = min(1.0, shares.calls_per_s * idle_s) if shares.calls_per_s else 0.0
    enough = max(allowance.mean_tokens, 1.0)
    tokens = min(enough, shares.tokens_per_s * idle_s) if shares.tokens_per_s else 0.0
    return replace(
        allowance, at=now, calls=max(allowance.calls, calls), tokens=max(allowance.tokens, tokens)
    )


def calls_admitted(allowance: Allowance, shares: Shares, *, in_flight: int) -> float:
    """How many calls may start; infinite without limits."""
    room = shares.calls - in_flight
    if shares.calls_per_s != inf:
        room = min(room, allowance.calls // 1)
    if shares.tokens_per_s != inf:
        room = min(room, _by_tokens(allowance))
    return max(room, 0.0)


def opens_in_s(allowance: Allowance, shares: Shares) -> float:
    """How long until the rates admit one more call; 0 when they do, infinite when they never will."""
    waits = [0.0]
    if shares.calls_per_s != inf and allowance.calls < 1.0:
        waits.append((1.0 - allowance.calls) / shares.calls_per_s if shares.calls_per_s else inf)
    if shares.tokens_per_s != inf and _by_tokens(allowance) < 1:
        lacking = max(allowance.mean_tokens, 1.0) - allowance.tokens
        waits.append(lacking / shares.tokens_per_s if shares.tokens_per_s else inf)
    return max(waits)


def take_call(allowance: Allowance, tokens: int | None) -> tuple[Allowance, float]:
    """A call starts; also what it is thought to take."""
    estimate = allowance.mean_tokens if tokens is None else float(tokens)
    return replace(
        allowance, calls=allowance.calls - 1.0, tokens=allowance.tokens - estimate
    ), estimate


def correct_estimate(allowance: Allowance, estimate: float, tokens: int | None) -> Allowance:
    """A call has ended and says what it took; None where it does not say: then the estimate stands."""
    if tokens is None:
        return allowance
    mean = allowance.mean_tokens + _LEARN * (tokens - allowance.mean_tokens)
    if allowance.mean_tokens == 0:
        mean = float(tokens)
    return replace(allowance, tokens=allowance.tokens + estimate - tokens, mean_tokens=mean)


def _fill(level: float, rate_per_s: float, passed_s: float, *, at_least: float) -> float:
    if rate_per_s == inf:
        return 0.0
    return min(level + rate_per_s * passed_s, max(rate_per_s * BURST_S, at_least, 1.0))


def _by_tokens(allowance: Allowance) -> float:
    """Calls that the tokens are enough for; where nothing is known yet, one to find out."""
    if allowance.tokens <= 0:
        return 0.0
    if allowance.mean_tokens <= 0:
        return 1.0
    return max(allowance.tokens // allowance.mean_tokens, 0.0)
