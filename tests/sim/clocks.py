"""The clock of one machine: its wall is wrong and jumps, its monotonic time began somewhere else.

Only the store's clock is the world's. A worker that compares its own with a stored time is found
by what it does too early or too late.
"""

from datetime import datetime, timedelta

from perdure.testing import VirtualClock
from tests.sim.world import World


class MachineClock:
    """The `Clock` port on a machine of its own."""

    def __init__(self, world: World, skew_s_max: float) -> None:
        self._world = world
        self._true: VirtualClock = world.clock
        self._skew_s_max = skew_s_max
        self._off_s = self._drawn_s()
        self._booted_s = world.rng.uniform(0.0, 1e6) if skew_s_max else 0.0
        world.struck["clock_skew"] += bool(skew_s_max)

    def now(self) -> datetime:
        """What this machine takes for the time."""
        return self._true.now() + timedelta(seconds=self._off_s)

    def monotonic(self) -> float:
        """Seconds since this machine was booted."""
        return self._true.monotonic() + self._booted_s

    def jump(self) -> bool:
        """Somebody sets the wall clock, forwards or backwards; whether that can happen here."""
        self._off_s = self._drawn_s()
        return bool(self._skew_s_max)

    def _drawn_s(self) -> float:
        return self._world.rng.uniform(-self._skew_s_max, self._skew_s_max)
