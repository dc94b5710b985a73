"""One run of a scene by a fleet that works as the engine does, in simulated time, from one seed.

Always true: a job is waiting, in one worker's hands, or ended; nothing else. Every end of a call is
classified and decided by `perdure.rules`; this file draws the chances, moves the clock and counts.
With gates a claim asks them first; without, a worker claims whatever it has slots for.

What may happen at once: nothing; events are taken in order of time, and of their making where times
are equal, so that the same seed gives the same run. A worker learns what others did at its next
turn: when a call of its own ends, when new jobs arrive, or after its poll at the latest.

If a worker is killed: what it knew is gone, its calls come to nothing, and its jobs are settled as
lost when it is back; the gates are the store's and stay as they were, or are new where the scene's
strategy keeps them in memory.
"""

from enum import IntEnum
from heapq import heappop, heappush
from random import Random
from typing import Any

from perdure.model.decisions import (
    CancelJob,
    Counted,
    Decision,
    Fail,
    HandOver,
    Release,
    Retry,
    Succeed,
)
from perdure.model.kinds import KINDS, Blame, Kind, Sign
from perdure.model.outcomes import Death, Lost, Raised, Returned
from perdure.model.verdicts import Failure
from perdure.rules.classify import classify
from perdure.rules.decide import FLOWING, Standing, decide
from perdure.rules.gate.gate import GateSettings
from perdure.rules.gate.signs import word_of
from perdure.rules.policy import Policy
from perdure.simulate.gates import EndedCall, Pass, SimulatedGates
from perdure.simulate.replies import Form, Reply, evidence_of
from perdure.simulate.run_history import RunHistory
from perdure.simulate.scene import Scene, at
from perdure.simulate.upstream import SimulatedUpstream
from perdure.simulate.waiting_line import Job, WaitingLine

_DONE = Returned("null")
_KILLED = Lost(Death("exited", signal="SIGKILL"))
_EARLY_S = 1e-5  # moments are whole microseconds
_REST_S_MIN = 0.001


class _What(IntEnum):
    CALL = 0
    END = 1
    TURN = 2
    ARRIVE = 3
    KILL = 4
    BEGIN = 5
    PERSON = 6


class _Claim:
    """A job in a worker's hands."""

    __slots__ = ("claimed_s", "job", "life", "reply", "sent_s", "ticket", "worker")

    def __init__(self, job: Job, worker: "_Worker", ticket: Pass | None, now_s: float) -> None:
        self.job, self.worker, self.ticket = job, worker, ticket
        self.life, self.claimed_s, self.sent_s = worker.life, now_s, now_s
        self.reply: Reply | None = None


class _Worker:
    """A worker: its free slots, its life (raised when it is killed), its next turn."""

    __slots__ = ("claims", "life", "no", "turn_s", "up")

    def __init__(self, no: int) -> None:
        self.no, self.life, self.turn_s, self.up = no, 0, -1.0, True
        self.claims: set[_Claim] = set()


