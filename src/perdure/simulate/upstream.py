"""A modelled upstream: outages, a token bucket, a ramp, an empty account, faults, slowness.

Who is authoritative: the upstream alone knows its limits; whoever calls learns them from answers,
except the oracle, which may ask `free_at`. Calls come in order of time. What is asked first is
answered first: money, outage, limit, and only then whether the call itself goes well.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random

from perdure.simulate.replies import TOKENS_IN, TOKENS_OUT, Form, Reply

_REFUSED_S = 0.1  # a 429 is answered at the door
_ALL_TOKENS = TOKENS_IN + TOKENS_OUT
_CUT_TOKENS = TOKENS_IN + TOKENS_OUT // 2


@dataclass(frozen=True, slots=True)
class Ramp:
    """The limit of a window is at most ``growth`` times what was admitted in the one before."""

    start_per_s: float
    growth: float = 1.5
    window_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Brownout:
    """From … until: every call takes ``factor`` times as long.

    At any time the upstream runs ``slots`` calls at full speed; more of them share it, and one that
    the caller has given up keeps its place until it is done: goodput collapses.
    """

    from_s: float
    until_s: float
    factor: float
    slots: int


@dataclass(frozen=True, slots=True)
class Account:
    """No money from the ``calls``-th admitted call on, until somebody pays at ``paid_s``."""

    calls: int
    paid_s: float


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    """The numbers of an upstream. ``rate_per_s`` None is no limit at all.

    ``hints``: a 429 says how long to wait, and never less than ``hint_s_min``. ``rejected_count``: it uses up the limit all the same,
    up to ``debt_max`` calls of it (or the burst). ``refused_share`` of the calls meet a 429 by chance, whatever their rate,
    until ``refused_until_s``, and so do the ``refused_calls``, by their numbers from 1 on.
    ``fault_share`` of the admitted calls fail with a 500, ``cut_share`` in the middle of the answer.
    """

    rate_per_s: float | None = 20.0
    burst: float = 20.0
    latency_s: float = 1.0
    spread: float = 0.2
    down_s: float = 0.3
    outages_s: tuple[tuple[float, float], ...] = ()
    hints: bool = True
    hint_s_min: float = 0.0
    rejected_count: bool = False
    debt_max: float | None = None
    refused_share: float = 0.0
    refused_until_s: float = inf
    refused_calls: frozenset[int] = frozenset()
    fault_share: float = 0.0
    cut_share: float = 0.0
    timeout_s: float = 60.0
    ramp: Ramp | None = None
    brownout: Brownout | None = None
    account: Account | None = None

    @property
    def back_s(self) -> float:
        """When the last outage is over."""
        return max((until_s for _, until_s in self.outages_s), default=0.0)

    @property
    def full_per_s(self) -> float | None:
        """The rate at which it admits calls at first, or can serve them."""
        if self.ramp is not None:
            return self.ramp.start_per_s
        if self.brownout is not None:
            return self.brownout.slots / self.latency_s
        return self.rate_per_s


class SimulatedUpstream:
    """An upstream at work."""

    def __init__(self, model: UpstreamModel, seed: int) -> None:
        self.model, self._chance = model, Random(f"upstream {seed}").random
        self._rate = model.ramp.start_per_s if model.ramp else (model.rate_per_s or inf)
        self._tokens = model.burst
        self._filled_s = 0.0
        self._window, self._window_calls = 0, 0
        self._serving: list[float] = []  # when each call that it works on will be done
        self._calls = 0
        self.admitted = 0
        self.limit_per_s = model.full_per_s  # the highest rate so far at which it admits calls

    def call(self, now_s: float) -> Reply:
        """A call arrives."""
        model = self.model
        self._calls += 1
        if self._broke(now_s):
            return Reply(Form.BILLING, _REFUSED_S)
        if self._down_until_s(now_s) is not None:
            return Reply(Form.UNAVAILABLE, model.down_s * self._spread())
        self._fill(now_s)
        by_chance = model.refused_share and now_s < model.refused_until_s
        if self._calls in model.refused_calls or (
            by_chance and self._chance() < model.refused_share
        ):
            return Reply(Form.LIMITED, _REFUSED_S, model.hint_s_min if model.hints else None)
        if self._tokens < 1.0:
            return self._refuse()
        self._tokens -= 1.0
        self.admitted += 1
        self._window_calls += 1
        return self._serve(now_s)

    def free_at(self, now_s: float) -> float:
        """When a call would be admitted next, for who knows everything. It may be a little early."""
        if self._broke(now_s):
            assert self.model.account is not None
            return self.model.account.paid_s
        back_s = self._down_until_s(now_s)
        if back_s is not None:
            return back_s
        while self._serving and self._serving[0] <= now_s:
            heappop(self._serving)
        slots = self.model.brownout.slots if self.model.brownout else inf
        if len(self._serving) >= slots:
            return self._serving[0]
        self._fill(now_s)
        return now_s if self._tokens >= 1.0 else now_s + (1.0 - self._tokens) / self._rate + 1e-9

    def _broke(self, now_s: float) -> bool:
        account = self.model.account
        return account is not None and self.admitted >= account.calls and now_s < account.paid_s

    def _down_until_s(self, now_s: float) -> float | None:
        for from_s, until_s in self.model.outages_s:
            if from_s <= now_s < until_s:
                return until_s
        return None

    def _spread(self) -> float:
        return 1.0 + self.model.spread * (2.0 * self._chance() - 1.0)

    def _fill(self, now_s: float) -> None:
        ramp = self.model.ramp
        while ramp is not None and now_s >= (self._window + 1) * ramp.window_s:
            self._pour((self._window + 1) * ramp.window_s)
            used_per_s = self._window_calls / ramp.window_s
            self._rate = max(ramp.start_per_s, ramp.growth * used_per_s)
            self._window, self._window_calls = self._window + 1, 0
            self.limit_per_s = max(self.limit_per_s or 0.0, self._rate)
        self._pour(now_s)

    def _pour(self, now_s: float) -> None:
        if self._rate == inf:
            self._tokens = inf
        elif now_s > self._filled_s:
            gained = self._rate * (now_s - self._filled_s)
            self._tokens = min(self.model.burst, self._tokens + gained)
            self._filled_s = now_s

    def _refuse(self) -> Reply:
        if self.model.rejected_count:
            debt_max = self.model.debt_max
            floor = self.model.burst if debt_max is None else debt_max
            self._tokens = max(self._tokens - 1.0, -floor)
        form = Form.LIMITED if self.model.ramp is None else Form.RAMP
        wait_s = max((1.0 - self._tokens) / self._rate, self.model.hint_s_min)
        return Reply(form, _REFUSED_S, wait_s if self.model.hints else None)

    def _serve(self, now_s: float) -> Reply:
        model = self.model
        took_s = model.latency_s * self._spread() * self._slowness(now_s)
        if model.brownout is not None:
            heappush(self._serving, now_s + took_s)
        luck = self._chance() if model.fault_share or model.cut_share else 1.0
        if luck < model.fault_share:
            return Reply(Form.FAULT, took_s / 3)
        if luck < model.fault_share + model.cut_share:
            return Reply(Form.CUT, took_s / 2, tokens=_CUT_TOKENS)
        if took_s > model.timeout_s:
            return Reply(Form.TIMED_OUT, model.timeout_s, tokens=_ALL_TOKENS)
        return Reply(Form.OK, took_s)

    def _slowness(self, now_s: float) -> float:
        brown = self.model.brownout
        if brown is None:
            return 1.0
        while self._serving and self._serving[0] <= now_s:
            heappop(self._serving)
        factor = brown.factor if brown.from_s <= now_s < brown.until_s else 1.0
        return factor * max(1.0, (len(self._serving) + 1) / brown.slots)
