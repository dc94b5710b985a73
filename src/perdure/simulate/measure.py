"""From books to numbers: what a strategy cost in a scenario over several seeds, and the aims."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from perdure.model.errors import CallerError
from perdure.rules.policy import Policy, Profile
from perdure.simulate.replies import Form
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scenarios import Scenario
from perdure.simulate.scene import Scene
from perdure.simulate.strategies import ORACLE, Strategy, strategy

WASTE_MAX = 0.07  # calls per success, besides what finding an outage out costs
WINDOW_CALLS = 20
# They differ by less than a hundredth from seed to seed, and cost a hundred times more.
_RIVAL_SEEDS = 1


@dataclass(frozen=True, slots=True)
class Played:
    """One run, beside the oracle's of the same seed."""

    scene: Scene
    history: RunHistory
    bound: RunHistory

    @property
    def finished(self) -> bool:
        """Whether every job came to an end in time."""
        return self.history.left_over == 0

    @property
    def waste(self) -> float:
        """Failed calls per call that was answered as it should be."""
        return self.history.wasted / max(self.history.answered_calls, 1)

    @property
    def limited(self) -> float:
        """Answers of status 429 that ask us to slow down, per success."""
        answers = self.history.answers
        return (answers[Form.LIMITED] + answers[Form.RAMP]) / max(self.history.answered_calls, 1)

    @property
    def waste_max(self) -> float:
        """The aim: little beyond what no strategy avoids, and what it takes to see an outage."""
        unavoidable = self.bound.wasted / max(self.bound.answered_calls, 1)
        seeing = self.history.in_flight_at_trip + WINDOW_CALLS + self.history.probes
        return WASTE_MAX + unavoidable + seeing / self.history.jobs

    @property
    def drain(self) -> float | None:
        """How long it took, as a multiple of the bound; None where it did not end."""
        from_s = self.scene.drain_from_s
        if not self.finished or not self.history.ended:
            return None
        return (self.history.finished_s - from_s) / (self.bound.finished_s - from_s)

    @property
    def peak(self) -> float | None:
        """The busiest second after the outage over the upstream's limit."""
        limit_per_s = self.history.limit_per_s
        if not limit_per_s:
            return None
        return self.history.peak_per_s(self.scene.drain_from_s) / limit_per_s

    @property
    def jain(self) -> float | None:
        """Fairness while every owner has jobs."""
        return self.history.jain(max(batch.at_s for batch in self.scene.batches))


@dataclass(frozen=True, slots=True)
class Measured:
    """The means over the seeds; ``…_worst`` is the worst of them. ``limited``: 429s per success."""

    strategy: str
    title: str
    seeds: int
    jobs: int
    done: float
    lost: float
    left_over: float
    waste: float
    waste_worst: float
    waste_max: float
    limited: float
    drain: float | None
    drain_worst: float | None
    peak: float | None
    early: int
    probes: float
    trips: float
    tokens: float
    spent_held: int
    alerts: float
    jain: float | None


@dataclass(frozen=True, slots=True)
class Aim:
    """Something that was promised, and whether it was kept."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A scenario: what the gate came to, whether that is what was aimed at, and everybody else."""

    scenario: Scenario
    measures: tuple[Measured, ...]
    aims: tuple[Aim, ...]

    def of(self, name: str) -> Measured:
        """What a strategy came to."""
        return next(one for one in self.measures if one.strategy == name)


def measure(one: Strategy, runs: Sequence[Played]) -> Measured:
    """The means of several runs of a strategy."""
    drains = [run.drain for run in runs]
    finished = [drain for drain in drains if drain is not None]
    whole = len(finished) == len(drains)
    return Measured(
        strategy=one.name,
        title=one.title,
        seeds=len(runs),
        jobs=runs[0].history.jobs,
        done=fmean(run.history.done for run in runs),
        lost=fmean(run.history.lost for run in runs),
        left_over=fmean(run.history.left_over for run in runs),
        waste=fmean(run.waste for run in runs),
        waste_worst=max(run.waste for run in runs),
        waste_max=fmean(run.waste_max for run in runs),
        limited=fmean(run.limited for run in runs),
        drain=fmean(finished) if whole else None,
        drain_worst=max(finished) if whole else None,
        peak=_mean(run.peak for run in runs),
        early=sum(run.history.early for run in runs),
        probes=fmean(run.history.probes for run in runs),
        trips=fmean(run.history.trips for run in runs),
        tokens=fmean(run.history.tokens_wasted for run in runs),
        spent_held=sum(run.history.spent_held for run in runs),
        alerts=fmean(run.history.alerts for run in runs),
        jain=_mean(run.jain for run in runs),
    )


def aims_of(scenario: Scenario, gate: Measured) -> tuple[Aim, ...]:
    """What the gate must come to here; waste and drain by their means, the rest by every seed."""
    aims = [
        Aim(
            f"wasted calls per success {gate.waste:.3f} ≤ {gate.waste_max:.3f}",
            gate.waste <= gate.waste_max,
        )
    ]
    if scenario.drain_max is not None:
        told = "not finished" if gate.drain is None else f"{gate.drain:.2f}"
        met = gate.drain is not None and gate.drain <= scenario.drain_max
        aims.append(Aim(f"drain ÷ bound {told} ≤ {scenario.drain_max:g}", met))
    aims.append(Aim(f"early retries {gate.early} = 0", gate.early == 0))
    aims.append(
        Aim(f"jobs lost {gate.lost + gate.left_over:g} = 0", gate.lost + gate.left_over == 0)
    )
    aims.append(Aim(f"attempts spent while held {gate.spent_held} = 0", gate.spent_held == 0))
    return tuple(aims)


def row(
    scenario: Scenario,
    policy: Policy,
    *,
    seeds: int,
    rivals: bool = True,
    extra: Sequence[str] = (),
) -> Row:
    """A scenario played by the policy behind gates, by the oracle and by everybody it is compared with."""
    if policy.profile is Profile.SYNC:
        raise CallerError(
            f"policy {policy.name!r} is for calls that somebody waits for; what is simulated are "
            "background jobs"
        )
    numbers = range(1, seeds + 1)
    scenes = {seed: scenario.scene(seed) for seed in numbers}
    bounds = {seed: ORACLE.play(scenes[seed], seed) for seed in numbers}

    def play(one: Strategy, count: int) -> Measured:
        chosen = list(numbers)[:count]
        return measure(
            one,
            [Played(scenes[seed], one.play(scenes[seed], seed), bounds[seed]) for seed in chosen],
        )

    gate = play(strategy("gate", policy), seeds)
    others = [*extra, *(("no-gate", *scenario.rivals) if rivals else ())]
    measures = [gate]
    measures += [
        play(strategy(name, policy), seeds if name.startswith("gate") else _RIVAL_SEEDS)
        for name in others
    ]
    measures.append(
        measure(ORACLE, [Played(scenes[seed], bounds[seed], bounds[seed]) for seed in numbers])
    )
    return Row(scenario, tuple(measures), aims_of(scenario, gate))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
