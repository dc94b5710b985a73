"""Settings in which there is little but runs, and dead letters to be driven again."""

from perdure.model.nouns import replace
from perdure.model.operations import Retention
from tests.sim.feeds import RUN_DEEDS, Feed
from tests.sim.swarm import Setup, plain


def only_runs(setup: Setup) -> Setup:
    """Two runs whose stages fail for good now and then, with budgets that are looked at often."""
    terms = {"check_every": 2, "sample_min": 3, "kinds": {}, "cost_max_usd": None}
    return replace(
        plain(setup),
        acts={"fatal": 0.15, "network": 0.2},
        concurrency=3,
        items=4,
        poll_s=0.3,
        leases_s=(setup.ttl_s,) * 2,
        work_s=0.1 * setup.ttl_s,
        timeout_s=2 * setup.ttl_s,
        feeds=(
            Feed("run0", "long", 25, terms | {"failure_budget": 0.3}),
            Feed("run1", "short", 25, terms | {"failure_budget": 0.6}, backlog_max=4),
        ),
        batches=setup.batches | {"feed": 4},
    )


def runs_aborted_while_fed(setup: Setup) -> Setup:
    """Short runs, fed one item at a time as they are worked off, that are aborted at any of their items."""
    terms = {"check_every": 1, "sample_min": 1, "kinds": {}, "cost_max_usd": None}
    return replace(
        only_runs(setup),
        acts={"fatal": 0.3},
        feeds=tuple(
            Feed(f"run{n}", "short", 2 + n, terms | {"failure_budget": 0.4}, backlog_max=1)
            for n in range(3)
        ),
        batches=setup.batches | {"feed": 1},
    )


def runs_and_cancels(setup: Setup) -> Setup:
    """The same, and people take jobs away that workers have in their hands."""
    return replace(
        only_runs(setup),
        strikes={"cancel": 40 / setup.chaos_s},
        work_s=0.4 * setup.ttl_s,
        acts={"network": 0.1},
    )


def only_redrives(setup: Setup) -> Setup:
    """Two runs of one pipeline that share keys, many dead letters, and people who drive them again."""
    kinds = ("redrive", "retry", "bulk_stop")
    terms = {"failure_budget": None}
    return replace(
        only_runs(setup),
        strikes=dict.fromkeys(kinds, 12 / setup.chaos_s),
        acts={"fatal": 0.4},
        feeds=tuple(Feed(f"run{n}", "short", 12, terms, keyed=True) for n in range(2)),
        batches=setup.batches | {"bulk": 3},
    )


def only_discards(setup: Setup) -> Setup:
    """The same, and dead letters are dealt with."""
    return replace(only_redrives(setup), strikes={"discard": 12 / setup.chaos_s})


def redrives_by_two(setup: Setup) -> Setup:
    """Workers stand still in the middle of a step, and others go on with it."""
    kinds = ("freeze_child", "freeze_host")
    again = only_redrives(setup)
    return replace(
        again,
        strikes=again.strikes | dict.fromkeys(kinds, 20 / setup.chaos_s),
        chances={"slow_store": 0.5},
        batches=setup.batches | {"bulk": 1},
        leases_s=(setup.ttl_s,) * 3,
    )


def whatever_with_runs(setup: Setup) -> Setup:
    """As drawn, with two runs and everything that people do to runs and dead letters."""
    feeds = tuple(
        Feed(f"run{n}", name, 12, {"check_every": 3, "sample_min": 3}, keyed=True, feeders=2)
        for n, name in enumerate(("long", "short"))
    )
    deeds = {**RUN_DEEDS, "redrive": 8, "retry": 15, "discard": 3, "cancel": 5}
    rates = {kind: most / setup.chaos_s for kind, most in deeds.items()}
    return replace(setup, feeds=feeds, strikes=setup.strikes | rates)


def runs_and_pruning(setup: Setup) -> Setup:
    """Runs that are fed by two at once while what is over is soon let go."""
    kept_s = 0.3 * setup.ttl_s
    feeds = tuple(
        replace(feed, feeders=2, backlog_max=4, options={"failure_budget": None})
        for feed in only_runs(setup).feeds
    )
    return replace(
        only_runs(setup),
        feeds=feeds,
        retention=Retention(kept_s, kept_s, kept_s, kept_s),
        rests_s=1.0,
        chances={"feeder_lost": 0.1, "slow_store": 0.3},
    )
