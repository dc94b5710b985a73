"""The setting of one seed: how many workers, which limits, which faults and how often.

Swarm testing: every seed switches on a random subset of the faults, with random rates, and draws
its settings, silly ones included, from wide ranges. What is off in one seed makes room for what is on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.operations import Retention
from perdure.rules.backoff import Backoff, Curve, Jitter, Spread
from perdure.rules.policy import Action, HintMode, Hints, Policy, Rule, Scope
from tests.sim.feeds import RUN_DEEDS, Feed, feeds_of
from tests.sim.outside import GATE_DEEDS, NOTHING, STAGES, TROUBLES, Outside, outside_of

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
    "clock_jump": 6,
    "cancel": 25,
    "retry": 25,
    "redrive": 4,
    "discard": 6,
    "pause": 6,
    **GATE_DEEDS,
    **RUN_DEEDS,
}
# Faults that strike a single store call, and how likely at most.
CHANCES = {
    "lost_reply": 0.15,
    "lost_request": 0.15,
    "slow_store": 0.1,
    "kill_at_commit": 0.02,
    "freeze_at_call": 0.1,
    "hint_lost": 1.0,
    "caller_lost": 0.5,
    "feeder_lost": 0.2,
}
# What a stage may do instead of its work, and how likely at most.
ACTS = {
    "rate_limited": 0.2,
    "network": 0.3,
    "invalid_output": 0.2,
    "bad_request": 0.1,
    "own_bug": 0.2,
    "internal": 0.1,
    "unhinted": 0.1,
    "refused_value": 0.1,
    "fatal": 0.1,
    "timeout": 0.2,
    "stubborn": 0.1,
    "block_loop": 0.1,
    "snooze": 0.2,
    "withdraw": 0.05,
}
# What befalls a stage that writes its record in a transaction of its own, and how likely at most.
MISHAPS = {
    "held_open": 0.3,
    "killed_before_commit": 0.1,
    "killed_after_commit": 0.1,
    "commit_failed": 0.2,
    "commit_unknown": 0.2,
    "not_committed": 0.1,
    "runs_on": 0.2,
}
POISON = 0.15  # of the items, at most
KINDS = (*STRIKES, *CHANCES, *ACTS, *MISHAPS, *TROUBLES, "poison", "resume", "clock_skew")
SKEW_S_MAX = 7200.0  # how far a machine's wall clock is from the store's


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
    periods_s: dict[str, int] = field(default_factory=dict)  # of the schedules, by pipeline
    retention: Retention = Retention()
    skew_s: float = 0.0  # how far wall clocks may be from the store's
    deaf: bool = False  # whether no hint ever comes through, as behind some poolers
    ears: bool = False  # whether workers listen for hints, as at PostgreSQL, or ask, as at SQLite
    calls: int = 0  # by callers that wait
    rests_s: float = 60.0  # between two walks of the pruning
    outside: Outside = NOTHING
    feeds: tuple[Feed, ...] = ()  # the runs
    completing: frozenset[str] = frozenset()  # stages that write their record themselves
    mishaps: dict[str, float] = field(default_factory=dict)

    @property
    def overrun_s(self) -> float:
        """How long an attempt may be held beyond its timeout, as the app sets it at least."""
        return self.grace_s + self.ttl_s


Setting = Callable[[Setup], Setup]


def as_drawn(setup: Setup) -> Setup:
    """The setting that changes nothing."""
    return setup


def plain(setup: Setup) -> Setup:
    """No fault, no schedules, no callers, no gates, no runs, nothing pruned."""
    return replace(
        setup,
        strikes={},
        chances={},
        acts={},
        poison=0.0,
        periods_s={},
        retention=Retention(),
        skew_s=0.0,
        deaf=False,
        calls=0,
        narrow=False,
        outside=NOTHING,
        feeds=(),
        completing=frozenset(),
    )


def only_cancels(setup: Setup) -> Setup:
    """Long work, no fault but people who change their mind."""
    ttl_s = setup.ttl_s
    return replace(
        plain(setup),
        strikes={"cancel": 25 / setup.chaos_s},
        chances={},
        acts={},
        poison=0.0,
        work_s=ttl_s,
        timeout_s=4 * ttl_s,
        poll_s=0.3,
    )


def cancels_while_blocked(setup: Setup) -> Setup:
    """Jobs are taken away from workers whose event loop is held by a stage."""
    return replace(
        plain(setup),
        strikes={"cancel": 40 / setup.chaos_s},
        chances={},
        acts={"block_loop": 0.3},
        poison=0.0,
        concurrency=5,
        poll_s=0.3,
    )


def only_outages(setup: Setup) -> Setup:
    """Everybody is well, and the store is away now and then."""
    return replace(
        plain(setup),
        strikes={"store_away": 8 / setup.chaos_s},
        chances={},
        acts={},
        poison=0.0,
        leases_s=(setup.leases_s * 3)[:3],
    )


def outages_and_unlike_leases(setup: Setup) -> Setup:
    """As before, for long, with one lease much longer than another."""
    return replace(
        only_outages(setup),
        leases_s=(20.0, 3.0, 7.0),
        ttl_s=20.0,
        chaos_s=400.0,
        strikes={"store_away": 16 / 400.0},
    )


def slow_sweepers(setup: Setup) -> Setup:
    """Workers die with jobs in their hands, and much happens between a read and a write."""
    return replace(
        plain(setup),
        strikes={"kill_child": 15 / setup.chaos_s},
        acts={},
        poison=0.0,
        chances={"slow_store": 0.3},
        leases_s=(setup.leases_s * 3)[:3],
        narrow=False,
    )


def frozen_workers(setup: Setup) -> Setup:
    """Processes and machines stand still for several leases, and then go on."""
    kinds = ("freeze_child", "freeze_host", "freeze_supervisor")
    return replace(
        plain(setup),
        strikes=dict.fromkeys(kinds, 5 / setup.chaos_s),
        chances={},
        acts={},
        poison=0.0,
        leases_s=(setup.leases_s * 3)[:3],
        narrow=False,
    )


def stages_beyond_their_time(setup: Setup) -> Setup:
    """Stages hold the event loop for so long that others take their jobs."""
    return replace(
        plain(setup),
        acts={"block_loop": 0.5},
        timeout_s=0.2 * setup.ttl_s,
        grace_s=0.0,
        leases_s=(setup.leases_s * 3)[:3],
    )


def drains_and_patience(setup: Setup) -> Setup:
    """Long work, orders to stop, and a grace of several leases."""
    ttl_s = setup.ttl_s
    return replace(
        plain(setup),
        strikes={"drain": 8 / setup.chaos_s},
        work_s=ttl_s,
        timeout_s=8 * ttl_s,
        grace_s=4 * ttl_s,
        leases_s=(ttl_s,) * 3,
        poll_s=0.3,
    )


def drains_at_once(setup: Setup) -> Setup:
    """Long work, orders to stop, and no grace."""
    ttl_s = setup.ttl_s
    return replace(
        plain(setup),
        strikes={"drain": 8 / setup.chaos_s},
        work_s=ttl_s,
        timeout_s=4 * ttl_s,
        grace_s=0.0,
    )


def only_rate_limits(setup: Setup) -> Setup:
    """Nothing but an upstream that asks us to wait."""
    return replace(plain(setup), acts={"rate_limited": 0.4})


def hurried_rate_limits(setup: Setup) -> Setup:
    """An upstream that asks us to wait, and people who do not want to."""
    return replace(only_rate_limits(setup), strikes={"retry": 120 / setup.chaos_s})


def only_failures(setup: Setup) -> Setup:
    """Stages fail and are retried, on machines whose clocks are wrong by a minute or so."""
    return replace(plain(setup), acts={"network": 0.5}, skew_s=90.0)


def only_operators(setup: Setup) -> Setup:
    """Stages fail, and people retry, re-drive, discard, pause and resume."""
    kinds = ("retry", "redrive", "discard", "pause")
    return replace(
        plain(setup),
        strikes=dict.fromkeys(kinds, 15 / setup.chaos_s),
        acts={"fatal": 0.3, "network": 0.3},
        chances={"slow_store": 0.1},
    )


def only_schedules(setup: Setup) -> Setup:
    """Short periods, several sweepers that know different things, an odd clock, a store that is slow and away."""
    periods_s = {"long": 1 + round(setup.chaos_s / 40), "short": round(setup.ttl_s)}
    return replace(
        plain(setup),
        periods_s=periods_s,
        leases_s=(setup.ttl_s,) * 3,
        narrow=True,
        strikes={"store_away": 4 / setup.chaos_s},
        chances={"slow_store": 0.2},
        skew_s=SKEW_S_MAX,
    )


def only_pruning(setup: Setup) -> Setup:
    """What is over is soon let go."""
    kept_s = setup.ttl_s
    return replace(
        plain(setup),
        retention=Retention(kept_s, kept_s, kept_s, 2 * kept_s),
        rests_s=1.0,
        acts={"fatal": 0.2},
    )


def only_callers(setup: Setup) -> Setup:
    """Many calls, of which half are left by their callers."""
    return replace(plain(setup), calls=20, chances={"caller_lost": 0.3, "lost_reply": 0.1})


def deaf_ears(setup: Setup) -> Setup:
    """Workers listen, and nobody is ever heard."""
    return replace(plain(setup), ears=True, deaf=True)


def only_kills(setup: Setup) -> Setup:
    """Processes and machines are killed."""
    kinds = ("kill_child", "kill_host")
    return replace(
        plain(setup),
        strikes=dict.fromkeys(kinds, 8 / setup.chaos_s),
        work_s=setup.ttl_s,
        timeout_s=4 * setup.ttl_s,
    )


def only_completions(setup: Setup) -> Setup:
    """Every stage writes its record itself, much befalls it there, and people change their mind."""
    return replace(
        plain(setup),
        completing=frozenset(STAGES),
        mishaps=dict(MISHAPS),
        strikes={"cancel": 25 / setup.chaos_s, "freeze_child": 4 / setup.chaos_s},
        acts={"block_loop": 0.1},
        leases_s=(setup.leases_s * 3)[:3],
        poll_s=0.3,
    )


def only_deadlines(setup: Setup) -> Setup:
    """Little is done at once, so that much waits beyond its deadline."""
    return replace(plain(setup), concurrency=1, leases_s=setup.leases_s[:1], work_s=setup.ttl_s)


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
            "expired": rng.choice((1, 2, 500)),
            "prune": rng.choice((1, 3, 500)),
            "bulk": rng.choice((1, 3, 200)),
            "feed": rng.choice((1, 4, 1000)),
            "cancel": rng.choice((1, 3, 200)),
        },
        periods_s=_periods_s(rng, ttl_s, chaos_s),
        retention=_retention(rng, ttl_s) if _on(rng) else Retention(),
        skew_s=rng.choice((1.0, ttl_s, SKEW_S_MAX)) if _on(rng) else 0.0,
        deaf=rng.random() < 0.2,
        ears=_on(rng),
        calls=rng.choice((0, 0, 3, 10)),
        rests_s=rng.choice((1.0, 10.0)),
        outside=outside_of(rng, chaos_s),
        feeds=feeds_of(rng, chaos_s),
        **_completing(Random(f"completing {chaos_s}")),
    )


def _completing(own: Random) -> dict[str, Any]:
    """In one of four seeds; by chance of its own, so that the others are what they were without it."""
    if own.random() < 0.75:
        return {}
    stages = frozenset(stage for stage in STAGES if own.random() < 0.6)
    return {
        "completing": stages,
        "mishaps": {one: most * own.random() for one, most in MISHAPS.items()},
    }


def _periods_s(rng: Random, ttl_s: float, chaos_s: float) -> dict[str, int]:
    """Whole seconds; some not much longer than a round of the upkeep, some longer than a lease."""
    names = [name for name in ("long", "short") if _on(rng)]
    return {
        name: rng.choice((1 + round(chaos_s / 40), round(ttl_s), round(ttl_s * 4)))
        for name in names
    }


def _retention(rng: Random, ttl_s: float) -> Retention:
    lengths = (rng.choice((None, ttl_s * rng.uniform(0.5, 6.0))) for _ in range(4))
    return Retention(*lengths)


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
            Kind.UNKNOWN: again,
            Kind.INTERNAL: Rule(rng.choice((Action.RETRY, Action.FAIL))),
            Kind.UPSTREAM_ERROR: again,
            Kind.UPSTREAM_UNAVAILABLE: again,
            Kind.OVERLOADED: again,
            Kind.BILLING: Rule(rng.choice((Action.HOLD, Action.HOLD, Action.FAIL))),
        },
        scope=rng.choice((Scope.STAGE, Scope.STAGE, Scope.JOB)),
        crash_is_failure=rng.random() < 0.2,
        weak_share=rng.choice((None, None, 0.25, 0.5)),
    )
