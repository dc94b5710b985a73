"""A health check: somebody's function that says how an upstream is, run to a kind of failure or to none."""

import asyncio
import inspect

from perdure.engine.threads import Threads
from perdure.engine.upstreams import Upstream
from perdure.model.kinds import Kind
from perdure.ports import Clock
from perdure.rules.classify import judge
from perdure.rules.evidence import evidence_of


async def kind_of_health(upstream: Upstream, threads: Threads, clock: Clock) -> Kind | None:
    """None when the upstream is well; never raises.

    A check that returns False says that the upstream is not there; so does one that does not end. One that
    raises is judged as a stage would be, so a check that is broken itself leaves the gate undecided.
    """
    health = upstream.health
    if health is None:
        return None
    try:
        async with asyncio.timeout(upstream.health_timeout_s):
            if inspect.iscoroutinefunction(health):
                answer = await health()
            else:
                answer = await threads.call(health)
                if inspect.isawaitable(answer):  # a lambda or a partial around an async function
                    answer = await answer
    except TimeoutError:
        return Kind.TIMEOUT
    except BaseException as error:  # somebody's code
        return judge(evidence_of(error), now=clock.now()).kind
    return Kind.UPSTREAM_UNAVAILABLE if answer is False else None
