"""A user's own question: so many jobs, such an outage, such a rate; what would happen?"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from perdure.model.errors import CallerError
from perdure.rules.hints.durations import duration_s
from perdure.simulate.scenarios import Scenario
from perdure.simulate.scene import Batch, Fleet, Scene
from perdure.simulate.upstream import UpstreamModel

JOBS_MAX = 1_000_000  # more than that takes minutes a seed, and says nothing new
SECONDS_MAX = 7 * 86_400.0
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3_600.0}
_RIVALS = ("expo-full", "sdk-3")


@dataclass(frozen=True, slots=True)
class SimulationQuestion:
    """What was asked, as text where people write text."""

    jobs: int = 2_000
    outage: str | None = None
    rate: str | None = "20/s"
    latency: str = "1s"
    workers: int = 4
    concurrency: int = 25
    hints: bool = True


def scenario_of(asked: SimulationQuestion) -> Scenario:
    """The question as a scenario; refuses what makes no sense, and says what would."""
    if not 1 <= asked.jobs <= JOBS_MAX:
        raise CallerError(f"--jobs is {asked.jobs}; give 1 to {JOBS_MAX:,}")
    if not 1 <= asked.workers <= 1_000 or not 1 <= asked.concurrency <= 10_000:
        raise CallerError(
            f"--workers is {asked.workers} and --concurrency {asked.concurrency}; give 1 to 1,000 "
            "workers of 1 to 10,000 jobs in flight"
        )
    outage_s = seconds("--outage", asked.outage) if asked.outage is not None else 0.0
    latency_s = seconds("--latency", asked.latency)
    if latency_s <= 0:
        raise CallerError(f"--latency is {asked.latency!r}; an answer takes some time")
    rate_per_s = None if asked.rate is None else rate("--rate", asked.rate)
    scene = Scene(
        "asked",
        _title(asked),
        UpstreamModel(
            rate_per_s=rate_per_s,
            burst=max(rate_per_s or 1.0, 1.0),
            latency_s=latency_s,
            hints=asked.hints,
            outages_s=((0.0, outage_s),) if outage_s else (),
        ),
        (Batch("all", asked.jobs),),
        horizon_s=outage_s + _drain_s_max(asked, rate_per_s, latency_s),
        fleet=Fleet(asked.workers, asked.concurrency),
    )
    always: Callable[[int], Scene] = lambda _: scene  # noqa: E731 - a scene for any seed
    drain_max = _drain_max(asked.jobs / rate_per_s, outage_s) if rate_per_s else None
    return Scenario("asked", scene.title, always, _RIVALS, drain_max)


def seconds(option: str, text: str) -> float:
    """A length of time as people write it: 45m, 90s, 1h30m."""
    found = duration_s(text.strip())
    if found is None or found > SECONDS_MAX:
        raise CallerError(
            f"{option} is {text!r}; write a time such as 90s, 45m or 1h30m, up to 7 days"
        )
    return found


def rate(option: str, text: str) -> float:
    """Calls per second, from 20/s, 500/min or 1000/h."""
    found = _RATE.fullmatch(text.strip())
    per_s = float(found[1]) / _UNIT_S[found[2]] if found else 0.0
    if not 0.001 <= per_s <= 1e6:
        raise CallerError(f"{option} is {text!r}; write a rate such as 20/s, 500/min or 1000/h")
    return per_s


def _drain_s_max(asked: SimulationQuestion, rate_per_s: float | None, latency_s: float) -> float:
    """Ten times what it takes at best, and an hour: who is not done by then is stuck."""
    at_best_s = asked.jobs * latency_s / (asked.workers * asked.concurrency)
    if rate_per_s is not None:
        at_best_s = max(at_best_s, asked.jobs / rate_per_s)
    return 10.0 * at_best_s + 3_600.0


def _drain_max(at_best_s: float, outage_s: float) -> float | None:
    """The aim for the drain, where the drain is long beside the gaps between probes."""
    if outage_s <= 60.0 and at_best_s >= 100.0:
        return 1.15
    return 1.3 if at_best_s >= 600.0 else None


def _title(asked: SimulationQuestion) -> str:
    parts = [f"{asked.jobs:,} jobs"]
    parts += [f"outage of {asked.outage}"] if asked.outage else []
    parts += [f"then at most {asked.rate}"] if asked.rate else []
    return ", ".join([*parts, f"answers take {asked.latency}"])
