"""A call: a pipeline that runs now, in its caller's process, while somebody waits for it.

Always true:

* A call is a job like any other, begun as `processing` under a row of the caller's own in `workers`.
  Every try is an attempt row, every write shows the token, and every end goes through the walk.
* While the caller waits, the policy of the call judges. It may try again here, after a pause of its
  own, and only while that fits into what is left of the wait; a rate limit is never waited for, nor
  is a gate that is held. Everything else that would be tried again is handed over: queued, due when
  the upstream said, under the stage's own policy, with counters from zero.
* Finished stages are checkpointed as ever, so a job that is handed over goes on where it stands.

Who is authoritative: the store. The caller is told that a job is done, failed or handed over only
after that is durable. If its last record may or may not have been written, it is told just that.

What may happen at once: a person cancels the job, or the upkeep takes it because its limit has
passed. Then our record is stale, nothing of it is written, and we tell what the store says.

If we die on any line: before `begin` has committed there is nothing. After it the job is held by a
row for which nobody beats, and its hard limit passes: whoever does the upkeep settles it as the
caller wished (`upkeep/left_callers.py`).

Each method of `Call` is one step and one trade with the store; who runs the stages, pauses and
keeps the time between the steps is not its business. After a `StoreUnavailable` from a step, the
same record is sent again with `resend`.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from msgspec import Struct

from perdure.engine.attempt.captures import CaptureFactory
from perdure.engine.attempt.completion import Completion, Completions, as_it_ended
from perdure.engine.observe import Observers
from perdure.engine.operate.closed_lanes import why_closed
from perdure.engine.record import Ending, in_place, outcome_of_refusal, record_of
from perdure.engine.settle import Finished, Gates, SeenGates, in_time, judge, settle
from perdure.engine.stages import LaidPipeline, Stage
from perdure.model.decisions import CancelJob, Counted, Decision, HandOver, Retry, Why
from perdure.model.errors import BugError, StoreBusy, StoreError, UnknownName
from perdure.model.jobs import (
    Busy,
    Capture,
    Claim,
    Enqueued,
    NewJob,
    OnLost,
    Receipt,
    Record,
    RecordRefused,
    Settled,
)
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Interrupted, Outcome, Revoked, TimedOut, Usage
from perdure.model.states import TERMINAL, FailedReason, Move, State
from perdure.ports import Clock, Reader, Store
from perdure.rules.decide import GateView
from perdure.rules.policy import Policy
from perdure.rules.sentence import seconds

HARD_MORE_S = 15.0  # beyond the wait: stopping the stage and a slow record both fit in
_LIMITED = (Kind.RATE_LIMITED, Kind.QUOTA_WINDOW)


class CallTerms(Struct, frozen=True):
    """What a caller asks for; ``named`` is whether it chose the policy, or left it at the default."""

    policy: Policy
    wait_s: float
    on_lost: OnLost = OnLost.HAND_OVER
    named: bool = True


class Try(Struct, frozen=True):
    """The next step of a call: run this stage, after a pause."""

    claim: Claim
    stage: Stage
    pause_s: float = 0.0


class Over(Struct, frozen=True):
    """A call has ended: what is durable about its job, and why in one sentence.

    ``created`` is False when the key belonged to an earlier job, which this is then.
    """

    job_id: str
    state: State
    why: str
    created: bool = True
    handed_over: bool = False
    due_in_s: float | None = None
    result_json: str | None = None
    failed_reason: FailedReason | None = None
    error_kind: str | None = None
    error_code: str | None = None
    error_message: str | None = None


Step = Try | Over


class Call:
    """One call, step by step."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        laid: LaidPipeline,
        job: NewJob,
        terms: CallTerms,
        *,
        worker: int,
        clock: Clock,
        chance: Random,
        observers: Observers,
        began_s: float | None = None,
        gates: Callable[[Stage], Gates | None] = lambda _: None,
    ) -> None:
        self._store = store
        self._reader = reader
        self._laid = laid
        self._job = job
        self._terms = terms
        self._worker = worker
        self._clock = clock
        self._chance = chance
        self._observers = observers
        self._gates = gates
        self._began_s = clock.monotonic() if began_s is None else began_s
        self._retries = 0
        self._claim: Claim
        self._taken_s = 0.0
        self._record: Record
        self._usage: Usage | None = None
        self._pause_s = 0.0
        self._why = ""
        self._completions: Completions | None = None

    @property
    def left_s(self) -> float:
        """How much of the wait is left."""
        return self._terms.wait_s - (self._clock.monotonic() - self._began_s)

    def begin(self) -> Step:
        """Have the job accepted, in our hands; or find the one that has the key."""
        hard_s = self._terms.wait_s + HARD_MORE_S
        answer = self._store.begin(
            self._job, worker=self._worker, hard_s=hard_s, on_lost=self._terms.on_lost
        )
        if isinstance(answer, Claim):
            self._tell_accepted(Enqueued(answer.id, answer.no, True))
            return self._take(answer, 0.0)
        self._tell_accepted(answer)
        if answer.created:
            why = self._why_closed(self._job.stage, self._job.lane)
            return self._look_up(answer.id, why, created=True)
        why = f"the key {self._job.key!r} belongs to job {answer.id}"
        return self._look_up(answer.id, why, created=False)

    def end_stage(
        self,
        outcome: Outcome,
        elapsed_s: float,
        usage: Usage | None = None,
        captures: tuple[Capture, ...] = (),
    ) -> Step:
        """The stage has ended; settle that, and see what comes next."""
        stage = self._stage()
        if self._completes_itself:
            outcome = as_it_ended(outcome)
        ending = self._ending(outcome, elapsed_s, usage, captures, carry_on=self.left_s > 0)
        seen, chance = SeenGates(self._gates(stage)), self._chance.random()
        decision = judge(ending, stage, chance=chance, now=self._now(), gates=seen)
        return self._settle(ending, self._decide_here(decision, seen.gate))

    def end_wait(
        self, elapsed_s: float = 0.0, usage: Usage | None = None, captures: tuple[Capture, ...] = ()
    ) -> Step:
        """The wait is over, and the stage was stopped or never begun: a worker goes on."""
        wait = seconds(self._terms.wait_s)
        text = f"hand over to a durable job: the caller's wait of {wait} is over"
        ending = self._ending(TimedOut(elapsed_s), elapsed_s, usage, captures)
        return self._settle(ending, HandOver(0.0, Kind.TIMEOUT, self._because(text, "wait_s")))

    def leave(self, elapsed_s: float = 0.0, usage: Usage | None = None) -> Step:
        """The caller has gone while it waited: a worker goes on, or nobody does."""
        reason = "the caller has gone"
        if self._terms.on_lost is OnLost.DROP:
            why = self._because(f"cancelled ({reason})", "on_lost")
            return self._settle(self._ending(Revoked(reason), elapsed_s, usage), CancelJob(why))
        why = self._because(f"hand over to a durable job: {reason}", "on_lost")
        ending = self._ending(Interrupted(reason), elapsed_s, usage)
        return self._settle(ending, HandOver(0.0, None, why))

    def completion(
        self, claim: Claim, began_s: float, capture_factory: CaptureFactory
    ) -> Completion:
        """What the notes of a try need, so that its stage may write its record itself."""
        if self._completions is None:
            self._completions = Completions(
                self._store,
                self._worker,
                make=self._success_record,
                capture_factory=capture_factory,
                clock=self._clock,
            )
        return self._completions.of(claim, began_s)

    def resend(self) -> Step:
        """Send the last record again, after an answer that did not come."""
        return self._send()

    # -- judging ------------------------------------------------------------------------------

    def _decide_here(self, decision: Decision, gate: GateView) -> Decision:
        """The decision; a retry that is not waited for here is handed over."""
        if not isinstance(decision, Retry):
            return decision
        why_not = self._why_not_here(decision, gate)
        if why_not is None:
            return decision
        text = f"hand over to a durable job: {why_not}; otherwise: {decision.why.text}"
        why = replace(decision.why, text=text)
        return HandOver(decision.delay_s, decision.kind, why, decision.hold, hinted=decision.hinted)

    def _now(self) -> datetime:
        """The store's time, by our own clock since the claim."""
        since = timedelta(seconds=self._clock.monotonic() - self._taken_s)
        return self._claim.claimed_at + since

    def _why_not_here(self, retry: Retry, gate: GateView) -> str | None:
        if gate.state != "flowing":
            return f"the upstream's gate is {gate.state}"
        if retry.kind in _LIMITED:
            return "a rate limit is not waited for here"
        if retry.counted is not Counted.FAILURES:
            return "such a wait belongs in the queue"
        if self._retries >= self._terms.policy.attempts_max - 1:
            return "the call has been tried again already"
        left_s = self.left_s
        if retry.delay_s >= left_s:
            left = seconds(max(0.0, left_s))
            return f"waiting {seconds(retry.delay_s)} is too long with {left} left"
        return None

    def _because(self, text: str, rule: str) -> Why:
        return Why(text, rule, self._terms.policy.label)

    def _ending(
        self,
        outcome: Outcome,
        elapsed_s: float,
        usage: Usage | None = None,
        captures: tuple[Capture, ...] = (),
        *,
        carry_on: bool = False,
    ) -> Ending:
        self._usage = usage
        one = Finished(self._claim, outcome, elapsed_s, usage, captures=captures)
        return self._ending_of(one, carry_on=carry_on)

    def _ending_of(self, one: Finished, *, carry_on: bool = False) -> Ending:
        return Ending(
            one.claim,
            one.outcome,
            one.elapsed_s,
            self._worker,
            carry_on,
            policy=self._terms.policy,
            named=self._terms.named,
            usage=one.usage,
            captures=one.captures,
        )

    def _stage(self) -> Stage:
        stage = self._laid.stage(self._claim.stage)
        if stage is None:
            raise BugError(f"a call is at stage {self._claim.stage!r}, which is not its pipeline's")
        return stage

    # -- a stage that writes its record itself ------------------------------------------------

    @property
    def _completes_itself(self) -> bool:
        return self._completions is not None and self._completions.has_asked(self._claim)

    def _success_record(self, one: Finished) -> Record:
        """What there is to write about a success, on the stage's own thread."""
        return settle(self._ending_of(one), self._laid, self._stage(), chance=0.0)

    def _send_apart(self, completions: Completions) -> Step:
        """What is stored decides; what was to be sent is only written if the stage has written nothing."""
        sent = self._record
        completions.add(Finished(self._claim, Interrupted(), 0.0))
        for record, answer in completions.once(lambda _: sent, leaving=False):
            if isinstance(answer, Busy):
                break
            if record is not sent:
                self._record = record
                self._why = f"stage {self._claim.stage!r} has completed its job itself"
            self._observers.tell_settled(record, answer)
            return self._next_step(answer)
        raise StoreBusy(
            f"the transaction in which stage {self._claim.stage!r} of job {self._claim.id} called complete() is "
            "still open; commit it or roll it back"
        )

    # -- trading with the store ---------------------------------------------------------------

    def _settle(self, ending: Ending, decision: Decision) -> Step:
        decision = in_time(decision, self._claim.deadline_at, self._now())
        record = record_of(ending, decision, self._laid, self._stage())
        self._pause_s = 0.0
        if isinstance(decision, Retry):
            record, self._pause_s = in_place(record), decision.delay_s
        self._record, self._why = record, decision.why.text
        return self._send()

    def _send(self) -> Step:
        if self._completions is not None and self._completes_itself:
            return self._send_apart(self._completions)
        (answer,) = self._store.turn([self._record], None, by=self._worker).settled
        if isinstance(answer, RecordRefused) and not self._is_refusal():
            outcome = outcome_of_refusal(self._record, answer.reason)
            return self.end_stage(outcome, 0.0, self._usage, self._record.captures)
        self._observers.tell_settled(self._record, answer)
        return self._next_step(answer)

    def _is_refusal(self) -> bool:
        return self._record.attempt is not None and self._record.attempt.kind == Kind.INTERNAL

    def _next_step(self, answer: Settled) -> Step:
        if isinstance(answer, RecordRefused):
            raise StoreError(f"the store cannot write the end of job {answer.id}: {answer.reason}")
        if not isinstance(answer, Receipt):
            return self._look_up(answer.id, "another hand has taken the job", created=True)
        if answer.claim is not None:
            self._retries += self._record.move is Move.REPEAT
            return self._take(answer.claim, self._pause_s)
        if answer.state is State.PROCESSING:
            return self._look_up(answer.id, "another hand has taken the job", created=True)
        return self._end_of(answer)

    def _tell_accepted(self, answer: Enqueued) -> None:
        job, name = self._job, self._laid.name
        self._observers.tell_enqueued(name, [answer], request_id=job.request_id, owner=job.owner)

    def _take(self, claim: Claim, pause_s: float) -> Step:
        self._claim = claim
        self._taken_s = self._clock.monotonic()
        self._observers.tell_claimed(claim, self._worker)
        if claim.damage is not None:
            text = f"hand over to a durable job: the stored job is damaged, {claim.damage}"
            why = self._because(text, "damage")
            ending = self._ending(Interrupted("damage", begun=False), 0.0)
            return self._settle(ending, HandOver(0.0, Kind.INPUT_INVALID, why))
        return Try(claim, self._stage(), pause_s)

    def _end_of(self, receipt: Receipt) -> Over:
        record = self._record
        queued = receipt.state is State.QUEUED
        return Over(
            record.id,
            receipt.state,
            self._why_queued(record) if queued else self._why,
            handed_over=queued,
            due_in_s=(record.delay_s or 0.0) if queued else None,
            result_json=record.result_json,
            failed_reason=record.failed_reason,
            error_kind=record.error_kind,
            error_code=record.error_code,
            error_message=record.error_message,
        )

    def _why_queued(self, record: Record) -> str:
        if record.reclaim:
            return self._why_closed(record.stage, record.lane)
        if record.move is Move.ADVANCE and self.left_s > 0:
            return f"handed over: {self._why}, and a worker goes on with stage {record.stage!r}"
        if record.move is Move.ADVANCE:
            wait = seconds(self._terms.wait_s)
            return f"handed over: the caller's wait of {wait} is over before stage {record.stage!r}"
        return self._why

    def _why_closed(self, stage: str, lane: int) -> str:
        closed = why_closed(self._reader, lane) or "its lane was closed"
        return f"handed over: stage {stage!r} may not begin now, {closed}"

    def _look_up(self, job_id: str, why: str, *, created: bool) -> Over:
        """What the store says of a job that is not in our hands."""
        job = self._reader.job(job_id)
        if job is None:
            raise UnknownName(f"job {job_id} is no longer in the store")
        ours = created and job.state not in TERMINAL
        return Over(
            job_id,
            job.state,
            f"{why}; it is {job.shown_state}",
            created=created,
            handed_over=ours,
            result_json=job.result_json,
            failed_reason=job.failed_reason,
            error_kind=job.error_kind,
            error_code=job.error_code,
            error_message=job.error_message,
        )
