"""The walk of an ended attempt, classify → decide → record: settling, the one way it ends.

A finished stage, a crashed worker's job, an overrun one and a job handed back at shutdown all come
through here. Where there is nothing to judge, because a person has cancelled the job or its caller is gone,
the decision goes to `record_of` at once.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from perdure.engine.record import Ending, record_of, wire_of
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.decisions import Decision, Fail, HandOver
from perdure.model.jobs import Capture, Claim, Record
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Outcome, Usage
from perdure.model.states import FailedReason
from perdure.model.verdicts import Verdict
from perdure.rules.classify import classify
from perdure.rules.decide import FLOWING, GateView, Standing, decide


class Finished(Struct, frozen=True, gc=False):
    """A claim and how it ended, as the runner hands it over."""

    claim: Claim
    outcome: Outcome
    elapsed_s: float
    usage: Usage | None = None
    told: Mapping[str, str] | None = None
    captures: tuple[Capture, ...] = ()


class Gates(Protocol):
    """Whoever keeps the gates."""

    def end_call(self, ending: Ending, verdict: Verdict) -> GateView:
        """A call has ended so; how does its gate look now?"""
        ...

    def hear_decision(self, claim: Claim, decision: Decision) -> None:
        """This was decided about it."""
        ...


def settle(
    ending: Ending,
    laid: LaidPipeline,
    stage: Stage,
    *,
    chance: float,
    now: datetime | None = None,
    gates: Gates | None = None,
) -> Record:
    """What the store has to write about an ended attempt.

    ``now`` is the claim's store time plus the time since, unless the store has just told it.
    """
    moment = now or ending.claim.claimed_at + timedelta(seconds=ending.elapsed_s)
    decision = judge(ending, stage, chance=chance, now=moment, gates=gates)
    return record_of(ending, decision, laid, stage)


def judge(
    ending: Ending, stage: Stage, *, chance: float, now: datetime, gates: Gates | None = None
) -> Decision:
    """What to do about an ended attempt. The gate hears first how the call ended, then what was decided."""
    claim, policy = ending.claim, ending.policy or stage.policy
    verdict = classify(
        ending.outcome, now=now, matches=policy.matches, vocabulary=wire_of(ending, stage)
    )
    gate = FLOWING if gates is None else gates.end_call(ending, verdict)
    standing = Standing(claim.counters, claim.past, claim.deadline_at)
    decision = decide(standing, verdict, policy, gate, now, chance)
    if gates is not None:
        gates.hear_decision(claim, decision)
    return decision


def in_time(decision: Decision, deadline_at: datetime | None, now: datetime) -> Decision:
    """The decision of a call; no job is handed over to be found expired: no worker may be there to find it."""
    if not isinstance(decision, HandOver) or deadline_at is None:
        return decision
    if now + timedelta(seconds=decision.delay_s) < deadline_at:
        return decision
    text = f"fail: the deadline passes before a worker could go on; otherwise: {decision.why.text}"
    why = replace(decision.why, text=text, rule="deadline")
    return Fail(FailedReason.EXPIRED, None, decision.kind or Kind.TIMEOUT, why, decision.hold)


class SeenGates:
    """The gates of a call, and the last view of a gate that they gave."""

    def __init__(self, gates: Gates | None) -> None:
        self._gates = gates
        self.gate = FLOWING

    def end_call(self, ending: Ending, verdict: Verdict) -> GateView:
        if self._gates is not None:
            self.gate = self._gates.end_call(ending, verdict)
        return self.gate

    def hear_decision(self, claim: Claim, decision: Decision) -> None:
        if self._gates is not None:
            self._gates.hear_decision(claim, decision)
