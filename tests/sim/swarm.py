"""The setting of one seed: how many workers, which limits, which faults and how often.

Swarm testing: every seed switches on a random subset of the faults, with random rates, and draws
its settings, silly ones included, from wide ranges. What is off in one seed makes room for what is on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from perdure.model.kinds import Kind
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import Action, HintMode, Hints, Policy, Rule, Scope

# Faults that strike at random times, and how often at most within the chaos of one seed.
STRIKES = {
    "kill_child": 6,
    "kill_host": 3,
    "kill_supervisor": 3,
    "freeze_child": 4,
    "freeze_host": 3,
    "freeze_supervisor": 2,
    "store_away": 4,
    "store_full": 2,
    "drain": 3,
    "drain_twice": 2,
    "cancel": 25,
}
# Faults that strike a single store call, and how likely at most.
CHANCES = {
    "lost_reply": 0.15,
    "lost_request": 0.15,
    "slow_store": 0.1,
    "kill_at_commit": 0.02,
    "freeze_at_call": 0.1,
}
# What a stage may do instead of its work, and how likely at most.
ACTS = {
    "rate_limited": 0.2,
    "network": 0.3,
    "invalid_output": 0.2,
    "refused_value": 0.1,
    "fatal": 0.1,
    "timeout": 0.2,
    "stubborn": 0.1,
    "block_loop": 0.1,
    "snooze": 0.2,
    "withdraw": 0.05,
}
POISON = 0.15  # of the items, at most
KINDS = (*STRIKES, *CHANCES, *ACTS, "poison")


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that is fixed for one seed."""

    leases_s: tuple[float, ...]  # one per host
    narrow: bool  # whether the last host knows only one of the pipelines
    concurrency: int
    ttl_s: float  # the longest lease
    poll_s: float
    grace_s: float
    chaos_s: float
    items: int
    clients: int
    work_s: float
    timeout_s: float
    policies: tuple[Policy, ...]  # of the three stages, then of the single one
    strikes: dict[str, float]  # per second
    chances: dict[str, float]
    acts: dict[str, float]
    poison: float
    batches: dict[str, int]

    @property
    def overrun_s(self) -> float:
        """How long an attempt may be held beyond its timeout, as the app sets it at least."""
        return self.grace_s + self.ttl_s


Setting = Callable[[Setup], Setup]


def as_drawn(setup: Setup) -> Setup:
    """The setting that changes nothing."""
    return setup


def only_cancels(setup: Setup) -> Setup:
    """Long work, no fault but people who change their mind."""
    ttl_s = setup.ttl_s
    return replace(
        setup, strikes={"cancel": 25 / setup.chaos_s}, chances={}, acts={}, poison=0.0,
        work_s=ttl_s, timeout_s=4 * ttl_s, poll_s=0.3,
    )  # fmt: skip


def cancels_while_blocked(setup: Setup) -> Setup:
    """Jobs are taken away from workers whose event loop is held by a stage."""
    return replace(
        setup, strikes={"cancel": 40 / setup.chaos_s}, chances={}, acts={"block_loop": 0.3},
        poison=0.0, concurrency=5, poll_s=0.3,
    )  # fmt: skip


def only_outages(setup: Setup) -> Setup:
    """Everybody is well, and the store is away now and then."""
    return replace(
        setup, strikes={"store_away": 8 / setup.chaos_s}, chances={}, acts={}, poison=0.0,
        leases_s=(setup.leases_s * 3)[:3],
    )  # fmt: skip


def outages_and_unlike_leases(setup: Setup) -> Setup:
    """As before, with one lease much longer than another."""
    return replace(
        only_outages(setup), leases_s=(20.0, 3.0, 7.0), ttl_s=20.0,
        strikes={"store_away": 8 / setup.chaos_s},
    )  # fmt: skip


def slow_sweepers(setup: Setup) -> Setup:
    """Workers die with jobs in their hands, and much happens between a read and a write."""
    return replace(
        setup, strikes={"kill_child": 15 / setup.chaos_s}, acts={}, poison=0.0,
        chances={"slow_store": 0.3}, leases_s=(setup.leases_s * 3)[:3], narrow=False,
    )  # fmt: skip


