"""A health check: somebody's function that says how an upstream is, run to what it says."""

import asyncio
import inspect

from perdure.engine.attempt.origins import origin_of
from perdure.engine.attempt.threads import Threads
from perdure.engine.gates.upstreams import DeclaredUpstream
from perdure.engine.stages import package_of
from perdure.model.kinds import Kind, Sign
from perdure.model.nouns import replace
from perdure.ports import Clock
from perdure.rules.classify import classify_evidence
from perdure.rules.evidence import evidence_of
from perdure.rules.gate.signs import WELL, Word, word_of


async def word_of_health(upstream: DeclaredUpstream, threads: Threads, clock: Clock) -> Word:
    """What the check says about the upstream; never raises.

    A check that returns False says that the upstream is not there; so does one that does not end. One that
    raises is judged as a stage would be, so a check that is broken itself leaves the gate undecided.
    """
    health = upstream.health
    if health is None:
        return WELL
    try:
        async with asyncio.timeout(upstream.health_timeout_s):
            if inspect.iscoroutinefunction(health):
                answer = await health()
            else:
                answer = await threads.call(health)
                if inspect.isawaitable(answer):  # a lambda or a partial around an async function
                    answer = await answer
    except TimeoutError:
        return Word(Sign.BAD, Kind.TIMEOUT)
    except BaseException as error:  # somebody's code
        evidence, home = evidence_of(error), package_of(getattr(health, "__module__", ""))
        evidence = replace(evidence, origin=origin_of(error, evidence, home))
        return word_of(classify_evidence(evidence, now=clock.now()))
    return Word(Sign.BAD, Kind.UPSTREAM_UNAVAILABLE) if answer is False else WELL
