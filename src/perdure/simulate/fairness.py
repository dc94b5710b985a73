"""One owner's hundred thousand jobs beside another's hundred: how long the small one waits."""

from dataclasses import dataclass

from perdure.model.nouns import replace
from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.simulate.run_history import quantile
from perdure.simulate.scene import Batch, Scene
from perdure.simulate.strategies import with_gates
from perdure.simulate.upstream import UpstreamModel

TIMES_MAX = 2.2  # of the wait alone; two owners share the upstream, and a little is lost


@dataclass(frozen=True, slots=True)
class Fairness:
    """The small owner's 99th percentile from arrival to first call: alone, and beside the large one."""

    alone_s: float
    beside_s: float
    call_s: float

    @property
    def limit_s(self) -> float:
        """The aim: 2.2 times what it is alone, and one call."""
        return TIMES_MAX * self.alone_s + self.call_s

    @property
    def met(self) -> bool:
        """Whether the aim is met."""
        return self.beside_s <= self.limit_s


def fairness(
    *,
    large: int = 100_000,
    small: int = 100,
    seed: int = 1,
    fair: bool = True,
    policy: Policy | None = None,
) -> Fairness:
    """The small owner's jobs arrive a minute after the large one's."""
    upstream = UpstreamModel()
    late = Batch("small", small, at_s=60.0)
    alone = Scene("fairness", "the small owner alone", upstream, (late,), 10_000.0, fair=fair)
    beside = replace(alone, batches=(Batch("large", large), late), stop_owner="small")
    play = with_gates(policy or preset("standard")).play
    waits = [play(scene, seed).waited_s["small"] for scene in (alone, beside)]
    for waited_s in waits:
        assert len(waited_s) == small, "a job of the small owner was never called"
    return Fairness(quantile(waits[0], 0.99), quantile(waits[1], 0.99), upstream.latency_s)