def frozen_workers(setup: Setup) -> Setup:
    """Processes and machines stand still for several leases, and then go on."""
    kinds = ("freeze_child", "freeze_host", "freeze_supervisor")
    return replace(
        setup, strikes=dict.fromkeys(kinds, 5 / setup.chaos_s), chances={}, acts={}, poison=0.0,
        leases_s=(setup.leases_s * 3)[:3], narrow=False,
    )  # fmt: skip


def setup_of(rng: Random) -> Setup:
    """Draw one."""
    leases_s = _leases_s(rng)
    ttl_s = max(leases_s)
    chaos_s = ttl_s * rng.uniform(8, 20)
    timeout_s = ttl_s * rng.uniform(0.2, 2.0)
    return Setup(
        leases_s=leases_s,
        narrow=len(leases_s) > 1 and rng.random() < 0.2,
        concurrency=rng.choice((1, 2, 3, 5, 8)),
        ttl_s=ttl_s,
        poll_s=rng.choice((0.3, 1.0, 2.0)),
        grace_s=rng.choice((0.0, 0.5, 3.0)),
        chaos_s=chaos_s,
        items=rng.randint(4, 40),
        clients=rng.randint(1, 3),
        work_s=ttl_s * rng.choice((0.02, 0.1, 0.4)),
        timeout_s=timeout_s,
        policies=tuple(_policy(rng, number) for number in range(4)),
        strikes={kind: most * rng.random() / chaos_s for kind, most in STRIKES.items() if _on(rng)},
        chances={kind: most * rng.random() for kind, most in CHANCES.items() if _on(rng)},
        acts={kind: most * rng.random() for kind, most in ACTS.items() if _on(rng)},
        poison=POISON * rng.random() if _on(rng) else 0.0,
        batches={
            "claim": rng.choice((1, 3, 1000)),
            "promote": rng.choice((1, 2, 1000)),
            "lost": rng.choice((1, 2, 500)),
            "enqueue": rng.choice((1, 2, 10_000)),
        },
    )


def _on(rng: Random) -> bool:
    return rng.random() < 0.5


def _leases_s(rng: Random) -> tuple[float, ...]:
    """Mostly the same everywhere, as it should be."""
    own_s = rng.choice((3.0, 4.0, 8.0, 15.0))
    alike = rng.random() < 0.8
    others_s = tuple(own_s if alike else rng.uniform(3.0, 20.0) for _ in range(2))
    return (own_s, *others_s)[: rng.choice((1, 2, 2, 3))]


def _policy(rng: Random, number: int) -> Policy:
    curve = rng.choice(tuple(Curve))
    steps_s = tuple(rng.uniform(0.0, 5.0) for _ in range(3)) if curve is Curve.SCHEDULE else ()
    again = Rule(Action.RETRY)
    return Policy(
        name=f"policy{number}",
        attempts_max=rng.randint(1, 5),
        waits_max=rng.randint(0, 4),
        wait_s_max=rng.choice((5.0, 60.0, 3600.0)),
        crashes_max=rng.choice((1, 2, 3, 3, 3, 4)),
        snoozes_max=rng.randint(0, 3),
        backoff=Backoff(curve, rng.uniform(0.0, 3.0), rng.uniform(1.0, 3.0), 10.0, steps_s),
        jitter=Jitter(rng.choice(tuple(Spread)), rng.random(), rng.uniform(0.0, 2.0)),
        hint=Hints(
            rng.choice(tuple(HintMode)),
            counted=rng.random() < 0.7,
            s_max=rng.choice((5.0, 30.0, 3600.0)),
            kinds=frozenset(Kind),
        ),
        rules={
            Kind.RATE_LIMITED: Rule(rng.choice((Action.WAIT, Action.WAIT, Action.RETRY))),
            Kind.NETWORK: again,
            Kind.TIMEOUT: again,
            Kind.INVALID_OUTPUT: Rule(Action.RETRY, attempts_max=rng.choice((None, 1, 2))),
        },
        scope=rng.choice((Scope.STAGE, Scope.STAGE, Scope.JOB)),
        crash_is_failure=rng.random() < 0.2,
    )
