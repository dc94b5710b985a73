"""The walk of an ended attempt, classify → decide → record: settling, the one way it ends.

A finished stage, a crashed worker's job, a cancelled job and a job handed back at shutdown all
come through here; there is no second path.
"""

from datetime import datetime, timedelta

from perdure.engine.record import Ending, record_of
from perdure.engine.stages import Line, Stage
from perdure.model.decisions import Decision
from perdure.model.jobs import Record
from perdure.rules.classify import classify
from perdure.rules.decide import FLOWING, GateView, Standing, decide


def settle(
    ending: Ending,
    line: Line,
    stage: Stage,
    *,
    chance: float,
    now: datetime | None = None,
    gate: GateView = FLOWING,
) -> Record:
    """What the store has to write about an ended attempt.

    ``now`` is the claim's store time plus the time since, unless the store has just told it.
    """
    moment = now or ending.claim.claimed_at + timedelta(seconds=ending.elapsed_s)
    decision = judged(ending, stage, chance=chance, now=moment, gate=gate)
    return record_of(ending, decision, line, stage)


def judged(
    ending: Ending, stage: Stage, *, chance: float, now: datetime, gate: GateView = FLOWING
) -> Decision:
    """What to do about an ended attempt: the pure half of the walk."""
    claim, policy = ending.claim, ending.policy or stage.policy
    verdict = classify(ending.outcome, now=now, matches=policy.matches)
    standing = Standing(claim.counters, claim.past, claim.deadline_at)
    return decide(standing, verdict, policy, gate, now, chance)
