"""Settings in which little goes wrong but an upstream that every stage is behind; and storms of all else."""

from collections.abc import Iterable
from typing import Any

from perdure.model.nouns import replace
from perdure.rules.policy import HintMode, Policy
from tests.sim.feeds import RUN_DEEDS, Feed
from tests.sim.outside import GATE_DEEDS, STAGES, TROUBLES, UNTIED_S, sick
from tests.sim.swarm import ACTS, CHANCES, MISHAPS, POISON, SKEW_S_MAX, STRIKES, Setup, plain

PEOPLE = {"cancel", "retry", "redrive", "discard", "pause"}


def only_upstreams(setup: Setup) -> Setup:
    """Several workers, jobs of much patience, and an upstream that is well only now and then."""
    return replace(
        plain(setup),
        outside=sick(setup.chaos_s),
        leases_s=(setup.ttl_s,) * 3,
        concurrency=5,
        policies=tuple(_patient(one) for one in setup.policies),
        work_s=0.05 * setup.ttl_s,
        timeout_s=4 * setup.ttl_s,
        poll_s=0.3,
        items=40,
    )


def only_limits(setup: Setup) -> Setup:
    """One worker with more slots than the upstream admits calls, and much to do."""
    outside = replace(sick(setup.chaos_s), troubles={})
    return replace(
        only_upstreams(setup),
        outside=outside,
        leases_s=(setup.ttl_s,),
        concurrency=8,
        items=60,
        work_s=0.2 * setup.ttl_s,
    )


def short_probes(setup: Setup) -> Setup:
    """Probes whose lease is mostly shorter than their call."""
    outside = replace(
        sick(setup.chaos_s, lease_s=1.0),
        probe_more_s=UNTIED_S,
        troubles={"upstream_outage": 24 / setup.chaos_s},
    )
    return replace(only_upstreams(setup), outside=outside, work_s=1.5, timeout_s=30.0)


def defects_behind_a_gate(setup: Setup) -> Setup:
    """Outages, and jobs with a defect of their own, which says nothing of the upstream."""
    outside = sick(setup.chaos_s)
    gate = replace(outside.upstreams[0].gate, flow_after=3)
    outside = replace(
        outside,
        upstreams=(replace(outside.upstreams[0], gate=gate),),
        defect="own_bug",
        troubles={"upstream_outage": 16 / setup.chaos_s},
    )
    return replace(only_upstreams(setup), outside=outside, acts={"own_bug": 0.3})


def upstreams_and_kills(setup: Setup) -> Setup:
    """A few jobs behind a sick upstream, and processes are killed with them in their hands."""
    outside = replace(sick(setup.chaos_s), troubles={"upstream_outage": 20 / setup.chaos_s})
    return replace(
        only_upstreams(setup),
        strikes={"kill_child": 25 / setup.chaos_s},
        work_s=2.0,
        items=8,
        outside=outside,
    )


def upstreams_and_a_slow_store(setup: Setup) -> Setup:
    """What a worker knows of a gate is often no longer so when it claims."""
    return replace(only_upstreams(setup), chances={"slow_store": 0.4})


def suspects_behind_a_gate(setup: Setup) -> Setup:
    """So few jobs, and so many kills, that those that wait behind the gate are all suspects."""
    harsh = upstreams_and_kills(setup)
    return replace(
        harsh,
        items=3,
        leases_s=(setup.ttl_s,),
        strikes={"kill_child": 40 / setup.chaos_s},
        policies=tuple(replace(one, crashes_max=50) for one in harsh.policies),
    )


def broken_machines(setup: Setup) -> Setup:
    """All that befalls processes, clocks and the way to the store, as often as it may be drawn."""
    kinds = STRIKES.keys() - PEOPLE - GATE_DEEDS.keys() - RUN_DEEDS.keys()
    return _struck(
        setup, kinds, chances=dict(CHANCES), skew_s=SKEW_S_MAX, calls=20, work_s=0.4 * setup.ttl_s
    )


def failing_stages(setup: Setup) -> Setup:
    """All that stages do instead of their work, and people who see to it."""
    return _struck(setup, PEOPLE, acts=dict.fromkeys(ACTS, 0.08), poison=POISON)


def own_transactions(setup: Setup) -> Setup:
    """All that befalls stages that write their record themselves, while people cancel and processes stand still."""
    mishaps = dict.fromkeys(MISHAPS, 0.1)
    chances = {"lost_reply": 0.1, "lost_request": 0.05}
    return _struck(
        setup, ("cancel", "freeze_child", "drain"), completing=frozenset(STAGES), mishaps=mishaps, chances=chances,
    )  # fmt: skip


def troubled_upstreams(setup: Setup) -> Setup:
    """All that befalls an upstream, and people at its gates."""
    outside = sick(setup.chaos_s)
    troubles = {kind: 2 * most / setup.chaos_s for kind, most in TROUBLES.items()}
    return _struck(setup, GATE_DEEDS.keys(), outside=replace(outside, troubles=troubles))


def troubled_runs(setup: Setup) -> Setup:
    """All that befalls runs: one has no budget for failures, and half of all stages fail."""
    strict = {"failure_budget": 0.0, "check_every": 1, "sample_min": 1}
    feeds = (
        Feed("free", "long", 25),
        Feed("strict", "long", 25, strict),
        Feed("s", "short", 25, strict),
    )
    return _struck(
        setup,
        RUN_DEEDS.keys() | {"redrive"},
        acts={"fatal": 0.5},
        feeds=feeds,
        chances={"feeder_lost": CHANCES["feeder_lost"]},
    )


# Between them every kind of fault: all at once would leave no room for most of them.
STORMS = (broken_machines, failing_stages, own_transactions, troubled_upstreams, troubled_runs)


def _struck(setup: Setup, strikes: Iterable[str], **more: Any) -> Setup:
    """Much work for three hosts, struck by these as often as may be, in a fixed order."""
    rates = {kind: most / setup.chaos_s for kind, most in STRIKES.items() if kind in {*strikes}}
    usual = {
        "strikes": rates,
        "leases_s": (setup.ttl_s,) * 3,
        "items": 40,
        "clients": 2,
        "concurrency": 5,
        "work_s": 0.1 * setup.ttl_s,
        "timeout_s": setup.ttl_s,
        "ears": True,
        "poll_s": 0.3,
    }
    return replace(plain(setup), **(usual | more))


def _patient(policy: Policy) -> Policy:
    hint = replace(policy.hint, mode=HintMode.EXACT)
    return replace(policy, attempts_max=20, waits_max=100, wait_s_max=3600.0, hint=hint)
