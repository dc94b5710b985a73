"""What calls were really answered, and whether an upstream turned only a few of them away.

The stages themselves say how a call ended; nothing here asks the engine what it makes of that. Of other workers'
calls a worker knows what it has heard of, so the answers of the store are kept as they came.
"""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field

from perdure.engine.gates.traffic import window_in
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.model.errors import PayloadRefused, StageError
from perdure.model.gates import GateLook
from perdure.model.kinds import Sign
from perdure.model.signals import Succeeded
from tests.sim.ledger import Ledger
from tests.sim.weather import Refused

GOOD, BAD, NEITHER = frozenset({Sign.GOOD}), frozenset({Sign.BAD}), frozenset({Sign.NEITHER})
STOPPED = BAD | NEITHER  # by its timeout, or because it was told to: a stage does not know which
_BY_KIND = {
    "invalid_output": GOOD, "rate_limited": NEITHER, "invalid_request": NEITHER, "internal": NEITHER,
    "billing": NEITHER,
}  # fmt: skip
_LOOKS = 50

Out = tuple[str, int]  # a job and its token


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call really ended: when, what that may say about its upstream, until when that wants no other."""

    at_us: int
    signs: frozenset[Sign]
    told_us: int | None = None
    turned_away: bool = False


def signs_of(end: object) -> frozenset[Sign]:
    """What a stage that ended with this value or error says about its upstream."""
    match end:
        case {"stubborn": "stopped"}:
            return GOOD | STOPPED
        case dict() | Succeeded():
            return GOOD
        case Refused(status_code=429):
            return NEITHER
        case Refused(status_code=status):
            return BAD if status >= 500 else GOOD
        case StageError(kind=kind):
            return _BY_KIND[str(kind)]
        case PayloadRefused():
            return GOOD  # an answer that `complete` cannot store is one, as where it is returned
        case ConnectionResetError():
            return BAD
        case asyncio.CancelledError():
            return STOPPED
    return NEITHER  # our own store that is away, too: that is no word of the upstream's


def is_turned_away(end: object) -> bool:
    """Whether the upstream has not taken the call on; a 500, or a connection that breaks, comes after that."""
    if isinstance(end, Refused):
        return end.status_code in (429, 502, 503)
    return isinstance(end, StageError) and str(end.kind) == "rate_limited"


@dataclass(slots=True)
class _Looked:
    at_us: int
    calls: dict[Out, int]  # of others, and when they were sent
    out: set[Out]  # of which it has not heard an end


@dataclass(slots=True)
class Calls:
    """Every call that was sent, how it ended, and what each worker has heard of those of others."""

    ledger: Ledger
    ended: dict[Out, Ended] = field(default_factory=dict)
    probes: dict[Out, str] = field(
        default_factory=dict
    )  # every claim that was one, by its upstream
    checks: dict[str, list[Ended]] = field(default_factory=dict)  # of upstreams' health
    _sent: dict[tuple[int, str], dict[Out, int]] = field(default_factory=lambda: defaultdict(dict))
    _settled_us: dict[Out, int] = field(default_factory=dict)
    _looks: dict[tuple[int, str], deque[_Looked]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_LOOKS))
    )

    def answered(self, upstream: str, since_us: int) -> bool:
        """Whether the upstream has answered a call, or a look at its health, since then."""
        outs = {out for (_, name), calls in self._sent.items() if name == upstream for out in calls}
        outs |= {out for out, name in self.probes.items() if name == upstream}
        ends = [ended for out, ended in self.ended.items() if out in outs]
        ends += self.checks.get(upstream, [])
        return any(Sign.GOOD in ended.signs and ended.at_us >= since_us for ended in ends)

    def sent(self, worker: int, upstream: str, out: Out, now_us: int) -> None:
        """A worker has a call out."""
        self._sent[worker, upstream][out] = now_us

    def settled(self, out: Out, now_us: int) -> None:
        """Its worker has told how it ended."""
        self._settled_us[out] = now_us

    def looked(self, worker: int, upstream: str, answer: GateLook, now_us: int) -> None:
        """A worker has heard of the calls of others."""
        calls, out = dict[Out, int](), set[Out]()
        for one in answer.samples:
            window = window_in(one.samples_json) if one.gate == upstream else None
            for sample in () if window is None else window.samples:
                _, no, token = sample.name.split(".")
                key = (self.ledger.jobs[int(no)].id, int(token))
                calls[key] = self._sent[one.worker, upstream].get(key, 0)
                if sample.sign is None:
                    out.add(key)
        self._looks[worker, upstream].append(_Looked(now_us, calls, out))

    def few_refused(self, upstream: DeclaredUpstream, worker: int, out: Out) -> bool:
        """Whether the worker could take this refusal for one of few.

        It judges between the end of the call and the turn that records it, so whatever it had heard at any time in
        between will do; and what may not have ended yet, as far as it knew, counts as admitted.
        """
        ended_us = self.ended[out].at_us
        looks = [*self._looks[worker, upstream.name]] or [_Looked(0, {}, set())]
        last = max((no for no, one in enumerate(looks) if one.at_us <= ended_us), default=0)
        return any(self._few(upstream, worker, out, look) for look in looks[last:])

    def _few(self, upstream: DeclaredUpstream, worker: int, out: Out, look: _Looked) -> bool:
        settings, ended_us = upstream.gate.window, self.ended[out].at_us
        own = self._sent[worker, upstream.name]
        unsure = look.out | {one for one in own if self._settled_us.get(one, ended_us) >= ended_us}
        calls = sorted((sent_us, one) for one, sent_us in (look.calls | own).items())
        known = list[tuple[Out, bool]]()
        for _, one in reversed(calls):
            turned_away = (one == out or one not in unsure) and self._turned_away(one)
            ended = self.ended.get(one)
            if turned_away or one in unsure or (ended is not None and ended.signs & (GOOD | BAD)):
                known.append((one, turned_away))
        share = upstream.gate.isolated_share
        refused, there = 0, False
        for count, (one, turned_away) in enumerate(known[: settings.calls], 1):
            refused, there = refused + turned_away, there or one == out
            enough = count >= settings.calls_min and (there or count == settings.calls)
            if enough and refused < share * count:
                return True
        return False

    def _turned_away(self, out: Out) -> bool:
        return out in self.ended and self.ended[out].turned_away
