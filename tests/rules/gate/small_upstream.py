"""A small world for the gate's values: an upstream with an outage and a rate limit, and a queue.

Time is counted, nothing waits. The upstream fails until ``outage_s`` and then admits ``rate_per_s``
with a burst; the queue's one worker carries gate, window and pace as the engine will.
"""

import heapq
from bisect import bisect_left
from dataclasses import dataclass, field
from random import Random

from perdure.model.kinds import Kind
from perdure.rules.gate.gate import Gate, GateSettings, GateState
from perdure.rules.gate.hold import hint, resume, trip
from perdure.rules.gate.pace import admits, after_end as paced, after_hold, after_starts, slow_start
from perdure.rules.gate.probe import end_probe, lease, probe_due
from perdure.rules.gate.window import Window, add_call, fill_call, is_isolated
from tests.rules.gate.gate_kit import START, at, said

LOOK_S = 0.02  # between two looks of a worker whose gate flows


@dataclass
class Upstream:
    """A token bucket that begins to work when its outage is over."""

    outage_s: float
    rate_per_s: float
    burst: float
    latency_s: float = 1.0
    hints: bool = True
    rejected_count: bool = False
    tokens: float = field(init=False)
    filled_s: float = field(init=False)

    def __post_init__(self):
        self.tokens, self.filled_s = self.burst, self.outage_s

    def call(self, now_s, chance):
        """The kind (None for a success), how long the answer takes, and the wait that it asks for."""
        if now_s < self.outage_s:
            return Kind.UPSTREAM_ERROR, 0.3, None
        gained = self.rate_per_s * (now_s - self.filled_s)
        self.tokens, self.filled_s = min(self.burst, self.tokens + gained), now_s
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return None, self.latency_s * (0.8 + 0.4 * chance), None
        if self.rejected_count:
            self.tokens = max(self.tokens - 1.0, -self.burst)
        wait_s = (1.0 - self.tokens) / self.rate_per_s
        return Kind.RATE_LIMITED, 0.1, wait_s if self.hints else None

    def soonest_s(self, jobs):
        """No strategy can be done sooner, counted from when the end of the outage is known."""
        return max(jobs - self.burst, 0.0) / self.rate_per_s + self.latency_s


@dataclass
class Books:
    """What a drained queue cost."""

    done: int = 0
    wasted: int = 0
    probes: int = 0
    trips: int = 0
    early: int = 0
    found_s: float | None = None  # the first success: the end of the outage is known
    ended_s: float = 0.0
    starts_s: list = field(default_factory=list, repr=False)

    def peak(self, upstream):
        """The most calls started in any second after the outage, over the limit's rate."""
        late = [start_s for start_s in self.starts_s if start_s >= upstream.outage_s]
        most = max(bisect_left(late, start_s + 1.0) - n for n, start_s in enumerate(late))
        return most / upstream.rate_per_s


def may_start(gate, settings, pace, now):
    """How many calls a worker may start now; a probe is leased, not started."""
    return admits(pace, settings.pace, now) if gate.state is GateState.FLOWING else 0


class Worker:
    """One worker with a queue in front of one upstream."""

    def __init__(self, upstream, jobs, *, seed, settings=None, calls_max=100, starts=may_start):
        self.upstream, self.jobs, self.chance = upstream, jobs, Random(seed).random
        self.settings, self.calls_max, self.starts = settings or GateSettings(), calls_max, starts
        self.gate, self.window = Gate("model"), Window()
        self.pace = slow_start(self.settings.pace, START)
        self.books, self.out, self.told_s, self.now_s = Books(), [], 0.0, 0.0

    def drained(self, *, within_s):
        queued = self.jobs
        while self.books.done < self.jobs and self.now_s < within_s:
            while self.out and self.out[0][0] <= self.now_s:
                queued += self._settle(*heapq.heappop(self.out))
            queued -= self._start(queued)
            self.now_s = self._next_s()
        self.books.ended_s = self.now_s
        return self.books

    def _start(self, queued):
        now, count = at(self.now_s), 0
        step = resume(self.gate, now)
        self._flows(step.gate)
        if probe_due(self.gate, now) and queued:
            self.gate = lease(self.gate, self.settings, now).gate
            self.books.probes += 1
            self._call(probe=True)
            return 1
        free = self.calls_max - len(self.out)
        for _ in range(min(self.starts(self.gate, self.settings, self.pace, now), queued, free)):
            name = str(len(self.books.starts_s))
            generation = self.gate.generation
            self.window = add_call(
                self.window, self.settings.window, name=name, generation=generation, now=now
            )
            self.pace = after_starts(self.pace, self.settings.pace, 1, now)
            self._call(probe=False)
            count += 1
        return count

    def _call(self, *, probe):
        kind, took_s, wait_s = self.upstream.call(self.now_s, self.chance())
        name = str(len(self.books.starts_s))
        call = (self.now_s + took_s, name, self.now_s, self.gate.generation, probe, kind, wait_s)
        heapq.heappush(self.out, call)
        self.books.starts_s.append(self.now_s)
        self.books.early += self.now_s < self.told_s - 1e-6  # moments are whole microseconds

    def _settle(self, _, name, sent_s, generation, probe, kind, wait_s):
        now, until = at(self.now_s), None
        if wait_s is not None:
            until = at(self.now_s + wait_s)
        self.books.done += kind is None
        self.books.wasted += kind is not None
        if kind is None and self.books.found_s is None:
            self.books.found_s = self.now_s
        if probe:
            call = {"word": said(kind), "generation": generation, "until": until, "now": now}
            self._flows(end_probe(self.gate, self.settings, **call, chance=self.chance()).gate)
            return kind is not None
        took_s = self.now_s - sent_s
        self.window = fill_call(
            self.window, self.settings.window, name=name, word=said(kind), took_s=took_s
        )
        alone = kind is not None and self._is_isolated(now)
        self.pace = paced(
            self.pace,
            self.settings.pace,
            said(kind),
            sent_at=at(sent_s),
            now=now,
            wait_s=wait_s or 0.0,
            isolated=alone,
        )
        step = trip(self.gate, self.settings, self.window, now, self.chance())
        self.books.trips += step.move is not None
        self.gate = step.gate
        if kind is not None and until is not None and not alone:
            self.told_s = max(self.told_s, self.now_s + wait_s)
            call = {"kind": kind, "generation": generation, "until": until, "now": now}
            self.gate = hint(self.gate, self.settings, **call).gate
        return kind is not None

    def _is_isolated(self, now):
        settings, counts_from = self.settings, self.gate.counts_from
        share = settings.isolated_share
        return is_isolated(self.window, settings.window, share, counts_from=counts_from, now=now)

    def _flows(self, gate):
        was, self.gate = self.gate, gate
        if gate.generation == was.generation or gate.state is not GateState.FLOWING:
            return
        now, settings = at(self.now_s), self.settings.pace
        if gate.starts_slowly:
            out = sum(not probe for _, _, _, _, probe, _, _ in self.out)
            proved = gate.is_proved
            self.pace = slow_start(settings, now, in_flight=out, before=self.pace, proved=proved)
        elif was.since_at is not None:
            held_s = (now - was.since_at).total_seconds()
            self.pace = after_hold(self.pace, settings, held_s=held_s, now=now)

    def _next_s(self):
        moments = [self.out[0][0]] if self.out else []
        if self.gate.state is GateState.FLOWING:
            moments.append(self.now_s + LOOK_S)
        elif self.gate.held_until is not None and self.gate.state is GateState.HELD:
            moments.append((self.gate.held_until - START).total_seconds())
        return max(min(moments), self.now_s + 1e-5)
