"""Settings in which little goes wrong but an upstream that every stage is behind."""

from dataclasses import replace

from perdure.rules.policy import HintMode, Policy
from tests.sim.outside import UNTIED_S, sick
from tests.sim.swarm import Setup, plain


def only_upstreams(setup: Setup) -> Setup:
    """Several workers, jobs of much patience, and an upstream that is well only now and then."""
    return replace(
        plain(setup), outside=sick(setup.chaos_s), leases_s=(setup.ttl_s,) * 3, concurrency=5,
        policies=tuple(_patient(one) for one in setup.policies), work_s=0.05 * setup.ttl_s,
        timeout_s=4 * setup.ttl_s, poll_s=0.3, items=40,
    )  # fmt: skip


def only_limits(setup: Setup) -> Setup:
    """One worker with more slots than the upstream admits calls, and much to do."""
    outside = replace(sick(setup.chaos_s), troubles={})
    return replace(
        only_upstreams(setup), outside=outside, leases_s=(setup.ttl_s,), concurrency=8, items=60,
        work_s=0.2 * setup.ttl_s,
    )  # fmt: skip


def short_probes(setup: Setup) -> Setup:
    """Probes whose lease is mostly shorter than their call."""
    outside = replace(
        sick(setup.chaos_s, lease_s=1.0), probe_more_s=UNTIED_S,
        troubles={"upstream_outage": 24 / setup.chaos_s},
    )  # fmt: skip
    return replace(only_upstreams(setup), outside=outside, work_s=1.5, timeout_s=30.0)


def upstreams_and_kills(setup: Setup) -> Setup:
    """A few jobs behind a sick upstream, and processes are killed with them in their hands."""
    outside = replace(sick(setup.chaos_s), troubles={"upstream_outage": 20 / setup.chaos_s})
    return replace(
        only_upstreams(setup), strikes={"kill_child": 25 / setup.chaos_s}, work_s=2.0, items=8,
        outside=outside,
    )  # fmt: skip


def upstreams_and_a_slow_store(setup: Setup) -> Setup:
    """What a worker knows of a gate is often no longer so when it claims."""
    return replace(only_upstreams(setup), chances={"slow_store": 0.4})


def suspects_behind_a_gate(setup: Setup) -> Setup:
    """So few jobs, and so many kills, that those that wait behind the gate are all suspects."""
    harsh = upstreams_and_kills(setup)
    return replace(
        harsh, items=3, leases_s=(setup.ttl_s,), strikes={"kill_child": 40 / setup.chaos_s},
        policies=tuple(replace(one, crashes_max=50) for one in harsh.policies),
    )  # fmt: skip


def _patient(policy: Policy) -> Policy:
    hint = replace(policy.hint, mode=HintMode.EXACT)
    return replace(policy, attempts_max=20, waits_max=100, wait_s_max=3600.0, hint=hint)
