"""Judges every store call at the instant of its commit, against the ledger of all earlier ones.

The checker knows what the store may answer, because it has seen everything that was ever committed,
in order. It trusts no count, no flag and no state that the engine or the tables report: it keeps its
own, and compares the tables with them from time to time (`tables.py`). Here are callers, turns and claims;
what is said of workers is judged in `roster.py`, what operators and the upkeep do in `deeds.py`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.engine.stages import Catalogue
from perdure.model.errors import WorkerDead
from perdure.model.events import Event, EventName
from perdure.model.jobs import (
    Claim,
    ClaimOrder,
    Enqueued,
    IfFailed,
    NewJob,
    OnLost,
    Receipt,
    Record,
    RecordRefused,
    Settled,
    Stale,
    Turn,
)
from perdure.model.outcomes import Death
from perdure.model.states import AttemptStatus, Move, State
from perdure.model.workers import Role
from perdure.rules.policy import Policy
from perdure.stores.moments import to_us
from tests.sim.deeds import Deeds
from tests.sim.following import Feed
from tests.sim.gates import Gates
from tests.sim.ledger import JobAccount, Ledger
from tests.sim.letters import Letters
from tests.sim.limits import check_limits, counted, hint_s
from tests.sim.roster import Roster
from tests.sim.runs import Runs
from tests.sim.world import World

_MOVES = {
    EventName.JOB_ADVANCED: (Move.ADVANCE, Move.CARRY_ON),
    EventName.JOB_RETRIED: (Move.RETRY, Move.REPEAT),
    EventName.JOB_RELEASED: (Move.RELEASE,),
    EventName.JOB_SUCCEEDED: (Move.SUCCEED,),
    EventName.JOB_FAILED: (Move.FAIL,),
    EventName.JOB_CANCELLED: (Move.CANCEL,),
}


class Checker:
    """The judge of one world."""

    def __init__(
        self,
        world: World,
        catalogue: Catalogue,
        concurrency: dict[Role, int],
        troubled: Callable[[int], bool],
    ) -> None:
        self.ledger = Ledger()
        self.world = world
        self.catalogue = catalogue
        self.speaker = ""  # whose call is being judged
        self.call_policy: Policy | None = None
        self.deeds = Deeds(self)
        self.runs = Runs(self)
        self.letters = Letters(self)
        self.roster = Roster(self, concurrency, troubled)
        self.gates = Gates(self)
        self.feed = Feed(self)
        self._owners: dict[tuple[str, int], int] = {}  # (job, token) → the worker that claimed
        self.hung: set[tuple[int, int]] = set()  # (job, token) that was held for too long
        self.told_busy: set[tuple[int, int, int]] = set()  # (worker, job, token) left open
        self.bulk_busy: Counter[tuple[int, int]] = Counter()  # (bulk, job) that it met held
        self.apart: set[tuple[str, int]] = set()  # (job, token) whose stage has sent its record
        self._completed: set[tuple[int, int]] = set()  # (job, token) whose stage wrote the record
        self.moved_us = 0  # when a job was last claimed or settled
        self.overrun_s = math.inf  # how long an attempt may be held beyond its timeout
        self.start_us = to_us(world.clock.now()) - world.now_us

    def committed(
        self, method: str, args: Sequence[Any], kwargs: dict[str, Any], answer: Any
    ) -> None:
        """One call, as the store has just answered it."""
        for judges in (
            self,
            self.roster,
            self.deeds,
            self.gates,
            self.runs,
            self.letters,
            self.feed,
        ):
            judge = getattr(judges, f"_{method}", None)
            if judge is not None:
                judge(answer, *args, **kwargs)

    def policy(self, job: JobAccount, record: Record) -> Policy:
        """The policy that decides about an attempt: the stage's, or that of a call."""
        assert record.attempt is not None
        if self.call_policy is not None and record.attempt.policy == self.call_policy.label:
            return self.call_policy
        found = self.catalogue.stage(job.pipeline, record.attempt.stage)
        assert found is not None
        return found.policy

    def broken(self, invariant: str, text: str) -> None:
        """Say so."""
        self.world.broken(invariant, text)

    # -- callers -------------------------------------------------------------------------

    def _enqueue(
        self, answers: list[Enqueued], jobs: Sequence[NewJob], *, within: object = None
    ) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            self._answered(job, answer)

    def _answered(self, job: NewJob, answer: Enqueued) -> None:
        """A job is new, or it is the one that had the id or the key before."""
        if job.key is not None:
            place = (job.owner, job.pipeline, job.run, job.key)
            first = self.ledger.by_key.get(place, answer.id)
            if first != answer.id:
                self.broken("S12", f"key {job.key!r} is {first} and now {answer.id}")
        known = self.ledger.by_id.get(answer.id)
        if known is None or known.pruned:
            self.accepted_new(job, answer)
            return
        wanted = job.if_failed is IfFailed.RETRY and not answer.created
        if answer.revived != (wanted and self.runs.may_live(known)):
            self.broken("S2", f"#{known.no} is {known.state}, a new life was begun: {answer}")
        if answer.revived:
            self.deeds.revived(known, known.stage, known.input_json)

    def accepted_new(self, job: NewJob, answer: Enqueued) -> JobAccount:
        """A job was accepted."""
        if answer.id != job.id or not answer.created or answer.no in self.ledger.jobs:
            self.broken("S1", f"{answer} was answered for {job.id}, which nobody enqueued")
        due_us = now_us = self.world.now_us
        if job.run_at is not None:
            due_us = max(due_us, to_us(job.run_at) - self.start_us)
        total_s = job.policies_s if job.deadline_s is None else job.deadline_s
        account = JobAccount(
            answer.no,
            answer.id,
            job.pipeline,
            job.stage,
            job.payload_json,
            due_us,
            due_us,
            owner=job.owner,
            key=job.key,
            enqueued_us=now_us,
            input_json=job.payload_json,
            deadline_s=total_s,
            again=answer.id in self.ledger.by_id,
            run=job.run,
            lane=job.lane,
        )
        if total_s is not None:
            account.deadline_us = due_us + math.ceil(total_s * 1e6)
        self.ledger.add(account)
        self.runs.came_in(account)
        return account

    def _begin(
        self, answer: Claim | Enqueued, job: NewJob, *, worker: int, hard_s: float, on_lost: OnLost
    ) -> None:
        """A caller's own job, in its hands at once; or queued where its lane is closed."""
        if isinstance(answer, Enqueued):
            fresh = answer.id not in self.ledger.by_id or self.ledger.by_id[answer.id].pruned
            if fresh and not self._closed(job.pipeline, job.stage, None):
                self.broken("E5", f"{answer.id} was queued, and its lane is open")
            self._answered(job, answer)
            return
        known = self.ledger.by_id.get(answer.id)
        if known is not None and not known.pruned:  # sent again
            if (known.holder, known.token) != (worker, answer.token):
                self.broken("S5", f"#{known.no} was begun by {worker}: {known.holder} has it")
            return
        account = self.accepted_new(job, Enqueued(answer.id, answer.no, True))
        account.hard_us = self.world.now_us + math.ceil(hard_s * 1e6)
        account.on_lost = on_lost
        self._claim(answer, worker)

    def acknowledged(self, job: NewJob, answer: Enqueued) -> None:
        """A client was told that its job is safe."""
        known = self.ledger.by_id.get(answer.id)
        if known is None:
            self.broken("S1", f"{answer.id} was acknowledged and is in no history")
        assert known is not None
        if job.key is not None and not known.pruned:
            first = self.ledger.by_key[job.owner, job.pipeline, job.run, job.key]
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
        no = self.ledger.by_id[
            job_id
        ].no  # an id that is sent again when its job is pruned is another job's
        if (no, token) in self.ledger.begun:
            self.broken("E3", f"worker {worker} runs #{no}/{token} a second time")
        self.ledger.begun.add((no, token))

    def told(self, event: Event) -> None:
        """An observer was told something."""
        self.deeds.told(event)
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
        if job.again:
            return  # perhaps of the job that had this id before, and is pruned
        self.broken("E2", f"{event.name} was told of #{job.no}, attempt {number} of {stage}")

    # -- the turn ------------------------------------------------------------------------

    def _turn(
        self,
        answer: Turn | WorkerDead,
        records: Sequence[Record],
        order: ClaimOrder | None,
        *,
        by: int | None,
    ) -> None:
        dead = by is not None and self.ledger.workers[by].death is not None
        if isinstance(answer, WorkerDead):
            if not dead:
                self.broken("E1", f"worker {by} was told that it is dead, which it is not")
            self.world.seen["turns of dead workers refused"] += 1
            self.world.seen["late results refused: worker dead"] += len(records)
            return
        if dead:
            self.broken("S4", f"worker {by} is dead and its turn was accepted")
        answers = {one.no: one for one in answer.settled}
        for record in records:
            self.settle(record, answers[record.no], by, asked=order is not None)
        for claim in answer.claims:
            assert order is not None
            self._claim(claim, order.worker)
        if (
            by is not None
            and len(self.ledger.workers[by].held) > self.ledger.workers[by].concurrency
        ):
            self.broken("S10", f"worker {by} holds {len(self.ledger.workers[by].held)} jobs")

    def _settle(
        self, answer: Sequence[Settled] | WorkerDead, records: Sequence[Record], *, by: int | None
    ) -> None:
        """As a turn that claims nothing; a file is held as a whole, so nobody is busy."""
        whole = answer if isinstance(answer, WorkerDead) else Turn(tuple(answer), ())
        self._turn(whole, records, None, by=by)

    def _complete(self, answer: Settled, record: Record, *, by: int) -> None:
        """A stage's own transaction is committed, whatever has been said of its worker since it wrote the record."""
        self._completed.add((record.no, record.token))
        self.settle(record, answer, by, asked=False)

    def busy(self, records: Iterable[Record], kwargs: dict[str, Any]) -> None:
        """Open transactions of their stages hold these jobs, and whoever would settle them is told so."""
        by, step = kwargs.get("by"), kwargs.get("step")
        for one in records:
            self.world.seen["jobs found in an open transaction"] += 1
            if by is not None:
                self.told_busy.add((by, one.no, one.token))
            if step is not None:
                self.bulk_busy[step.no, one.no] += 1

    def told_dead(self, worker: int) -> None:
        """A stage was told that its worker is dead."""
        if self.ledger.workers[worker].death is None:
            self.broken(
                "E1", f"a stage of worker {worker} was told that it is dead, which it is not"
            )

    def settle(
        self,
        record: Record,
        answer: Receipt | Stale | RecordRefused,
        by: int | None,
        *,
        asked: bool,
    ) -> None:
        """One record, as the store has just answered it."""
        job = self.ledger.jobs[record.no]
        match answer:
            case RecordRefused():
                self.broken("E1", f"#{record.no}/{record.token} was refused: {answer.reason}")
            case Stale():
                if job.token == record.token and not job.pruned:
                    self.broken("S3", f"#{job.no}/{record.token} was refused under its own token")
                self.world.seen["late results refused: stale"] += 1
            case Receipt(repeated=True):
                self._repeated(job, record, by)
            case Receipt():
                self.gates.settled(job, record, by, asked=asked)
                self._accepted(job, record, answer, by)

    def _repeated(self, job: JobAccount, record: Record, by: int | None) -> None:
        """The answer to a record that was sent before must be about that record, or its stage wrote that it succeeded.

        Then its worker says how the stage has ended, which does not count; what it tells of it is judged.
        """
        self.world.seen["answers given again"] += 1
        before = job.settled.get(record.token)
        if (job.no, record.token) in self._completed and _is_late_end(record, before, by):
            self.world.seen["late ends of complete attempts"] += 1
            return
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
        returned = self.runs.is_returned(job, record, by)
        expiry = attempt is None and record.move is Move.FAIL and not returned
        what = f"{record.move.value} of #{job.no}/{record.token}"
        if expiry:
            self._check_expiry(job, what)
        hung = (
            (rescue or by is None)
            and (job.no, record.token) in self.hung
            and (record.error_kind == "timeout" or job.on_lost is not None)
        )
        self.world.seen["attempts ended past their hard deadline"] += hung
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
        if by is None and record.move is not Move.CANCEL and not hung and not returned:
            self.broken("S3", f"{what} was written by nobody")
        if attempt is not None:
            death = self._death(job, rescue and not hung)
            if death is not None:
                self.roster.check_rescue(job, what)
            if rescue and job.on_lost is not None:
                self._check_wish(job, record, what)
            probe = self.gates.was_probe(job.id, record.token)
            of_job = self.gates.tells_of_job(job, record.token)
            policy = self.policy(job, record)
            what_counts = counted(record, policy, death, probe=probe, of_job=of_job)
            check_limits(self, job, record, what_counts)
        self._apply(job, record)
        if record.reclaim:
            closed = self._closed(job.pipeline, job.stage, self.runs.of_lane(job))
            if (answer.claim is None) != closed:
                self.broken("E3" if not closed else "E5", f"{what} claims the next stage, and not")
            if answer.claim is not None:
                self._claim(answer.claim, by)
        if job.holder is None:
            job.hard_us = job.on_lost = None

    def _closed(self, pipeline: str, stage: str, run: int | None) -> bool:
        return self.deeds.closed(pipeline, run) or self.gates.closed(stage)

    def _check_wish(self, job: JobAccount, record: Record, what: str) -> None:
        """What a caller has left behind goes on or ends, as it asked."""
        assert record.attempt is not None
        dropped = record.move is Move.CANCEL
        handed = record.attempt.status is AttemptStatus.HANDED_OVER
        if (dropped, handed) != (job.on_lost is OnLost.DROP, job.on_lost is OnLost.HAND_OVER):
            self.broken("E8", f"{what}: its caller wished {job.on_lost}")
        self.world.seen["jobs of lost callers settled"] += 1

    def _check_expiry(self, job: JobAccount, what: str) -> None:
        """Only a job that waits ends without an attempt, and only after its deadline."""
        if job.holder is not None:
            self.broken("S5", f"{what} as expired: it is held by {job.holder}")
        if job.deadline_us is None or self.world.now_us < job.deadline_us:
            self.broken("S9", f"{what} as expired before its deadline, {job.deadline_us}")
        self.world.seen["waiting jobs expired"] += 1

    def _death(self, job: JobAccount, rescue: bool) -> Death | None:
        return self.ledger.workers[job.holder].death if rescue and job.holder else None

    def _apply(self, job: JobAccount, record: Record) -> None:
        now_us = self.moved_us = self.world.now_us
        if job.holder is not None:
            del self.ledger.workers[job.holder].held[job.no]
            job.holder = None
        job.settled[record.token] = record
        job.token += 1
        job.state = State.QUEUED if record.reclaim else record.state
        job.stage, job.isolation = record.stage, record.isolation
        job.lane, job.error_kind = record.lane, record.error_kind
        job.result_json = record.result_json
        job.finished_us = now_us if job.terminal else None
        if record.delay_s is not None:
            job.due_us = now_us + math.ceil(record.delay_s * 1e6 - 1e-3)
        if record.checkpoint_stage is not None and record.checkpoint_json is not None:
            if record.checkpoint_stage in job.done:
                self.broken("S14", f"#{job.no}: stage {record.checkpoint_stage} is done again")
            job.done[record.checkpoint_stage] = record.checkpoint_json
            job.input_json = record.checkpoint_json
        if record.attempt and record.attempt.status is AttemptStatus.HANDED_OVER:
            job.counts.clear()
            self.world.seen["jobs handed over by their callers"] += 1
        if record.attempt is not None and record.move is Move.RETRY:
            probe = record.attempt.counted == "probes"  # then the gate waits as it was told
            asked_s = 0.0 if probe else hint_s(self.policy(job, record), record)
            job.told_us = now_us + math.ceil(asked_s * 1e6)
            job.due_us = max(job.due_us, job.told_us)
        self.runs.settled(job, record)

    def _claim(self, claim: Claim, worker: int | None, probes: str | None = None) -> None:
        assert worker is not None
        job, holder = self.ledger.jobs[claim.no], self.ledger.workers[worker]
        what = f"#{job.no}/{claim.token} was claimed by worker {worker}"
        if job.state is not State.QUEUED:
            self.broken("S2" if job.terminal else "S5", f"{what}, it is {job.state.value}")
        if claim.token != job.token + 1:
            self.broken("S3", f"{what}, the latest token is {job.token}")
        undone = [one for one in self._stages_before(job, claim.stage) if one not in job.done]
        if undone:
            self.broken("S13", f"{what} for {claim.stage}, and {undone} are not done")
        if claim.stage in job.done or claim.stage != job.stage:
            self.broken("S14", f"{what} for {claim.stage}; done: {list(job.done)}, at {job.stage}")
        if claim.input_json != job.input_json or claim.payload_json != job.payload_json:
            self.broken("S14", f"{what} with the input {claim.input_json}, not {job.input_json}")
        self.runs.check_lane(job, claim.lane, what)
        if self.deeds.closed(job.pipeline, self.runs.of_lane(job)):
            self.broken("E5", f"{what}, its lane is closed")
        if self.world.now_us < job.due_us:
            self.broken("S9", f"{what}, {(job.due_us - self.world.now_us) / 1e6:g} s too early")
        if not claim.isolation == job.isolation == holder.registered.role.isolation:
            self.broken("S8", f"{what} ({holder.registered.role}), it is at {job.isolation}")
        self.moved_us = self.world.now_us
        job.state, job.token, job.holder = State.PROCESSING, claim.token, worker
        job.claimed_us = self.world.now_us
        job.count("starts", claim.stage)
        holder.held[job.no] = claim.token
        self._owners[job.id, claim.token] = worker
        self.gates.claimed(job, claim, worker, probes)

    def _stages_before(self, job: JobAccount, stage: str) -> list[str]:
        line = self.catalogue.pipeline(job.pipeline)
        assert line is not None
        names = [one.name for one in line.stages]
        return names[: names.index(stage)]


def _is_late_end(record: Record, written: Record | None, by: int | None) -> bool:
    """Whether this is what a worker makes of the end of an attempt of its own that its stage has completed."""
    if record.attempt is None or written is None or written.attempt is None:
        return False
    done = written.attempt.status is AttemptStatus.SUCCESS is not record.attempt.status
    return done and by == record.attempt.worker == written.attempt.worker
