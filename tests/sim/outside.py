"""What is outside: upstreams with gates of their own settings, which stages are behind them, what befalls them."""

from dataclasses import dataclass, field
from random import Random

from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.gate.gate import GateSettings
from perdure.rules.gate.limit_allowance import UpstreamLimits
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.gate.window import WindowSettings

NAMES = ("alpha", "beta")
CREDENTIAL = "key"
UNTIED_S = -1e6  # so that a probe's lease has nothing to do with how long a call may take
STAGES = ("one", "two", "three", "only")
# Troubles of an upstream, and how often at most one begins within the chaos of one seed.
TROUBLES = {
    "upstream_outage": 4,
    "upstream_limit": 5,
    "upstream_partial": 4,
    "upstream_billing": 2,
}
# What a job may meet while its upstream answers: the first two prove that it does, the others nothing.
DEFECTS = ("invalid_output", "bad_request", "own_bug", "internal", "unhinted")
# What people do to gates, and how often at most.
GATE_DEEDS = {"gate_hold": 5, "gate_probe": 6, "gate_release": 6}


@dataclass(frozen=True, slots=True)
class Outside:
    """The upstreams of one seed. ``behind`` says which stages call which of them."""

    upstreams: tuple[DeclaredUpstream, ...] = ()
    behind: dict[str, str] = field(default_factory=dict)
    health: frozenset[str] = frozenset()  # those that are asked instead of a job
    troubles: dict[str, float] = field(default_factory=dict)  # per second
    probe_more_s: float = 1.0  # how much longer than a call its lease is as a probe
    defect: str | None = None  # what probes meet that says nothing bad of the upstream

    @property
    def used(self) -> set[str]:
        """The gates that some stage is behind."""
        ups = [one for one in self.upstreams if one.name in self.behind.values()]
        return {name for one in ups for name in (one.name, one.credential) if name is not None}

    def upstream(self, stage: str) -> DeclaredUpstream | None:
        """What a stage calls."""
        name = self.behind.get(stage)
        return next((one for one in self.upstreams if one.name == name), None)


NOTHING = Outside()


def sick(chaos_s: float, *, lease_s: float = 30.0) -> Outside:
    """One upstream that every stage is behind, with a credential, a limit and much trouble."""
    gate = GateSettings(
        WindowSettings(6, 2, 0.5),
        gaps=Backoff(Curve.LINEAR, base_s=0.5, cap_s=2.0),
        lease_s=lease_s,
        pace=PaceSettings(start_calls=5, rate_min_per_s=1.0, measure_s=5.0),
    )
    troubles = {"upstream_outage": 16 / chaos_s, "upstream_limit": 8 / chaos_s}
    upstream = DeclaredUpstream("alpha", CREDENTIAL, gate, UpstreamLimits(None, 4, None))
    return Outside((upstream,), dict.fromkeys(STAGES, "alpha"), frozenset(), troubles)


def outside_of(rng: Random, chaos_s: float) -> Outside:
    """Draw one: none, one or two upstreams, of which some share a credential."""
    names = NAMES[: rng.choice((0, 1, 2, 2))]
    if not names:
        return NOTHING
    keyed = {name for name in names if rng.random() < 0.6}
    upstreams = tuple(
        DeclaredUpstream(
            name,
            CREDENTIAL if name in keyed else None,
            _gate(rng),
            _limits(rng),
            health_timeout_s=5.0,
        )
        for name in names
    )
    return Outside(
        upstreams,
        {stage: rng.choice(names) for stage in STAGES if rng.random() < 0.75},
        frozenset(name for name in names if rng.random() < 0.2),
        {kind: most * rng.random() / chaos_s for kind, most in TROUBLES.items() if _on(rng)},
        rng.choice((UNTIED_S, 0.1, 2.0, 30.0)),
        rng.choice((None, *DEFECTS)),
    )


def _gate(rng: Random) -> GateSettings:
    calls = rng.choice((2, 4, 10, 20))
    return GateSettings(
        WindowSettings(
            calls,
            rng.randint(1, min(calls, 4)),
            rng.choice((0.3, 0.5, 0.9)),
            window_s=rng.choice((None, None, 20.0)),
        ),
        gaps=Backoff(Curve.LINEAR, base_s=rng.choice((0.2, 1.0, 2.0)), cap_s=8.0),
        jitter=Jitter(Spread.PROPORTIONAL, ratio=0.2),
        flow_after=rng.choice((1, 1, 3)),
        lease_s=rng.choice((1.0, 4.0, 30.0)),  # some are shorter than a call
        relapse_s=rng.choice((0.0, 30.0)),
        hint_s_max=rng.choice((10.0, 3600.0)),
        isolated_share=rng.choice((0.0, 0.25, 0.5, 0.5)),
        pace=PaceSettings(
            start_calls=rng.choice((1, 5)), rate_min_per_s=rng.choice((0.2, 1.0)), measure_s=5.0
        ),
    )


def _limits(rng: Random) -> UpstreamLimits:
    return UpstreamLimits(
        rng.choice((None, None, 2.0, 20.0)), rng.choice((None, None, 1, 2, 5)), None
    )


def _on(rng: Random) -> bool:
    return rng.random() < 0.6