class Play:
    """A scene, a policy and, where there are gates, their settings; `run` gives the books."""

    def __init__(
        self,
        scene: Scene,
        policy: Policy,
        gate: GateSettings | None,
        seed: int,
        *,
        durable: bool = True,
    ) -> None:
        self._scene, self._policy, self._settings = scene, policy, gate
        self._durable, self._chance = durable, Random(f"fleet {seed}").random
        self.history = RunHistory(jobs=scene.jobs)
        self._upstream = SimulatedUpstream(scene.upstream, seed)
        self._line = WaitingLine(fair=scene.fair)
        self._events: list[tuple[float, int, _What, Any]] = []
        self._made = 0
        self._now_s = 0.0
        self._told = (0.0, 0.0)  # when a pause of all was heard, and until when
        self._left = {
            owner: sum(one.jobs for one in scene.batches if one.owner == owner)
            for owner in {one.owner for one in scene.batches}
        }
        self._gates = self._new_gates()
        self._workers = [_Worker(no) for no in range(scene.fleet.workers)]

    def run(self) -> RunHistory:
        """Everything, until all jobs have ended or time is up."""
        scene = self._scene
        for batch in scene.batches:
            self._at(batch.at_s, _What.ARRIVE, batch)
        for killed_s in scene.killed_s:
            for worker in self._workers:
                self._at(killed_s, _What.KILL, worker)
        for person_s in scene.person_s:
            self._at(person_s, _What.PERSON, None)
        for worker in self._workers:
            self._at(scene.fleet.poll_s * self._chance(), _What.BEGIN, worker)
        events, acts = self._events, self._acts()
        while events and not self._over():
            now_s, _, what, subject = heappop(events)
            if now_s > scene.horizon_s:
                break
            self._now_s = now_s
            acts[what](subject)
        self.history.ended_s = self._now_s
        self.history.limit_per_s = self._upstream.limit_per_s
        return self.history

    def _acts(self) -> dict[_What, Any]:
        return {
            _What.CALL: self._call,
            _What.END: self._end,
            _What.TURN: self._turn_due,
            _What.ARRIVE: self._arrive,
            _What.KILL: self._kill,
            _What.BEGIN: self._begin,
            _What.PERSON: self._person,
        }

    def _over(self) -> bool:
        stop = self._scene.stop_owner
        return self._left[stop] == 0 if stop is not None else not any(self._left.values())

    def _at(self, when_s: float, what: _What, subject: Any) -> None:
        self._made += 1
        heappush(self._events, (when_s, self._made, what, subject))

    def _new_gates(self) -> SimulatedGates | None:
        if self._settings is None:
            return None
        return SimulatedGates(self._settings, self.history, self._scene.fleet)

    # -- what happens to the fleet -------------------------------------------------------------

    def _arrive(self, batch: Any) -> None:
        for _ in range(batch.jobs):
            self._line.arrive(batch.owner, self._now_s)
        self._wake_all()

    def _wake_all(self) -> None:
        for worker in self._workers:
            if worker.up and worker.turn_s >= 0.0:
                self._plan(worker, self._now_s + self._pick_s())

    def _begin(self, worker: _Worker) -> None:
        worker.up = True
        if self._gates is not None:
            self._gates.join(worker.no, self._now_s)
        lost, worker.claims = worker.claims, set()
        for claim in sorted(lost, key=lambda one: one.job.no):
            self._settle(claim, _KILLED)
        self._turn(worker)

    def _kill(self, worker: _Worker) -> None:
        if not worker.up:
            return
        worker.life += 1
        worker.up, worker.turn_s = False, -1.0
        if not self._durable and all(not one.up for one in self._workers):
            self._gates = self._new_gates()
        self._at(self._now_s + self._scene.fleet.restart_s, _What.BEGIN, worker)

    def _person(self, _: None) -> None:
        if self._gates is not None:
            self._gates.release(self._now_s)
            self._told = (0.0, 0.0)
            self._wake_all()

    # -- a turn ------------------------------------------------------------------------------

    def _turn_due(self, subject: tuple[_Worker, float]) -> None:
        worker, turn_s = subject
        if worker.up and worker.turn_s == turn_s:
            self._turn(worker)

    def _turn(self, worker: _Worker) -> None:
        now_s, line, gates = self._now_s, self._line, self._gates
        if self._policy.deadline_s is not None:
            for job in line.take_expired(now_s - self._policy.deadline_s):
                self._give_up(job)
        ready = line.count_ready(now_s)
        free = self._scene.fleet.concurrency - len(worker.claims)
        if gates is None:
            starts = min(free, ready)
        else:
            gates.look(worker.no, now_s)
            if ready and free and gates.probe_wanted(now_s):
                self._take(worker, line.claim_probe(), gates.take_probe(now_s))
                ready, free = ready - 1, free - 1
            starts = min(free, ready, gates.calls_free(worker.no, now_s))
        for _ in range(starts):
            ticket = None if gates is None else gates.admit(worker.no, now_s)
            self._take(worker, line.claim(), ticket)
        self.history.add_look(now_s, len(line))
        self._rest(worker, idle=ready > starts and free > starts)

    def _take(self, worker: _Worker, job: Job, ticket: Pass | None) -> None:
        claim = _Claim(job, worker, ticket, self._now_s)
        worker.claims.add(claim)
        self._at(self._now_s + self._pick_s(), _What.CALL, claim)

    def _pick_s(self) -> float:
        return self._scene.fleet.pick_s * (0.5 + self._chance())

    def _rest(self, worker: _Worker, *, idle: bool) -> None:
        """Until the next turn: a poll, or sooner when something is known to be due."""
        now_s = self._now_s
        rest_s = self._scene.fleet.poll_s
        due_s = self._line.next_due_s()
        if due_s is not None:
            rest_s = min(rest_s, due_s - now_s)
        if self._gates is not None and (idle or not self._gates.flowing):
            known_s = self._gates.rest_s(worker.no, now_s)
            if known_s is not None:
                rest_s = min(rest_s, known_s) if self._gates.flowing else known_s
        self._plan(worker, now_s + max(rest_s, _REST_S_MIN) + 1e-6)

    def _plan(self, worker: _Worker, turn_s: float) -> None:
        worker.turn_s = turn_s
        self._at(turn_s, _What.TURN, (worker, turn_s))

    # -- a call --------------------------------------------------------------------------------

    def _call(self, claim: _Claim) -> None:
        if claim.life != claim.worker.life:
            return
        now_s, job = self._now_s, claim.job
        if job.started_s is None:
            job.started_s = now_s
            self.history.waited_s.setdefault(job.owner, []).append(now_s - job.arrived_s)
        told_at_s, told_until_s = self._told
        by_scope = claim.claimed_s >= told_at_s and now_s < told_until_s - _EARLY_S
        self.history.early += by_scope or now_s < job.told_s - _EARLY_S
        self.history.starts_s.append(now_s)
        claim.sent_s = now_s
        claim.reply = self._upstream.call(now_s)
        defect = self._scene.defect
        if claim.reply.form is Form.OK and defect is not None and defect.strikes(job.no):
            claim.reply = claim.reply._replace(form=defect.form)
        self._at(now_s + claim.reply.took_s, _What.END, claim)

    def _end(self, claim: _Claim) -> None:
        reply = claim.reply
        assert reply is not None
        self.history.add_answer(reply)
        if claim.life != claim.worker.life:
            return
        worker = claim.worker
        worker.claims.discard(claim)
        if reply.form is Form.OK:
            self._settle(claim, _DONE)
        else:
            self._settle(claim, Raised(evidence_of(reply.form, reply.hint_s)))
        self._turn(worker)

    def _settle(self, claim: _Claim, outcome: Returned | Raised | Lost) -> None:
        now, job, gates = at(self._now_s), claim.job, self._gates
        verdict = classify(outcome, now=now)
        word = word_of(verdict)
        view, landed = FLOWING, None
        if gates is not None and claim.ticket is not None:
            hint_s = verdict.hint_s if isinstance(verdict, Failure) else None
            since_s = job.failing_since_s
            landed = EndedCall(
                claim.ticket,
                word,
                hint_s,
                at(claim.sent_s),
                now,
                self._chance(),
                None if since_s is None else at(since_s),
            )
            if word.kind is not Kind.WORKER_LOST or claim.ticket.probes is not None:
                gates.end_call(claim.worker.no, landed, self._now_s)
            view = gates.view(claim.ticket)
        total_s = self._policy.deadline_s
        deadline_at = None if total_s is None else at(job.arrived_s + total_s)
        standing = Standing(job.counters, deadline_at=deadline_at)
        decision = decide(standing, verdict, self._policy, view, now, self._chance())
        if isinstance(verdict, Failure) and verdict.hint_s:
            job.told_s = self._now_s + verdict.hint_s
        hold = decision.hold if isinstance(decision, Retry | Fail | HandOver) else None
        if hold is not None and gates is not None and landed is not None:
            heard = gates.heard_hold(hold, landed, self._now_s)
            if heard and hold.for_s is not None:
                until_s = max(self._told[1], self._now_s + hold.for_s)
                self._told = (self._now_s, until_s)
        if word.sign is Sign.BAD and job.failing_since_s is None:
            job.failing_since_s = self._now_s
        if gates is not None and not gates.flowing and isinstance(decision, Retry | Fail):
            blamed = word.kind is not None and KINDS[word.kind].blame is Blame.UPSTREAM
            spent = decision.counted is Counted.FAILURES and not view.of_job
            self.history.spent_held += blamed and spent
        self._record(job, decision)

    def _record(self, job: Job, decision: Decision) -> None:
        match decision:
            case Succeed():
                self.history.add_success(job.owner, self._now_s)
                self._left[job.owner] -= 1
            case Retry(delay_s=delay_s, counted=counted):
                waited_s = delay_s if counted is Counted.WAITS else 0.0
                job.counters = job.counters.after_event(counted, waited_s=waited_s)
                self._line.put(job, self._now_s + delay_s)
            case Fail() | HandOver() | CancelJob():
                self._give_up(job)
            case Release():  # pragma: no cover - no outcome here gives an attempt back
                self._line.put(job, self._now_s)

    def _give_up(self, job: Job) -> None:
        defect = self._scene.defect
        defective = defect is not None and defect.strikes(job.no)
        self.history.gave_up(self._now_s, defective=defective)
        self._left[job.owner] -= 1
