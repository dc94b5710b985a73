"""Virtual time and the scheduler: who acts next, decided by the seed and by nothing else.

Always true: one thing runs at a time. Everything that happens is an event in one heap, ordered by
time, then by chance, so that of two things due at the same instant either may come first. A strand
(see `strand.py`) is a thread, but it runs only while the scheduler waits for it. An event that
belongs to a frozen process is kept until the process goes on; one of a dead process is dropped.

All chance comes from `World.rng`, all time from `World.clock`, so a seed is a history.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NoReturn

from perdure.testing import VirtualClock
from tests.sim.history import History
from tests.sim.invariants import Violation
from tests.sim.loop import VirtualLoop
from tests.sim.process import Process
from tests.sim.strand import Strand

Action = Callable[[], None]


class World:
    """The heap of events, the clock, the dice, and what was seen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = VirtualClock()
        self.history = History()
        self.struck: Counter[str] = Counter()  # faults, by kind, that really happened
        self.seen: Counter[str] = Counter()  # what the engine answered to them
        self.chaos = True
        self.violation: Violation | None = None
        self._heap: list[tuple[int, float, int, Process | None, Action]] = []
        self._events = 0
        self._until_us = 0
        self._strands: list[Strand] = []
        self._dead: list[Process] = []
        self.loops: list[VirtualLoop] = []

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.clock.passed_us

    def after(self, delay_s: float, action: Action, owner: Process | None = None) -> None:
        """Let something happen later; it is the owner's doing."""
        self.at_us(self.now_us + max(0, round(delay_s * 1_000_000)), action, owner)

    def at_us(self, when_us: int, action: Action, owner: Process | None = None) -> None:
        """Let something happen at a moment."""
        if owner is not None and owner.dead:
            return
        self._events += 1
        when_us = max(when_us, self.now_us)
        heapq.heappush(self._heap, (when_us, self.rng.random(), self._events, owner, action))

    def run(self, until_us: int, done: Callable[[], bool] = lambda: False) -> bool:
        """Let events happen until a moment, or until ``done``; whether it was done."""
        self._until_us = until_us
        while not done():
            if not self._heap or self._heap[0][0] > until_us:
                self.clock.push_us(until_us - self.now_us)
                return False
            when_us, _, _, owner, action = heapq.heappop(self._heap)
            self.clock.push_us(when_us - self.now_us)
            self._happen(owner, action)
        return True

    def passes(self, delay_s: float, owner: Process | None) -> bool:
        """Let time pass at once, if nothing else would happen meanwhile: a thread is not changed."""
        then_us = self.now_us + max(0, round(delay_s * 1_000_000))
        if self._dead or then_us > self._until_us or (self._heap and self._heap[0][0] <= then_us):
            return False
        if owner is not None and (owner.dead or owner.frozen):
            return False
        self.clock.push_us(then_us - self.now_us)
        return True

    def _happen(self, owner: Process | None, action: Action) -> None:
        if owner is not None and owner.frozen:
            owner.kept.append(action)
            return
        if owner is None or not owner.dead:
            action()
        if self.violation is not None:
            raise self.violation
        while self._dead:
            self._bury(self._dead.pop())

    def thaw(self, process: Process) -> None:
        """What a frozen process was about to do may happen now, in any order."""
        kept, process.kept = process.kept, []
        for action in kept:
            self.after(0.0, action, process)

    def died(self, process: Process) -> None:
        """Its memory is gone; the threads that stood for it are ended after this event."""
        self._dead.append(process)

    def _bury(self, process: Process) -> None:
        for strand in process.strands:
            strand.end()
        if process.loop is not None:
            process.loop.discard()
            self.loops.remove(process.loop)

    def strand(self, name: str, body: Action, owner: Process | None = None) -> Strand:
        """A new line of execution, starting now."""
        strand = Strand(self, name, body, owner)
        self._strands.append(strand)
        if owner is not None:
            owner.strands.append(strand)
        self.after(0.0, strand.resume, owner)
        return strand

    def broken(self, invariant: str, text: str) -> NoReturn:
        """An invariant does not hold: the run is over."""
        if self.violation is None:
            self.violation = Violation(invariant, text)
        raise self.violation

    def close(self) -> None:
        """End every thread that this world has started."""
        while self._dead:
            self._bury(self._dead.pop())
        for strand in self._strands:
            strand.end()
        for loop in self.loops:
            loop.discard()
