"""Who can play a scene: a policy with gates, without, with a poorer gate, the rivals, the oracle."""

from collections.abc import Callable
from dataclasses import dataclass

from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.gate.gate import GateSettings
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.policy import Policy
from perdure.rules.presets import gate_for, preset
from perdure.simulate.books import Books
from perdure.simulate.oracle import oracle
from perdure.simulate.play import Play
from perdure.simulate.rivals import RIVALS, Melee, Rival
from perdure.simulate.scene import Scene

_ALL_AT_ONCE = GateSettings(
    gaps=Backoff(Curve.FIXED, base_s=30.0, cap_s=None),
    jitter=Jitter(Spread.NONE),
    pace=PaceSettings(start_calls=1_000),
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A name, what it is, and how it plays a scene from a seed."""

    name: str
    title: str
    play: Callable[[Scene, int], Books]


def gated(policy: Policy, gate: GateSettings | None = None) -> Strategy:
    """A policy behind gates."""
    settings = gate or gate_for(policy)
    return Strategy(
        "gate",
        f"**{policy.name}, gates**",
        lambda scene, seed: Play(scene, policy, settings, seed).run(),
    )


def ungated(policy: Policy) -> Strategy:
    """The same policy without gates: every job for itself, by its rules and counters."""
    return Strategy(
        "no-gate",
        f"{policy.name}, no gates",
        lambda scene, seed: Play(scene, policy, None, seed).run(),
    )


def forgetful(policy: Policy) -> Strategy:
    """Gates that live in the workers' memory and die with them."""
    settings = gate_for(policy)
    return Strategy(
        "gate-in-memory",
        f"{policy.name}, gates in memory only",
        lambda scene, seed: Play(scene, policy, settings, seed, durable=False).run(),
    )


def all_at_once(policy: Policy) -> Strategy:
    """A breaker that probes every 30 s and then releases everything."""
    return Strategy(
        "all-at-once",
        "breaker, probe every 30 s, all released at once",
        lambda scene, seed: Play(scene, policy, _ALL_AT_ONCE, seed).run(),
    )


def alone(rival: Rival) -> Strategy:
    """Every job retries for itself by a scheme of delays."""
    return Strategy(rival.name, rival.title, lambda scene, seed: Melee(scene, rival, seed).run())


ORACLE = Strategy("oracle", "oracle", oracle)


def strategy(name: str, policy: Policy | None = None) -> Strategy:
    """A strategy by name; ``policy`` is for those that have one, `standard` unless given."""
    policy = policy or preset("standard")
    if name in RIVALS:
        return alone(RIVALS[name])
    makers = {
        "gate": gated, "no-gate": ungated, "gate-in-memory": forgetful, "all-at-once": all_at_once,
    }  # fmt: skip
    return makers[name](policy)
