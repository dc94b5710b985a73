"""Judges every store call at the instant of its commit, against the ledger of all earlier ones.

The checker knows what the store may answer, because it has seen everything that was ever committed,
in order. It trusts no count, no flag and no state that the engine or the tables report: it keeps its
own, and compares the tables with them from time to time (`tables.py`).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.engine.stages import Catalogue
from perdure.model.errors import WorkerDead
from perdure.model.events import Event, EventName
from perdure.model.jobs import (
    Claim,
    ClaimOrder,
    Enqueued,
    LostClaim,
    NewJob,
    Overrun,
    Receipt,
    Record,
    Refused,
    Stale,
    Turn,
)
from perdure.model.outcomes import Death
from perdure.model.states import Move, State
from perdure.model.workers import NewWorker, Role
from perdure.rules.policy import HintMode, Policy
from perdure.stores.moments import to_us
from tests.sim.ledger import JobAccount, Ledger, WorkerAccount
from tests.sim.limits import check_limits, counted
from tests.sim.world import World

_MOVES = {
    EventName.JOB_ADVANCED: (Move.ADVANCE, Move.CARRY_ON),
    EventName.JOB_RETRIED: (Move.RETRY,),
    EventName.JOB_RELEASED: (Move.RELEASE,),
    EventName.JOB_SUCCEEDED: (Move.SUCCEED,),
    EventName.JOB_FAILED: (Move.FAIL,),
    EventName.JOB_CANCELLED: (Move.CANCEL,),
}


class Checker:
    """The judge of one world."""

    def __init__(
        self, world: World, catalogue: Catalogue, concurrency: dict[Role, int],
        troubled: Callable[[int], bool],
    ) -> None:  # fmt: skip
        self.ledger = Ledger()
        self._world = world
        self._catalogue = catalogue
        self._concurrency = concurrency
        self._troubled = troubled
        self._owners: dict[tuple[str, int], int] = {}  # (job, token) → the worker that claimed
        self._hung: set[tuple[int, int]] = set()  # (job, token) that was held for too long
        self.moved_us = 0  # when a job was last claimed or settled
        self.overrun_s = math.inf  # how long an attempt may be held beyond its timeout
        self._start_us = to_us(world.clock.now()) - world.now_us

    def committed(
        self, method: str, args: Sequence[Any], kwargs: dict[str, Any], answer: Any
    ) -> None:
        """One call, as the store has just answered it."""
        judge = getattr(self, f"_{method}", None)
        if judge is not None:
            judge(answer, *args, **kwargs)

    def policy(self, job: JobAccount, stage: str) -> Policy:
        """The policy that decides about a stage."""
        found = self._catalogue.stage(job.pipeline, stage)
        assert found is not None
        return found.policy

    def broken(self, invariant: str, text: str) -> None:
        """Say so."""
        self._world.broken(invariant, text)

    # -- callers -------------------------------------------------------------------------

    def _enqueue(
        self, answers: list[Enqueued], jobs: Sequence[NewJob], *, within: object = None
    ) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if job.key is not None:
                first = self.ledger.by_key.setdefault((job.owner, job.pipeline, job.key), answer.id)
                if first != answer.id:
                    self.broken("S12", f"key {job.key!r} is {first} and now {answer.id}")
            if answer.id in self.ledger.by_id:
                continue
            if answer.id != job.id or not answer.created:
                self.broken("S1", f"{answer} was answered for {job.id}, which nobody enqueued")
            due_us = self._world.now_us
            if job.run_at is not None:
                due_us = max(due_us, to_us(job.run_at) - self._start_us)
            account = JobAccount(
                answer.no, answer.id, job.pipeline, job.stage, job.payload_json, due_us
            )
            account.input_json = job.payload_json
            if job.deadline_s is not None:
                account.deadline_us = self._world.now_us + math.ceil(job.deadline_s * 1e6)
            self.ledger.add(account)

    def acknowledged(self, job: NewJob, answer: Enqueued) -> None:
        """A client was told that its job is safe."""
        if answer.id not in self.ledger.by_id:
            self.broken("S1", f"{answer.id} was acknowledged and is in no history")
        if job.key is not None:
            first = self.ledger.by_key[job.owner, job.pipeline, job.key]
            if first != answer.id:
                self.broken("S12", f"key {job.key!r}: told {answer.id}, it is {first}")

    def cancelled(self, job_id: str) -> None:
        """An operator was told that a job is cancelled."""
        job = self.ledger.by_id[job_id]
        if job.state is not State.CANCELLED:
            self.broken("S2", f"#{job.no} is {job.state.value} after its cancel was acknowledged")

    def began(self, job_id: str, token: int, worker: int) -> None:
        """A stage has begun to run."""
        if self._owners.get((job_id, token)) != worker:
            self.broken("E3", f"worker {worker} runs {job_id}/{token}, which it never claimed")
        if self.ledger.runs.setdefault((job_id, token), 0):
            self.broken("E3", f"worker {worker} runs {job_id}/{token} a second time")
        self.ledger.runs[job_id, token] += 1

    def told(self, event: Event) -> None:
        """An observer was told something."""
        moves = _MOVES.get(event.name)
        if moves is None:
            return
        job = self.ledger.by_id[str(event.fields["job_id"])]
        number, stage = event.fields["attempt"], event.fields["stage"]
        for record in job.settled.values():
            attempt = record.attempt
            same = attempt is None or (attempt.number, attempt.stage) == (number, stage)
            if record.move in moves and same:
                return
        self.broken("E2", f"{event.name} was told of #{job.no}, attempt {number} of {stage}")

    # -- the turn ------------------------------------------------------------------------

    def _turn(
        self, answer: Turn | WorkerDead, records: Sequence[Record], order: ClaimOrder | None,
        *, by: int | None,
    ) -> None:  # fmt: skip
        dead = by is not None and self.ledger.workers[by].death is not None
        if isinstance(answer, WorkerDead):
            if not dead:
                self.broken("E1", f"worker {by} was told that it is dead, which it is not")
            self._world.seen["turns of dead workers refused"] += 1
            self._world.seen["late results refused: worker dead"] += len(records)
            return
        if dead:
            self.broken("S4", f"worker {by} is dead and its turn was accepted")
        answers = {one.no: one for one in answer.settled}
        for record in records:
            self._settle(record, answers[record.no], by)
        for claim in answer.claims:
            assert order is not None
            self._claim(claim, order.worker)
        if (
            by is not None
            and len(self.ledger.workers[by].held) > self.ledger.workers[by].concurrency
        ):
            self.broken("S10", f"worker {by} holds {len(self.ledger.workers[by].held)} jobs")

    def _settle(self, record: Record, answer: Receipt | Stale | Refused, by: int | None) -> None:
        job = self.ledger.jobs[record.no]
        match answer:
            case Refused():
                self.broken("E1", f"#{record.no}/{record.token} was refused: {answer.reason}")
            case Stale():
                if job.token == record.token:
                    self.broken("S3", f"#{job.no}/{record.token} was refused under its own token")
                self._world.seen["late results refused: stale"] += 1
            case Receipt(repeated=True):
                self._repeated(job, record)
            case Receipt():
                self._accepted(job, record, answer, by)

    def _repeated(self, job: JobAccount, record: Record) -> None:
        """The answer to a record that was sent before must be about that record."""
        self._world.seen["answers given again"] += 1
        before = job.settled.get(record.token)
        if before is None or (before.move, before.state) != (record.move, record.state):
            was = "nothing" if before is None else before.move.value
            self.broken(
                "S3",
                f"{record.move.value} of #{job.no}/{record.token} was answered as written, "
                f"but what was written is {was}",
            )

    def _accepted(self, job: JobAccount, record: Record, answer: Receipt, by: int | None) -> None:
        attempt = record.attempt
        rescue = by is not None and attempt is not None and attempt.worker != by
        expiry = attempt is None and record.move is Move.FAIL
        what = f"{record.move.value} of #{job.no}/{record.token}"
        if expiry:
            self._check_expiry(job, what)
        hung = (
            (rescue or by is None)
            and (job.no, record.token) in self._hung
            and record.error_kind == "timeout"
        )
        self._world.seen["attempts ended past their hard deadline"] += hung
        if (
            rescue
            and not hung
            and (job.holder is None or self.ledger.workers[job.holder].death is None)
        ):
            self.broken("S5", f"{what} by worker {by}: it is {job.state}, held by {job.holder}")
        if record.token != job.token:
            self.broken("S3", f"{what} was written, the latest token is {job.token}")
        if not (rescue or expiry) and by not in (None, job.holder):
            self.broken("S3", f"{what} was written by {by}, the holder is {job.holder}")
        if job.terminal:
            self.broken("S2", f"{what} was written to a job that is {job.state}")
        if by is None and record.move is not Move.CANCEL and not hung:
            self.broken("S3", f"{what} was written by nobody")
        if attempt is not None:
            death = self._death(job, rescue and not hung)
            what_counts = counted(record, self.policy(job, attempt.stage), death)
            check_limits(self, job, record, what_counts)
        self._apply(job, record, by)
        if record.reclaim:
            if answer.claim is None:
                self.broken("E3", f"{what} claimed the next stage and did not say so")
            self._claim(answer.claim, by)

    def _check_expiry(self, job: JobAccount, what: str) -> None:
        """Only a job that waits ends without an attempt, and only after its deadline."""
        if job.holder is not None:
            self.broken("S5", f"{what} as expired: it is held by {job.holder}")
        if job.deadline_us is None or self._world.now_us < job.deadline_us:
            self.broken("S9", f"{what} as expired before its deadline, {job.deadline_us}")
        self._world.seen["waiting jobs expired"] += 1

    def _overrun(
        self, found: Sequence[Overrun], limits_s: Mapping[int, float], *, limit: int
    ) -> None:
        """What hangs in the hands of the living, and for longer than it may be held."""
        for one in found:
            job, worker = self.ledger.jobs[one.claim.no], self.ledger.workers[one.worker]
            held_s = (self._world.now_us - job.claimed_us) / 1e6
            stage = self._catalogue.stage(job.pipeline, job.stage)
            assert stage is not None
            if worker.death is not None or worker.held.get(job.no) != one.claim.token:
                self.broken("S5", f"#{job.no}/{one.claim.token} was called overrun, it is not held")
            if held_s <= stage.timeout_s + self.overrun_s:
                self.broken("S5", f"#{job.no}/{one.claim.token} was overrun after {held_s:g} s")
            self._hung.add((job.no, one.claim.token))

    def _death(self, job: JobAccount, rescue: bool) -> Death | None:
        return self.ledger.workers[job.holder].death if rescue and job.holder else None

    def _apply(self, job: JobAccount, record: Record, by: int | None) -> None:
        now_us = self.moved_us = self._world.now_us
        if job.holder is not None:
            del self.ledger.workers[job.holder].held[job.no]
            job.holder = None
        job.settled[record.token] = record
        job.token += 1
        job.state = State.QUEUED if record.reclaim else record.state
        job.stage, job.isolation = record.stage, record.isolation
        job.result_json = record.result_json
        if record.delay_s is not None:
            job.due_us = now_us + math.ceil(record.delay_s * 1e6 - 1e-3)
        if record.checkpoint_stage is not None and record.checkpoint_json is not None:
            if record.checkpoint_stage in job.done:
                self.broken("S14", f"#{job.no}: stage {record.checkpoint_stage} is done again")
            job.done[record.checkpoint_stage] = record.checkpoint_json
            job.input_json = record.checkpoint_json
        if record.attempt is not None and record.move is Move.RETRY:
            hint_s = self._hint_s(job, record)
            job.due_us = max(job.due_us, now_us + math.ceil(hint_s * 1e6))

    def _hint_s(self, job: JobAccount, record: Record) -> float:
        """What the other side asked for, read from the evidence, unless the policy ignores it."""
        assert record.attempt is not None
        policy = self.policy(job, record.attempt.stage)
        evidence = json.loads(record.attempt.evidence_json or "{}")
        if policy.hint.mode is HintMode.IGNORE or "names" not in evidence:
            return 0.0
        headers = dict(evidence.get("headers") or ())
        asked = evidence.get("wait_s")
        return float(headers.get("retry-after", 0.0) if asked is None else asked)

    def _claim(self, claim: Claim, worker: int | None) -> None:
        assert worker is not None
        job, holder = self.ledger.jobs[claim.no], self.ledger.workers[worker]
        what = f"#{job.no}/{claim.token} was claimed by worker {worker}"
        if job.state is not State.QUEUED:
            self.broken("S2" if job.terminal else "S5", f"{what}, it is {job.state.value}")
        if claim.token != job.token + 1:
            self.broken("S3", f"{what}, the latest token is {job.token}")
        if claim.stage in job.done or claim.stage != job.stage:
            self.broken("S14", f"{what} for {claim.stage}; done: {list(job.done)}, at {job.stage}")
        if claim.input_json != job.input_json or claim.payload_json != job.payload_json:
            self.broken("S14", f"{what} with the input {claim.input_json}, not {job.input_json}")
        if self._world.now_us < job.due_us:
            early_s = (job.due_us - self._world.now_us) / 1e6
            self.broken("S9", f"{what}, {early_s:g} s too early")
        if not claim.isolation == job.isolation == holder.registered.role.isolation:
            self.broken("S8", f"{what} ({holder.registered.role}), it is at {job.isolation}")
        self.moved_us = self._world.now_us
        job.state, job.token, job.holder = State.PROCESSING, claim.token, worker
        job.claimed_us = self._world.now_us
        job.count("starts", claim.stage)
        holder.held[job.no] = claim.token
        self._owners[job.id, claim.token] = worker

    # -- workers -------------------------------------------------------------------------

    def _add_worker(self, no: int, worker: NewWorker) -> None:
        self.ledger.workers[no] = WorkerAccount(
            no, worker, self._concurrency[worker.role], self._world.now_us
        )

    def _beat(self, accepted: frozenset[int], workers: Sequence[int]) -> None:
        for no in workers:
            worker = self.ledger.workers[no]
            if no in accepted and worker.death is not None:
                self.broken("S4", f"a beat of worker {no} was accepted, it is dead")
            if no not in accepted and worker.death is None:
                self.broken("E1", f"a beat of worker {no} was refused, it is alive")
            if no in accepted:
                worker.beat_us, worker.excused = self._world.now_us, self._troubled(no)
            else:
                self._world.seen["beats refused"] += 1

    def _mark_dead(self, dead: Sequence[int], *, by: int) -> None:
        judge = self.ledger.workers[by]
        for no in dead:
            worker = self.ledger.workers[no]
            silent_us = self._world.now_us - worker.beat_us
            what = f"worker {by} declared worker {no} dead after {silent_us / 1e6:g} s of silence"
            if worker.death is not None or judge.death is not None:
                self.broken("S6", f"{what}; one of them was dead already")
            if silent_us <= worker.ttl_us:
                self.broken("S6", f"{what}; its lease is {worker.ttl_us / 1e6:g} s")
            if not worker.excused:
                self.broken("S6", f"{what}; it was well, only the store was away")
            self._world.seen["workers declared dead"] += 1
            worker.die(Death("silent"))

    def _end_worker(self, done: bool, worker: int, death: Death) -> None:
        account = self.ledger.workers[worker]
        if done != (account.death is None):
            self.broken("S4", f"the end of worker {worker} was news: {done}, known {account.death}")
        if done:
            self._world.seen["deaths reported"] += 1
            if death.exit_status == 0 and account.held:
                self.broken("L6", f"worker {worker} left holding {sorted(account.held)}")
            account.die(death)

    def _lost(
        self, lost: list[LostClaim], *, limit: int, lanes: Sequence[int] | None = None
    ) -> None:
        for one in lost:
            worker = self.ledger.workers[one.worker]
            if worker.death is None or worker.held.get(one.claim.no) != one.claim.token:
                self.broken("S5", f"#{one.claim.no}/{one.claim.token} was called lost")
        self._world.seen["claims found lost"] += len(lost)

    def _held(self, held: dict[int, int], worker: int) -> None:
        if held != self.ledger.workers[worker].held:
            self.broken("S15", f"worker {worker} holds {self.ledger.workers[worker].held}: {held}")

    def _claims_held(self, claims: list[Claim], worker: int) -> None:
        self._held({claim.no: claim.token for claim in claims}, worker)
