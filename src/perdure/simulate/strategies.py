"""Who can play a scene: a policy with gates, without, with a poorer gate, the rivals, the oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.gate.gate import GateSettings
from perdure.rules.gate.pace_settings import PaceSettings
from perdure.rules.policy import Policy
from perdure.rules.presets import gate_for, preset
from perdure.simulate.play import Play
from perdure.simulate.replies import Form
from perdure.simulate.rivals import RIVALS, Melee, RivalStrategy
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Scene
from perdure.simulate.upstream import SimulatedUpstream

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
    play: Callable[[Scene, int], RunHistory]


def with_gates(policy: Policy, gate: GateSettings | None = None) -> Strategy:
    """A policy behind gates."""
    settings = gate or gate_for(policy)
    return Strategy(
        "gate",
        f"**{policy.name}, gates**",
        lambda scene, seed: Play(scene, policy, settings, seed).run(),
    )


def without_gates(policy: Policy) -> Strategy:
    """The same policy without gates: every job for itself, by its rules and counters."""
    return Strategy(
        "no-gate",
        f"{policy.name}, no gates",
        lambda scene, seed: Play(scene, policy, None, seed).run(),
    )


def with_gates_in_memory(policy: Policy) -> Strategy:
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


def of_rival(rival: RivalStrategy) -> Strategy:
    """Every job retries for itself by a scheme of delays."""
    return Strategy(rival.name, rival.title, lambda scene, seed: Melee(scene, rival, seed).run())


def oracle(scene: Scene, seed: int) -> RunHistory:
    """The bound: the books of a scheduler that knows the upstream's state and limits at every moment.

    It starts a call the moment one would be admitted, keeps as many in flight as the fleet can, and never
    meets an outage or a limit. Faults that strike single calls it cannot foresee: such a call is made
    again at once. In a fair scene its drain is the same; order does not change how long all of it takes.
    """
    upstream, history = SimulatedUpstream(scene.upstream, seed), RunHistory(jobs=scene.jobs)
    batches = sorted(scene.batches, key=lambda one: one.at_s)
    # when each call ends, how many more its job wants, and whether something is wrong with that
    flying: list[tuple[float, int, bool]] = []
    waiting: list[tuple[int, bool]] = []
    now_s, no = 0.0, 0
    while batches or waiting or flying:
        while batches and batches[0].at_s <= now_s:
            for _ in range(batches.pop(0).jobs):
                broken = scene.defect is not None and scene.defect.strikes(no)
                waiting.append((scene.defect.calls if broken and scene.defect else 1, broken))
                no += 1
        if waiting and len(flying) < scene.fleet.calls_max:
            free_s = upstream.free_at(now_s)
            if free_s <= now_s:
                reply = upstream.call(now_s)
                history.starts_s.append(now_s)
                left, broken = waiting.pop()
                answered = reply.form is Form.OK
                left -= answered
                if answered and broken and scene.defect is not None:
                    reply = reply._replace(form=scene.defect.form)
                history.add_answer(reply)
                heappush(flying, (now_s + reply.took_s, left, broken))
                continue
            next_s = min(free_s, flying[0][0]) if flying else free_s
        elif flying:
            next_s = flying[0][0]
        else:
            next_s = batches[0].at_s
        if batches:
            next_s = min(next_s, batches[0].at_s)
        now_s = max(now_s, next_s)
        while flying and flying[0][0] <= now_s:
            ended_s, left, broken = heappop(flying)
            if left:
                waiting.append((left, broken))
            elif broken:
                history.gave_up(ended_s, defective=True)
            else:
                history.add_success("all", ended_s)
    history.ended_s = now_s
    history.limit_per_s = upstream.limit_per_s
    return history


ORACLE = Strategy("oracle", "oracle", oracle)


def strategy(name: str, policy: Policy | None = None) -> Strategy:
    """A strategy by name; ``policy`` is for those that have one, `standard` unless given."""
    policy = policy or preset("standard")
    if name in RIVALS:
        return of_rival(RIVALS[name])
    makers = {
        "gate": with_gates,
        "no-gate": without_gates,
        "gate-in-memory": with_gates_in_memory,
        "all-at-once": all_at_once,
    }
    return makers[name](policy)
