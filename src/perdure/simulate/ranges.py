"""What a scene may cost: the range of a few numbers over many seeds, to hold a real run against."""

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.rules.policy import Policy
from perdure.rules.presets import preset
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Batch, Fleet, Scene
from perdure.simulate.strategies import with_gates, without_gates
from perdure.simulate.upstream import UpstreamModel


@dataclass(frozen=True, slots=True)
class FigureRange:
    """From the least to the most that was seen."""

    low: float
    high: float

    def widen(self, share: float) -> "FigureRange":
        """The same, with so much of its bounds added on both sides."""
        return FigureRange(self.low * (1.0 - share), self.high * (1.0 + share))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Ranges:
    """Calls, calls begun in an outage, calls that came to nothing, jobs lost, times that the gate was held, probes.

    ``drain_s`` is from the end of an outage, or else from the start, to the last job; None where a run left
    jobs undone. ``lost`` counts jobs that ended failed though nothing was wrong with them.
    """

    calls: FigureRange
    calls_in_outage: FigureRange
    wasted: FigureRange
    lost: FigureRange
    holds: FigureRange
    probes: FigureRange
    drain_s: FigureRange | None


@dataclass(frozen=True, slots=True)
class OutageCase:
    """An upstream that is down from the start, with all jobs waiting; then it takes what comes.

    ``latency_s`` is an answer's, ``down_s`` a refusal's while it is down.
    """

    jobs: int = 2_000
    outage_s: float = 60.0
    latency_s: float = 0.05
    down_s: float = 0.01
    rate_per_s: float | None = None
    burst: float = 20.0
    fleet: Fleet = Fleet(workers=2, concurrency=32)
    killed_s: tuple[float, ...] = ()
    horizon_s: float = 3_600.0

    @property
    def scene(self) -> Scene:
        """The case as a scene."""
        upstream = UpstreamModel(
            rate_per_s=self.rate_per_s,
            burst=self.burst,
            latency_s=self.latency_s,
            down_s=self.down_s,
            outages_s=((0.0, self.outage_s),),
        )
        batches = (Batch("all", self.jobs),)
        return Scene(
            "outage",
            "an outage",
            upstream,
            batches,
            self.horizon_s,
            self.fleet,
            killed_s=self.killed_s,
        )


STORY = OutageCase()


def outage_ranges(
    case: OutageCase = STORY, *, seeds: int = 200, gates: bool = True, policy: Policy | None = None
) -> Ranges:
    """The ranges of an outage over that many seeds, with gates or without."""
    return scene_ranges(case.scene, seeds=seeds, gates=gates, policy=policy)


def scene_ranges(
    scene: Scene, *, seeds: int = 200, gates: bool = True, policy: Policy | None = None
) -> Ranges:
    """The ranges of a scene over that many seeds, with gates or without."""
    play = (with_gates if gates else without_gates)(policy or preset("standard")).play
    history = [play(scene, seed) for seed in range(1, seeds + 1)]
    ended = all(one.left_over == 0 and one.ended for one in history)
    return Ranges(
        calls=_range(len(one.starts_s) for one in history),
        calls_in_outage=_range(_calls_in_outage(one, scene) for one in history),
        wasted=_range(one.wasted for one in history),
        lost=_range(one.lost for one in history),
        holds=_range(one.holds for one in history),
        probes=_range(one.probes for one in history),
        drain_s=_range(one.finished_s - scene.drain_from_s for one in history) if ended else None,
    )


def _calls_in_outage(history: RunHistory, scene: Scene) -> int:
    return sum(history.calls_between(*outage_s) for outage_s in scene.upstream.outages_s)


def _range(values: Iterable[float]) -> FigureRange:
    found = list(values)
    return FigureRange(min(found), max(found))
