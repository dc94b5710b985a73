"""A state machine that does to several stores whatever can be done to one, and sees that they agree.

After every step the answers were the same, everything that can be read is the same, and what is
promised holds on the first side, and so on all.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.testing import VirtualClock
from tests.stores.acting import LANES
from tests.stores.batching import Batching
from tests.stores.operating import Operating
from tests.stores.sides import Sides, dump
from tests.stores.walking import Walking

# How often each act comes; one rule for all of them, so that none is left out of a whole example. What it is
# done to is chosen by a seed: drawn piece by piece, it would be the same most of the time.
SEEDS = st.integers(0, 2**32 - 1)
WEIGHTS = {
    "enqueue": 5, "enqueue_again": 1, "hire": 1, "beat": 1, "all_beat_for_a_while": 2, "kill": 2,
    "reap": 3, "claim": 8, "record": 9, "send_again": 2, "cancel": 1, "pass_time": 4, "look": 1,
    "deal_with_dead_letters": 4, "run_now": 2, "list": 1, "pause_or_resume": 2, "change_gate": 2, "begin_run": 2,
    "change_run": 2, "finish_run": 2, "note_check": 1, "note_feeding": 2, "report": 2, "prune": 2, "schedule": 1, "tick": 1, "take_duty": 1, "begin_bulk": 1,
    "step_bulk": 1, "change_bulk": 1, "prune_captures": 1, "prune_workers": 1, "probe": 3, "look_at_gates": 2, "change_slices": 1,
}  # fmt: skip
ACTS = st.sampled_from([act for act, weight in WEIGHTS.items() for _ in range(weight)])


class InStep(Walking, Operating, Batching, RuleBasedStateMachine):
    """Every operation of the ports, on every side."""

    def __init__(self, make_sides: Callable[[VirtualClock], Sides]) -> None:
        super().__init__(make_sides)
        RuleBasedStateMachine.__init__(self)

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        """With something to do."""
        chance = Random(seed)
        for name, lane in LANES.items():
            self.add_lane(name, lane)
        for act in ("hire", "hire", "begin_run", "enqueue", "enqueue", "claim", "claim"):
            self._do(act, chance)
        self.fail_all()
        for act in ("begin_run", "begin_bulk", "enqueue", "claim"):
            self._do(act, chance)

    @rule(act=ACTS, seed=SEEDS)
    def do(self, act: str, seed: int) -> None:
        self._do(act, Random(seed))

    def _do(self, act: str, chance: Random) -> None:
        getattr(self, f"act_{act}")(chance)

    @invariant()
    def everything_that_can_be_read_is_the_same(self) -> None:
        answers = self.sides.each("a look", partial(dump, whole=False))
        self.promises.check(answers[self.sides.first.name])

    def teardown(self) -> None:
        """At the end the audit finds nothing on any side."""
        try:
            self.sides.each("a look at everything", dump)
            found = self.sides.each("audit", lambda side: side.reader.audit())
            assert found[self.sides.first.name] == []
        finally:
            self.sides.close()
